//! Algorithms that are right, small and large.

use warpway_plan::verify::{Options, Report, Severity, verify};
use warpway_plan::{Plan, testing};

use crate::shared_plans;

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
    for (name, text) in shared_plans::by_name() {
        let plan = Plan::from_json(text.as_bytes()).unwrap().plan;
        let report = result_of(&plan);
        assert_eq!(report.of(Severity::Error).count(), 0, "{name}: {:#?}", report.diagnostics);
        assert_eq!(report.roundings, (plan.name != "transfer_pack").then_some(1), "{name}");
    }
}
