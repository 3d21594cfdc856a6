//! Different plans one after the other on one scratch: what the verifier calls shareable must pass (V612).
//!
//! Plans with sized chunks stay out: where chunks are empty, no packet tells of their writer, and the executor makes
//! the ranks wait for each other.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::json;
use warpway_plan::Plan;
use warpway_plan::verify::{Options, Profile, ShareableAreas, Sizes, Verdict, verify};

use crate::contest_runs::number;
use crate::corpus::corpus;
use crate::judge::sizes;
use crate::machine::{Entry, Failure, Kind, Machine, Size, sequence, uses_scratch};
use crate::mutator::mutants;
use crate::random::Random;
use crate::thin;

/// Failures that are told.
const SHOWN: usize = 10;

/// An accepted plan, and what may be done with it.
struct Candidate {
    plan: Plan,
    sizes: Vec<Size>,
    shareable: ShareableAreas,
    /// Raw data, packets.
    uses: (bool, bool),
}

impl Candidate {
    /// `None` unless strict accepts the plan, and it has scratch.
    fn new(plan: Plan) -> Option<Self> {
        if plan.ranks.iter().any(|rank| rank.size_ids.is_some()) {
            return None;
        }
        let report = verify(&plan, &Options { profile: Profile::Strict, ..Options::default() });
        if report.verdict != Verdict::Accept {
            return None;
        }
        let proven = report.sizes.unwrap_or(Sizes::Any);
        let mut sizes = sizes(&plan);
        sizes.retain(|size| proven.admit(u64::from(size.lanes) * size.lane_bytes));
        let uses = uses_scratch(&plan, *sizes.first()?)?;
        (uses.0 || uses.1).then_some(Self { plan, sizes, shareable: report.shareable_areas, uses })
    }

    fn is_shareable(&self) -> bool {
        (!self.uses.0 || self.shareable.raw) && (!self.uses.1 || self.shareable.packets)
    }
}

/// Which plans may meet: the number of ranks, and one half or two.
type Kin = (u32, bool);

/// Plans that mostly may not share.
fn thin_plans(count: u64) -> BTreeMap<Kin, Vec<Candidate>> {
    by_kin((0..count).map(|seed| thin::thin(2 + (seed % 3) as u32, seed).unwrap()))
}

fn by_kin(plans: impl Iterator<Item = Plan>) -> BTreeMap<Kin, Vec<Candidate>> {
    let mut found: BTreeMap<Kin, Vec<Candidate>> = BTreeMap::new();
    for candidate in plans.filter_map(Candidate::new) {
        let kin = (candidate.plan.n_ranks(), candidate.plan.double_scratch);
        found.entry(kin).or_default().push(candidate);
    }
    found
}

#[derive(Debug, Default)]
struct Outcome {
    sequences: u64,
    schedules: u64,
    launches: u64,
    judging: Duration,
    failures: Vec<String>,
    kinds: BTreeMap<Kind, u64>,
}

/// One sequence: which candidates, at which sizes, in which order.
struct Drawn<'c> {
    entries: Vec<Entry<'c>>,
    launches: Vec<usize>,
}

/// Draws 2 to 4 of the candidates and 4 to 8 launches. Plans with an area of their own come in one size: between
/// different ones the executor makes the ranks wait for each other.
fn draw<'c>(random: &mut Random, from: &[&'c Candidate], forced: bool) -> Drawn<'c> {
    let mut entries: Vec<Entry<'c>> = Vec::new();
    for _ in 0..2 + random.below(3) {
        let at = random.below(from.len());
        let candidate = from[at];
        let apart = !forced && !candidate.is_shareable();
        if apart && entries.iter().any(|entry| entry.number == at as u32) {
            continue;
        }
        entries.push(Entry {
            plan: &candidate.plan,
            size: *random.pick(&candidate.sizes),
            number: at as u32,
            raw: forced || candidate.shareable.raw,
            packets: forced || candidate.shareable.packets,
        });
    }
    let launches = (0..4 + random.below(5)).map(|_| random.below(entries.len())).collect();
    Drawn { entries, launches }
}

fn run(drawn: &Drawn<'_>, schedules: u64, outcome: &mut Outcome) -> Result<(), Failure> {
    let (program, turns) = sequence(&drawn.entries, &drawn.launches).unwrap();
    let start = Instant::now();
    let mut machine = Machine::new(&program);
    outcome.sequences += 1;
    let mut result = Ok(());
    for seed in 0..schedules {
        outcome.schedules += 1;
        outcome.launches += turns.len() as u64;
        result = machine.run(seed, &turns);
        if result.is_err() {
            break;
        }
    }
    outcome.judging += start.elapsed();
    if let Err(failure) = &result {
        *outcome.kinds.entry(failure.kind).or_default() += 1;
        let names: Vec<String> = drawn
            .launches
            .iter()
            .map(|at| format!("{} at {} lanes", drawn.entries[*at].plan.name, drawn.entries[*at].size.lanes))
            .collect();
        if outcome.failures.len() < SHOWN {
            outcome.failures.push(format!("{}: {failure}", names.join(", ")));
        }
    }
    result
}

/// That many sequences of each kin.
fn contest(
    candidates: &BTreeMap<Kin, Vec<Candidate>>,
    (sequences, schedules): (u64, u64),
    forced: bool,
) -> Outcome {
    let mut outcome = Outcome::default();
    for ((n, double), of_kin) in candidates {
        let all: Vec<&Candidate> = of_kin.iter().collect();
        let mut random = Random::new(u64::from(*n) << 1 | u64::from(*double));
        for _ in 0..sequences {
            let drawn = draw(&mut random, &all, forced);
            let _ = run(&drawn, schedules, &mut outcome);
        }
    }
    outcome
}

/// Correct plans, a fifth of them thin, and mutants of them that are still accepted.
fn field(generated: u64, mutants_each: usize) -> BTreeMap<Kin, Vec<Candidate>> {
    let thin = (0..generated / 4).map(|seed| thin::thin(2 + (seed % 3) as u32, seed).unwrap());
    let plans: Vec<Plan> = corpus(generated).into_iter().chain(thin).collect();
    let mut random = Random::new(7);
    let mut more = Vec::new();
    for plan in &plans {
        let mut all = if mutants_each == 0 { Vec::new() } else { mutants(plan) };
        while all.len() > mutants_each {
            let drawn = random.below(all.len());
            all.swap_remove(drawn);
        }
        let name = |class: &str, place: &str| format!("{} {class} at {place}", plan.name);
        more.extend(
            all.into_iter().map(|mutant| Plan { name: name(&mutant.class, &mutant.place), ..mutant.plan }),
        );
    }
    by_kin(plans.into_iter().chain(more))
}

#[test]
fn different_plans_on_one_scratch_pass() {
    let candidates = field(60, 3);
    let shared = |c: &&Candidate| c.is_shareable();
    let [shareable, apart] =
        [true, false].map(|yes| candidates.values().flatten().filter(|c| shared(c) == yes).count());
    // Both kinds take part, in both ways of buffering.
    assert!(shareable > 30 && apart > 10, "{shareable} shareable, {apart} not");
    for double in [false, true] {
        let kin = |(k, _): &(&Kin, &Vec<Candidate>)| k.1 == double;
        let of: usize = candidates.iter().filter(kin).map(|(_, c)| c.iter().filter(shared).count()).sum();
        assert!(of > 5, "double {double}: {of}");
    }
    let outcome = contest(&candidates, (60, 20), false);
    assert!(outcome.sequences > 300, "{outcome:?}");
    assert_eq!(outcome.failures, Vec::<String>::new());
}

/// The judge sees what V612 is for: plans that fail it do fail when they share.
#[test]
fn plans_that_may_not_share_fail_if_they_do() {
    let candidates = thin_plans(60);
    let outcome = contest(&candidates, (60, 40), true);
    assert!(outcome.kinds.values().sum::<u64>() > 10, "{:?}", outcome.kinds);
    for kind in [Kind::RaceOnRead, Kind::RaceOnWrite] {
        assert!(outcome.kinds.contains_key(&kind), "{:?}", outcome.kinds);
    }
    // The same plans pass where only those share that may.
    let outcome = contest(&candidates, (60, 40), false);
    assert_eq!(outcome.failures, Vec::<String>::new());
}

/// The simplest two: rank 2 fetches from rank 0's scratch and nobody waits for it; next, rank 1 puts there, which
/// knows rank 0 only.
#[test]
fn a_fetch_is_overrun_by_a_plan_that_does_not_know_the_fetcher() {
    let fetch = Candidate::new(thin::fetched(3, (0, 2)).unwrap()).unwrap();
    let put = Candidate::new(thin::staged(3, (1, 0)).unwrap()).unwrap();
    // Only rank 0 writes to scratch in the first, and it knows all who write there or read; not so rank 1.
    assert!(!put.shareable.raw, "{:?}", put.shareable);
    let run = |raw: bool| {
        let mut entries = Vec::new();
        for (number, Candidate { plan, sizes, .. }) in (0..).zip([&fetch, &put]) {
            entries.push(Entry { plan, size: sizes[0], number, raw, packets: false });
        }
        run(&Drawn { entries, launches: vec![0, 1, 0, 1] }, 200, &mut Outcome::default())
    };
    let failure = run(true).unwrap_err();
    assert!(matches!(failure.kind, Kind::RaceOnWrite | Kind::RaceOnRead), "{failure}");
    assert!(run(false).is_ok());
}

/// Writes what it finds to the file that `WARPWAY_RESULT` names.
#[test]
#[ignore = "takes minutes; results go to benchmarks/results"]
fn full_sequences() {
    let (sequences, schedules) = (number("SEQUENCES", 2_000), number("SCHEDULES", 200));
    let candidates = field(number("PLANS", 150), number("MUTANTS", 40) as usize);
    let outcome = contest(&candidates, (sequences, schedules), false);
    let mut kin_of = BTreeMap::new();
    for (kin, of_kin) in &candidates {
        let (shareable, all) = (of_kin.iter().filter(|c| c.is_shareable()).count(), of_kin.len());
        let double = if kin.1 { "two halves" } else { "one half" };
        kin_of.insert(format!("{} ranks, {double}", kin.0), json!({"plans": all, "shareable": shareable}));
    }
    let forced = contest(&thin_plans(150), (sequences / 10, schedules), true);
    let kinds = |outcome: &Outcome| -> BTreeMap<String, u64> {
        outcome.kinds.iter().map(|(kind, count)| (format!("{kind:?}"), *count)).collect()
    };
    let result = json!({
        "benchmark": "plan_sequences",
        "what": "random sequences of 4 to 8 launches of 2 to 4 different accepted plans, mutants among them, on the scratch \
                 that V612 lets them share, under random schedules with free launch skew",
        "command": "cargo test --release -p warpway-plan --test adversary full_sequences -- --ignored",
        "date": std::env::var("WARPWAY_DATE").unwrap_or_default(),
        "commit": std::env::var("WARPWAY_COMMIT").unwrap_or_default(),
        "machine": {"cores": std::thread::available_parallelism().map_or(0, usize::from)},
        "plans_by_ranks": kin_of,
        "sequences": outcome.sequences,
        "schedules_of_each": schedules,
        "schedules": outcome.schedules,
        "launches": outcome.launches,
        "seconds": outcome.judging.as_secs_f64(),
        "failed_sequences": outcome.kinds.values().sum::<u64>(),
        "first_failures": outcome.failures,
        "forced_to_share_against_v612": {
            "sequences": forced.sequences, "fail": forced.kinds.values().sum::<u64>(), "kinds": kinds(&forced),
        },
    });
    let text = serde_json::to_string_pretty(&result).unwrap();
    match std::env::var_os("WARPWAY_RESULT") {
        Some(path) => std::fs::write(path, text + "\n").unwrap(),
        None => println!("{text}"),
    }
    assert!(outcome.failures.is_empty(), "{:?}: {}", outcome.kinds, outcome.failures.join("\n"));
}
