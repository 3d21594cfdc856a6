//! The engine behind [`Transport::CudaIpc`]: memory of GPUs shared between ranks of one host, and connections that copy
//! by copy engine.
//!
//! | file | question it answers |
//! |---|---|
//! | `cuda_engine.rs` | what the communicator asks |
//! | `devices.rs` | driver, compiler and contexts, opened when they are needed |
//! | `exports.rs` | how a region is made known to peers |
//! | `imports.rs` | which allocations of peers are mapped |
//! | `adopt.rs` | memory of other ranks of this process |
//! | `connection.rs`, `queue.rs` | copies and words in stream order, and how far they have come |
//! | `word_writer.rs`, `word_adder.rs` | words written and added to in stream order |
//! | `tokens.rs` | tokens of semaphores that kernels wait for |
//!
//! [`Transport::CudaIpc`]: warpway_core::transport::Transport::CudaIpc

mod adopt;
mod connection;
mod cuda_engine;
mod devices;
mod exports;
mod imports;
mod queue;
#[cfg(test)]
pub(crate) mod tests;
mod tokens;
mod word_adder;
mod word_writer;

pub use cuda_engine::{CudaEngine, DeviceChoice};
pub use devices::Devices;
pub use tokens::GpuTokens;
pub use word_writer::WordForm;
