//! Algorithms that are right, small and large.

use warpway_plan::verify::{Options, Report, Severity, verify};
use warpway_plan::{Plan, testing};

/// The rules about results alone.
pub(crate) fn result_of(plan: &Plan) -> Report {
    verify(plan, &Options { checks: vec![7], ..Options::default() })
}

#[test]
fn compute_what_they_claim() {
    for n_ranks in [2, 3, 5, 8] {
        for plan in testing::all(n_ranks).unwrap() {
            let report = result_of(&plan);
            let found: Vec<String> = report.diagnostics.iter().map(ToString::to_string).collect();
            assert!(found.is_empty(), "{} of {n_ranks} ranks: {found:?}", plan.name);
        }
    }
}

#[test]
fn hops_are_counted() {
    let roundings = |plan: Plan| result_of(&plan).roundings;
    assert_eq!(roundings(testing::all_gather_ring(4).unwrap()), None);
    assert_eq!(roundings(testing::all_reduce_two_shot(4).unwrap()), Some(1));
    assert_eq!(roundings(testing::all_reduce_packets(4).unwrap()), Some(1));
    assert_eq!(roundings(testing::all_reduce_switch(4).unwrap()), Some(1));
    assert_eq!(roundings(testing::reduce_scatter_ring(4).unwrap()), Some(3));
}

#[test]
fn plans_of_mscclpp() {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/plans");
    let folder = std::env::var_os("WARPWAY_PLANS").unwrap_or_else(|| beside.into());
    let Ok(entries) = std::fs::read_dir(&folder) else {
        assert!(std::env::var_os("CI").is_none(), "{} is missing", folder.display());
        eprintln!("skipped: {} is missing; set WARPWAY_PLANS", folder.display());
        return;
    };
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut count = 0;
    for path in paths.filter(|path| path.extension().is_some_and(|extension| extension == "json")) {
        let plan = Plan::from_json(&std::fs::read(&path).unwrap()).unwrap().plan;
        let report = result_of(&plan);
        assert_eq!(report.of(Severity::Error).count(), 0, "{}: {:#?}", path.display(), report.diagnostics);
        assert_eq!(report.roundings, (plan.name != "transfer_pack").then_some(1), "{}", path.display());
        count += 1;
    }
    assert_eq!(count, 5);
}
