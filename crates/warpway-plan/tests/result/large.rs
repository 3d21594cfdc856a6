//! Plans of the size of real machines.

use std::time::Instant;

use warpway_plan::verify::{Options, Verdict};
use warpway_plan::{Collective, DataKind, Plan, testing};

use crate::collectives::report;
use crate::order::ring;
use crate::program::{At, I, O, Program, S, op};

/// Every put is done by a group of all blocks.
fn all_to_all(n: u32, blocks: u32) -> Plan {
    let mut p = Program::new(Collective::AllToAll, n, blocks, [u64::from(n), u64::from(n), 0]);
    for me in 0..n {
        for block in 0..blocks {
            for peer in 0..n {
                let kind = if peer == me { DataKind::Copy } else { DataKind::Put };
                let put = op(kind, &[At(me, I, u64::from(peer), 1)], &[At(peer, O, u64::from(me), 1)]);
                p.push(me, block, &put.member(block, blocks));
            }
        }
    }
    p.phase();
    p.plan
}

/// Every rank folds everything, in the order of the ranks.
fn one_hop(n: u32) -> Plan {
    let mut p = Program::new(Collective::AllReduce, n, 1, [1, 1, u64::from(n)]);
    for me in 0..n {
        for peer in (0..n).filter(|peer| *peer != me) {
            p.push(me, 0, &op(DataKind::Put, &[At(me, I, 0, 1)], &[At(peer, S, u64::from(me), 1)]));
        }
    }
    p.phase();
    for me in 0..n {
        let from = |q| if q == me { At(me, I, 0, 1) } else { At(me, S, u64::from(q), 1) };
        let from: Vec<At> = (0..n).map(from).collect();
        p.push(me, 0, &op(DataKind::Reduce, &from, &[At(me, O, 0, 1)]));
    }
    p.plan
}

fn accepted(name: &str, plan: &Plan, roundings: Option<u32>) {
    let catalogue = Options { catalogue: true, ..Options::default() };
    let start = Instant::now();
    let report = report(plan, &catalogue);
    eprintln!("{name}: {:?}, {} operations", start.elapsed(), plan.operations().count());
    assert!(report.diagnostics.is_empty(), "{name}: {:#?}", report.diagnostics);
    assert_eq!(report.roundings, roundings, "{name}");
}

#[test]
fn are_evaluated_in_moments() {
    accepted("all-to-all of 16 ranks with 8 blocks", &all_to_all(16, 8), None);
    accepted("one hop of 64 ranks", &one_hop(64), Some(1));
    accepted("ring of 32 ranks", &ring(32).plan, Some(31));
    accepted("two hops of 64 ranks", &testing::all_reduce_two_shot(64).unwrap(), Some(1));
}

/// Each step doubles the contributions of every chunk: 2⁴⁰ of them after forty operations.
#[test]
fn contributions_beyond_number_are_not_counted() {
    let chunks = 1_u64 << 50;
    let mut p = Program::new(Collective::AllReduce, 1, 1, [chunks, chunks, chunks]);
    p.push(0, 0, &op(DataKind::Copy, &[At(0, I, 0, chunks)], &[At(0, O, 0, chunks)]));
    let mut size = chunks;
    for step in 0..40 {
        let (from, to) = if step % 2 == 0 { (O, S) } else { (S, O) };
        size -= 1 << step;
        p.push(
            0,
            0,
            &op(
                DataKind::Reduce,
                &[At(0, from, 0, size), At(0, from, 1 << step, size)],
                &[At(0, to, 0, size)],
            ),
        );
    }
    let report = report(&p.plan, &Options::default());
    assert!(report.diagnostics.iter().any(|d| d.rule.0 == 409), "{:#?}", report.diagnostics);
    assert_ne!(report.verdict, Verdict::Accept);
}

#[test]
#[ignore = "takes seconds; prints how many"]
fn are_evaluated_in_seconds() {
    accepted("all-to-all of 64 ranks with 32 blocks", &all_to_all(64, 32), None);
    accepted("ring of 64 ranks", &ring(64).plan, Some(63));
    accepted("one hop of 512 ranks", &one_hop(512), Some(1));
}
