//! Sends, receives and groups: on threads and processes, on one host and between hosts.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where something is wrong"
)]

mod faults;
mod refusals;
mod results;
