//! All-reduce of two hosts against iperf3: held by `cargo xtask bench hosts`, kept under `benchmarks/results`.
//!
//! The hosts are two network namespaces of this machine, joined by a veth pair. Both have this machine's cores, so whatever
//! runs on one of them is taken from the other; [`Arguments::rate`] puts a slower wire between them, which the
//! processors can keep up with.

mod contest;
mod file;
mod namespaces;

pub(crate) use contest::{Arguments, hold};
pub(crate) use file::{File, all, page};
