//! Describes a collective algorithm: buffers and channels of all ranks, and what each block does with them, in order.
//! [`Program::finish`] runs the passes and gives the plan. The words mean what they mean in MSCCL++'s DSL.
//!
//! An all-gather of two ranks:
//!
//! ```
//! use warpway_plan::{CollectiveShape, DataSync, Program, ProgramOptions};
//!
//! let mut p = Program::new(ProgramOptions::new("all_gather", CollectiveShape::all_gather(2, 1)))?;
//! for (me, peer) in [(0, 1), (1, 0)] {
//!     let mine = p.input(me)?.whole();
//!     let place = u64::from(me);
//!     let channel = p.memory_channel(me, peer)?;
//!     // The peer's output may be written once the peer has begun.
//!     p.signal_relaxed(channel, 0, DataSync::None)?;
//!     p.wait_relaxed(channel, 0, DataSync::After)?;
//!     p.copy(p.output(me)?.chunk(place..place + 1)?, mine, 0)?;
//!     p.put(channel, p.output(peer)?.chunk(place..place + 1)?, mine, 0)?;
//!     p.signal(channel, 0, DataSync::Before)?;
//!     p.wait(channel, 0, DataSync::After)?;
//! }
//! let plan = p.finish()?;
//! assert_eq!(plan.ranks[0].blocks[0].operations.len(), 9);
//! # Ok::<(), warpway_plan::BuildError>(())
//! ```
//!
//! | what | how |
//! |---|---|
//! | buffers | [`Program::input`], [`output`](Program::output), [`scratch`](Program::scratch); [`Buffer::chunk`] |
//! | who does it | a block number, or a [`ThreadBlockGroup`] whose members share the bytes |
//! | what is done | the operations of [`Program`], one method each |
//! | loops | [`Program::pipeline`] |
//! | where it was said | the caller's line, or [`Program::set_location`] for other languages |
//!
//! Block barriers (`nop`) come from three places: an operation's [`DataSync`] mark, hazards within a block, and
//! [`Program::barrier`] with one block. Everything between blocks and ranks must be said.

mod emit;
mod error;
mod handles;
mod pipeline;
mod program;
mod reduction;
mod shape;
mod step;
mod switch;
mod synchronize;
mod tables;
mod transfer;

pub use emit::Emitted;
pub use error::{BuildError, BuildProblem, Site};
pub use handles::{
    Blocks, Buffer, Channel, Chunk, DataSync, MemoryChannel, PortChannel, Semaphore, SwitchGroup,
    SwitchRegion, ThreadBlockGroup,
};
pub use program::{Program, ProgramOptions};
pub use reduction::Reduction;
pub use shape::{BufferSizeIds, CollectiveShape, RankBuffers};

pub(crate) use shape::Alias;
pub(crate) use step::{Block, DataStep, PipelineStep, Step, StepAction, SyncKind, SyncStep, flat};
