//! Warpway's core: bootstrap, communicator, memory, connections, semaphores, channels, FIFO, proxy,
//! health and trace.
//!
//! The core knows transports only through the [`Engine`](engine::Engine) trait; shared memory, TCP and
//! CUDA live in crates of their own. Most users want the facade crate `warpway`.

pub mod bootstrap;
pub mod channel;
pub mod collective;
pub mod communicator;
pub mod config;
pub mod connection;
pub mod deadline;
pub mod endpoint;
pub mod engine;
pub mod error;
pub mod execution;
pub mod fifo;
mod futex;
pub mod gpu;
pub mod health;
pub mod launch;
pub mod memory;
pub mod point_to_point;
pub mod proxy;
pub mod semaphore;
mod sync;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod token;
pub mod trace;
pub mod transport;
pub mod wait;
pub mod wire;

pub use deadline::{Deadline, Timeout};
pub use error::{Error, ErrorCode, Result, SystemError, Unavailable};
pub use health::{Cause, Failure, Health};

/// Version of the library.
pub const fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}
