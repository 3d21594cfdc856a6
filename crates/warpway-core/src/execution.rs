//! What can go wrong when a plan is set up or run, on any engine.

use std::fmt;

use crate::error::{Error, ErrorCode};

/// A plan that is refused, launched wrongly, or that failed while it ran.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ExecutionError {
    /// The ranks do not set up the same plan.
    #[error(
        "rank {rank} sets up {here}, but rank {peer} {there}; all ranks set up the same plan, with the same repairs"
    )]
    Disagreement {
        /// This rank.
        rank: u32,
        /// A rank that sets up another.
        peer: u32,
        /// The plan here.
        here: String,
        /// The plan there.
        there: String,
    },
    /// The ranks do not launch the same.
    #[error(
        "step {sequence}, plan {plan:?} on rank {rank}: the {field} differs: {here} on rank {rank}, {there} on rank {peer}"
    )]
    Difference {
        /// Number of the step on this communicator, from 1: launches and set-ups of plans are counted together.
        sequence: u64,
        /// Name of the plan here.
        plan: String,
        /// The first field that differs.
        field: &'static str,
        /// This rank.
        rank: u32,
        /// What it launched.
        here: String,
        /// The other rank.
        peer: u32,
        /// What that one launched.
        there: String,
    },
    /// A rank has refused its call, and does not take part in a step of this one.
    #[error("step {sequence}: rank {rank} {here}, but rank {peer} has refused its call: {why}")]
    PeerRefused {
        /// Number of the step, as in [`Difference`](Self::Difference).
        sequence: u64,
        /// This rank.
        rank: u32,
        /// What it does.
        here: String,
        /// The rank that has refused.
        peer: u32,
        /// Its words.
        why: String,
    },
    /// A rank has not come, and the one that this rank waits for waits for it.
    #[error(
        "step {sequence}, plan {plan:?}: rank {peer} has not come, for which rank {through} waits: {cause}"
    )]
    Absent {
        /// Number of the step.
        sequence: u64,
        /// Name of the plan here.
        plan: String,
        /// The rank that is waited for in the end.
        peer: u32,
        /// The rank that this one waits for.
        through: u32,
        /// The wait that gave up here.
        cause: Box<Error>,
    },
    /// A plan that cannot run here, whatever the message.
    #[error("plan {plan:?} cannot run here: {why}")]
    Refused {
        /// Its name.
        plan: String,
        /// Why not.
        why: String,
    },
    /// A plan with an operation that needs the memory of a rank mapped which is on another host.
    #[error(
        "plan {plan:?} cannot run here: rank {rank}, {place} reaches rank {peer} by {by}, but rank {peer} is on another \
         host; between hosts data and signals go by port channels"
    )]
    OtherHost {
        /// The plan's name.
        plan: String,
        /// The rank whose operation it is.
        rank: u32,
        /// The rank that it reaches.
        peer: u32,
        /// The operation.
        place: StepPlace,
        /// What it reaches it by.
        by: &'static str,
    },
    /// A message or buffer that the plan does not take. Nothing was launched.
    #[error("rank {rank}: plan {plan:?} was not launched: {why}")]
    Launch {
        /// This rank.
        rank: u32,
        /// The plan's name.
        plan: String,
        /// What is wrong.
        why: String,
    },
    /// Counts that the plan does not take, found when the launch had begun: it fails on all ranks.
    #[error("rank {rank}: the launch of plan {plan:?} fails: {why}")]
    Size {
        /// This rank.
        rank: u32,
        /// The plan's name.
        plan: String,
        /// What is wrong.
        why: String,
    },
    /// A peer's buffer is shorter than what this rank accesses of it.
    #[error(
        "rank {rank} needs {needed} bytes of the {buffer} of rank {peer}, which has launched with {bytes}"
    )]
    PeerBuffer {
        /// This rank.
        rank: u32,
        /// The owner.
        peer: u32,
        /// `input` or `output`.
        buffer: &'static str,
        /// Bytes that are accessed.
        needed: u64,
        /// Bytes that there are.
        bytes: u64,
    },
    /// An operation failed while the plan ran.
    #[error("rank {rank}, {place} of plan {plan:?}: {cause}")]
    Step {
        /// This rank.
        rank: u32,
        /// The plan's name.
        plan: String,
        /// The operation.
        place: StepPlace,
        /// What happened; part of the message, and so no source of its own.
        cause: Box<Error>,
    },
}

/// Names an operation of a plan that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepPlace {
    /// Thread block.
    pub block: u32,
    /// Position in the block.
    pub operation: u32,
    /// Position in the pipeline at that position.
    pub inner: Option<u32>,
    /// Name of the operation in the plan's file.
    pub name: &'static str,
    /// Round of the pipeline.
    pub iteration: u64,
}

impl fmt::Display for StepPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { block, operation, inner, name, iteration } = self;
        write!(f, "block {block}, operation {operation}")?;
        match inner {
            Some(inner) => write!(f, ".{inner} ({name}, iteration {iteration})"),
            None => write!(f, " ({name})"),
        }
    }
}

impl ExecutionError {
    /// The numeric code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Launch { .. } => ErrorCode::InvalidUsage,
            Self::Step { cause, .. } | Self::Absent { cause, .. } => cause.code(),
            _ => ErrorCode::ExecutorError,
        }
    }

    /// A stable id.
    pub fn id(&self) -> &'static str {
        match self {
            Self::Disagreement { .. } => "plan.disagreement",
            Self::Difference { .. } => "plan.difference",
            Self::PeerRefused { .. } => "plan.peer_refused",
            Self::Absent { .. } => "plan.absent",
            Self::Refused { .. } => "plan.refused",
            Self::OtherHost { .. } => "plan.other_host",
            Self::Launch { .. } => "plan.launch",
            Self::Size { .. } => "plan.size",
            Self::PeerBuffer { .. } => "plan.peer_buffer",
            Self::Step { cause, .. } => cause.id(),
        }
    }

    /// The other rank concerned.
    pub fn peer(&self) -> Option<u32> {
        match self {
            Self::Disagreement { peer, .. }
            | Self::Difference { peer, .. }
            | Self::PeerRefused { peer, .. }
            | Self::Absent { peer, .. }
            | Self::OtherHost { peer, .. }
            | Self::PeerBuffer { peer, .. } => Some(*peer),
            Self::Step { cause, .. } => cause.peer(),
            Self::Refused { .. } | Self::Launch { .. } | Self::Size { .. } => None,
        }
    }
}
