//! Profiles, waivers, the sizes of a proof, plans with their proof.

use warpway_plan::verify::{Options, Profile, Rule, Severity, Sizes, Verdict, VerifiedPlan, verify};
use warpway_plan::{Action, Collective, testing};

use super::{all_gather, block, findings, pipeline, signal, strict};

/// A waiver turns findings into notes that say so; not in the catalogue, and not for what keeps executors safe.
#[test]
fn waivers() {
    let mut plan = all_gather();
    block(&mut plan, 0, 0).push(signal(&[0]));
    let waived = Options { waivers: vec![Rule(302)], ..strict() };
    let report = verify(&plan, &waived);
    assert_eq!(report.verdict, Verdict::Accept);
    assert_eq!(findings(&report), [(Rule(302), Severity::Info)]);
    assert!(report.diagnostics[0].message.ends_with(" (waived)"));
    let catalogue = Options { catalogue: true, ..waived };
    assert_eq!(verify(&plan, &catalogue).verdict, Verdict::Reject);

    plan = all_gather();
    plan.ranks[0].blocks[0].channels[0].channels.push(9);
    let waived = Options { waivers: vec![Rule(202)], ..strict() };
    assert_eq!(verify(&plan, &waived).verdict, Verdict::Reject);
}

/// A hundred findings of a rule, and how many more.
#[test]
fn findings_are_bounded() {
    let mut plan = all_gather();
    for _ in 0..130 {
        block(&mut plan, 1, 0).push(super::barrier(5000, 1));
    }
    let report = verify(&plan, &strict());
    let of_rule: Vec<_> = report.diagnostics.iter().filter(|d| d.rule == Rule(210)).collect();
    assert_eq!(of_rule.len(), 101);
    assert_eq!(of_rule[100].message, "30 more findings of this rule");
    let order: Vec<_> = of_rule[..100].iter().map(|d| d.places[0].clone()).collect();
    assert!(order.is_sorted());
}

/// Groups of rules can be left out; a verified plan has passed them all.
#[test]
fn subsets_of_the_rules() {
    let mut plan = all_gather();
    block(&mut plan, 0, 0).push(signal(&[0]));
    let some = Options { checks: vec![5], ..strict() };
    assert_eq!(verify(&plan, &some).verdict, Verdict::Accept);
    let refused = VerifiedPlan::new(plan.clone(), &some).unwrap_err();
    assert_eq!(refused.plan, plan);
    assert_eq!(refused.report.diagnostics[0].rule, Rule(302));
    assert_eq!(
        refused.to_string(),
        "plan \"ag2_ok\" is not accepted: 1 error: V302 rank 0 tb 0 op 9: 3 signals, but 2 waits on memory channel 0->1 #0; \
         hint: each signal needs one wait; what is left over is taken by the next launch"
    );
    let verified = VerifiedPlan::new(all_gather(), &some).unwrap();
    assert_eq!(verified.plan(), &all_gather());
    assert_eq!(verified.identity(), all_gather().identity());
    assert!(verified.repairs().is_empty());
    assert_eq!(verified.report().sizes, Some(Sizes::Any));
}

/// Pipelines that wait for each other with different slices are proven for the sizes that were run.
#[test]
fn sizes_of_the_proof() {
    let plan = testing::send_recv_pipeline(2, 4, 64).unwrap();
    assert_eq!(verify(&plan, &strict()).sizes, Some(Sizes::Any));
    let mut other = plan.clone();
    for rank in 0..2 {
        let mut second = pipeline(&mut other, (rank, 0, 3)).clone();
        second.unit_size = 128;
        // A pass over the channel alone, so that nothing but slices differs.
        second.body.retain(|o| !matches!(o.action, Action::Data(_)));
        block(&mut other, rank, 0).insert(4, Action::Pipeline(Box::new(second)).into());
    }
    let report = verify(&other, &strict());
    assert_eq!(report.verdict, Verdict::Accept, "{:?}", report.diagnostics);
    let sizes = report.sizes.unwrap();
    assert_eq!(sizes, Sizes::ChunkBytes(vec![128, 256, 384]));
    assert_eq!([0, 128, 192, 384, 512].map(|bytes| sizes.admit(bytes)), [false, true, false, true, false]);
    // Concrete sizes are run, and then claimed as well.
    let named = verify(&other, &Options { sizes: vec![4 * 192, 4 * 1024], ..strict() });
    assert_eq!(named.sizes, Some(Sizes::ChunkBytes(vec![128, 192, 256, 384, 1024])));
    assert_eq!(serde_json::to_value(&named).unwrap()["sizes"]["chunk_bytes"][1], 192);
    // Fewer runs than needed prove only themselves.
    let few = verify(&plan, &Options { chunk_units: vec![2], ..strict() });
    assert_eq!(few.sizes, Some(Sizes::ChunkBytes(vec![128])));
}

/// Whatever a plan says, the verifier answers; it answers the same each time.
#[test]
fn is_deterministic() {
    for mut plan in testing::all(4).unwrap() {
        plan.collective = Collective::AllToAll;
        let mut first = None;
        for profile in [Profile::Default, Profile::Default] {
            let report =
                serde_json::to_string(&verify(&plan, &Options { profile, ..Options::default() })).unwrap();
            assert_eq!(*first.get_or_insert(report.clone()), report);
        }
    }
}

#[test]
fn exit_codes() {
    let codes = [Verdict::Accept, Verdict::Reject, Verdict::Inconclusive].map(Verdict::exit_code);
    assert_eq!(codes, [0, 1, 2]);
}
