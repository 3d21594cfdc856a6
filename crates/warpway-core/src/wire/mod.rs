//! The serialised form of handles: one versioned, bounds-checked, little-endian envelope for every kind.

mod error;

pub use error::WireError;

/// 16 bytes that name the job; derived from the bootstrap's secret and put into every envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct JobNonce(pub [u8; 16]);
