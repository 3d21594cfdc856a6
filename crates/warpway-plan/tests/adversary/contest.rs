//! The contest: does every mutant that the verifier accepts pass the judge?

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use warpway_plan::Plan;
use warpway_plan::verify::{Options, Profile, Sizes, Verdict, verify};

use crate::judge::{LAUNCHES, judge, sizes};
use crate::machine::{Failure, Size};
use crate::mutator::{Mutant, mutants};
use crate::random::Random;

/// What the verifier says of a plan.
pub(crate) enum Word {
    /// The sizes that it vouches for.
    Accepted(Sizes),
    /// The rule of its first error.
    Rejected(u16),
    Inconclusive,
}

/// The verifier's word under the strict profile.
pub(crate) fn strict(plan: &Plan) -> Word {
    let report = verify(plan, &Options { profile: Profile::Strict, ..Options::default() });
    match report.verdict {
        Verdict::Accept => Word::Accepted(report.sizes.unwrap_or(Sizes::Any)),
        Verdict::Inconclusive => Word::Inconclusive,
        Verdict::Reject => Word::Rejected(
            report
                .diagnostics
                .iter()
                .filter(|d| d.severity == warpway_plan::verify::Severity::Error)
                .map(|d| d.rule.0)
                .min()
                .unwrap_or(0),
        ),
    }
}

/// How much is run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// Mutants per plan; more are drawn from.
    pub(crate) mutants: usize,
    /// Schedules per size of an accepted mutant.
    pub(crate) schedules: u64,
    /// Schedules per size of a rejected one, to see how many of them are wrong at all.
    pub(crate) rejected: u64,
}

/// Mutants of one class.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Count {
    pub(crate) mutants: u64,
    /// Rejected, and found to fail.
    pub(crate) killed: u64,
    /// Rejected, though no schedule that was run fails.
    pub(crate) cautious: u64,
    /// Accepted, and pass.
    pub(crate) survived: u64,
    pub(crate) inconclusive: u64,
}

/// What a contest found.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) plans: u64,
    /// Correct plans that the verifier does not accept.
    pub(crate) refused: Vec<String>,
    pub(crate) classes: BTreeMap<String, Count>,
    /// Rejections by the rule of their first error: all, and those of plans that pass.
    pub(crate) rules: BTreeMap<u16, (u64, u64)>,
    /// Rejected plans that pass.
    pub(crate) cautious: Vec<String>,
    /// Accepted plans that fail.
    pub(crate) failures: Vec<String>,
    pub(crate) schedules: u64,
    pub(crate) judging: Duration,
    pub(crate) verifying: Duration,
}

impl Outcome {
    pub(crate) fn total(&self) -> Count {
        self.classes.values().fold(Count::default(), |sum, c| Count {
            mutants: sum.mutants + c.mutants,
            killed: sum.killed + c.killed,
            cautious: sum.cautious + c.cautious,
            survived: sum.survived + c.survived,
            inconclusive: sum.inconclusive + c.inconclusive,
        })
    }
}

/// Runs the contest over correct plans and their mutants.
pub(crate) fn contest(plans: &[Plan], effort: Effort, word: impl Fn(&Plan) -> Word, outcome: &mut Outcome) {
    for (number, plan) in plans.iter().enumerate() {
        outcome.plans += 1;
        match ask(plan, &word, outcome) {
            Word::Accepted(admitted) => {
                if let Err((size, failure)) = run(plan, &admitted, effort.schedules, outcome) {
                    let line = format!("{} itself at {size:?}: {failure}", plan.name);
                    outcome.failures.push(line);
                }
            }
            Word::Rejected(rule) => outcome.refused.push(format!("{}: V{rule}", plan.name)),
            Word::Inconclusive => outcome.refused.push(format!("{}: inconclusive", plan.name)),
        }
        let mut all = mutants(plan);
        let mut random = Random::new(number as u64);
        while all.len() > effort.mutants {
            let drawn = random.below(all.len());
            all.swap_remove(drawn);
        }
        for mutant in all {
            weigh(plan, mutant, effort, &word, outcome);
        }
    }
}

fn ask(plan: &Plan, word: &impl Fn(&Plan) -> Word, outcome: &mut Outcome) -> Word {
    let start = Instant::now();
    let said = word(plan);
    outcome.verifying += start.elapsed();
    said
}

fn weigh(
    original: &Plan,
    mutant: Mutant,
    effort: Effort,
    word: &impl Fn(&Plan) -> Word,
    outcome: &mut Outcome,
) {
    let Mutant { class, place, plan } = mutant;
    let said = ask(&plan, word, outcome);
    let passes =
        |admitted: &Sizes, schedules, outcome: &mut Outcome| run(&plan, admitted, schedules, outcome);
    let mut count = Count { mutants: 1, ..Count::default() };
    match said {
        Word::Accepted(admitted) => match passes(&admitted, effort.schedules, outcome) {
            Ok(()) => count.survived += 1,
            Err((size, failure)) => {
                outcome.failures.push(format!("{} {class} at {place}, {size:?}: {failure}", original.name));
            }
        },
        Word::Rejected(rule) => {
            let fails = passes(&Sizes::Any, effort.rejected, outcome).is_err();
            let of_rule = outcome.rules.entry(rule).or_default();
            of_rule.0 += 1;
            if fails {
                count.killed += 1;
            } else {
                count.cautious += 1;
                of_rule.1 += 1;
                outcome.cautious.push(format!("V{rule} {} {class} at {place}", original.name));
            }
        }
        Word::Inconclusive => count.inconclusive += 1,
    }
    let sum = outcome.classes.entry(class).or_default();
    sum.mutants += count.mutants;
    sum.killed += count.killed;
    sum.cautious += count.cautious;
    sum.survived += count.survived;
    sum.inconclusive += count.inconclusive;
}

/// All sizes that are vouched for; the first failure ends it.
fn run(plan: &Plan, admitted: &Sizes, schedules: u64, outcome: &mut Outcome) -> Result<(), (Size, Failure)> {
    let start = Instant::now();
    let mut result = Ok(());
    for size in sizes(plan) {
        if !admitted.admit(u64::from(size.lanes) * size.lane_bytes) {
            continue;
        }
        let judged = judge(plan, size, 0..schedules, LAUNCHES);
        outcome.schedules += judged.as_ref().map_or_else(|f| f.seed + 1, |()| schedules);
        if let Err(failure) = judged {
            result = Err((size, failure));
            break;
        }
    }
    outcome.judging += start.elapsed();
    result
}
