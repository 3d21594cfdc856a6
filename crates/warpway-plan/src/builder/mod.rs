//! Describes a collective algorithm: buffers and channels of all ranks, and what each block does with them, in order.
//! [`Program::finish`] runs the passes and gives the plan. The words mean what they mean in MSCCL++'s DSL.
//!
//! | file | question it answers |
//! |---|---|
//! | `program.rs` | what a program is, and how an operation gets into it |
//! | `shape.rs`, `handles.rs` | which collectives there are; what programs name |
//! | `transfer.rs`, `reduction.rs`, `switch.rs`, `synchronize.rs`, `pipeline.rs` | the operations |
//! | `tables.rs`, `step.rs` | the numbering of a plan; operations as the passes see them |
//! | `emit.rs` | from program to plan |
//! | `error.rs` | why a program is refused |

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
