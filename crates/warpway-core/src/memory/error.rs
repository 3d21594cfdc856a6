//! What can be wrong with memory.

use crate::error::ErrorCode;
use crate::transport::{Transport, TransportFlags};

/// Allocation, registration, import or range of memory.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// A range that is not inside the memory; also where `offset + size` overflows.
    #[error("{operation}: bytes {offset}..+{size} are outside the memory of {limit} bytes")]
    OutOfBounds {
        /// The call.
        operation: &'static str,
        /// First byte.
        offset: u64,
        /// Length.
        size: u64,
        /// Size of the memory.
        limit: u64,
    },
    /// An offset or address that is not a multiple of what the operation needs.
    #[error("{operation}: offset {offset} is not a multiple of {alignment}")]
    Misaligned {
        /// The call.
        operation: &'static str,
        /// The offset.
        offset: u64,
        /// What it must be a multiple of.
        alignment: u64,
    },
    /// The memory was not registered for, or could not be imported through, this transport.
    #[error("{operation}: the memory is not reachable by {transport}, only by {available:?}; {why}")]
    NoTransport {
        /// The call.
        operation: &'static str,
        /// The transport asked for.
        transport: Transport,
        /// What there is.
        available: TransportFlags,
        /// From the import report, or what to do.
        why: String,
    },
    /// The owner did not permit this kind of access.
    #[error("{operation}: the owner (rank {owner}) did not permit {needed} access")]
    Access {
        /// The call.
        operation: &'static str,
        /// The owner's rank.
        owner: u32,
        /// `read`, `write` or `atomic`.
        needed: &'static str,
    },
    /// The memory is on the wrong side (an imported source, a local destination).
    #[error("{operation}: {what}")]
    WrongSide {
        /// The call.
        operation: &'static str,
        /// What was expected.
        what: &'static str,
    },
    /// A GPU's memory where the CPU would have to read or write it.
    #[error("{operation}: the memory is on GPU {device}, which the CPU cannot touch; {hint}")]
    OnDevice {
        /// The call.
        operation: &'static str,
        /// Ordinal of the GPU.
        device: i32,
        /// What to do instead.
        hint: &'static str,
    },
    /// The region cannot be made known to other processes.
    #[error("memory at {address:#x} ({size} bytes) cannot be exported by {transport}: {why}")]
    NotExportable {
        /// Where.
        address: u64,
        /// How long.
        size: u64,
        /// How.
        transport: Transport,
        /// Why, and what to use instead.
        why: &'static str,
    },
    /// A null or wrapped address, or a size of zero where there must be one.
    #[error("invalid memory: address {address:#x}, {size} bytes: {why}")]
    Invalid {
        /// Where.
        address: u64,
        /// How long.
        size: u64,
        /// What is wrong.
        why: &'static str,
    },
    /// A peer's memory could not be mapped.
    #[error("memory of rank {owner} ({size} bytes) cannot be imported: {why}")]
    Import {
        /// The owner's rank.
        owner: u32,
        /// How long.
        size: u64,
        /// Each transport with its reason.
        why: String,
    },
}

impl MemoryError {
    /// The numeric code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Import { .. } => ErrorCode::SystemError,
            _ => ErrorCode::InvalidUsage,
        }
    }

    /// A stable id.
    pub fn id(&self) -> &'static str {
        match self {
            Self::OutOfBounds { .. } => "mem.bounds",
            Self::Misaligned { .. } => "mem.alignment",
            Self::NoTransport { .. } => "mem.transport",
            Self::Access { .. } => "mem.access",
            Self::WrongSide { .. } => "mem.side",
            Self::OnDevice { .. } => "mem.device",
            Self::NotExportable { .. } => "mem.export",
            Self::Invalid { .. } => "mem.invalid",
            Self::Import { .. } => "mem.import",
        }
    }

    /// The owner concerned.
    pub fn peer(&self) -> Option<u32> {
        match self {
            Self::Access { owner, .. } | Self::Import { owner, .. } => Some(*owner),
            _ => None,
        }
    }
}
