//! Right results.

use warpway::DataType;
use warpway::plan::{Plan, testing};

use crate::rig::{Message, check, shared_plan};

/// Sizes that powers of two, cache lines and pages do not fit.
const ELEMENTS: [u64; 5] = [0, 1, 3, 17, 4095];

fn all(n: u32) -> Vec<Plan> {
    let fits = |plan: &Plan| plan.ranks.iter().all(|rank| rank.size_ids.is_none());
    testing::all(n).unwrap().into_iter().filter(fits).collect()
}

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
