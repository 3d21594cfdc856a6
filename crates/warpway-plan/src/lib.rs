//! Execution plans: what every rank of a collective does, as data that is proven before it runs.
//!
//! The crate describes plans, reads and writes them, and proves them. It is pure: no I/O, no unsafe code, no engine.
//! It does not run them; engines do (`warpway::Communicator::prepare`), and they ask for the proof.
//!
//! ```
//! use warpway_plan::verify::{Options, Rule, VerifiedPlan};
//! use warpway_plan::{BuildError, CollectiveShape, DataSync, Plan, Program, ProgramOptions};
//!
//! /// Both ranks put their input into the output of the other; `announce` stands between the put and its signal.
//! fn all_gather(announce: DataSync) -> Result<Plan, BuildError> {
//!     let mut p = Program::new(ProgramOptions::new("all_gather", CollectiveShape::all_gather(2, 1)))?;
//!     for (me, peer) in [(0, 1), (1, 0)] {
//!         let (mine, place) = (p.input(me)?.whole(), u64::from(me));
//!         let channel = p.memory_channel(me, peer)?;
//!         p.signal_relaxed(channel, 0, DataSync::None)?;
//!         p.wait_relaxed(channel, 0, DataSync::After)?;
//!         p.copy(p.output(me)?.chunk(place..=place)?, mine, 0)?;
//!         p.put(channel, p.output(peer)?.chunk(place..=place)?, mine, 0)?;
//!         p.signal(channel, 0, announce)?;
//!         p.wait(channel, 0, DataSync::After)?;
//!     }
//!     p.finish()
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let proven = VerifiedPlan::new(all_gather(DataSync::Before)?, &Options::default())?;
//! assert!(proven.repairs().is_empty());
//!
//! // Without the nop before the signal, threads other than the one that signals may not have put their share.
//! let refused = VerifiedPlan::new(all_gather(DataSync::None)?, &Options::default()).unwrap_err();
//! let first = &refused.report.diagnostics[0];
//! assert_eq!((first.rule, first.hint.as_str()), (Rule(510), "add a nop before rank 0 tb 0 op 5"));
//! println!("{}", refused.report.display(Some(&refused.plan)));
//! # Ok(())
//! # }
//! ```
//!
//! | module | question it answers |
//! |---|---|
//! | `ir` | what a plan is |
//! | `data_type.rs` | what its elements are |
//! | `topology.rs` | what its numbers mean |
//! | `notation.rs` | the same in words |
//! | `verify` | whether it is right |
//! | `lower` | what one rank does, with every number resolved |
//! | `layout` | how many bytes a chunk has, and where they lie |
//! | `simulate` | how long it takes on a machine |
//! | `draw` | what it looks like |
//! | `repairs.rs` | what an executor adds to a plan that lacks a handshake |
//! | `builder` | how a program describes it |
//! | `passes` | what happens to a program before it is a plan |
//! | `testing` | algorithms as inputs for tests (feature `testing`) |
//! | `check` | whether its form is right |
//! | `json` | how it is written to a file |
#![forbid(unsafe_code)]

mod builder;
mod check;
mod data_type;
pub mod draw;
mod ir;
mod json;
mod layout;
pub mod lower;
mod notation;
mod passes;
mod repairs;
pub mod simulate;
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
