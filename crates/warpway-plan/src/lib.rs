//! Execution plans: what every rank of a collective does, as data that is proven before it runs.
//!
//! | module | question it answers |
//! |---|---|
//! | `ir` | what a plan is |
//! | `data_type.rs` | what its elements are |
//! | `topology.rs` | what its numbers mean |
//! | `verify` | whether it is right |
//! | `layout` | how many bytes a chunk has, and where they lie |
//! | `repairs.rs` | what an executor adds to a plan that lacks a handshake |
//! | `builder` | how a program describes it |
//! | `passes` | what happens to a program before it is a plan |
//! | `testing` | algorithms as inputs for tests (feature `testing`) |
//! | `check` | whether its form is right |
//! | `json` | how it is written to a file |
//!
//! The crate is pure: no I/O, no unsafe code, no engine.
#![forbid(unsafe_code)]

mod builder;
mod check;
mod data_type;
mod ir;
mod json;
mod layout;
mod notation;
mod passes;
mod repairs;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod topology;
pub mod verify;

pub use builder::{
    Blocks, Buffer, BufferSizeIds, BuildError, BuildProblem, Channel, Chunk, CollectiveShape, DataSync,
    Emitted, MemoryChannel, PortChannel, Program, ProgramOptions, RankBuffers, Reduction, Semaphore, Site,
    SwitchGroup, SwitchRegion, ThreadBlockGroup,
};
pub use check::Finding;
pub use data_type::{DataType, UnknownDataType};
pub use ir::*;
pub use json::{PlanIdentity, ReadError, ReadPlan, Style, plan_schema};
pub use layout::{
    Alias, AreaBytes, ChunkTable, Extent, Geometry, LayoutError, LayoutRequest, MessageLayout, MessageSizes,
    Piece, Pieces, Placement, REUSED_SCRATCH_BYTES, SizeRows, split,
};
pub use notation::Notation;
pub use passes::{BuildWarning, Compat, WarningKind};
pub use repairs::{OperationPlace, OrderedPair, Repairs};
pub use topology::{Link, RankChannels, RemoteTarget, SwitchChannel, Topology};
