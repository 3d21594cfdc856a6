//! Why a program was refused: what, where in the plan, and where in the source of the program.

use std::fmt;

use crate::ir::{BufferKind, Extension, Location, Via};

/// A step of a program that makes no sense, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildError(Box<Refusal>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Refusal {
    site: Site,
    problem: BuildProblem,
}

/// Where a program was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// The call, by its name in [`Program`](crate::Program).
    pub operation: &'static str,
    /// The rank that would run it.
    pub rank: Option<u32>,
    /// The block, or the first of a group.
    pub block: Option<u32>,
    /// The line of the program.
    pub location: Option<Location>,
}

impl BuildError {
    pub(crate) fn new(site: Site, problem: BuildProblem) -> Self {
        Self(Box::new(Refusal { site, problem }))
    }

    /// Where.
    pub fn site(&self) -> &Site {
        &self.0.site
    }

    /// What, and what to do about it.
    pub fn problem(&self) -> &BuildProblem {
        &self.0.problem
    }
}

impl std::error::Error for BuildError {}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.site, self.0.problem)
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.operation)?;
        if let Some(rank) = self.rank {
            write!(f, ", rank {rank}")?;
        }
        if let Some(block) = self.block {
            write!(f, ", block {block}")?;
        }
        if let Some(location) = &self.location {
            write!(f, ", {}:{}", location.file, location.line)?;
        }
        Ok(())
    }
}

/// What is wrong with a step of a program. Sizes and offsets are in chunks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildProblem {
    /// A rank that does not exist.
    #[error("rank {rank} does not exist: the program has ranks 0 to {}", .n_ranks.saturating_sub(1))]
    RankOutOfRange {
        /// As given.
        rank: u32,
        /// Ranks of the program.
        n_ranks: u32,
    },
    /// A block number beyond what any device holds.
    #[error("block {block} is too large: number blocks densely from 0, below {limit}")]
    BlockOutOfRange {
        /// As given, or after replication.
        block: u64,
        /// Greatest number plus one.
        limit: u32,
    },
    /// A group, a list of ranks or a barrier without members.
    #[error("the list of {what} is empty")]
    Empty {
        /// Members of what.
        what: &'static str,
    },
    /// A number twice in a list of different ones.
    #[error("{what} {number} is named twice")]
    Duplicate {
        /// Members of what.
        what: &'static str,
        /// The number.
        number: u32,
    },
    /// A range that ends before it starts.
    #[error("the range {start}..{end} ends before it starts")]
    BadRange {
        /// First chunk.
        start: u64,
        /// Chunk after the last.
        end: u64,
    },
    /// A range that leaves its buffer.
    #[error("chunks up to {end} of buffer {buffer} of rank {rank}, which has {size}")]
    BeyondBuffer {
        /// The buffer.
        buffer: BufferKind,
        /// Its owner.
        rank: u32,
        /// Chunk after the last.
        end: u64,
        /// Chunks of the buffer.
        size: u64,
    },
    /// A chunk of another rank than the operation needs.
    #[error("the {role} must lie on rank {expected}, not on rank {found}")]
    WrongRank {
        /// Which operand.
        role: &'static str,
        /// Where it must lie.
        expected: u32,
        /// Where it lies.
        found: u32,
    },
    /// Operands of different size.
    #[error("the {role} has {found} chunks where {expected} are needed: give all operands the same size")]
    SizeMismatch {
        /// Which operand.
        role: &'static str,
        /// Chunks of the first operand.
        expected: u64,
        /// Chunks of this one.
        found: u64,
    },
    /// Packets outside the scratch.
    #[error("the {role} holds packets and must lie in scratch, not in buffer {found}")]
    NotScratch {
        /// Which operand.
        role: &'static str,
        /// Where it lies.
        found: BufferKind,
    },
    /// A group of blocks where one block is needed.
    #[error("a group of blocks cannot do this together: name one block")]
    GroupNotAllowed,
    /// `order` does not name every source once.
    #[error("the order must name each of the {sources} source positions once")]
    BadOrder {
        /// Number of sources.
        sources: usize,
    },
    /// A rank outside the group of a switch channel.
    #[error("rank {rank} is no member of the switch channel")]
    NotInGroup {
        /// As given.
        rank: u32,
    },
    /// A handle of another program.
    #[error("the {what} belongs to another program")]
    UnknownHandle {
        /// Kind of handle.
        what: &'static str,
    },
    /// Chunks whose bytes differ at launch.
    #[error(
        "chunk {chunk} of the {role} has size id {found:?} where {expected:?} is needed: \
         only chunks of equal size id have equal bytes"
    )]
    DifferentSizeIds {
        /// Which operand.
        role: &'static str,
        /// Position within it.
        chunk: u64,
        /// Of the first operand.
        expected: Option<u64>,
        /// Of this one.
        found: Option<u64>,
    },
    /// Scratch of a sized program without one id per chunk, or with ids in a program that is not sized.
    #[error("scratch of {size} chunks needs {expected} size ids, not {found}")]
    SizeIdCount {
        /// Chunks.
        size: u64,
        /// Ids needed.
        expected: u64,
        /// Ids given.
        found: u64,
    },
    /// A pipeline in a pipeline.
    #[error("a pipeline cannot contain another one")]
    NestedPipeline,
    /// The end of a pipeline that was not begun.
    #[error("no pipeline is open")]
    NoPipeline,
    /// A program that ends in a pipeline.
    #[error("a pipeline is still open: end or discard it first")]
    OpenPipeline,
    /// A pipeline that does not fit the program: sized programs need a size id and one chunk, others none.
    #[error("sized programs need pipelines with a size id, other programs pipelines without")]
    PipelineSizeId,
    /// An option outside its range.
    #[error("{option} = {value} is not possible: {allowed}")]
    InvalidOption {
        /// Its name.
        option: &'static str,
        /// As given.
        value: u64,
        /// What is possible.
        allowed: &'static str,
    },
    /// Instances of a sized program.
    #[error("a sized program cannot have {instances} instances: use groups of blocks")]
    SizedInstances {
        /// As given.
        instances: u32,
    },
    /// Signals that no wait takes, or the reverse.
    #[error(
        "{signals} signals but {waits} waits from rank {from} to rank {to} on {} channels: \
         each signal needs one wait at the other end", match .via { Via::Memory => "memory", Via::Port => "port" }
    )]
    SignalWaitMismatch {
        /// The signaller.
        from: u32,
        /// The waiter.
        to: u32,
        /// Type of the channels.
        via: Via,
        /// Calls that signal.
        signals: u64,
        /// Calls that wait.
        waits: u64,
    },
    /// A program that MSCCL++ cannot express, in compatibility mode.
    #[error("MSCCL++ has no {}: emit without compatibility mode", .0.name())]
    NeedsExtension(Extension),
    /// A number that leaves 64 bits.
    #[error("{what} is too large")]
    TooLarge {
        /// Which number.
        what: &'static str,
    },
}
