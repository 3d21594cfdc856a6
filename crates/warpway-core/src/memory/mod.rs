//! Registered memory: a local range made known to peers, or a peer's range made usable here.

mod element;
mod error;
mod record;
mod region;
mod registered;

pub use element::Element;
pub use error::MemoryError;
pub use record::{EthernetExport, MemoryRecord, SharedExport};
pub use region::{Access, Backing, Region};
pub use registered::{Export, Import, ImportAttempt, ImportReport, RegisteredMemory};
