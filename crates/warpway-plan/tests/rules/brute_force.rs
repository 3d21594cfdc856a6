//! Order by brute force: tiny random plans, the edges of plan-format.md 10.3 as an explicit graph over several
//! launches, and every pair of accesses looked at. The verifier must find the same.

mod graph;
mod program;

use std::collections::BTreeSet;

use graph::Graph;
use program::{Buffer, Program};
use warpway_plan::verify::{Options, Place, Severity, Verdict, verify};

use super::strict;

/// Rank, block, position in the block's list.
type At = (u32, u32, u32);

/// What the definitions forbid, by operations.
#[derive(Debug, Default, PartialEq, Eq)]
struct Faults {
    /// Accesses of one launch that meet without order, the lesser place first.
    races: BTreeSet<[At; 2]>,
    /// V507, V508, V511.
    not_started: BTreeSet<At>,
    not_over: BTreeSet<At>,
    not_complete: BTreeSet<At>,
    /// V509: of one launch, and of the next one on the same scratch.
    reuse: BTreeSet<[At; 2]>,
}

fn expected(program: &Program) -> Faults {
    let after = if program.double { 2 } else { 1 };
    let data = Graph::new(program, after + 1, false);
    let execution = Graph::new(program, 1, true);
    let mut faults = Faults::default();
    for (number, a) in data.accesses.iter().enumerate() {
        let rank = a.at.0;
        if a.launch == 0 {
            if a.of.rank != rank && a.of.buffer != Buffer::Scratch {
                // The same numbers in both graphs, as far as one launch goes.
                if !execution
                    .reaches(execution.starts[0][a.of.rank as usize], execution.accesses[number].begin)
                {
                    faults.not_started.insert(a.at);
                }
                if !data.reaches(a.end, data.ends[0][a.of.rank as usize]) {
                    faults.not_over.insert(a.at);
                }
            }
            if a.by_proxy && a.of.rank == rank && !data.reaches(a.end, data.ends[0][rank as usize]) {
                faults.not_complete.insert(a.at);
            }
        }
        for b in data.accesses.iter().filter(|b| a.of == b.of && (a.writes || b.writes)) {
            let ordered = data.reaches(a.end, b.begin);
            if (a.launch, b.launch) == (0, 0) && a.at < b.at && !ordered && !data.reaches(b.end, a.begin) {
                faults.races.insert([a.at, b.at]);
            }
            let between_ranks = a.of.buffer == Buffer::Scratch && rank != b.at.0;
            if (a.launch, b.launch) == (0, after) && between_ranks && !ordered {
                faults.reuse.insert([a.at, b.at]);
            }
        }
    }
    faults
}

fn at(place: &Place) -> At {
    (place.rank, place.block.unwrap(), place.op.unwrap().index)
}

#[test]
fn verdicts_agree_with_the_definitions() {
    let (mut accepted, mut seen) = (0, [0; 5]);
    for seed in 0..8000 {
        let program = Program::random(seed);
        let plan = program.plan();
        let faults = expected(&program);
        let report = verify(&plan, &Options { checks: vec![3, 4, 5, 6], ..strict() });
        let context =
            || format!("seed {seed}: {faults:#?}\n{:#?}\n{}", report.diagnostics, program.listing());
        assert_eq!(report.verdict == Verdict::Accept, faults == Faults::default(), "{}", context());
        accepted += u32::from(report.verdict == Verdict::Accept);
        let counts = [
            faults.races.len(),
            faults.not_started.len(),
            faults.not_over.len(),
            faults.not_complete.len(),
            faults.reuse.len(),
        ];
        seen.iter_mut().zip(counts).for_each(|(seen, count)| *seen += u32::from(count > 0));

        let (mut not_started, mut not_complete) = (BTreeSet::new(), BTreeSet::new());
        for found in report.diagnostics.iter().filter(|d| d.severity == Severity::Error) {
            let places: Vec<At> = found.places.iter().map(at).collect();
            let is_true = match (found.rule.0, &places[..]) {
                (507, [at]) => not_started.insert(*at) | true,
                (511, [at]) => not_complete.insert(*at) | true,
                (509, [a, b]) => faults.reuse.contains(&[*a, *b]),
                (_, [at]) => faults.not_over.contains(at),
                (_, [a, b]) => faults.races.contains(&[*a.min(b), *a.max(b)]),
                _ => false,
            };
            assert!(is_true, "{found}\n{}", context());
            assert!(!found.schedule.is_empty(), "{found}");
        }
        assert_eq!(not_started, faults.not_started, "{}", context());
        assert_eq!(not_complete, faults.not_complete, "{}", context());
    }
    // Plans of all kinds came up.
    assert!(accepted > 200 && seen.iter().all(|count| *count > 200), "{accepted} accepted; faults: {seen:?}");
}
