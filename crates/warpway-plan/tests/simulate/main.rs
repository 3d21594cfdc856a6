//! The simulator: times worked out by hand, sharing, malformed topology files.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod loggops;
mod sharing;
mod times;
mod topology_file;

use warpway_plan::{CollectiveShape, ProgramOptions};

/// Units of 8 bytes, so that 1000 bytes are a message.
fn options(name: &str, shape: CollectiveShape) -> ProgramOptions {
    ProgramOptions { buffer_alignment: 8, ..ProgramOptions::new(name, shape) }
}
