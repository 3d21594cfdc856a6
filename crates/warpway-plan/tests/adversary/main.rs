//! An independent judge of plans: it runs them under unfavourable schedules and looks at what comes out.
//! What the verifier accepts must pass here, however the plan was made.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test")]

mod contest;
mod contest_runs;
mod corpus;
mod generator;
mod judge;
mod machine;
mod mutator;
mod planted;
mod random;
mod sequences;
#[path = "../support/shared_plans.rs"]
mod shared_plans;
mod sketch;
mod thin;
