//! Does the machine find what is wrong, and nothing else? Plans with one planted bug each, and their repairs.

use warpway_plan::{Action, BufferKind, ChannelType, Collective, DataKind, Plan, Via};

use crate::contest::{Word, strict};
use crate::corpus::NOT_CLEAN;
use crate::judge::{LAUNCHES, judge, sizes};
use crate::machine::Kind;
use crate::sketch::{Sketch, here, there};

const I: BufferKind = BufferKind::Input;
const O: BufferKind = BufferKind::Output;
const S: BufferKind = BufferKind::Scratch;
const MEMORY: Option<ChannelType> = Some(ChannelType::Memory);
const PORT: Option<ChannelType> = Some(ChannelType::Port);

/// The correct all-gather of two ranks (11.1).
fn gather_two() -> Plan {
    let mut sketch = Sketch::new("ag2_ok", Collective::AllGather, 2, (1, 2, 0));
    for rank in 0..2 {
        let peer = 1 - rank;
        let mut block = sketch.at(rank, 0);
        block.signal(Via::Memory, true, &[peer]).wait(Via::Memory, true, &[peer]).nop();
        block.data(DataKind::Copy, None, &[here(I, 0)], &[here(O, rank.into())]);
        block.data(DataKind::Put, MEMORY, &[here(I, 0)], &[there(peer, O, rank.into())]).nop();
        block.signal(Via::Memory, false, &[peer]).wait(Via::Memory, false, &[peer]).nop();
    }
    sketch.finish()
}

/// Without the operations at those positions, on all ranks, block 0.
fn without(mut plan: Plan, positions: &[usize]) -> Plan {
    for rank in &mut plan.ranks {
        let mut at = 0..;
        rank.blocks[0].operations.retain(|_| at.next().is_none_or(|n| !positions.contains(&n)));
    }
    plan
}

/// What runs of the plan find, most frequent first in name order; none: it passes.
fn found(plan: &Plan) -> Vec<Kind> {
    let mut kinds = Vec::new();
    for size in sizes(plan) {
        for seed in 0..200 {
            if let Err(failure) = judge(plan, size, seed..seed + 1, LAUNCHES) {
                kinds.push(failure.kind);
            }
        }
    }
    kinds.sort();
    kinds.dedup();
    kinds
}

#[test]
fn the_correct_all_gather_passes() {
    assert_eq!(found(&gather_two()), []);
}

#[test]
fn a_put_without_opening_pair_meets_a_peer_that_has_not_started() {
    assert!(found(&without(gather_two(), &[0, 1, 2])).contains(&Kind::PeerNotRunning));
}

#[test]
fn a_missing_nop_before_the_signal_leaves_the_put_open() {
    assert_eq!(found(&without(gather_two(), &[5])), [Kind::OpenAtEnd, Kind::WrongResult]);
}

#[test]
fn a_relaxed_final_pair_leaves_the_put_open() {
    let mut plan = gather_two();
    for rank in &mut plan.ranks {
        for operation in &mut rank.blocks[0].operations {
            match &mut operation.action {
                Action::Signal { relaxed, .. } | Action::Wait { relaxed, .. } => *relaxed = true,
                _ => {}
            }
        }
    }
    assert_eq!(found(&plan), [Kind::OpenAtEnd]);
}

#[test]
fn waits_before_signals_on_both_sides_deadlock() {
    let mut plan = gather_two();
    for rank in &mut plan.ranks {
        rank.blocks[0].operations.swap(0, 1);
        rank.blocks[0].operations.insert(1, Action::Nop.into());
    }
    assert_eq!(found(&plan), [Kind::Deadlock]);
}

#[test]
fn a_missing_wait_is_unbalanced_or_leaves_the_put_open() {
    let kinds = found(&without(gather_two(), &[7]));
    assert!(kinds.contains(&Kind::OpenAtEnd), "{kinds:?}");
}

/// Two blocks: one copies to the output, the other sends what was copied (11.3).
fn copy_and_send(barrier: bool) -> Plan {
    let mut sketch = Sketch::new("race", Collective::AllGather, 2, (1, 2, 0));
    for rank in 0..2 {
        let peer = 1 - rank;
        let mut block = sketch.at(rank, 0);
        block.data(DataKind::Copy, None, &[here(I, 0)], &[here(O, rank.into())]);
        if barrier {
            block.barrier(0, 2);
        }
        let mut block = sketch.at(rank, 1);
        block.signal(Via::Memory, true, &[peer]).wait(Via::Memory, true, &[peer]).nop();
        if barrier {
            block.barrier(0, 2);
        }
        let mine = u64::from(rank);
        block.data(DataKind::Put, MEMORY, &[here(O, mine)], &[there(peer, O, mine)]).nop();
        block.signal(Via::Memory, false, &[peer]).wait(Via::Memory, false, &[peer]).nop();
    }
    sketch.finish()
}

#[test]
fn two_blocks_without_a_barrier_race() {
    assert_eq!(found(&copy_and_send(true)), []);
    assert_eq!(found(&copy_and_send(false)), [Kind::RaceOnRead, Kind::RaceOnWrite]);
}

/// Both ranks send their input as packets.
fn packets(double: bool) -> Plan {
    let mut sketch = Sketch::new("packets", Collective::AllGather, 2, (1, 2, 1));
    sketch.plan.double_scratch = double;
    for rank in 0..2 {
        let (peer, mine) = (1 - rank, u64::from(rank));
        let mut block = sketch.at(rank, 0);
        block.data(DataKind::Copy, None, &[here(I, 0)], &[here(O, mine)]);
        block.data(DataKind::PutPackets, MEMORY, &[here(I, 0)], &[there(peer, S, 0)]);
        block.data(DataKind::UnpackPackets, None, &[here(S, 0)], &[here(O, 1 - mine)]);
    }
    sketch.finish()
}

#[test]
fn a_packet_slot_written_before_it_was_read_is_lost() {
    assert_eq!(found(&packets(true)), []);
    assert_eq!(found(&packets(false)), [Kind::Deadlock]);
}

#[test]
fn a_slot_written_twice_in_a_launch_is_found() {
    let mut plan = packets(true);
    let operations = &mut plan.ranks[0].blocks[0].operations;
    operations.push(operations[1].clone());
    assert!(found(&plan).contains(&Kind::PacketWrittenTwice));
}

/// Each rank sends its input through a port.
fn ports(flush: bool, nop: bool) -> Plan {
    let mut sketch = Sketch::new("ports", Collective::SendRecv, 2, (2, 2, 2));
    for rank in 0..2 {
        let peer = 1 - rank;
        let mut block = sketch.at(rank, 0);
        block.signal(Via::Memory, true, &[peer]).wait(Via::Memory, true, &[peer]).nop();
        block.data(DataKind::Copy, None, &[here(I, 0).of(2)], &[here(S, 0).of(2)]);
        if nop {
            block.nop();
        }
        block.data(DataKind::Put, PORT, &[here(S, 0).of(2)], &[there(peer, O, 0).of(2)]);
        block.signal(Via::Port, false, &[peer]);
        if flush {
            block.flush(&[peer]);
        }
        block.nop().wait(Via::Port, false, &[peer]).nop();
    }
    sketch.finish()
}

#[test]
fn port_transfers_are_late_in_both_directions() {
    assert_eq!(found(&ports(true, true)), []);
    // The source is written again by the next launch.
    let kinds = found(&ports(false, true));
    assert!(kinds.contains(&Kind::RaceOnWrite), "{kinds:?}");
    let kinds = found(&ports(true, false));
    assert!(kinds.contains(&Kind::RaceOnRead) || kinds.contains(&Kind::RaceOnWrite), "{kinds:?}");
}

#[test]
fn a_fold_that_takes_an_input_twice_is_wrong() {
    let sum = |peers: &[u32]| {
        let mut sketch = Sketch::new("sum", Collective::AllReduce, 2, (1, 1, 0));
        for rank in 0..2 {
            let peer = 1 - rank;
            let mut block = sketch.at(rank, 0);
            block.signal(Via::Memory, true, &[peer]).wait(Via::Memory, true, &[peer]).nop();
            let mut sources = vec![here(I, 0)];
            sources.extend(peers.iter().map(|_| there(peer, I, 0)));
            block.data(DataKind::ReadReduce, MEMORY, &sources, &[here(O, 0)]).nop();
            block.signal(Via::Memory, false, &[peer]).wait(Via::Memory, false, &[peer]).nop();
        }
        sketch.finish()
    };
    assert_eq!(found(&sum(&[0])), []);
    assert_eq!(found(&sum(&[0, 0])), [Kind::WrongResult]);
}

#[test]
fn two_ranks_do_not_receive_from_the_same_sender() {
    let mut sketch = Sketch::new("twice", Collective::SendRecv, 2, (1, 1, 0));
    sketch.at(0, 0).signal(Via::Memory, true, &[1]).wait(Via::Memory, true, &[1]).nop();
    sketch.at(1, 0).signal(Via::Memory, true, &[0]).wait(Via::Memory, true, &[0]).nop();
    let mut block = sketch.at(0, 0);
    block.data(DataKind::Copy, None, &[here(I, 0)], &[here(O, 0)]);
    block.data(DataKind::Put, MEMORY, &[here(I, 0)], &[there(1, O, 0)]);
    sketch.at(0, 0).nop().signal(Via::Memory, false, &[1]).wait(Via::Memory, false, &[1]).nop();
    sketch.at(1, 0).nop().signal(Via::Memory, false, &[0]).wait(Via::Memory, false, &[0]).nop();
    assert_eq!(found(&sketch.finish()), [Kind::WrongResult]);
}

#[test]
fn a_semaphore_orders_blocks_and_must_come_back() {
    let staged = |acquires: bool, releases: u32| {
        let mut sketch = Sketch::new("staged", Collective::Custom, 1, (1, 1, 1));
        sketch.plan.ranks[0].semaphores = vec![0];
        let mut block = sketch.at(0, 0);
        block.data(DataKind::Copy, None, &[here(I, 0)], &[here(S, 0)]).nop();
        for _ in 0..releases {
            block.release(0);
        }
        let mut block = sketch.at(0, 1);
        if acquires {
            block.acquire(0);
        }
        block.nop().data(DataKind::Copy, None, &[here(S, 0)], &[here(O, 0)]);
        sketch.finish()
    };
    assert_eq!(found(&staged(true, 1)), []);
    assert_eq!(found(&staged(true, 2)), [Kind::SemaphoreOff]);
    assert_eq!(found(&staged(true, 0)), [Kind::Deadlock]);
    let kinds = found(&staged(false, 1));
    assert!(kinds.contains(&Kind::RaceOnRead), "{kinds:?}");
}

/// What the judge finds the verifier must find: here under two names of one memory, and behind another read.
#[test]
fn an_input_that_is_overwritten_in_place_while_it_is_put() {
    let plan = |nop: bool| {
        let mut sketch = Sketch::new("in place", Collective::AllReduce, 2, (1, 1, 2));
        sketch.plan.in_place = true;
        for rank in 0..2 {
            let peer = 1 - rank;
            let mut block = sketch.at(rank, 0);
            block.signal(Via::Memory, false, &[peer]).wait(Via::Memory, false, &[peer]).nop();
            block.data(DataKind::Put, MEMORY, &[here(I, 0)], &[there(peer, S, 0)]).nop();
            block.signal(Via::Memory, false, &[peer]).wait(Via::Memory, false, &[peer]).nop();
            // Read once more, for nobody.
            block.data(DataKind::Copy, None, &[here(I, 0)], &[here(S, 1)]);
            if nop {
                block.nop();
            }
            block.data(DataKind::Reduce, None, &[here(I, 0), here(S, 0)], &[here(O, 0)]);
        }
        sketch.finish()
    };
    let right = plan(true);
    assert_eq!(found(&right), []);
    assert!(matches!(strict(&right), Word::Accepted(_)));
    let wrong = plan(false);
    assert!(found(&wrong).contains(&Kind::RaceOnWrite));
    assert!(matches!(strict(&wrong), Word::Rejected(501)));
}

#[test]
fn a_port_leads_to_the_owner_of_the_destination() {
    let mut sketch = Sketch::new("astray", Collective::Custom, 3, (1, 1, 2));
    sketch.at(1, 0).signal(Via::Memory, true, &[0]);
    sketch.at(0, 0).wait(Via::Memory, true, &[1]).nop();
    sketch.at(0, 0).data(DataKind::Put, PORT, &[here(I, 0)], &[there(1, O, 0)]).flush(&[1, 2]).nop();
    sketch.at(0, 0).signal(Via::Memory, false, &[1]);
    sketch.at(1, 0).wait(Via::Memory, false, &[0]).nop();
    let mut plan = sketch.finish();
    assert_eq!(found(&plan), []);
    assert!(matches!(strict(&plan), Word::Accepted(_)));
    for operation in &mut plan.ranks[0].blocks[0].operations {
        if let Action::Data(data) = &mut operation.action {
            data.channels = vec![1];
        }
    }
    assert_eq!(found(&plan), [Kind::Meaningless]);
    assert!(matches!(strict(&plan), Word::Rejected(204)));
}

#[test]
fn correct_plans_pass() {
    for plan in crate::corpus::corpus(400) {
        for size in sizes(&plan) {
            if let Err(failure) = judge(&plan, size, 0..20, LAUNCHES) {
                panic!("plan {} at {size:?}: {failure}\n{:#?}", plan.name, plan.ranks[0].blocks);
            }
        }
    }
}

#[test]
fn the_multicast_plan_publishes_data_by_relaxed_pairs() {
    for plan in crate::corpus::shared().iter().filter(|plan| plan.name == NOT_CLEAN) {
        assert_eq!(found(plan), [Kind::OpenAtEnd]);
    }
}
