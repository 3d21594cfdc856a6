//! The host engine: ranks are processes (or threads) of one machine, memory is shared memory, thread
//! blocks are threads.
//!
//! * [`HostEngine`] gives the communicator the transport
//!   [`SharedMemory`](warpway_core::transport::Transport::SharedMemory), and allocates.
//! * [`HostBuffer`] is typed memory that peers can map.
//! * [`BlockChannel`] is what a kernel does with a memory channel: put, get, packets, signal, wait.
//! * [`Launcher`] runs a closure once per block.
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use warpway_core::wait::{WaitPolicy, Waiter};
//! use warpway_core::{Health, trace::FlightRecorder};
//! use warpway_host::Launcher;
//!
//! # fn main() -> warpway_core::Result<()> {
//! let waiter = Waiter::new(Arc::new(Health::new(0)), Arc::new(FlightRecorder::new(64)), WaitPolicy::for_ranks(1));
//! let launcher = Launcher::new(waiter);
//! let sum = AtomicU64::new(0);
//! launcher.launch(4, |block| {
//!     sum.fetch_add(u64::from(block.index()), Ordering::Relaxed);
//!     block.barrier()?;
//!     assert_eq!(sum.load(Ordering::Relaxed), 6);
//!     Ok(())
//! })
//! # }
//! ```

mod block;
mod block_channel;
mod buffer;
mod connection;
mod copy;
mod engine;
mod launcher;
mod mapping;
mod numeric;
mod packet;
mod packet_channel;
mod plan;
mod point_to_point;
mod share;
mod worker;

pub use block::{Block, DeviceSemaphore};
pub use block_channel::{BlockChannel, BlockSemaphore};
pub use buffer::{HostBuffer, SharedBuffer};
pub use engine::HostEngine;
pub use launcher::{Launcher, MAX_BLOCKS};
pub use numeric::{FoldKernel, FoldSource};
pub use packet::{Ll8, Ll16, Packet};
pub use plan::{
    BufferView, ExecutorConfig, PacketFormat, PlanExecutor, PlanLaunch, PrepareOptions, PreparedPlan,
};
pub use point_to_point::{Direction, ElementType, Message, PointToPoint, PointToPointConfig};
pub use share::Share;
