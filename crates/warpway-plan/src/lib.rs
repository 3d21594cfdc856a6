//! Execution plans: what every rank of a collective does, as data that is proven before it runs.
//!
//! | module | question it answers |
//! |---|---|
//! | `ir` | what a plan is |
//! | `topology.rs` | what its numbers mean |
//! | `verify` | whether it is right |
//!
//! The crate is pure: no I/O, no unsafe code, no engine.
#![forbid(unsafe_code)]

mod ir;
mod topology;
pub mod verify;

pub use ir::*;
pub use topology::{Link, RankChannels, RemoteTarget, SwitchChannel, Topology};
