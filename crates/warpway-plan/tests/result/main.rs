//! The rules about what a plan computes (V7).
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test")]

mod algorithms;
mod averages;
mod collectives;
mod faults;
mod large;
mod order;
mod pieces;
mod program;
#[path = "../support/shared_plans.rs"]
mod shared_plans;
mod slices;
