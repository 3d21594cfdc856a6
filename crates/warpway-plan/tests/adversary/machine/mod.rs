//! Runs a plan for all ranks under a schedule drawn from a seed, as unfavourable as the execution model
//! allows: lanes of a segment in any order, ports late, ranks launches ahead of each other.
//!
//! It knows nothing of the verifier: values, clocks per lane and what the specification says of each operation.

mod blocks;
mod clock;
mod failure;
mod goal;
mod lower;
mod memory;
mod ports;
mod program;
mod run;
mod sequence;

pub(crate) use failure::{Failure, Kind};
pub(crate) use program::{Meaningless, Program, Size};
pub(crate) use run::Machine;
pub(crate) use sequence::{Entry, sequence, uses_scratch};
