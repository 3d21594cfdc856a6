//! Memory of devices, and host memory that devices reach.
//!
//! | file | question it answers |
//! |---|---|
//! | `device.rs` | our own allocations: exportable where the driver can, else plain |
//! | `mapping.rs` | physical memory at addresses, with permissions per device |
//! | `import.rs` | memory of other processes |
//! | `fabric.rs` | whether fabric handles are used |
//! | `foreign.rs` | pointers of other libraries: what is behind them, and how it can be exported |
//! | `export_kinds.rs` | which ways of export work here |
//! | `pinned.rs` | host memory that kernels read and write |
//! | `copy.rs` | copies and fills in stream order |
//! | `staging.rs` | how threads of the host reach memory of a device |

mod copy;
mod device;
mod export_kinds;
mod fabric;
mod foreign;
mod import;
mod mapping;
mod pinned;
mod staging;

pub use copy::{copy, copy_from_host, copy_to_host, fill, write_word};
pub use device::DeviceMemory;
pub use export_kinds::ExportKinds;
pub(crate) use fabric::{FabricUse, try_fabric};
pub use foreign::{Foreign, ForeignKind};
pub use import::ImportedMemory;
pub(crate) use import::WeakImport;
pub(crate) use mapping::open_to;
pub use pinned::PinnedMemory;
pub use warpway_core::memory::IPC_HANDLE_BYTES;
