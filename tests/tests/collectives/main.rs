//! Collectives as programs call them: shapes, kinds of buffers, selection, errors. Ranks are threads.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where something is wrong"
)]

mod bits;
mod disagreements;
mod errors;
mod full;
mod functions;
mod kills;
mod matrix;
mod oracle;
mod refusals;
mod selection;
mod sequences;
