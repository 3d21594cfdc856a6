//! One rank's part of a plan with every number resolved: which buffer of which rank, which channel, in which order a fold
//! takes its sources. No sizes yet: where the bytes of a message lie, [`Transfer::pieces`] asks its layout.
//!
//! Engines that generate code need the structure once per plan and the pieces once per message size.

mod lowering;

use std::fmt;

use crate::ir::{BufferKind, Form, GroupMember, Pipeline, ReduceOp, Via};
use crate::layout::{LayoutError, MessageLayout, Pieces, Placement};
use crate::topology::Topology;
use crate::verify::FoldRoles;

/// What one rank does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lowered {
    /// The rank.
    pub rank: u32,
    /// Buffers that operands name by position, each once.
    pub bases: Vec<Base>,
    /// Blocks that do something, ascending.
    pub blocks: Vec<LoweredBlock>,
}

/// A buffer that operations touch. Raw data and packets of a scratch lie in areas of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Base {
    /// Its owner.
    pub rank: u32,
    /// Which of the owner's.
    pub buffer: BufferKind,
    /// Which area of a scratch; raw for inputs and outputs.
    pub form: Form,
}

/// What one thread block does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoweredBlock {
    /// Its number in the plan.
    pub number: u32,
    /// In program order.
    pub steps: Vec<Step>,
}

/// One step, with its place in the plan for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Position of the operation in the block.
    pub operation: u32,
    /// Position in the body of a pipeline.
    pub inner: Option<u32>,
    /// The operation's name in the file.
    pub name: &'static str,
    /// What is done.
    pub action: StepAction,
}

/// What is done by all threads of a block. Numbers of channels, barriers and semaphores are those of the rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepAction {
    /// Barrier of the block.
    BlockBarrier,
    /// Barrier of `blocks` blocks, each of which is one of the block's own too.
    Barrier {
        /// Number of the barrier.
        id: u32,
        /// How many blocks take part.
        blocks: u32,
    },
    /// Thread `j` signals channel `j` of the list.
    Signal {
        /// Memory or port.
        via: Via,
        /// Without order to the data.
        relaxed: bool,
        /// Channels.
        channels: Vec<u32>,
    },
    /// Thread `j` waits on channel `j` of the list.
    Wait {
        /// Memory or port.
        via: Via,
        /// Without order to the data.
        relaxed: bool,
        /// Channels.
        channels: Vec<u32>,
    },
    /// Waits until all earlier requests of each port channel are complete.
    Flush {
        /// Channels.
        channels: Vec<u32>,
    },
    /// Thread `j` takes one from semaphore `j` of the list.
    Acquire {
        /// Semaphores.
        semaphores: Vec<u32>,
    },
    /// Thread `j` gives one to semaphore `j` of the list.
    Release {
        /// Semaphores.
        semaphores: Vec<u32>,
    },
    /// Loads and stores.
    Move(Transfer),
    /// Waits until the packets of the source are there, all of them.
    Await(Transfer),
    /// A request to the proxy of a port channel.
    Put {
        /// The channel.
        channel: u32,
        /// One source, one destination.
        transfer: Transfer,
        /// Followed by a signal.
        signals: bool,
        /// Followed by a flush.
        flushes: bool,
    },
    /// Steps that run slice by slice; none of them is a loop.
    Loop {
        /// What says how often, see [`MessageLayout::iterations`]; its body is empty here.
        pipeline: Pipeline,
        /// The steps.
        body: Vec<Step>,
    },
}

/// From some places to others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfer {
    /// What becomes of the sources.
    pub kind: TransferKind,
    /// In the order in which they enter a fold.
    pub sources: Vec<Operand>,
    /// Each gets the whole result.
    pub destinations: Vec<Operand>,
    /// Sources, then destinations.
    placements: Vec<Placement>,
    group: Option<GroupMember>,
    slice: Option<u64>,
}

/// What becomes of the sources of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TransferKind {
    /// There is one source.
    Copy,
    /// All sources are joined.
    Fold {
        /// The operator.
        op: ReduceOp,
        /// The result enters no other fold.
        last: bool,
    },
}

/// A buffer in the hands of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Operand {
    /// Position in [`Lowered::bases`].
    pub base: u32,
    /// How data lies there.
    pub form: Form,
    /// Of a fold's source: what the user gave, not the result of another fold.
    pub input: bool,
}

impl Lowered {
    /// The part of `rank`. `roles` say which sources an average scales, see
    /// [`Report::fold_roles`](crate::verify::Report::fold_roles).
    ///
    /// # Errors
    /// References that lead nowhere. Verified plans have none.
    pub fn new(topology: &Topology<'_>, rank: u32, roles: &FoldRoles) -> Result<Self, LoweringError> {
        lowering::lower(topology, rank, roles)
    }
}

impl Transfer {
    /// Operands of each piece: sources, then destinations.
    pub fn width(&self) -> usize {
        self.placements.len()
    }

    /// Sources, then destinations.
    pub fn operands(&self) -> impl Iterator<Item = &Operand> {
        self.sources.iter().chain(&self.destinations)
    }

    /// Bytes of a slice of the pipeline that it is in.
    pub fn slice(&self) -> Option<u64> {
        self.slice
    }

    /// Where its bytes lie in one message: offsets in bytes of data, of packets too.
    ///
    /// # Errors
    /// Those of [`MessageLayout::place`].
    pub fn pieces(&self, layout: &MessageLayout, pieces: &mut Pieces) -> Result<(), LayoutError> {
        layout.place(&self.placements, self.group, self.slice, pieces)
    }
}

/// A plan that cannot be lowered, with the place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rank {rank}, block {block}, operation {operation}{}: {why} (verify the plan)", Inner(*.inner))]
pub struct LoweringError {
    /// The rank.
    pub rank: u32,
    /// The block.
    pub block: u32,
    /// The operation.
    pub operation: u32,
    /// In the body of a pipeline.
    pub inner: Option<u32>,
    /// What is wrong.
    pub why: &'static str,
}

struct Inner(Option<u32>);

impl fmt::Display for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |inner| write!(f, ".{inner}"))
    }
}
