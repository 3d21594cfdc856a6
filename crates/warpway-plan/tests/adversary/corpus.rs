//! The correct plans that everything starts from.

use warpway_plan::{Plan, testing};

use crate::generator::generate;
use crate::shared_plans;

/// Not clean in the strict sense: its multicast data is exchanged under relaxed pairs.
pub(crate) const NOT_CLEAN: &str = "allreduce_nvls";

/// The plans of MSCCL++ that lie beside the checkout; nothing where they are missing.
pub(crate) fn shared() -> Vec<Plan> {
    let texts = shared_plans::by_name().into_iter();
    texts.map(|(_, text)| Plan::from_json(text.as_bytes()).unwrap().plan).collect()
}

/// Those of them that need no repairs.
pub(crate) fn clean() -> Vec<Plan> {
    shared().into_iter().filter(|plan| plan.name != NOT_CLEAN).collect()
}

/// The algorithms that other tests run, for 2 to 4 ranks.
pub(crate) fn algorithms() -> Vec<Plan> {
    let named = |n: u32| testing::all(n).unwrap().into_iter().map(move |plan| (n, plan));
    (2..=4).flat_map(named).map(|(n, plan)| Plan { name: format!("{}@{n}", plan.name), ..plan }).collect()
}

/// Clean plans, algorithms, and that many generated ones.
pub(crate) fn corpus(generated: u64) -> Vec<Plan> {
    clean().into_iter().chain(algorithms()).chain((0..generated).map(generate)).collect()
}
