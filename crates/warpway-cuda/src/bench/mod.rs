//! Measurements between two GPUs of this process, each beside the plain form that it is measured against.
//!
//! With a [`Pair`] no communicator takes part: handles are filled by hand, so that the figures are those of the device
//! headers and of the driver alone. [`PortEnd`] and [`FirstExchange`] belong to one rank of a communicator. Each measurement refills what it writes to, checks every word afterwards, and ends by a deadline.
//! What to measure in which turns, and what to think of it, is the caller's: see `warpway bench gpu`.
//!
//! | file | question it answers |
//! |---|---|
//! | `pair.rs` | the two GPUs with their streams, buffers and control blocks |
//! | `transfer.rs` | how fast a buffer gets to the other side |
//! | `flight.rs` | how long a message between two kernels takes |
//! | `host.rs` | how long it takes from a kernel to the host and back |
//! | `ranks.rs` | what kernels of a communicator's ranks measure |
//! | `programs.rs`, `parameters.rs` | the kernels of `device/bench`, and what they are given |

mod flight;
mod host;
mod pair;
mod parameters;
mod programs;
mod ranks;
mod transfer;

#[cfg(test)]
mod tests;

pub use flight::{Flight, Message};
pub use host::Way;
pub use pair::{Pair, Times};
pub use programs::programs;
pub use ranks::{FirstExchange, Messages, PortEnd};
pub use transfer::{Directions, Measured, Mover, Transfer, Transferring};
