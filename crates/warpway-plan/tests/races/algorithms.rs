//! Plans that are right: no false alarms.

use warpway_plan::verify::{Options, Profile, Report, Severity, Verdict, verify};
use warpway_plan::{Plan, testing};

/// The rules about order alone.
pub(crate) fn order_of(plan: &Plan) -> Report {
    verify(plan, &Options { checks: vec![3, 4, 5, 6], profile: Profile::Strict, ..Options::default() })
}

#[test]
fn nothing_is_found_in_what_is_right() {
    for n_ranks in [2, 3, 5, 8] {
        for plan in testing::all(n_ranks).unwrap() {
            let report = order_of(&plan);
            let bad: Vec<String> = report
                .diagnostics
                .iter()
                .filter(|d| d.severity != Severity::Info)
                .map(ToString::to_string)
                .collect();
            assert!(bad.is_empty(), "{} of {n_ranks} ranks: {bad:#?}", plan.name);
            assert_eq!(report.verdict, Verdict::Accept);
        }
    }
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
    for path in
        entries.map(|entry| entry.unwrap().path()).filter(|p| p.extension().is_some_and(|e| e == "json"))
    {
        let plan = Plan::from_json(&std::fs::read(&path).unwrap()).unwrap().plan;
        let report = order_of(&plan);
        let rules: Vec<u16> = report.diagnostics.iter().map(|d| d.rule.0).collect();
        let expected: (Verdict, &[u16]) = match plan.name.as_str() {
            "allreduce_pkt" | "transfer_pack" => (Verdict::Accept, &[]),
            "reduce" => (Verdict::Accept, &[612]),
            // Blocks 2 and 3 of rank 1 pack into their own scratch what nobody reads.
            "reduce_pack_tbg" => (Verdict::Accept, &[605, 605]),
            "allreduce_nvls" => (Verdict::Reject, &[905, 905]),
            other => panic!("unexpected plan {other}"),
        };
        assert_eq!((report.verdict, &rules[..]), expected, "{}: {:#?}", plan.name, report.diagnostics);
        let report = verify(&plan, &Options::default());
        assert_eq!(report.verdict, Verdict::Accept, "{}: {:#?}", plan.name, report.diagnostics);
        let pairs = if plan.name == "allreduce_nvls" { 2 } else { 0 };
        assert_eq!(report.repairs.ordered_pairs.len(), pairs, "{}", plan.name);
    }
}
