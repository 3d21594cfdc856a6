//! What is asked of the verifier.

use super::report::Rule;
use crate::ir::Plan;

/// Whose executor the plan is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Target {
    /// Warpway's.
    #[default]
    Warpway,
    /// MSCCL++'s: its limits and defects count as errors.
    Mscclpp,
}

/// How strict the verifier is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Profile {
    /// What MSCCL++ programs commonly do is a warning, and the executor repairs it.
    #[default]
    Default,
    /// It is an error; nothing is repaired.
    Strict,
}

/// What the output is to hold, given by the user for `test` and `custom` plans: the value of one chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Goal {
    /// The input chunk of a rank.
    Input {
        /// Rank.
        rank: u32,
        /// Chunk of its input.
        chunk: u64,
    },
    /// The fold of these input chunks (rank, chunk).
    Fold(Vec<(u32, u64)>),
    /// Anything, also what was never written.
    Any,
}

/// The goal of one output chunk: plan, rank, chunk.
pub type GoalFn<'a> = &'a (dyn Fn(&Plan, u32, u64) -> Goal + Sync);

/// The device that a plan is to run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceLimits {
    /// Blocks that can be resident at the same time.
    pub resident_blocks: u64,
    /// Multicast loads and stores work.
    pub multicast: bool,
}

/// See the module's page. `Options::default()` is what the command line does without flags.
#[derive(Clone, Default)]
pub struct Options<'a> {
    /// Whose executor.
    pub target: Target,
    /// How strict.
    pub profile: Profile,
    /// A plan of the built-in catalogue: strict, no waivers, V711 is an error.
    pub catalogue: bool,
    /// Root of broadcast, reduce, gather and scatter.
    pub root: u32,
    /// Chunk sizes to check, in units of the largest pipeline unit; empty: 1, 2 and 3.
    pub chunk_units: Vec<u64>,
    /// Concrete sizes of the message in bytes to check as well (V209, V215).
    pub sizes: Vec<u64>,
    /// The device, if known (V406, V903).
    pub device: Option<DeviceLimits>,
    /// The goal of `test` and `custom` plans; without one V707 says that the result was not checked.
    pub goal: Option<GoalFn<'a>>,
    /// The input may be overwritten; `None`: only by an in-place all-reduce.
    pub may_clobber_input: Option<bool>,
    /// Groups of rules to check, by the hundreds of their numbers (5: races); empty: all. V1 and V2 always are.
    pub checks: Vec<u16>,
    /// Rules whose findings become notes, by the user's decision. Not for catalogue plans, nor for V1, V2 and
    /// V409.
    pub waivers: Vec<Rule>,
    /// Steps that are examined at most, pipelines taken apart; 0: 2^19, or 64 for each operation of the plan if
    /// that is more. Beyond it the verdict is inconclusive.
    pub max_steps: u64,
}

impl Options<'_> {
    /// True if findings that Warpway's executor can repair are errors. Others do not repair, so for them the
    /// profile makes no difference.
    pub fn is_strict(&self) -> bool {
        self.catalogue || self.profile == Profile::Strict || self.target == Target::Mscclpp
    }

    /// True if the rules of a group (5: races) are to be checked.
    pub(super) fn checks(&self, group: u16) -> bool {
        self.checks.is_empty() || self.checks.contains(&group)
    }

    /// A short plan must not cost what a long one does: memory is in proportion to the steps.
    pub(super) fn step_budget(&self, plan: &Plan) -> u64 {
        match self.max_steps {
            0 => (plan.operations().count() as u64).saturating_mul(64).max(1 << 19),
            most => most,
        }
    }
}
