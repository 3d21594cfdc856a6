//! Collectives as verified plans.
//!
//! The crate says which algorithms there are ([`catalogue`]), and builds the plan of one for a [`Task`]. It is pure: no
//! I/O, no unsafe code, no engine; `warpway::Communicator` runs the plans.
//!
//! ```
//! use warpway_collectives::{Function, Task, World, find};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let task = Task::new(Function::AllReduce, World::one_host(4)).in_place();
//! let algorithm = find(Function::AllReduce, "two_shot").ok_or("not in the catalogue")?;
//! let proven = algorithm.prove(&task)?;
//! assert_eq!(proven.plan().ranks.len(), 4);
//! # Ok(())
//! # }
//! ```
//!
//! | module | question it answers |
//! |---|---|
//! | `task.rs`, `world.rs` | what is to be done, among whom |
//! | `algorithm.rs` | what the catalogue says of an algorithm, how its plan is built and proven |
//! | `catalogue/` | the algorithms, one file per function |
//! | `estimate.rs` | how long algorithms take in worlds too large for a plan |
//! | `select/` | which of them a call takes, and why |
//! | `tune/` | tables of measurements, by which it may choose |
#![forbid(unsafe_code)]

mod algorithm;
mod catalogue;
mod estimate;
mod select;
mod task;
mod tune;
mod world;

pub use algorithm::{Algorithm, Refused, Traits};
pub use catalogue::{catalogue, device_catalogue, find};
pub use estimate::{Cluster, Message, estimate, estimated};
pub use select::{
    BadOverride, BadRegistration, Candidate, Choice, Explanation, NoChoice, Override, Reason, Registered,
    Registration, Request, Selector, Taken, Verdict,
};
pub use task::{Function, MOST_BLOCKS, Task};
pub use tune::{BadTable, Library, Machine, Origin, Row, Sizes, Table, Timing};
pub use world::World;
