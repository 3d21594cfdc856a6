//! Short plans that ask for many steps.

use warpway_plan::verify::{Options, Rule, Verdict, verify};
use warpway_plan::{CollectiveShape, Plan, Program, ProgramOptions};

/// Block 0 stages its input in slices of one byte and copies it to the output in slices of `coarse` bytes.
fn two_slices(coarse: u64) -> Plan {
    let mut p = Program::new(ProgramOptions::new("two_slices", CollectiveShape::all_reduce(1, 1))).unwrap();
    let stage = p.scratch(0, 1).unwrap().whole();
    let (input, output) = (p.input(0).unwrap().whole(), p.output(0).unwrap().whole());
    p.pipeline(1, 1, |p| p.copy(stage, input, 0)).unwrap();
    p.pipeline(coarse, 1, |p| p.copy(output, stage, 0)).unwrap();
    p.finish().unwrap()
}

/// A few lines can ask for many steps: their number decides, not the pairs of pieces of one item; beyond a bound
/// that grows with the plan there is no answer.
#[test]
fn short_plans_of_many_steps() {
    let report = verify(&two_slices(1 << 16), &Options::default());
    assert_eq!(report.verdict, Verdict::Accept, "{:?}", report.diagnostics);
    let report = verify(&two_slices(1 << 20), &Options::default());
    assert_eq!(report.verdict, Verdict::Inconclusive, "{:?}", report.diagnostics);
    assert!(report.diagnostics.iter().any(|d| d.rule == Rule(409)), "{:?}", report.diagnostics);
}
