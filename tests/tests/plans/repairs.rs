//! What the executor adds to plans with the habits of MSCCL++ programs: a plan per repair that needs this one alone,
//! refused by the strict profile, right with its repair. And what it does not run.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use warpway::plan::testing;
use warpway::plan::verify::{Options, Profile, Rule, Severity, VerifiedPlan};
use warpway::plan::{
    Action, CollectiveShape, DataKind, DataSync, Plan, Program, ProgramOptions, ReduceOp, Repairs,
    ThreadBlock,
};
use warpway::{DataType, PlanLaunch, in_process};
use warpway_tests::suite::plans::Message;

use crate::results::with_operator;
use crate::rig::{check_verified, context};

fn blocks(plan: &mut Plan) -> impl Iterator<Item = &mut ThreadBlock> {
    plan.ranks.iter_mut().flat_map(|rank| &mut rank.blocks)
}

/// Launches in a row, each with data of its own: what one leaves behind meets the next.
fn needs(plan: Plan, rule: u16, repair: impl Fn(&mut Repairs)) {
    let strict = Options { profile: Profile::Strict, ..Options::default() };
    let refusal = VerifiedPlan::new(plan.clone(), &strict).err();
    let refusal = refusal.unwrap_or_else(|| panic!("{} passes the strict profile", plan.name));
    let mut rules: Vec<Rule> = refusal.report.of(Severity::Error).map(|found| found.rule).collect();
    rules.dedup();
    assert_eq!(rules, [Rule(rule)], "{}", plan.name);

    let proof = VerifiedPlan::new(plan.clone(), &Options::default()).unwrap();
    let mut expected = Repairs { ordered_pairs: proof.repairs().ordered_pairs.clone(), ..Repairs::default() };
    repair(&mut expected);
    assert_eq!(*proof.repairs(), expected, "{}", plan.name);
    let turns = (0..60).map(|turn: u64| Message {
        seed: turn * 131,
        ..Message::new([40, 40, 3000][turn as usize % 3], DataType::Uint32)
    });
    check_verified(&[plan], &turns.collect::<Vec<_>>());
}

#[test]
fn relaxed_pairs_that_carry_data() {
    let mut plan = testing::all_gather_put(3).unwrap();
    for operation in blocks(&mut plan).flat_map(|block| &mut block.operations) {
        if let Action::Signal { relaxed, .. } | Action::Wait { relaxed, .. } = &mut operation.action {
            *relaxed = true;
        }
    }
    needs(plan.clone(), 504, |_| ());
    let proof = VerifiedPlan::new(plan, &Options::default()).unwrap();
    // The closing pair of each of the six channels.
    assert_eq!(proof.repairs().ordered_pairs.len(), 6);
}

#[test]
fn buffers_of_peers_that_may_not_have_started() {
    let mut plan = testing::all_gather_put(3).unwrap();
    for block in blocks(&mut plan) {
        block.operations.retain(|operation| {
            !matches!(
                operation.action,
                Action::Signal { relaxed: true, .. } | Action::Wait { relaxed: true, .. }
            )
        });
    }
    needs(plan, 507, |repairs| repairs.start_handshake = true);
}

#[test]
fn requests_that_may_be_open_at_the_end() {
    let mut plan = testing::send_recv_port(3).unwrap();
    for operation in blocks(&mut plan).flat_map(|block| &mut block.operations) {
        if let Action::Data(data) = &mut operation.action {
            assert_eq!(data.kind, DataKind::PutWithSignalAndFlush);
            data.kind = DataKind::PutWithSignal;
        }
    }
    needs(plan, 511, |repairs| repairs.flush_at_end = true);
}

#[test]
fn packets_that_the_next_launch_may_overwrite() {
    let plan = Plan { double_scratch: false, ..testing::all_reduce_packets(3).unwrap() };
    needs(plan, 604, |repairs| repairs.closing_handshake = true);
}

#[test]
fn raw_scratch_that_the_next_launch_may_overwrite() {
    let shape = CollectiveShape::send_recv(3, 1);
    let mut p = Program::new(ProgramOptions::new("send_recv_staged", shape)).unwrap();
    let pairs: Vec<_> = (0..3)
        .map(|me| (p.memory_channel(me, (me + 1) % 3).unwrap(), p.memory_channel((me + 1) % 3, me).unwrap()))
        .collect();
    let stages: Vec<_> = (0..3).map(|rank| p.scratch(rank, 1).unwrap().whole()).collect();
    for me in 0..3u32 {
        let (right, left) = (pairs[me as usize].0, pairs[(me as usize + 2) % 3].1);
        p.put(right, stages[(me as usize + 1) % 3], p.input(me).unwrap().whole(), 0).unwrap();
        p.signal(right, 0, DataSync::Before).unwrap();
        p.wait(left, 0, DataSync::After).unwrap();
        p.copy(p.output(me).unwrap().whole(), stages[me as usize], 0).unwrap();
    }
    needs(p.finish().unwrap(), 509, |repairs| repairs.closing_handshake = true);
}

/// Every rank waits for every other one, whether or not the plan makes them meet: here none meets any.
#[test]
fn a_closing_handshake_is_among_all_ranks() {
    const RANKS: u32 = 4;
    let mut p = Program::new(ProgramOptions::new("alone", CollectiveShape::send_recv(RANKS, 1))).unwrap();
    for rank in 0..RANKS {
        p.copy(p.output(rank).unwrap().whole(), p.input(rank).unwrap().whole(), 0).unwrap();
    }
    let plan = p.finish().unwrap();
    let closing = Repairs { closing_handshake: true, ..Repairs::default() };
    let begun = [const { AtomicU64::new(0) }; RANKS as usize];
    in_process(RANKS, &context(), |comm| {
        let prepared = comm.prepare_unverified(&plan, &closing)?;
        let rank = comm.rank();
        let (input, output) = (comm.alloc::<u32>(64)?, comm.alloc::<u32>(64)?);
        for turn in 1..=2 * RANKS {
            let data = [turn * 100 + rank; 64];
            input.write(0, &data)?;
            // Each is late in its turn; the others end at once unless they wait for it.
            if turn % RANKS == rank {
                std::thread::sleep(Duration::from_millis(20));
            }
            begun[rank as usize].store(turn.into(), Ordering::SeqCst);
            prepared.run(&PlanLaunch::new(input.view(), output.view(), DataType::Uint32))?;
            for (other, begun) in begun.iter().enumerate() {
                let begun = begun.load(Ordering::SeqCst);
                assert!(begun >= turn.into(), "rank {rank} left launch {turn} before rank {other} began it");
            }
            assert_eq!(output.to_vec()?, data);
        }
        comm.barrier()
    })
    .unwrap();
}

#[test]
fn what_the_verifier_rejects_cannot_be_prepared() {
    // Everybody waits first.
    let mut plan = testing::all_gather_put(2).unwrap();
    for block in blocks(&mut plan) {
        block.operations.sort_by_key(|operation| !matches!(operation.action, Action::Wait { .. }));
    }
    let refusal = VerifiedPlan::new(plan, &Options::default()).err().unwrap();
    assert!(refusal.report.of(Severity::Error).any(|found| found.rule == Rule(401)));
}

#[test]
fn an_average_without_a_proof_is_refused() {
    let plan = with_operator(testing::all_reduce_packets(2).unwrap(), ReduceOp::Avg);
    in_process(2, &context(), |comm| {
        let refused = comm.prepare_unverified(&plan, &Repairs::default()).unwrap_err();
        assert_eq!(refused.id(), "plan.refused", "{refused}");
        comm.barrier()
    })
    .unwrap();
}
