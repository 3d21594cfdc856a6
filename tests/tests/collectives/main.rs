//! Collectives as programs call them: shapes, kinds of buffers, selection, errors. Ranks are threads.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where something is wrong"
)]

mod errors;
mod functions;
mod oracle;
