//! Plans as kernels: one rank's part of a proven plan, written as CUDA C++ and compiled when it is needed.
//!
//! | file | question it answers |
//! |---|---|
//! | `paths.rs` | which blocks do the same, but for numbers |
//! | `source.rs` | what the kernel looks like |
//! | `rows.rs` | where the bytes of one message lie, as words for the kernel |
//! | `kernel.rs` | the two forms of a kernel, and what a launch hands over |
//!
//! Blocks of equal shape share their code; data type, operator, packet format and numbers of operands are compile-time constants. The
//! sizes of a message are not: where blocks divide the work evenly, a row of words per step says all, in constant memory
//! with the launch; otherwise pieces stand in a list in device memory, which a second form of the kernel reads.

mod kernel;
mod paths;
mod rows;
mod source;

pub use kernel::{KernelForm, KernelSetting, LaunchPlaces, Packet, PlanKernel, PlanProblem};
pub use rows::PlanRows;
