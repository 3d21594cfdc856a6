//! Tests on GPUs. All but those of `coverage` are ignored: they run on another machine, from `cargo xtask gpu-bundle`.
//!
//! | files | what | GPUs |
//! |---|---|---|
//! | `rig/` | how a test reaches a device: kernels, guarded buffers, control block, results | |
//! | `coverage.rs` | every test here belongs to a suite of the bundle | none |
//! | `device_….rs` | the device headers, with handles made by hand | 1 |
//! | `pair_….rs` | the same between two devices of one process | 2 |
//! | `figures_….rs` | measurements that no benchmark of the command makes | 1 |
//! | `ranks_….rs` | communicators | 2 |
//! | `ports_….rs` | port channels | 2 |
//! | `plans_….rs` | plans of the catalogue | 2 |
//!
//! The first word of a module decides in which suite its tests run, and how many at once.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod coverage;
mod device_bulk;
mod device_copy;
mod device_failures;
mod device_fifo;
mod device_launch;
mod device_numbers;
mod device_packets;
mod device_semaphores;
mod figures_conversions;
mod pair_channel;
mod plans_collectives;
mod plans_figures;
mod ports_channels;
mod ports_failures;
mod ports_gather;
mod ranks_channels;
mod ranks_eviction;
mod ranks_failures;
mod ranks_images;
mod ranks_many;
mod ranks_replay;
mod rig;
