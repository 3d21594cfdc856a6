//! Every collective, by the shortest way there is.

use warpway_plan::verify::{Goal, Options, Report, verify};
use warpway_plan::{BufferKind, Collective, DataKind, Plan};

use crate::program::{At, I, O, Op, Program, S, op};

/// Chunks that one rank contributes or gets.
pub(crate) const C: u64 = 2;

/// The rules about results alone.
pub(crate) fn report(plan: &Plan, options: &Options<'_>) -> Report {
    let plan = Plan { extensions: plan.used_extensions(), ..plan.clone() };
    verify(&plan, &Options { checks: vec![7], ..options.clone() })
}

/// Rule and message of everything found.
pub(crate) fn found(plan: &Plan) -> Vec<String> {
    found_with(plan, &Options::default())
}

/// The same with options.
pub(crate) fn found_with(plan: &Plan, options: &Options<'_>) -> Vec<String> {
    report(plan, options).diagnostics.iter().map(|d| format!("{}: {}", d.rule, d.message)).collect()
}

/// Writes `from` of rank `me` to `to`, wherever that is.
pub(crate) fn send(p: &mut Program, me: u32, from: At, to: At) {
    let kind = if to.0 == me { DataKind::Copy } else { DataKind::Put };
    p.push(me, 0, &op(kind, &[from], &[to]));
}

/// The fold of `(own chunks at index, what each peer sent to scratch)`, in the order of the ranks.
pub(crate) fn fold_received(p: &Program, me: u32, index: u64, to: At) -> Op {
    let from: Vec<At> = (0..p.n())
        .map(|q| if q == me { At(me, I, index, C) } else { At(me, S, u64::from(q) * C, C) })
        .collect();
    // The first source of a fold is its own input in plans of MSCCL++; any order will do here.
    op(DataKind::Reduce, &from, &[to])
}

/// A right plan for `n` ranks; root is rank 1.
pub(crate) fn right(collective: Collective, n: u32) -> Program {
    let all = u64::from(n) * C;
    let at = |q: u32| u64::from(q) * C;
    let chunks = match collective {
        Collective::AllReduce | Collective::Reduce => [C, C, all],
        Collective::AllGather | Collective::Gather => [C, all, 0],
        Collective::ReduceScatter => [all, C, all],
        Collective::Scatter => [all, C, 0],
        Collective::AllToAll => [all, all, 0],
        _ => [C, C, 0],
    };
    let mut p = Program::new(collective, n, 1, chunks);
    for me in 0..n {
        for peer in 0..n {
            match collective {
                Collective::AllReduce if me != peer => {
                    send(&mut p, me, At(me, I, 0, C), At(peer, S, at(me), C))
                }
                Collective::Reduce if me != 1 && peer == 1 => {
                    send(&mut p, me, At(me, I, 0, C), At(1, S, at(me), C));
                }
                Collective::ReduceScatter if me != peer => {
                    send(&mut p, me, At(me, I, at(peer), C), At(peer, S, at(me), C));
                }
                Collective::AllGather => send(&mut p, me, At(me, I, 0, C), At(peer, O, at(me), C)),
                Collective::Gather if peer == 1 => send(&mut p, me, At(me, I, 0, C), At(1, O, at(me), C)),
                Collective::AllToAll => send(&mut p, me, At(me, I, at(peer), C), At(peer, O, at(me), C)),
                Collective::Scatter if me == 1 => send(&mut p, me, At(1, I, at(peer), C), At(peer, O, 0, C)),
                Collective::Broadcast if me == 1 => send(&mut p, me, At(1, I, 0, C), At(peer, O, 0, C)),
                Collective::SendRecv if peer == (me + 1) % n => {
                    send(&mut p, me, At(me, I, 0, C), At(peer, O, 0, C));
                }
                _ => {}
            }
        }
    }
    p.phase();
    for me in 0..n {
        let own = if collective == Collective::ReduceScatter { at(me) } else { 0 };
        let folds = match collective {
            Collective::AllReduce | Collective::ReduceScatter => true,
            Collective::Reduce => me == 1,
            _ => false,
        };
        if folds {
            let fold = fold_received(&p, me, own, At(me, O, 0, C));
            p.push(me, 0, &fold);
        }
    }
    p
}

/// With a goal of the format itself.
pub(crate) const COLLECTIVES: [Collective; 9] = [
    Collective::AllReduce,
    Collective::AllGather,
    Collective::ReduceScatter,
    Collective::AllToAll,
    Collective::SendRecv,
    Collective::Broadcast,
    Collective::Reduce,
    Collective::Gather,
    Collective::Scatter,
];

/// The options of [`right`].
pub(crate) fn rooted() -> Options<'static> {
    Options { root: 1, ..Options::default() }
}

#[test]
fn right_ones_are_accepted() {
    for collective in COLLECTIVES {
        for n in [2, 3, 7] {
            let report = report(&right(collective, n).plan, &rooted());
            assert!(report.diagnostics.is_empty(), "{collective} of {n}: {:#?}", report.diagnostics);
            let folds =
                matches!(collective, Collective::AllReduce | Collective::ReduceScatter | Collective::Reduce);
            assert_eq!(report.roundings, folds.then_some(1), "{collective} of {n}");
        }
    }
}

#[test]
fn another_root_is_another_goal() {
    for collective in [Collective::Broadcast, Collective::Reduce, Collective::Gather, Collective::Scatter] {
        let plan = right(collective, 3).plan;
        let rules: Vec<u16> =
            report(&plan, &Options::default()).diagnostics.iter().map(|d| d.rule.0).collect();
        let expected = match collective {
            // Every rank holds the input of the wrong root.
            Collective::Broadcast | Collective::Scatter => vec![701, 701, 701],
            _ => vec![704],
        };
        assert_eq!(rules, expected, "{collective}");
    }
    let nobody = Options { root: 3, ..Options::default() };
    assert_eq!(
        found_with(&right(Collective::Gather, 3).plan, &nobody),
        ["V701: the root of this gather is rank 3, which does not exist"]
    );
}

#[test]
fn numbers_of_chunks_must_fit() {
    // Without any chunk, so that only the result can miss them.
    let mut p = Program::new(Collective::AllGather, 3, 1, [2, 6, 0]);
    p.plan.ranks[2].output_chunks = 0;
    assert_eq!(
        found(&p.plan),
        ["V701: allgather of 3 ranks takes 2 input and 6 output chunks here, rank 2 has 2 and 0"]
    );
}

#[test]
fn any_permutation_is_a_send_receive() {
    let exchange = |to: [u32; 4]| {
        let mut p = Program::new(Collective::SendRecv, 4, 1, [C, C, 0]);
        for me in 0..4 {
            send(&mut p, me, At(me, I, 0, C), At(to[me as usize], O, 0, C));
        }
        p.phase();
        found(&p.plan)
    };
    assert_eq!(exchange([1, 2, 3, 0]), [""; 0]);
    assert_eq!(exchange([1, 0, 3, 2]), ["V707: data goes 1->0, 0->1, 3->2, 2->3, not to the next rank"]);
    // Two ranks hold the same input: no permutation, so the usual one is wanted.
    let mut p = Program::new(Collective::SendRecv, 3, 1, [C, C, 0]);
    for to in 0..3 {
        send(&mut p, 0, At(0, I, 0, C), At(to, O, 0, C));
    }
    p.phase();
    assert_eq!(
        found(&p.plan),
        [
            "V701: rank 0 output chunk 0 holds in(0,0) instead of in(2,0) (2 chunks of this rank are wrong like it)",
            "V701: rank 2 output chunk 0 holds in(0,0) instead of in(1,0) (2 chunks of this rank are wrong like it)",
        ]
    );
}

#[test]
fn goals_of_the_user() {
    let mut p = Program::new(Collective::Custom, 2, 1, [2, 3, 1]);
    send(&mut p, 1, At(1, I, 1, 1), At(0, S, 0, 1));
    p.phase();
    p.push(0, 0, &op(DataKind::Reduce, &[At(0, I, 0, 1), At(0, S, 0, 1)], &[At(0, O, 2, 1)]));
    p.push(0, 0, &op(DataKind::Copy, &[At(0, I, 1, 1)], &[At(0, O, 0, 1)]));
    let plan = p.plan;
    assert_eq!(found(&plan), ["V707: the result of a custom plan without a goal is not checked"]);
    let goal = |_: &Plan, rank: u32, chunk: u64| match (rank, chunk) {
        (0, 2) => Goal::Fold(vec![(1, 1), (0, 0)]),
        (0, 0) => Goal::Input { rank: 0, chunk: 1 },
        _ => Goal::Any,
    };
    assert_eq!(found_with(&plan, &Options { goal: Some(&goal), ..Options::default() }), [""; 0]);
    let other = |_: &Plan, rank: u32, chunk: u64| match (rank, chunk) {
        (0, 2) => Goal::Fold(vec![(0, 0), (0, 0)]),
        (0, 0) => Goal::Input { rank: 0, chunk: 0 },
        (1, 0) => Goal::Fold(vec![(0, 0)]),
        _ => Goal::Any,
    };
    assert_eq!(
        found_with(&plan, &Options { goal: Some(&other), ..Options::default() }),
        [
            "V701: rank 0 output chunk 0 holds in(0,1) instead of in(0,0) (2 chunks of this rank are wrong like it)",
            "V704: rank 1 output chunk 0 is never written",
        ]
    );
}

#[test]
fn in_place_by_the_table() {
    // Each rank's input lies in its output, or the other way round; nothing is copied to itself.
    let mut gather = Program::new(Collective::AllGather, 3, 1, [C, 3 * C, 0]).in_place();
    for me in 0..3 {
        for peer in (0..3).filter(|p| *p != me) {
            send(&mut gather, me, At(me, I, 0, C), At(peer, O, u64::from(me) * C, C));
        }
    }
    gather.phase();
    assert_eq!(found(&gather.plan), [""; 0]);
    // The same with the block named by its place in the output, and with no input at all.
    for inputs in [C, 0] {
        let mut by_output = Program::new(Collective::AllGather, 3, 1, [inputs, 3 * C, 0]).in_place();
        for me in 0..3 {
            for peer in (0..3).filter(|p| *p != me) {
                let at = u64::from(me) * C;
                send(&mut by_output, me, At(me, O, at, C), At(peer, O, at, C));
            }
        }
        by_output.phase();
        assert_eq!(found(&by_output.plan), [""; 0], "{inputs}");
    }

    let scatter = |to: BufferKind, in_place: bool| {
        let mut p = Program::new(Collective::ReduceScatter, 2, 1, [2, 1, 1]);
        p.plan.in_place = in_place;
        for me in 0..2_u32 {
            let peer = 1 - me;
            send(&mut p, me, At(me, I, u64::from(peer), 1), At(peer, S, 0, 1));
        }
        p.phase();
        for me in 0..2_u32 {
            let own = At(me, I, u64::from(me), 1);
            let result = if to == O { At(me, O, 0, 1) } else { own };
            p.push(me, 0, &op(DataKind::Reduce, &[own, At(me, S, 0, 1)], &[result]));
        }
        p.plan
    };
    assert_eq!(found(&scatter(O, true)), [""; 0]);
    assert_eq!(found(&scatter(I, true)), [""; 0]);
    assert_eq!(found(&scatter(O, false)), [""; 0]);
    assert_eq!(
        found(&scatter(I, false)),
        [
            "V701: rank 0 input chunk 0 is overwritten and holds sum of in(0,0), in(1,0)",
            "V701: rank 1 input chunk 1 is overwritten and holds sum of in(0,1), in(1,1)",
            "V704: rank 0 output chunk 0 is never written",
            "V704: rank 1 output chunk 0 is never written",
        ]
    );
}
