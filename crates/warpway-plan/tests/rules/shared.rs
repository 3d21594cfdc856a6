//! Plans of others, and those that tests of this project run.

use std::path::PathBuf;

use warpway_plan::verify::{Options, Verdict, verify};
use warpway_plan::{Plan, testing};

use super::{lines, strict};

/// The plans of MSCCL++ that lie beside the checkout; nothing, with a message, where they are missing.
fn shared_plans() -> Vec<(String, Plan)> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/plans");
    let folder = std::env::var_os("WARPWAY_PLANS").map_or_else(|| PathBuf::from(beside), PathBuf::from);
    let Ok(entries) = std::fs::read_dir(&folder) else {
        assert!(std::env::var_os("CI").is_none(), "{} is missing", folder.display());
        eprintln!("skipped: {} is missing; set WARPWAY_PLANS", folder.display());
        return Vec::new();
    };
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut plans: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, Plan::from_json(&std::fs::read(&path).unwrap()).unwrap().plan)
        })
        .collect();
    plans.sort_by(|a, b| a.0.cmp(&b.0));
    plans
}

#[test]
fn shared_plans_are_accepted_by_default() {
    for (name, plan) in shared_plans() {
        let report = verify(&plan, &Options::default());
        assert_eq!(report.verdict, Verdict::Accept, "{name}: {:?}", lines(&report));
    }
}

/// All but the one that publishes multicast data by relaxed pairs.
#[test]
fn shared_plans_under_the_strict_profile() {
    for (name, plan) in shared_plans() {
        let report = verify(&plan, &strict());
        match name.as_str() {
            "reduce_nvls" => assert_eq!(report.verdict, Verdict::Reject),
            _ => assert_eq!(report.verdict, Verdict::Accept, "{name}: {:?}", lines(&report)),
        }
    }
}

#[test]
fn algorithms_are_accepted_strictly() {
    for n_ranks in [2, 3, 4, 8] {
        for plan in testing::all(n_ranks).unwrap() {
            let report = verify(&plan, &Options { catalogue: true, ..strict() });
            assert_eq!(report.verdict, Verdict::Accept, "{} of {n_ranks}: {:?}", plan.name, lines(&report));
        }
    }
}
