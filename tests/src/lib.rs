//! Tests of Warpway as a whole: ranks are processes that a [`Job`] starts, kills, stops and questions.
//!
//! The binary `rank` plays one rank of a scenario and tells on its standard output, one JSON document a line
//! ([`Line`]), how far it has come and how it ended. The tests in `tests/` start such jobs and judge what the
//! ranks say; [`Leftovers`] judges what they leave behind. [`suite`] is what channels and collectives must
//! do, whatever the ranks are (processes, threads) and whatever connects them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a library for tests: what cannot be done ends the test, with its place"
)]

mod contexts;
mod job;
mod leftovers;
pub mod matrix;
mod pattern;
mod report;
pub mod suite;

pub use contexts::{limited, on_hosts};
pub use job::{End, HANG, Job, Meeting, Settings, in_parallel};
pub use leftovers::{Leftovers, abstract_names, listeners};
pub use pattern::byte;
pub use report::{Fault, Line, monotonic_ns};

/// What the matrix and its sequences are drawn with: the same in all processes of a test.
pub const SEED: u64 = 0x5eed_c011;
