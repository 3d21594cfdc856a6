//! V3: signals, waits, barriers and semaphores that do not add up.

use warpway_plan::verify::{Severity, verify};
use warpway_plan::{Action, ChannelEntry, Via, testing};

use super::{all_gather, barrier, block, breaks, only, relax, signal, strict};

#[test]
fn channel_without_partner() {
    let found = breaks(301, &all_gather(), &strict(), |plan| {
        plan.ranks[1].channels = vec![ChannelEntry::Memory(vec![])];
        plan.ranks[1].blocks[0].channels.clear();
        block(plan, 1, 0).retain(|o| !matches!(o.action, Action::Signal { .. } | Action::Wait { .. }));
    });
    assert_eq!(found.message, "signals on memory channel 0->1 #0, which has no partner 1->0 #0");
    assert_eq!(found.hint, "add a memory channel to rank 0 on rank 1");
}

#[test]
fn signal_that_nobody_waits_for() {
    let found = breaks(302, &all_gather(), &strict(), |plan| block(plan, 0, 0).push(signal(&[0])));
    assert_eq!(found.message, "3 signals, but 2 waits on memory channel 0->1 #0");
    assert_eq!(found.places[0].to_string(), "rank 0 tb 0 op 9");
}

/// A signal in a pipeline against a wait behind one: equal for one iteration only.
#[test]
fn iterations_are_counted() {
    let found = breaks(302, &testing::send_recv_pipeline(2, 1, 64).unwrap(), &strict(), |plan| {
        super::pipeline(plan, (0, 0, 3)).body.push(signal(&[1]));
        block(plan, 1, 0).push(super::wait(&[0]));
    });
    assert_eq!(found.message, "4 signals, but 3 waits on memory channel 0->1 #0");
    assert_eq!(found.places[0].iteration, Some(1));
}

#[test]
fn pairs_of_two_kinds() {
    let mut plan = testing::broadcast(2, 0).unwrap();
    let at = (1, 0, 0);
    let Action::Signal { relaxed, .. } = &mut plan.ranks[at.0].blocks[at.1].operations[at.2].action else {
        panic!()
    };
    *relaxed = false;
    let found = only(303, &verify(&plan, &strict()));
    assert_eq!(found.severity, Severity::Warning);
    assert_eq!(
        found.message,
        "wait 1 on memory channel 1->0 #0 is relaxed, its signal is not: the pair counts as relaxed"
    );
    relax(&mut plan, at);
    assert_eq!(super::findings(&verify(&plan, &strict())), []);
}

/// On a port channel a relaxed signal is as strong as the other.
#[test]
fn relaxed_port_signals_are_strong() {
    let mut plan = testing::send_recv_port(2).unwrap();
    relax(&mut plan, (0, 0, 0));
    assert_eq!(super::findings(&verify(&plan, &strict())), []);
}

#[test]
fn barrier_of_a_wrong_number() {
    let found = breaks(304, &testing::all_gather_groups(2, 2).unwrap(), &strict(), |plan| {
        for at in 0..2 {
            block(plan, 0, at).push(barrier(5, 1));
        }
    });
    assert_eq!(found.message, "barrier 5 of rank 0 is for 1 blocks, but 2 take part");
}

/// Whether the run gets stuck depends on who meets whom first.
#[test]
fn barrier_of_too_many() {
    let found = breaks(304, &testing::all_gather_groups(2, 2).unwrap(), &strict(), |plan| {
        for (at, times) in [(0, 2), (1, 1)] {
            for _ in 0..times {
                block(plan, 0, at).push(barrier(5, 2));
            }
        }
        plan.ranks[0].blocks.push(Default::default());
        block(plan, 0, 2).push(barrier(5, 2));
    });
    assert_eq!(found.message, "barrier 5 of rank 0 is for 2 blocks, but 3 take part");
}

#[test]
fn barrier_of_two_minds() {
    let mut plan = testing::all_gather_groups(2, 2).unwrap();
    block(&mut plan, 0, 0).push(barrier(5, 1));
    block(&mut plan, 0, 1).push(barrier(5, 3));
    let report = verify(&plan, &strict());
    let found = report.diagnostics.iter().find(|d| d.rule.0 == 304).unwrap();
    assert_eq!(found.message, "operations of barrier 5 of rank 0 name {1, 3} blocks");
}

#[test]
fn semaphore_that_grows() {
    let found = breaks(305, &testing::send_recv_semaphore(2).unwrap(), &strict(), |plan| {
        block(plan, 0, 0).push(Action::Release { semaphores: vec![0] }.into());
    });
    assert_eq!(
        found.message,
        "semaphore 0 of rank 0 is released 2 times and acquired 1 times: it does not return to its initial value"
    );
}

/// The second of two blocks of rank 0 does the closing pair. Each channel end has one user, or two.
#[test]
fn several_waits_and_signals_on_a_channel() {
    for (rule, moved) in [(306, 7), (307, 6)] {
        let mut plan = all_gather();
        let mut other = plan.ranks[0].blocks[0].clone();
        let operation = other.operations[moved].clone();
        other.operations = vec![operation];
        plan.ranks[0].blocks.push(other);
        // The partner gets as many as it did, and one more.
        let answer = match rule {
            306 => signal(&[0]),
            _ => Action::Wait { via: Via::Memory, relaxed: false, channels: vec![0] }.into(),
        };
        block(&mut plan, 1, 0).push(answer);
        let report = verify(&plan, &strict());
        let found = report.diagnostics.iter().find(|d| d.rule.0 == rule).unwrap();
        assert_eq!(found.severity, Severity::Warning);
        assert_eq!(found.places.len(), 2);
    }
}
