//! The contest in two lengths: a fixed sample for every day, and everything, with a result file.

use std::collections::BTreeSet;

use serde_json::json;
use warpway_plan::{Action, DataKind};

use crate::contest::{Count, Effort, Outcome, contest, strict};
use crate::corpus::corpus;
use crate::mutator::mutants;

pub(crate) fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn the_corpus_has_every_operation_and_many_mutants() {
    let plans = corpus(150);
    let mut kinds = BTreeSet::new();
    for plan in &plans {
        for (_, _, operation) in plan.operations() {
            if let Action::Data(data) = &operation.action {
                kinds.insert(data.kind);
            }
        }
    }
    let missing: Vec<_> = DataKind::NAMED.iter().filter(|(kind, _)| !kinds.contains(kind)).collect();
    // These need sources that generated plans do not have; the plans of MSCCL++ have the first.
    let few = [DataKind::ReduceCopySendPackets];
    assert!(missing.iter().all(|(kind, _)| few.contains(kind)), "{missing:?}");
    assert!(plans.iter().take(30).map(|plan| mutants(plan).len()).sum::<usize>() > 5_000);
}

#[test]
fn mutants_that_the_verifier_accepts_pass() {
    let mut outcome = Outcome::default();
    let effort = Effort { mutants: 40, schedules: 60, rejected: 0 };
    contest(&corpus(100), effort, strict, &mut outcome);
    assert_eq!(outcome.refused, Vec::<String>::new(), "correct plans are accepted");
    assert!(outcome.failures.is_empty(), "{} fail:\n{}", outcome.failures.len(), outcome.failures.join("\n"));
    let total = outcome.total();
    // A verifier that rejects nothing, or everything, learns nothing here.
    assert!(total.mutants > 4_000 && total.survived > 400, "{total:?}");
    assert!(total.cautious + total.killed > total.mutants / 2, "{total:?}");
}

/// Writes what it finds to the file that `WARPWAY_RESULT` names.
#[test]
#[ignore = "takes minutes; results go to benchmarks/results"]
fn full_contest() {
    let effort = Effort {
        mutants: number("MUTANTS", 300) as usize,
        schedules: number("SCHEDULES", 1_000),
        rejected: number("REJECTED", 60),
    };
    let mut outcome = Outcome::default();
    let plans = corpus(number("PLANS", 150));
    contest(&plans, effort, strict, &mut outcome);
    let total = outcome.total();
    let classes: serde_json::Map<_, _> = outcome
        .classes
        .iter()
        .map(|(class, count)| {
            let Count { mutants, killed, cautious, survived, inconclusive } = *count;
            let counts = json!({
                "mutants": mutants, "rejected_and_fail": killed, "rejected_but_pass": cautious,
                "accepted_and_pass": survived, "inconclusive": inconclusive,
            });
            (class.clone(), counts)
        })
        .collect();
    let rules: serde_json::Map<_, _> = outcome
        .rules
        .iter()
        .map(|(rule, (all, pass))| (format!("V{rule}"), json!({"rejected": all, "of_which_pass": pass})))
        .collect();
    let result = json!({
        "benchmark": "plan_mutants",
        "command": "cargo test --release -p warpway-plan --test adversary full_contest -- --ignored",
        "date": std::env::var("WARPWAY_DATE").unwrap_or_default(),
        "commit": std::env::var("WARPWAY_COMMIT").unwrap_or_default(),
        "machine": {"cores": std::thread::available_parallelism().map_or(0, usize::from)},
        "effort": {"plans": number("PLANS", 150), "mutants_per_plan": effort.mutants, "schedules": effort.schedules},
        "plans": outcome.plans,
        "correct_plans_refused": outcome.refused,
        "mutants": total.mutants,
        "rejected": total.killed + total.cautious,
        "rejected_and_fail": total.killed,
        "rejected_but_pass": total.cautious,
        "accepted_and_pass": total.survived,
        "inconclusive": total.inconclusive,
        "accepted_but_fail": outcome.failures,
        "schedules_per_size": effort.schedules,
        "launches": crate::judge::LAUNCHES,
        "schedules": outcome.schedules,
        "schedules_per_second": outcome.schedules as f64 / outcome.judging.as_secs_f64(),
        "verifications_per_second":
            (outcome.plans + total.mutants) as f64 / outcome.verifying.as_secs_f64(),
        "classes": classes,
        "rules": rules,
    });
    let text = serde_json::to_string_pretty(&result).unwrap();
    match std::env::var_os("WARPWAY_RESULT") {
        Some(path) => std::fs::write(path, text + "\n").unwrap(),
        None => println!("{text}"),
    }
    for line in &outcome.cautious {
        println!("rejected but passes: {line}");
    }
    assert!(outcome.failures.is_empty(), "{}", outcome.failures.join("\n"));
}
