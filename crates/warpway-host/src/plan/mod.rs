//! Plans on host memory: set up once by all ranks, launched any number of times.
//!
//! | file | question it answers |
//! |---|---|
//! | `executor.rs`, `identity.rs`, `meeting.rs` | do all ranks set up a plan, and the same one |
//! | `setup.rs`, `roles.rs` | which channels, barriers and peers it needs |
//! | `prepared.rs`, `request.rs`, `ready.rs`, `launching.rs` | what happens at a launch, in order |
//! | `hosts.rs` | which ranks share memory, and what a plan may not do where they do not |
//! | `control.rs`, `record.rs`, `slots.rs` | how ranks know of each other's launches |
//! | `refusals.rs` | what they know of calls that one of them refuses |
//! | `far.rs` | how ranks of other hosts do |
//! | `stage.rs` | buffers that peers cannot map |
//! | `rows.rs` | sizes that come at launch |
//! | `scratch.rs`, `area.rs` | areas that plans share or do not, slots and epochs |
//! | `credit.rs` | how far a rank that only sends may run ahead |
//! | `compile.rs`, `program.rs` | what each block does, with all sizes worked out |
//! | `launch_bases.rs` | where the buffers of a launch are |
//! | `kept.rs` | what a launch need not find out again |
//! | `repeat.rs` | launches like an earlier one, which need to find out nothing |
//! | `block_run.rs`, `transfer.rs`, `barrier.rs`, `waiting.rs` | how a block does it |
//!
//! A block is one thread, so barriers within a block are nothing, and relaxed signals order data like the others.
//! A port channel's data goes through the communicator's proxy; its packets are stored by the block itself, since
//! a proxy's copy does not promise to keep the words of a packet together.
//!
//! Ranks of one host map each other's memory. To ranks of other hosts lead port channels, by one connection per pair of
//! ranks, which also carries what the executor itself has to tell; plans that need more of them are refused.

mod area;
mod barrier;
mod block_run;
mod compile;
mod control;
mod credit;
mod executor;
mod far;
mod hosts;
mod identity;
mod kept;
mod launch_bases;
mod launching;
mod linked;
mod meeting;
mod prepared;
mod program;
mod ready;
mod record;
mod refusals;
mod repeat;
mod request;
mod roles;
mod rows;
mod scratch;
mod setup;
mod slots;
mod stage;
mod transfer;
mod waiting;

pub(crate) use kept::{Imports, Slots};

pub use executor::{ExecutorConfig, PlanExecutor, PrepareOptions};
pub use prepared::PreparedPlan;
pub use request::{BufferView, PacketFormat, PlanLaunch};

/// Of all exchanges between executors. Others are free for direct use of the communicator.
const TAG: i32 = 0x706c_616e;
/// Barriers, or semaphores, of a rank at most.
const MAX_IDS: usize = 4096;
const NO_REGION: warpway_core::Error =
    warpway_core::Error::Internal { place: "plan memory", what: "an allocation has bytes" };
