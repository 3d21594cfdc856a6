//! Allocations of peers that are mapped on one device, each once however many ranges of it are imported.

use std::collections::HashMap;
use std::sync::Mutex;

use warpway_core::Result;
use warpway_core::memory::{GpuExport, MemoryError, MemoryRecord};
use warpway_core::wire::JobNonce;

use crate::context::lock;
use crate::memory::{ImportedMemory, WeakImport};

#[derive(Default)]
pub(crate) struct Imports(Mutex<HashMap<AllocationKey, WeakImport>>);

/// An allocation of a peer, as the peer names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct AllocationKey {
    job: JobNonce,
    owner: u32,
    process: u64,
    name: Name,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Name {
    /// Number under which the owner hands its descriptor out.
    Descriptor(u64),
    /// How to open it, with its owner's number of the allocation: the same bytes can mean a later one.
    Export(GpuExport),
}

impl AllocationKey {
    pub(super) fn new(job: JobNonce, record: &MemoryRecord, name: Name) -> Self {
        Self { job, owner: record.owner, process: record.process, name }
    }
}

impl Imports {
    /// A mapping that is there already; it must be as long as the record says.
    pub(super) fn find(
        &self,
        key: &AllocationKey,
        owner: u32,
        record: &MemoryRecord,
    ) -> Result<Option<ImportedMemory>> {
        let known = lock(&self.0).get(key).and_then(WeakImport::upgrade);
        known.map(|known| expect_size(known, owner, record)).transpose()
    }

    /// The mapping of another thread that was faster, else that of `open`. One is opened at a time: the driver allows an
    /// IPC handle to be opened once.
    pub(super) fn find_or_open(
        &self,
        key: AllocationKey,
        owner: u32,
        record: &MemoryRecord,
        open: impl FnOnce() -> Result<ImportedMemory>,
    ) -> Result<ImportedMemory> {
        let mut imports = lock(&self.0);
        if let Some(known) = imports.get(&key).and_then(WeakImport::upgrade) {
            drop(imports);
            return expect_size(known, owner, record);
        }
        imports.retain(|_, weak| weak.is_mapped());
        let opened = open()?;
        imports.insert(key, opened.downgrade());
        Ok(opened)
    }
}

fn expect_size(known: ImportedMemory, owner: u32, record: &MemoryRecord) -> Result<ImportedMemory> {
    if known.bytes() == record.allocation_size {
        return Ok(known);
    }
    let why = format!("its allocation is {} bytes, not {}", known.bytes(), record.allocation_size);
    Err(MemoryError::Import { owner, size: record.size, why }.into())
}
