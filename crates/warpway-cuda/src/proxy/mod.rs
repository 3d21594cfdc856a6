//! Port channels of kernels: a ring that kernels fill, the proxy that takes requests from it, and device handles.
//!
//! | file | question it answers |
//! |---|---|
//! | `fifo.rs` | where the ring and its counters lie, and how the proxy looks at them |
//! | `words.rs` | pinned words that kernels poll |
//! | `thread.rs` | what the proxy's thread is bound to |
//! | `service.rs` | the service, and handles of its channels |

mod fifo;
mod service;
mod thread;
mod words;

pub use fifo::DeviceFifo;
pub use service::{PortConfig, PortService};
