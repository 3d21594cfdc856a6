//! Registered memory: a local range made known to peers, or a peer's range made usable here.

mod element;
mod error;
mod local_memories;
mod record;
mod region;
mod registered;
mod staging;
mod token_memory;
mod token_pool;

pub use element::Element;
pub use error::MemoryError;
pub use local_memories::LocalMemories;
pub use record::{
    EthernetExport, FABRIC_HANDLE_BYTES, GpuExport, IPC_HANDLE_BYTES, MemoryRecord, SharedExport,
};
pub use region::{Access, Backing, Region};
pub use registered::{
    Export, GpuPlacement, Import, ImportAttempt, ImportReport, MappedToken, RegisteredMemory, WeakMemory,
};
pub use staging::{StagedReader, StagedWriter, Staging};
pub use token_memory::{HostTokens, TokenMemory};
pub use token_pool::{LeasedToken, TOKENS_PER_PAGE, TokenPool};
