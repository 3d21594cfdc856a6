//! How a test reaches a device.
//!
//! | file | holds |
//! |---|---|
//! | `gpu.rs` | [`Gpu`]: a device, its stream and its compiler; launches |
//! | `source.rs` | [`Source`]: the files of test kernels |
//! | `buffer.rs` | [`Buffer`], [`Pinned`]: memory between canaries |
//! | `ranks.rs` | [`Ranks`]: communicators, as threads and as processes |
//! | `control.rs` | [`World`]: the control block of a communicator, and its error record |

mod buffer;
mod control;
mod gpu;
mod ranks;
mod source;

pub(crate) use buffer::{Buffer, Pinned};
pub(crate) use control::World;
pub(crate) use gpu::{Gpu, rounds};
pub(crate) use ranks::{Ranks, is_rank, mark};
pub(crate) use source::Source;
