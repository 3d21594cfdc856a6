//! Warpway: communication between ranks that verifies, bounds its waits, and runs without a GPU.
//!
//! A *rank* is a process (or a thread of one). Ranks start together (`warpway launch`, torchrun, mpirun,
//! srun), join with [`Communicator::from_env`], and reach each other's memory through channels:
//!
//! ```
//! use warpway::{Communicator, Config, Context, Result, in_process};
//!
//! /// Each rank puts its array into that of the other.
//! fn swap(comm: &Communicator) -> Result<Vec<f32>> {
//!     let peer = comm.connect(1 - comm.rank())?;
//!     let (mine, theirs) = (comm.alloc::<f32>(17)?, comm.alloc::<f32>(17)?);
//!     mine.fill(comm.rank() as f32)?;
//!     let remote = peer.exchange_memory(&theirs)?;
//!     let channel = comm.block_channel(&peer.memory_channel(&mine, &remote)?)?;
//!     comm.launch(1, |block| {
//!         channel.put(0, 0, mine.bytes(), block.share())?;
//!         channel.signal()?;
//!         channel.wait()
//!     })?;
//!     Ok(theirs.to_vec()?)
//! }
//!
//! # fn main() -> Result<()> {
//! // As processes: `swap(&Communicator::from_env()?)` under a launcher. As threads of one process:
//! let found = in_process(2, &Context::new(Config::default()), swap)?;
//! assert_eq!(found, [[1.0; 17], [0.0; 17]]);
//! # Ok(())
//! # }
//! ```
//!
//! On GPUs the kernels are CUDA C++ of your own: [`Communicator::gpu`] compiles, loads and launches them and gives
//! them channels; `examples/gpu_channels.rs` is a program, `docs/kernels.md` lists headers and arguments.
//!
//! The crate joins `warpway-core` (everything that is the same for all transports) with the engines
//! `warpway-host` (shared memory), `warpway-cuda` (GPUs) and `warpway-net` (TCP), and re-exports what programs need of them.
#![forbid(unsafe_code)]

mod barrier;
mod buffer;
mod collective;
mod communicator;
mod context;
mod in_process;
mod logging;
mod peer;
mod plans;
mod point_to_point;

pub use barrier::Barrier;
pub use buffer::{Buffer, Part};
pub use collective::{Call, Counts, Number, ReceiveBuffer, SendBuffer};
pub use communicator::Communicator;
pub use context::Context;
pub use in_process::{in_process, in_process_with};
pub use logging::log_subscriber;
pub use peer::Peer;
pub use point_to_point::{Group, Incoming, Outgoing};

pub use half::{bf16, f16};
pub use warpway_collectives as collectives;
pub use warpway_collectives::{Explanation, Function, Registration};
pub use warpway_core as core;
pub use warpway_core::bootstrap::{Bootstrap, UniqueId, UniqueIdRoot};
pub use warpway_core::channel::{MemoryChannel, PortChannel, PortChannelHandle};
pub use warpway_core::config::{Config, Environment};
pub use warpway_core::endpoint::EndpointConfig;
pub use warpway_core::memory::{Access, Element, RegisteredMemory};
pub use warpway_core::proxy::{ProxyService, ProxyServiceConfig};
pub use warpway_core::semaphore::{Host2HostSemaphore, Semaphore};
pub use warpway_core::transport::{Device, Transport, TransportFlags};
pub use warpway_core::{Cause, Deadline, Error, ErrorCode, Failure, Result, Timeout};
pub use warpway_cuda as cuda;
pub use warpway_cuda::jit::Program;
pub use warpway_cuda::{Gpu, GpuBuffer, GpuGraph, LaunchShape, Plain, Stream};
pub use warpway_host::{
    Block, BlockChannel, BlockSemaphore, BufferView, ElementType, HostBuffer, Ll8, Ll16, PacketFormat,
    PlanLaunch, PrepareOptions, PreparedPlan, Share,
};
pub use warpway_plan as plan;
pub use warpway_plan::{DataType, ReduceOp};

/// The sample of the project's page.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
