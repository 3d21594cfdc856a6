//! The TCP engine: one-sided writes, 64-bit stores, atomic adds and flushes between the ranks of a job.
//!
//! [`TcpEngine`] implements [`Engine`](warpway_core::engine::Engine) for
//! [`Transport::Ethernet`](warpway_core::transport::Transport::Ethernet). It is not a message library:
//! the receiver's application takes no part in a transfer, its engine puts the bytes where the sender
//! says, after checking that the owner exported them.
//!
//! | file | question it answers |
//! |---|---|
//! | `engine.rs` | exports, imports, endpoints, joining two endpoints |
//! | `connection.rs` | what a caller of `write`, `store`, `add`, `flush` sees |
//! | `outgoing.rs` | the queue of one link, and who may send |
//! | `incoming.rs` | reading frames straight into their destination |
//! | `link.rs` | one socket: counters, failure, orderly end |
//! | `service.rs`, `reactor.rs` | the two threads of an engine, start and stop |
//! | `handshake.rs`, `dial.rs`, `accept.rs` | authentication and set-up |
//! | `table.rs`, `frame.rs`, `vectors.rs`, `socket.rs` | exported memory, wire form, raw buffers, options |

mod accept;
mod connection;
mod dial;
mod engine;
mod frame;
mod handshake;
mod incoming;
mod job;
mod link;
mod outgoing;
mod reactor;
mod service;
mod socket;
mod staged;
mod table;
mod vectors;

pub use engine::{TcpConfig, TcpEngine, TcpStatistics};

/// A lock whose poisoning is ignored: the data behind it stays consistent between statements.
fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
