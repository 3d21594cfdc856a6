//! Every operation of the format runs, on every size, with both kinds of packets.
//!
//! The full product - plans x types x operators x sizes x packets x 2 to 8 ranks - are `full_product_of_*`, ignored because
//! together they take minutes. The tests that always run cover it so that every value of each dimension occurs, and every pair
//! of plan and size, plan and number of ranks, type and operator, plan and packet format.

use std::collections::BTreeSet;

use warpway::plan::verify::{Options, Profile, VerifiedPlan};
use warpway::plan::{Action, DataKind, Plan, ReduceOp, Via};
use warpway::{DataType, PacketFormat};
use warpway_tests::suite::plans::{ELEMENTS, Message, fixed_sizes, operations};

use crate::rig::{check, check_verified};

const FORMATS: [PacketFormat; 2] = [PacketFormat::Ll16, PacketFormat::Ll8];

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
    assert_eq!(operations().map(|operation| operation.action.name()).collect::<BTreeSet<_>>(), all);
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

/// A test per number of ranks, each of which takes up to a minute.
macro_rules! full_product {
    ($($name:ident = $n:literal),+ $(,)?) => {
        $(
            #[test]
            #[ignore = "all of them take minutes; run by hand after a change of the executor"]
            fn $name() {
                full_product($n);
            }
        )+
    };
}

full_product!(
    full_product_of_2_ranks = 2,
    full_product_of_3_ranks = 3,
    full_product_of_4_ranks = 4,
    full_product_of_5_ranks = 5,
    full_product_of_6_ranks = 6,
    full_product_of_7_ranks = 7,
    full_product_of_8_ranks = 8,
);

fn full_product(n: u32) {
    let plans = if n == 2 { two_ranks() } else { fixed_sizes(n) };
    for op in [ReduceOp::Sum, ReduceOp::Min, ReduceOp::Max, ReduceOp::Prod] {
        // Multicast has no products.
        let fits = |plan: &&Plan| op != ReduceOp::Prod || !multicasts(plan);
        let plans: Vec<Plan> =
            plans.iter().filter(fits).map(|plan| crate::results::with_operator(plan.clone(), op)).collect();
        for data_type in DataType::ALL {
            if op == ReduceOp::Prod && data_type == DataType::Float8E4m3b15 {
                continue;
            }
            let message =
                |elements| FORMATS.map(|packets| Message { packets, ..Message::new(elements, data_type) });
            check(&plans, &[0, 1, 3, 17, 4095, 10_007].into_iter().flat_map(message).collect::<Vec<_>>());
        }
        // Of a million elements, each plan with a type of its own.
        for (plan, data_type) in plans.iter().zip(DataType::ALL.into_iter().cycle()) {
            let narrow = op == ReduceOp::Prod && data_type == DataType::Float8E4m3b15;
            let data_type = if narrow { DataType::Uint8 } else { data_type };
            let message = FORMATS.map(|packets| Message { packets, ..Message::new(1_000_003, data_type) });
            check(std::slice::from_ref(plan), &message);
        }
    }
}

fn multicasts(plan: &Plan) -> bool {
    plan.operations().any(|(_, _, operation)| match &operation.action {
        Action::Data(data) => matches!(data.kind, DataKind::GroupLoadReduce | DataKind::GroupLoadReduceStore),
        _ => false,
    })
}
