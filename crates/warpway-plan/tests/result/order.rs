//! The order of folds: which results have the same bits on every rank (V711), and how often they are rounded.

use warpway_plan::verify::{Options, Severity, Verdict};
use warpway_plan::{Collective, DataKind, ReduceOp};

use crate::collectives::{report, send};
use crate::program::{ALL, At, I, O, Program, S, op};

/// One-hop all-reduce of 3 ranks and 1 chunk; each rank folds in the order that it is given.
fn one_hop(orders: [[u32; 3]; 3], reduce_op: ReduceOp) -> Program {
    let mut p = Program::new(Collective::AllReduce, 3, 1, [1, 1, 3]);
    for me in 0..3_u32 {
        for peer in (0..3).filter(|p| *p != me) {
            send(&mut p, me, At(me, I, 0, 1), At(peer, S, u64::from(me), 1));
        }
    }
    p.phase();
    for (me, order) in (0..3_u32).zip(orders) {
        let from = [0, 1, 2].map(|q: u32| if q == me { At(me, I, 0, 1) } else { At(me, S, u64::from(q), 1) });
        p.push(me, 0, &op(DataKind::Reduce, &from, &[At(me, O, 0, 1)]).with(reduce_op).order(&order));
    }
    p
}

fn verdict_of(p: &Program, options: &Options<'_>) -> (Verdict, Vec<String>) {
    let report = report(&p.plan, options);
    (report.verdict, report.diagnostics.iter().map(ToString::to_string).collect())
}

#[test]
fn trees_must_be_the_same_everywhere() {
    let options = Options::default();
    let same = one_hop([[0, 1, 2]; 3], ReduceOp::Sum);
    assert_eq!(verdict_of(&same, &options), (Verdict::Accept, vec![]));
    // The first two commute; the third does not.
    let swapped = one_hop([[0, 1, 2], [1, 0, 2], [0, 1, 2]], ReduceOp::Sum);
    assert_eq!(verdict_of(&swapped, &options), (Verdict::Accept, vec![]));
    let rotated = one_hop([[0, 1, 2], [1, 2, 0], [2, 0, 1]], ReduceOp::Sum);
    let warning = |rank: u32, other: &str| {
        format!(
            "V711 rank 0 tb 0 op 6, rank {rank} tb 0 op 6: output chunk 0 is folded as (in(0,0) + in(1,0) + \
             in(2,0)) on rank 0 and as {other} on rank {rank}, so the bits of floats may differ"
        )
    };
    let warnings =
        vec![warning(1, "(in(1,0) + in(2,0) + in(0,0))"), warning(2, "(in(0,0) + in(2,0) + in(1,0))")];
    assert_eq!(verdict_of(&rotated, &options), (Verdict::Accept, warnings.clone()));
    let catalogue = Options { catalogue: true, ..Options::default() };
    assert_eq!(verdict_of(&rotated, &catalogue), (Verdict::Reject, warnings));
    // Minima and maxima have the same bits in any order.
    for exact in [ReduceOp::Min, ReduceOp::Max] {
        let p = one_hop([[0, 1, 2], [1, 2, 0], [2, 0, 1]], exact);
        assert_eq!(verdict_of(&p, &catalogue), (Verdict::Accept, vec![]));
    }
}

#[test]
fn rounding_between_is_another_tree() {
    // Rank 1 folds all at once, rank 0 in two operations.
    let mut p = one_hop([[0, 1, 2]; 3], ReduceOp::Sum);
    let operations = &mut p.plan.ranks[0].blocks[0].operations;
    operations.pop();
    let o = At(0, O, 0, 1);
    p.push(0, 0, &op(DataKind::Reduce, &[At(0, I, 0, 1), At(0, S, 1, 1)], &[o]));
    p.push(0, 0, &op(DataKind::Reduce, &[o, At(0, S, 2, 1)], &[o]));
    let report = report(&p.plan, &Options::default());
    let rules: Vec<(u16, Severity)> = report.diagnostics.iter().map(|d| (d.rule.0, d.severity)).collect();
    assert_eq!(rules, [(711, Severity::Warning), (711, Severity::Warning)]);
    assert!(report.diagnostics[0].message.contains("(in(2,0) + (in(0,0) + in(1,0))) on rank 0"));
    assert_eq!(report.roundings, Some(2));
}

/// A ring: chunk k goes round and is folded at each rank, then the result goes round.
pub(crate) fn ring(n: u32) -> Program {
    let mut p = Program::new(Collective::AllReduce, n, 1, [u64::from(n), u64::from(n), u64::from(n)]);
    let chunk = |rank: u32, step: u32| u64::from((rank + 2 * n - step) % n);
    for step in 0..n - 1 {
        for me in 0..n {
            let k = chunk(me, step);
            let from = if step == 0 { At(me, I, k, 1) } else { At(me, O, k, 1) };
            send(&mut p, me, from, At((me + 1) % n, S, k, 1));
        }
        p.phase();
        for me in 0..n {
            let k = chunk(me, step + 1);
            p.push(me, 0, &op(DataKind::Reduce, &[At(me, I, k, 1), At(me, S, k, 1)], &[At(me, O, k, 1)]));
        }
        p.phase();
    }
    for step in 0..n - 1 {
        for me in 0..n {
            let k = chunk(me + 1, step);
            send(&mut p, me, At(me, O, k, 1), At((me + 1) % n, O, k, 1));
        }
        p.phase();
    }
    p
}

#[test]
fn a_ring_rounds_at_every_hop() {
    for n in [2, 3, 5, 8] {
        let report = report(&ring(n).plan, &Options { catalogue: true, ..Options::default() });
        assert!(report.diagnostics.is_empty(), "{n}: {:#?}", report.diagnostics);
        assert_eq!(report.roundings, Some(n - 1));
    }
}

#[test]
fn the_hardware_folds_in_an_order_of_its_own() {
    let all = |buffer, index| At(ALL, buffer, index, 1);
    // One rank folds for all: same bits everywhere.
    let mut p = Program::new(Collective::AllReduce, 2, 1, [2, 2, 0]).in_place();
    for me in 0..2_u32 {
        let region = all(I, u64::from(me));
        p.push(me, 0, &op(DataKind::GroupLoadReduceStore, &[region], &[region]));
    }
    let catalogue = Options { catalogue: true, ..Options::default() };
    assert_eq!(verdict_of(&p, &catalogue), (Verdict::Accept, vec![]));
    // Each rank folds for itself: nobody knows.
    let mut p = Program::new(Collective::AllReduce, 2, 1, [1, 1, 0]);
    for me in 0..2_u32 {
        p.push(me, 0, &op(DataKind::GroupLoadReduce, &[all(I, 0)], &[At(me, O, 0, 1)]));
    }
    let (verdict, found) = verdict_of(&p, &Options::default());
    assert_eq!(verdict, Verdict::Accept);
    assert_eq!(found.len(), 1);
    assert!(found[0].contains("folded as switch(in(0,0) + in(1,0)) on rank 0 and as switch("), "{found:?}");
    // In pieces of one reduction each piece is its own, but the same for everybody who gets it.
    let mut p = Program::new(Collective::AllReduce, 2, 2, [2, 2, 0]).in_place();
    for me in 0..2_u32 {
        for member in 0..2 {
            let region = all(I, u64::from(me));
            p.push(me, member, &op(DataKind::GroupLoadReduceStore, &[region], &[region]).member(member, 2));
        }
    }
    assert_eq!(verdict_of(&p, &catalogue), (Verdict::Accept, vec![]));
}
