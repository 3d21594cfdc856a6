//! V4: plans that do not end.

use warpway_plan::verify::{DeviceLimits, Options, Verdict, verify};
use warpway_plan::{Action, Operation, Plan, testing};

use super::{all_gather, barrier, block, breaks, findings, only, signal, strict, wait};

/// A wait moved in front of the signal that answers it, on both sides.
#[test]
fn waits_in_a_circle() {
    let found = breaks(401, &all_gather(), &strict(), |plan| {
        for rank in 0..2 {
            block(plan, rank, 0).swap(6, 7);
        }
    });
    let message = "cyclic wait: rank 0 tb 0 op 6 waits for signal 2 on memory channel 1->0 #0, sent by rank 1 tb 0 op 7, \
                   which is behind rank 1 tb 0 op 6, which waits for signal 2 on memory channel 0->1 #0, sent by rank 0 \
                   tb 0 op 7";
    assert_eq!(found.message, message);
    assert_eq!(found.hint, "signal before waiting on at least one side");
}

/// A ring of five ranks that all wait first: the circle has them all, once.
#[test]
fn circle_of_a_ring() {
    let found = breaks(401, &testing::all_gather_ring(5).unwrap(), &strict(), |plan| {
        for rank in 0..5 {
            let list = block(plan, rank, 0);
            let first = list.iter().position(|o| matches!(o.action, Action::Wait { .. })).unwrap();
            let signal = list.iter().position(|o| matches!(o.action, Action::Signal { .. })).unwrap();
            list.swap(signal, first);
        }
    });
    let mut ranks: Vec<u32> = found.places.iter().map(|place| place.rank).collect();
    assert_eq!(ranks[0], 0);
    ranks.sort_unstable();
    assert_eq!(ranks, [0, 1, 2, 3, 4]);
}

/// Two blocks that meet at two barriers in different order.
#[test]
fn barriers_in_a_circle() {
    let found = breaks(401, &testing::all_gather_groups(2, 2).unwrap(), &strict(), |plan| {
        block(plan, 0, 0).splice(2..2, [barrier(1, 2), barrier(2, 2)]);
        block(plan, 0, 1).splice(0..0, [barrier(2, 2), barrier(1, 2)]);
    });
    let message = "cyclic wait: rank 0 tb 0 op 2 waits at barrier 1 of rank 0 for rank 0 tb 1 op 1, which is behind rank 0 \
                   tb 1 op 0, which waits at barrier 2 of rank 0 for rank 0 tb 0 op 3";
    assert_eq!(found.message, message);
}

/// A peer's last signal is missing: told where it is waited for, once, and not again for the ranks behind.
#[test]
fn too_few_signals() {
    let found = breaks(402, &all_gather(), &strict(), |plan| drop(block(plan, 0, 0).remove(6)));
    assert_eq!(
        found.message,
        "rank 1 tb 0 op 7 waits for signal 2 on memory channel 0->1 #0, but only 1 is sent"
    );
    assert_eq!(found.hint, "add a signal on rank 0, or drop the wait");
    // How it comes to stand there.
    let steps = [
        "rank 0 tb 0 op 0 `rlxsignal` on memory channel 0->1 #0",
        "rank 1 tb 0 op 1 `rlxwait` on memory channel 0->1 #0",
    ];
    assert_eq!(found.schedule, steps);
}

#[test]
fn packets_that_nobody_writes() {
    let found = breaks(403, &testing::all_reduce_packets(2).unwrap(), &strict(), |plan| {
        drop(block(plan, 0, 0).remove(0));
    });
    assert_eq!(
        found.message,
        "rank 1 tb 0 op 1 reads packets in scratch chunks 0..2 of rank 1 that nobody writes"
    );
    assert_eq!(found.region.unwrap().chunks, (0, 2));
}

#[test]
fn barrier_that_nobody_completes() {
    let found = breaks(404, &testing::all_gather_groups(2, 2).unwrap(), &strict(), |plan| {
        drop(block(plan, 1, 1).pop());
    });
    assert_eq!(
        found.message,
        "rank 1 tb 0 op 5 waits at barrier 0 for 2 blocks, but only blocks [0] come to it"
    );
}

#[test]
fn semaphore_that_nobody_releases() {
    let found = breaks(405, &testing::send_recv_semaphore(2).unwrap(), &strict(), |plan| {
        drop(block(plan, 1, 0).remove(2));
    });
    assert_eq!(found.message, "rank 1 tb 1 op 2 acquires semaphore 0, which nobody releases any more");
}

#[test]
fn more_blocks_than_the_device_holds() {
    let plan = testing::all_gather_groups(2, 4).unwrap();
    let on = |resident_blocks| Options {
        device: Some(DeviceLimits { resident_blocks, multicast: true }),
        ..strict()
    };
    assert_eq!(findings(&verify(&plan, &on(4))), []);
    let found = only(406, &verify(&plan, &on(3)));
    assert!(found.message.starts_with("the rank has 4 blocks, but the device holds 3"), "{}", found.message);
    // A block without operations is not launched.
    let mut idle = all_gather();
    idle.ranks[0].blocks.push(Default::default());
    assert_eq!(findings(&verify(&idle, &on(1))), []);
}

/// Rank 0 of the all-gather with blocks that compete for semaphore 0, which is 1 at first.
fn competitors(lists: &[&[Operation]]) -> Plan {
    let mut plan = all_gather();
    plan.ranks[0].semaphores = vec![1, 0];
    for list in lists {
        plan.ranks[0]
            .blocks
            .push(warpway_plan::ThreadBlock { operations: list.to_vec(), ..Default::default() });
    }
    plan
}

fn acquire(id: u32) -> Operation {
    Action::Acquire { semaphores: vec![id] }.into()
}

fn release(id: u32) -> Operation {
    Action::Release { semaphores: vec![id] }.into()
}

/// Ends if block 1 comes first, which is the order that is tried first; not if block 2 does.
#[test]
fn order_in_which_a_semaphore_is_taken() {
    let first = [acquire(0), release(1), release(0)];
    let second = [acquire(0), acquire(1), release(0)];
    let found = only(401, &verify(&competitors(&[&first, &second]), &strict()));
    assert_eq!(
        found.message,
        "cyclic wait: rank 0 tb 1 op 0 waits for semaphore 0 of rank 0, released by rank 0 tb 2 op 2, which is behind rank \
         0 tb 2 op 1, which waits for semaphore 1 of rank 0, released by rank 0 tb 1 op 1"
    );
    // With the release where the other does not need the semaphore, every order ends.
    let first = [release(1), acquire(0), release(0)];
    assert_eq!(findings(&verify(&competitors(&[&first, &second]), &strict())), []);
}

/// A lock that many blocks take many times needs no search; one that is held over a wait does.
#[test]
fn orders_beyond_the_bound() {
    let turns = |list: &[Operation]| -> Vec<Operation> { (0..40).flat_map(|_| list.to_vec()).collect() };
    let lock = turns(&[acquire(0), release(0)]);
    let many: Vec<&[Operation]> = vec![&lock; 12];
    assert_eq!(findings(&verify(&competitors(&many), &strict())), []);

    let nested = turns(&[acquire(0), barrier(7, 1), release(0)]);
    let many: Vec<&[Operation]> = vec![&nested; 12];
    let report = verify(&competitors(&many), &strict());
    let rules: Vec<u16> =
        findings(&report).iter().map(|(rule, _)| rule.0).filter(|rule| *rule != 304).collect();
    assert_eq!(rules, [409]);
}

/// A plan that is longer than it is allowed to be.
#[test]
fn too_long() {
    let report = verify(&all_gather(), &Options { max_steps: 17, ..strict() });
    only(409, &report);
    assert_eq!(report.verdict, Verdict::Inconclusive);
    assert_eq!(verify(&all_gather(), &Options { max_steps: 18, ..strict() }).verdict, Verdict::Accept);
    let mut endless = testing::send_recv_pipeline(2, 4, 64).unwrap();
    for rank in 0..2 {
        super::pipeline(&mut endless, (rank, 0, 3)).num_chunks = u64::MAX;
    }
    assert_eq!(verify(&endless, &strict()).verdict, Verdict::Inconclusive);
}

/// Several blocks wait on one channel: who gets the signal decides whether the plan ends.
#[test]
fn order_in_which_a_signal_is_taken() {
    let mut plan = all_gather();
    let of_rank = &mut plan.ranks[0];
    // Block 0 needs the first signal to answer; block 1 would take it and wait for block 0.
    let mut other = of_rank.blocks[0].clone();
    other.operations = vec![wait(&[0])];
    of_rank.blocks.push(other);
    block(&mut plan, 1, 0).push(signal(&[0]));
    let rules = |plan: &Plan| -> Vec<u16> {
        let rules = findings(&verify(plan, &strict())).into_iter().map(|(rule, _)| rule.0);
        // That the opening pair is relaxed matters now, but not here.
        rules.filter(|rule| *rule != 504).collect()
    };
    assert_eq!(rules(&plan), [306]);
    block(&mut plan, 1, 0).swap(6, 7);
    assert_eq!(rules(&plan), [306, 401]);
}
