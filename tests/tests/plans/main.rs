//! Plans on host memory: what they compute, bit for bit, on ranks that are threads and processes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where something is wrong"
)]

mod ahead;
mod buffers;
mod coverage;
mod faults;
mod floats;
mod hosts;
mod refusals;
mod repairs;
mod repeats;
mod results;
mod rig;
mod sequences;
mod sized;
mod sized_scratch;
mod staged;
