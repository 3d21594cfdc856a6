//! Right results.

use warpway::plan::{Action, Extension, Plan, ReduceOp, testing};
use warpway::{DataType, PacketFormat};

use warpway_tests::suite::plans::{ELEMENTS, Message, fixed_sizes as all};
use warpway_tests::{End, Job, Leftovers, Settings};

use crate::rig::{check, check_repaired, check_verified, shared_plan};

fn every_size(data_type: DataType) -> Vec<Message> {
    ELEMENTS.iter().map(|elements| Message::new(*elements, data_type)).collect()
}

#[test]
fn algorithms_on_two_ranks() {
    check(&all(2), &every_size(DataType::Int32));
}

#[test]
fn algorithms_on_three_ranks_with_halves() {
    check(&all(3), &every_size(DataType::Float16));
}

#[test]
fn algorithms_on_five_ranks_with_bytes() {
    check(&all(5), &every_size(DataType::Uint8));
}

#[test]
fn algorithms_on_eight_ranks() {
    check(&all(8), &every_size(DataType::Float32));
}

#[test]
fn a_million_elements() {
    check(&all(3), &[Message::new(1_000_003, DataType::Bfloat16)]);
}

#[test]
fn plans_of_mscclpp() {
    for name in [
        "allreduce_packet.json",
        "reduce.json",
        "reduce_nvls.json",
        "reduce_pack_tbg.json",
        "transfer_pack.json",
    ] {
        let Some(plan) = shared_plan(name) else { continue };
        check(&[plan], &every_size(DataType::Float32));
    }
}

/// Every fold of the plan with another operator.
pub(crate) fn with_operator(mut plan: Plan, op: ReduceOp) -> Plan {
    for operation in plan.ranks.iter_mut().flat_map(|r| &mut r.blocks).flat_map(|b| &mut b.operations) {
        let operations = match &mut operation.action {
            Action::Pipeline(pipeline) => &mut pipeline.body[..],
            _ => std::slice::from_mut(operation),
        };
        for operation in operations {
            if let Action::Data(data) = &mut operation.action
                && let Some(fold) = &mut data.fold
            {
                fold.op = op;
            }
        }
    }
    if matches!(op, ReduceOp::Prod | ReduceOp::Avg) {
        plan.extensions.insert(Extension::ReduceOp);
    }
    plan
}

fn folding(n: u32, op: ReduceOp) -> Vec<Plan> {
    [testing::all_reduce_packets(n), testing::all_reduce_two_shot(n), testing::reduce_scatter_ring(n)]
        .map(|plan| with_operator(plan.unwrap(), op))
        .into()
}

fn every_type(elements: u64) -> Vec<Message> {
    DataType::ALL.iter().map(|data_type| Message::new(elements, *data_type)).collect()
}

#[test]
fn every_type_and_operator() {
    for op in [ReduceOp::Sum, ReduceOp::Min, ReduceOp::Max, ReduceOp::Prod] {
        // The oracle's eighths have no products in that type.
        let fits = |m: &Message| op != ReduceOp::Prod || m.data_type != DataType::Float8E4m3b15;
        let messages: Vec<Message> = every_type(53).into_iter().filter(fits).collect();
        check(&folding(3, op), &messages);
    }
}

/// Multicast folds are emulated, so they take every type.
#[test]
fn every_type_and_operator_by_multicast() {
    for op in [ReduceOp::Sum, ReduceOp::Min, ReduceOp::Max] {
        check(&[with_operator(testing::all_reduce_switch(3).unwrap(), op)], &every_type(53));
    }
}

/// Sums of two inputs are halved exactly; integers drop the half.
#[test]
fn averages_of_verified_plans() {
    let whole: Vec<Message> = every_type(53)
        .into_iter()
        .filter(|message| !message.data_type.is_float() || message.data_type == DataType::Float32)
        .collect();
    check_verified(&folding(2, ReduceOp::Avg), &whole);
    check_verified(&folding(4, ReduceOp::Avg), &whole);
}

#[test]
fn algorithms_with_their_proof() {
    check_verified(&all(4), &every_size(DataType::Int64));
}

#[test]
fn repairs_change_no_result() {
    check_repaired(&all(3), &every_size(DataType::Float16));
}

#[test]
fn small_packets() {
    let messages = every_size(DataType::Int8).into_iter();
    let messages: Vec<Message> =
        messages.map(|message| Message { packets: PacketFormat::Ll8, ..message }).collect();
    check(&folding(3, ReduceOp::Sum), &messages);
}

/// Few elements leave chunks empty: nobody waits for their packets, so packets alone no longer keep a rank from
/// running ahead of its peers, neither then nor in the launch after it.
#[test]
fn many_launches_with_empty_chunks() {
    let plans = [testing::all_reduce_packets(4).unwrap(), testing::all_reduce_packets(3).unwrap()];
    for plan in plans {
        let messages: Vec<Message> = (0..500)
            .map(|turn: u64| Message {
                seed: turn * 977,
                // The latter divides evenly into chunks of as many bytes as the former has.
                ..Message::new([5, 5, 4 * u64::from(plan.n_ranks())][turn as usize % 3], DataType::Int32)
            })
            .collect();
        check(&[plan], &messages);
    }
}

/// Launches of unequal sizes and packet formats in turn: slots move, epochs go on.
#[test]
fn many_launches_in_a_row() {
    let plans = [testing::all_reduce_packets(4).unwrap(), testing::all_reduce_two_shot(4).unwrap()];
    let messages: Vec<Message> = (0..300)
        .map(|turn: u64| Message {
            packets: if turn.is_multiple_of(5) { PacketFormat::Ll8 } else { PacketFormat::Ll16 },
            seed: turn * 977,
            ..Message::new([5, 5, 5, 40, 41, 5, 2000][turn as usize % 7], DataType::Int32)
        })
        .collect();
    check(&plans, &messages);
}

#[test]
fn algorithms_on_processes() {
    for n in [2, 3, 5, 8] {
        let patience = std::time::Duration::from_secs(60);
        let settings = Settings { patience, ..Settings::new(n, "plans") };
        let job = Job::start(env!("CARGO_BIN_EXE_rank"), &settings);
        job.finish(&[], &Leftovers::default()).iter().for_each(End::succeeded);
    }
}
