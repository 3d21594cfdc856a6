//! Warpway: communication between ranks that verifies, bounds its waits, and runs without a GPU.
//!
//! A *rank* is a process (or a thread of one). Ranks start together (`warpway launch`, torchrun, mpirun,
//! srun), join with [`Communicator::from_env`], and reach each other's memory through channels:
//!
//! ```no_run
//! use warpway::Communicator;
//!
//! # fn main() -> warpway::Result<()> {
//! let comm = Communicator::from_env()?;
//! let next = comm.connect((comm.rank() + 1) % comm.n_ranks())?;
//! let data = comm.alloc::<f32>(1 << 20)?;
//! next.send_memory(&data)?;
//! let channel = next.memory_channel(&data, &next.recv_memory()?)?;
//! let block_channel = comm.block_channel(&channel)?;
//! comm.launch(1, |block| {
//!     block_channel.put(0, 0, data.bytes(), block.share())?;
//!     block_channel.signal()?;
//!     block_channel.wait()
//! })
//! # }
//! ```
//!
//! The crate joins `warpway-core` (everything that is the same for all transports) with the engines
//! `warpway-host` (shared memory) and `warpway-net` (TCP), and re-exports what programs need of them.

mod barrier;
mod buffer;
mod communicator;
mod context;
mod in_process;
mod peer;

pub use barrier::Barrier;
pub use buffer::Buffer;
pub use communicator::Communicator;
pub use context::Context;
pub use in_process::in_process;
pub use peer::Peer;

pub use warpway_core as core;
pub use warpway_core::bootstrap::{Bootstrap, UniqueId, UniqueIdRoot};
pub use warpway_core::channel::{MemoryChannel, PortChannel};
pub use warpway_core::config::{Config, Environment};
pub use warpway_core::endpoint::EndpointConfig;
pub use warpway_core::memory::{Access, Element, RegisteredMemory};
pub use warpway_core::proxy::{ProxyService, ProxyServiceConfig};
pub use warpway_core::semaphore::{Host2HostSemaphore, Semaphore};
pub use warpway_core::transport::{Device, Transport, TransportFlags};
pub use warpway_core::{Deadline, Error, ErrorCode, Failure, Result, Timeout};
pub use warpway_host::{Block, BlockChannel, BlockSemaphore, HostBuffer, Ll8, Ll16, Share};
