//! A plan's verdict: many schedules at a few sizes.

use std::ops::Range;

use warpway_plan::{Action, Collective, Plan};

use crate::machine::{Failure, Machine, Meaningless, Program, Size};

/// Launches of each run: with double buffering the third one meets the scratch of the first.
pub(crate) const LAUNCHES: u32 = 3;

/// One chunk of 1, 2 and 3 lanes, or of 1, 2 and 3 units of the pipelines; a ragged size where the plan may have
/// one; chunk sizes drawn at random for sized plans.
pub(crate) fn sizes(plan: &Plan) -> Vec<Size> {
    let mut units: Vec<u64> = Vec::new();
    let mut grouped = false;
    for (_, _, operation) in plan.operations() {
        match &operation.action {
            Action::Pipeline(pipeline) => units.push(pipeline.unit_size),
            Action::Data(data) => grouped |= data.group.is_some(),
            _ => {}
        }
    }
    let divisor = units.iter().copied().reduce(divisor).unwrap_or(0);
    let most = units.iter().copied().max().unwrap_or(0);
    let lane_bytes = if divisor.is_multiple_of(32) { (divisor / 2).max(16) } else { divisor };
    let per_unit = most.checked_div(lane_bytes).unwrap_or(1).clamp(1, 16) as u32;
    let even = |lanes| Size { lane_bytes, lanes, missing: 0, extents: 0 };
    if plan.ranks.iter().any(|rank| rank.size_ids.is_some()) {
        return (1..=4).map(|extents| Size { extents, ..even(3 * per_unit) }).collect();
    }
    let mut sizes = [1, 2, 3].map(|units| even(units * per_unit)).to_vec();
    // One lane less than a whole number of chunks in each period.
    let ragged = matches!(
        plan.collective,
        Collective::AllReduce
            | Collective::AllGather
            | Collective::ReduceScatter
            | Collective::AllToAll
            | Collective::SendRecv
    );
    if ragged && units.is_empty() && !grouped {
        sizes.push(Size { missing: 1, ..even(2) });
    }
    sizes
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
    let turns = Program::turns(launches);
    for seed in seeds {
        machine.run(seed, &turns)?;
    }
    Ok(())
}
