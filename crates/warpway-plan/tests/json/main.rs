//! Plans as JSON.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod large;
mod malformed;
mod round_trip;
mod rules;
mod schema;
mod shared;
#[path = "../support/shared_plans.rs"]
mod shared_plans;
