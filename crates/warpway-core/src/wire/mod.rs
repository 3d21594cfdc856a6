//! The serialised form of handles: one versioned, bounds-checked, little-endian envelope for every kind.
//!
//! [`Handle::decode`] takes bytes from anywhere: it allocates no more than the bytes it was given, never
//! panics, and says exactly what is wrong. What the numbers mean (that the owner really has such a
//! memory) shows only at import.

mod control;
mod endpoint;
mod envelope;
mod error;
mod handle;
mod memory;
#[cfg(test)]
mod tests;

pub use control::{ControlMessage, SlotId};
pub use envelope::{Kind, MAX_ENVELOPE_BYTES};
pub use error::WireError;
pub use handle::{AnyHandle, Body, Handle, Label};
pub use memory::SemaphoreRecord;

/// 16 bytes that name the job; derived from the bootstrap's secret and put into every envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct JobNonce(pub [u8; 16]);
