//! Every operation of the format runs, on every size, with both kinds of packets.
//!
//! The full product - plans x types x operators x sizes x packets x 1 to 8 ranks - is [`full_product`], ignored because
//! it takes minutes. The tests that always run cover it so that every value of each dimension occurs, and every pair
//! of plan and size, plan and number of ranks, type and operator, plan and packet format.

use std::collections::BTreeSet;

use warpway::plan::verify::{Options, Profile, VerifiedPlan};
use warpway::plan::{Action, DataKind, Operation, Plan, ReduceOp, Via};
use warpway::{DataType, PacketFormat};
use warpway_tests::suite::plans::{ELEMENTS, Message, fixed_sizes, operations};

use crate::rig::{check, check_verified};

const FORMATS: [PacketFormat; 2] = [PacketFormat::Ll16, PacketFormat::Ll8];

/// Its name in the file.
fn name(operation: &Operation) -> &'static str {
    match &operation.action {
        Action::Nop => "nop",
        Action::Barrier { .. } => "barrier",
        Action::Signal { relaxed: false, .. } => "signal",
        Action::Signal { relaxed: true, .. } => "rlxsignal",
        Action::Wait { relaxed: false, .. } => "wait",
        Action::Wait { relaxed: true, .. } => "rlxwait",
        Action::Flush { .. } => "flush",
        Action::Acquire { .. } => "sem_acquire",
        Action::Release { .. } => "sem_release",
        Action::Data(data) => data.kind.name(),
        Action::Pipeline(_) => "pipeline",
    }
}

fn two_ranks() -> Vec<Plan> {
    [fixed_sizes(2), operations()].concat()
}

#[test]
fn every_operation_is_in_a_plan_that_runs() {
    let plans = two_ranks();
    let synchronisation = [
        "nop",
        "barrier",
        "signal",
        "rlxsignal",
        "wait",
        "rlxwait",
        "flush",
        "sem_acquire",
        "sem_release",
        "pipeline",
    ];
    let all: BTreeSet<&str> = DataKind::NAMED.iter().map(|(_, name)| *name).chain(synchronisation).collect();
    assert_eq!(all.len(), 31);
    let operations = || plans.iter().flat_map(Plan::operations).map(|(_, _, operation)| operation);
    assert_eq!(operations().map(name).collect::<BTreeSet<_>>(), all);
    // Those with two meanings, by channel.
    let mut by_channel = BTreeSet::new();
    for operation in operations() {
        match &operation.action {
            Action::Data(data) => {
                by_channel.insert((data.kind.name(), data.channel_type.map_or("none", |via| via.name())));
            }
            Action::Signal { via, .. } => {
                by_channel.insert(("signal", if *via == Via::Port { "port" } else { "memory" }));
            }
            _ => {}
        }
    }
    for name in ["put", "pws", "ppkt", "rppkt", "signal"] {
        for via in ["memory", "port"] {
            assert!(by_channel.contains(&(name, via)), "{name} on {via} channels does not run");
        }
    }
}

#[test]
fn every_operation_is_proven_and_computes_its_collective() {
    let strict = Options { profile: Profile::Strict, ..Options::default() };
    for plan in operations() {
        let name = plan.name.clone();
        let proof = VerifiedPlan::new(plan, &strict);
        assert!(proof.is_ok(), "{name}: {:#?}", proof.map(drop));
    }
    let message = |elements: &u64| {
        FORMATS.map(|packets| Message { packets, ..Message::new(*elements, DataType::Uint32) })
    };
    check_verified(&operations(), &ELEMENTS.iter().flat_map(message).collect::<Vec<_>>());
}

/// A plan without peers: copies, packets to itself, a barrier of two blocks.
#[test]
fn one_rank() {
    let text = r#"{"name":"alone","collective":"allreduce","protocol":"LL","inplace":false,"gpus":[
        {"id":0,"input_chunks":1,"output_chunks":1,"scratch_chunks":2,"threadblocks":[
        {"id":0,"ops":[
        {"name":"cpkt","src_buff":[{"type":"i","index":0,"size":1}],"dst_buff":[{"type":"s","index":0,"size":1}]},
        {"name":"upkt","src_buff":[{"type":"s","index":0,"size":1}],"dst_buff":[{"type":"s","index":1,"size":1}]},
        {"name":"barrier","barrier_id":0,"num_threadblocks":2}],"channels":[]},
        {"id":1,"ops":[
        {"name":"barrier","barrier_id":0,"num_threadblocks":2},
        {"name":"copy","src_buff":[{"type":"s","index":1,"size":1}],"dst_buff":[{"type":"o","index":0,"size":1}]}],
        "channels":[]}],"channels":[],"remote_buffers":[]}]}"#;
    let plan = Plan::from_json(text.as_bytes()).unwrap().plan;
    let messages: Vec<Message> = ELEMENTS
        .iter()
        .flat_map(|elements| {
            FORMATS.map(|packets| Message { packets, ..Message::new(*elements, DataType::Float16) })
        })
        .collect();
    check_verified(&[plan], &messages);
}

#[test]
fn other_numbers_of_ranks() {
    for (n, data_type) in [(6, DataType::Uint64), (7, DataType::Int8)] {
        let messages: Vec<Message> = ELEMENTS
            .iter()
            .zip(FORMATS.iter().cycle())
            .map(|(elements, packets)| Message { packets: *packets, ..Message::new(*elements, data_type) })
            .collect();
        check(&fixed_sizes(n), &messages);
    }
}

/// Minutes.
#[test]
#[ignore = "takes minutes; run by hand after a change of the executor"]
fn full_product() {
    let sizes = [0, 1, 3, 17, 4095, 100_003];
    for n in 2..=8 {
        let plans = if n == 2 { two_ranks() } else { fixed_sizes(n) };
        for op in [ReduceOp::Sum, ReduceOp::Min, ReduceOp::Max, ReduceOp::Prod] {
            let plans: Vec<Plan> =
                plans.iter().map(|plan| crate::results::with_operator(plan.clone(), op)).collect();
            // Multicast has no products.
            let plans: Vec<Plan> =
                plans.into_iter().filter(|plan| op != ReduceOp::Prod || !multicasts(plan)).collect();
            for data_type in DataType::ALL {
                if op == ReduceOp::Prod && data_type == DataType::Float8E4m3b15 {
                    continue;
                }
                let messages: Vec<Message> = sizes
                    .iter()
                    .flat_map(|elements| {
                        FORMATS.map(|packets| Message { packets, ..Message::new(*elements, data_type) })
                    })
                    .collect();
                check(&plans, &messages);
            }
        }
    }
}

fn multicasts(plan: &Plan) -> bool {
    plan.operations().any(|(_, _, operation)| match &operation.action {
        Action::Data(data) => matches!(data.kind, DataKind::GroupLoadReduce | DataKind::GroupLoadReduceStore),
        _ => false,
    })
}
