//! The correct plans that everything starts from.

use std::path::PathBuf;

use warpway_plan::{Plan, testing};

use crate::generator::generate;

/// Not clean in the strict sense: its multicast data is exchanged under relaxed pairs.
pub(crate) const NOT_CLEAN: &str = "allreduce_nvls";

/// The plans of MSCCL++ that lie beside the checkout; nothing, with a message, where they are missing.
pub(crate) fn shared() -> Vec<Plan> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/plans");
    let folder = std::env::var_os("WARPWAY_PLANS").map_or_else(|| PathBuf::from(beside), PathBuf::from);
    let Ok(entries) = std::fs::read_dir(&folder) else {
        assert!(std::env::var_os("CI").is_none(), "{} is missing", folder.display());
        eprintln!("skipped: {} is missing; set WARPWAY_PLANS", folder.display());
        return Vec::new();
    };
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    paths.iter().map(|path| Plan::from_json(&std::fs::read(path).unwrap()).unwrap().plan).collect()
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
