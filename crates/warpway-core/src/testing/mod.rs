//! Doubles for tests: a job whose ranks are threads of one process, and an engine for it.
//!
//! Available under the cargo feature `testing`. [`LocalJob`] delivers messages on one thread per rank, as
//! a real control plane does, passes descriptors by duplication, and lets a test kill a rank.

mod control;
mod engine;

pub use control::{LocalControl, LocalJob};
pub use engine::{LocalEngine, allocate};
