//! Proof before running: does the plan end, is it free of races, and does it compute what it claims?
//!
//! | file | question it answers |
//! |---|---|
//! | `options.rs`, `report.rs` | what is asked, what is answered |
//! | `scale.rs`, `extent.rs` | positions inside chunks that hold for every size |
//! | `trace.rs`, `accesses.rs` | the plan unrolled; what a step touches |
//! | `schedule.rs` | one run with maximal progress: V4 |

#![allow(dead_code, reason = "the rules that use it are being written")]

mod accesses;
mod extent;
mod intervals;
mod options;
mod report;
mod scale;
mod schedule;
mod trace;

pub use options::{DeviceLimits, Goal, GoalFn, Options, Profile, Target};
pub use report::{Diagnostic, OpPath, Place, Region, Rule, Severity, Verdict};

use scale::Scale;
use trace::Trace;

use crate::ir::Plan;
use crate::topology::Topology;

/// Examines a plan. Deterministic; takes time and memory in proportion to the operations, pipelines taken
/// apart.
pub fn verify(plan: &Plan, options: &Options<'_>) -> Vec<Diagnostic> {
    let topology = Topology::new(plan);
    let mut diagnostics = Vec::new();
    let multiples = if options.chunk_units.is_empty() { &[1, 2, 3][..] } else { &options.chunk_units };
    for multiple in multiples {
        let Some(scale) = Scale::new(plan, *multiple) else { continue };
        match Trace::new(&topology, scale, options.step_budget()) {
            Ok(trace) => {
                let schedule = schedule::run(&trace);
                for (block, (step, why)) in &schedule.blocked {
                    let message = format!("blocked for ever: {why:?}");
                    diagnostics.push(Diagnostic::error(401, message).at(trace.place(*block, *step)));
                }
            }
            Err(diagnostic) => diagnostics.push(*diagnostic),
        }
    }
    diagnostics
}
