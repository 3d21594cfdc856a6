//! A plan's verdict: many schedules at a few sizes.

use std::ops::Range;

use warpway_plan::{Action, Plan};

use crate::machine::{Failure, Machine, Meaningless, Program, Size};

/// Launches of each run: with double buffering the third one meets the scratch of the first.
pub(crate) const LAUNCHES: u32 = 3;

/// One chunk of 1, 2 and 3 lanes, or of 1, 2 and 3 units of the pipelines.
pub(crate) fn sizes(plan: &Plan) -> Vec<Size> {
    let units: Vec<u64> = plan
        .operations()
        .filter_map(|(_, _, o)| match &o.action {
            Action::Pipeline(pipeline) => Some(pipeline.unit_size),
            _ => None,
        })
        .collect();
    let divisor = units.iter().copied().reduce(divisor).unwrap_or(0);
    let most = units.iter().copied().max().unwrap_or(0);
    if divisor == 0 {
        return [1, 2, 3].map(|lanes| Size { lane_bytes: 16, lanes }).to_vec();
    }
    let lane_bytes = if divisor.is_multiple_of(32) { divisor / 2 } else { divisor };
    let per_unit = (most / lane_bytes).min(16) as u32;
    [1, 2, 3].map(|units| Size { lane_bytes, lanes: units * per_unit }).to_vec()
}

fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

/// Runs a plan under the schedules of those seeds; the first failure ends it.
pub(crate) fn judge(plan: &Plan, size: Size, seeds: Range<u64>, launches: u32) -> Result<(), Failure> {
    let program = Program::new(plan, size).map_err(|Meaningless(why)| Failure {
        kind: crate::machine::Kind::Meaningless,
        seed: seeds.start,
        message: why,
        schedule: Vec::new(),
    })?;
    let mut machine = Machine::new(&program);
    for seed in seeds {
        machine.run(seed, launches)?;
    }
    Ok(())
}
