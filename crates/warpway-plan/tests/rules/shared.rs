//! Plans of others, and those that tests of this project run.

use warpway_plan::verify::{Options, Verdict, verify};
use warpway_plan::{Plan, testing};

use super::{lines, strict};

/// The plans of MSCCL++ that lie beside the checkout; nothing where they are missing.
fn shared_plans() -> impl Iterator<Item = (String, Plan)> {
    let texts = crate::shared_plans::by_name().into_iter();
    texts.map(|(name, text)| (name, Plan::from_json(text.as_bytes()).unwrap().plan))
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
