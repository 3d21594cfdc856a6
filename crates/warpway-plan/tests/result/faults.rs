//! Every way to be wrong, with what is said of it.

use warpway_plan::verify::{Options, Place, Region, Severity};
use warpway_plan::{Action, Collective, DataKind, DataOperation, ReduceOp, Reference};

use crate::collectives::{C, COLLECTIVES, found, found_with, report, right, rooted};
use crate::program::{At, I, O, Program, S, op};

/// The data operations of a rank's only block.
fn data(p: &mut Program, rank: u32) -> Vec<&mut DataOperation> {
    let operations = &mut p.plan.ranks[rank as usize].blocks[0].operations;
    let data = operations.iter_mut().filter_map(|operation| match &mut operation.action {
        Action::Data(data) => Some(&mut **data),
        _ => None,
    });
    data.collect()
}

/// Makes the data operation at a position do nothing.
fn remove(p: &mut Program, rank: u32, at: usize) {
    let operations = &mut p.plan.ranks[rank as usize].blocks[0].operations;
    let position =
        (0..operations.len()).filter(|o| matches!(operations[*o].action, Action::Data(_))).nth(at).unwrap();
    operations[position].action = Action::Nop;
}

fn shift(reference: &mut Reference, to: u64) {
    match reference {
        Reference::Local { index, .. }
        | Reference::Remote { index, .. }
        | Reference::Switch { index, .. } => {
            *index = to;
        }
    }
}

#[test]
fn a_missing_contribution() {
    let mut p = right(Collective::AllReduce, 3);
    data(&mut p, 2).last_mut().unwrap().sources.pop();
    let report = report(&p.plan, &Options::default());
    let [finding] = report.diagnostics.as_slice() else { panic!("{report:#?}") };
    assert_eq!(
        finding.message,
        "rank 2 output chunk 0 holds sum of in(0,0), in(1,0); missing in(2,0) (2 chunks of this rank are wrong \
         like it)"
    );
    assert_eq!((finding.rule.0, finding.severity), (702, Severity::Error));
    assert_eq!(finding.region, Some(Region { rank: 2, buffer: O, chunks: (0, 2) }));
    // The fold is the last operation of the block.
    let last = p.plan.ranks[2].blocks[0].operations.len() as u32 - 1;
    let place = Place::op(2, 0, warpway_plan::verify::OpPath { index: last, inner: None });
    assert_eq!(finding.places, [place]);
}

#[test]
fn a_contribution_counted_twice() {
    let mut p = right(Collective::Reduce, 3);
    let fold = &mut data(&mut p, 1)[0];
    fold.sources[2] = fold.sources[0];
    assert_eq!(
        found_with(&p.plan, &rooted()),
        [
            "V702: rank 1 output chunk 0 holds sum of in(0,0) twice, in(1,0); missing in(2,0); counted twice in(0,0) \
          (2 chunks of this rank are wrong like it)"
        ]
    );
}

#[test]
fn the_wrong_chunk_in_every_collective() {
    for collective in COLLECTIVES {
        let mut p = right(collective, 3);
        let folds =
            matches!(collective, Collective::AllReduce | Collective::ReduceScatter | Collective::Reduce);
        // Of the root: one chunk later, and one chunk only.
        let operations = data(&mut p, 1);
        let operation = operations.into_iter().next_back().unwrap();
        let own = if folds { 1 } else { 0 };
        let index = operation.sources[own].index();
        for reference in operation.sources.iter_mut().chain(&mut operation.destinations) {
            *reference = match *reference {
                Reference::Local { buffer, index, .. } => Reference::Local { buffer, index, size: 1 },
                Reference::Remote { position, index, .. } => Reference::Remote { position, index, size: 1 },
                switch => switch,
            };
        }
        shift(&mut operation.sources[own], index + 1);
        let report = report(&p.plan, &rooted());
        let mut rules: Vec<u16> = report.of(Severity::Error).map(|d| d.rule.0).collect();
        rules.dedup();
        // The second chunk is not written any more.
        assert_eq!(rules, [701, 704], "{collective}: {:#?}", report.diagnostics);
        assert!(report.roundings.is_none_or(|r| r == 1));
    }
}

#[test]
fn an_output_nobody_writes_in_every_collective() {
    for collective in COLLECTIVES {
        let mut p = right(collective, 3);
        let last = data(&mut p, 1).len() - 1;
        remove(&mut p, 1, last);
        let report = report(&p.plan, &rooted());
        let [finding] = report.diagnostics.as_slice() else { panic!("{collective}: {report:#?}") };
        assert_eq!(finding.rule.0, 704, "{collective}");
        assert!(finding.message.contains("is never written (2 chunks of this rank"), "{}", finding.message);
    }
}

#[test]
fn undefined_data() {
    // To a fold.
    let mut p = right(Collective::AllReduce, 3);
    remove(&mut p, 2, 0);
    assert_eq!(found(&p.plan), ["V703: re folds what was never written: rank 0 s chunk 4"]);
    // To a peer.
    let mut p = right(Collective::AllGather, 2);
    data(&mut p, 0)[1].sources[0] = Reference::Local { buffer: O, index: 2, size: C };
    assert_eq!(found(&p.plan), ["V703: put moves what was never written: rank 0 o chunk 2"]);
    // To an output, by way of a copy; and what nobody looks at does no harm.
    let mut p = Program::new(Collective::AllReduce, 1, 1, [2, 2, 4]);
    p.push(0, 0, &op(DataKind::Copy, &[At(0, I, 0, 1)], &[At(0, O, 0, 1)]));
    p.push(0, 0, &op(DataKind::Copy, &[At(0, S, 0, 2)], &[At(0, S, 2, 2)]));
    p.push(0, 0, &op(DataKind::Copy, &[At(0, S, 3, 1)], &[At(0, O, 1, 1)]));
    let report = report(&p.plan, &Options::default());
    let [finding] = report.diagnostics.as_slice() else { panic!("{report:#?}") };
    assert_eq!(
        finding.to_string(),
        "V703 rank 0 tb 0 op 2: rank 0 output chunk 1 holds what was never written"
    );
}

#[test]
fn mixed_operators() {
    // In one result.
    let mut p = Program::new(Collective::AllReduce, 3, 1, [1, 1, 3]);
    for me in 0..3_u32 {
        for peer in (0..3).filter(|p| *p != me) {
            crate::collectives::send(&mut p, me, At(me, I, 0, 1), At(peer, S, u64::from(me), 1));
        }
    }
    p.phase();
    for me in 0..3_u32 {
        let [a, b] = [(me + 1) % 3, (me + 2) % 3].map(|q| At(me, S, u64::from(q), 1));
        p.push(me, 0, &op(DataKind::Reduce, &[At(me, I, 0, 1), a], &[At(me, O, 0, 1)]).with(ReduceOp::Max));
        let second = if me == 1 { ReduceOp::Min } else { ReduceOp::Max };
        p.push(me, 0, &op(DataKind::Reduce, &[At(me, O, 0, 1), b], &[At(me, O, 0, 1)]).with(second));
    }
    assert_eq!(found(&p.plan), ["V706: re folds with min what was folded with max"]);
    // Between the chunks of a result.
    let mut p = right(Collective::AllReduce, 2);
    data(&mut p, 1)[1].fold.as_mut().unwrap().op = ReduceOp::Max;
    assert_eq!(
        found(&p.plan),
        [
            "V706: rank 1 output chunk 0 holds max of in(0,0), in(1,0), but other chunks of the result are folded \
          with sum (2 chunks of this rank are wrong like it)"
        ]
    );
}

#[test]
fn an_input_that_is_overwritten() {
    let mut p = right(Collective::AllGather, 3);
    p.phase();
    p.push(1, 0, &op(DataKind::Copy, &[At(1, O, 0, 1)], &[At(1, I, 1, 1)]));
    assert_eq!(found(&p.plan), ["V701: rank 1 input chunk 1 is overwritten and holds in(0,0)"]);
    let allowed = Options { may_clobber_input: Some(true), ..Options::default() };
    assert_eq!(found_with(&p.plan, &allowed), [""; 0]);
    // What was overwritten is no longer what it was, whether allowed or not.
    p.phase();
    p.push(1, 0, &op(DataKind::Put, &[At(1, I, 1, 1)], &[At(2, O, 3, 1)]));
    assert_eq!(
        found_with(&p.plan, &allowed),
        ["V701: rank 2 output chunk 3 holds in(0,0) instead of in(1,1)"]
    );
    // Back to what it was: no harm done.
    let mut p = right(Collective::AllGather, 3);
    p.phase();
    p.push(1, 0, &op(DataKind::Copy, &[At(1, O, 0, 1)], &[At(1, I, 1, 1)]));
    p.push(1, 0, &op(DataKind::Copy, &[At(1, O, 3, 1)], &[At(1, I, 1, 1)]));
    assert_eq!(found(&p.plan), [""; 0]);
}

#[test]
fn large_folds_are_named_in_short() {
    let mut p = right(Collective::AllReduce, 12);
    let fold = data(&mut p, 0);
    fold.into_iter().next_back().unwrap().sources.remove(11);
    assert_eq!(
        found(&p.plan),
        [
            "V702: rank 0 output chunk 0 holds sum of in(0,0), in(1,0), in(2,0), in(3,0), in(4,0), in(5,0), in(6,0), \
          in(7,0), … (11 in all); missing in(11,0) (2 chunks of this rank are wrong like it)"
        ]
    );
}
