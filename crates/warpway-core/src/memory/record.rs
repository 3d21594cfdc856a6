//! What a peer must know to reach a region.

use crate::memory::Access;
use crate::transport::{Device, TransportFlags};

/// How to fetch the descriptor of a shared region: ask the owner's descriptor server for `descriptor`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedExport {
    /// Process id of the owner, for messages.
    pub process_id: u32,
    /// Number under which the owner's bootstrap hands the descriptor out.
    pub descriptor: u64,
}

/// How to open an allocation of a GPU in another process. A descriptor, where the allocation has one, is a
/// [`SharedExport`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GpuExport {
    /// By CUDA IPC, for processes of the same host.
    Ipc {
        /// What the driver gave.
        handle: [u8; IPC_HANDLE_BYTES],
        /// The owner's number of the allocation, never used again: a later allocation may get the same handle.
        allocation: u64,
    },
    /// By fabric handle, for all processes of an NVLink domain, also on other hosts. The allocation may have a descriptor
    /// besides.
    Fabric {
        /// What the driver gave.
        handle: [u8; FABRIC_HANDLE_BYTES],
        /// The owner's number of the allocation, never used again.
        allocation: u64,
    },
}

/// Bytes of a fabric handle.
pub const FABRIC_HANDLE_BYTES: usize = 64;

/// Bytes of a handle of CUDA IPC.
pub const IPC_HANDLE_BYTES: usize = 64;

/// How to name a region in TCP frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EthernetExport {
    /// Number in the owner's table; carries a generation, so a stale one is refused.
    pub memory_id: u64,
}

/// The content of a memory envelope; see `spec` 6.1. Every number has been range-checked when it was
/// read; that the owner really has the memory shows only at import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryRecord {
    /// Rank of the owner in the job.
    pub owner: u32,
    /// Address in the owner's process.
    pub original_address: u64,
    /// Size in bytes, not zero.
    pub size: u64,
    /// Hash of the owner's host identity.
    pub host: u64,
    /// Hash of the owner's process identity.
    pub process: u64,
    /// Where the memory lives.
    pub device: Device,
    /// UUID of a GPU, zeros otherwise.
    pub device_uuid: [u8; 16],
    /// Offset of the region in its allocation.
    pub offset: u64,
    /// Size of the allocation, `>= offset + size`.
    pub allocation_size: u64,
    /// What it was registered for.
    pub transports: TransportFlags,
    /// What peers may do.
    pub access: Access,
    /// For [`Transport::SharedMemory`](crate::transport::Transport::SharedMemory), and for
    /// [`Transport::CudaIpc`](crate::transport::Transport::CudaIpc) where the allocation has a descriptor.
    pub shared: Option<SharedExport>,
    /// For [`Transport::CudaIpc`](crate::transport::Transport::CudaIpc) where it has none, or is known to the fabric.
    pub gpu: Option<GpuExport>,
    /// For [`Transport::Ethernet`](crate::transport::Transport::Ethernet).
    pub ethernet: Option<EthernetExport>,
}
