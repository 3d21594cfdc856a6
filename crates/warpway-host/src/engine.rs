//! The engine: what the communicator asks of shared memory.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use warpway_core::bootstrap::BootstrapError;
use warpway_core::connection::RawConnection;
use warpway_core::deadline::Deadline;
use warpway_core::endpoint::{Endpoint, EndpointConfig};
use warpway_core::engine::{Engine, EngineContext};
use warpway_core::memory::{Access, Element, Export, Import, MemoryError, MemoryRecord, Region};
use warpway_core::transport::{DeviceKind, Transport};
use warpway_core::wire::JobNonce;
use warpway_core::{Error, Result};

use crate::buffer::HostBuffer;
use crate::connection::SharedConnection;
use crate::mapping::Mapping;

/// Shared memory as a transport. Cheap to clone; one value may serve all communicators of a process, which
/// then map each allocation of a peer once.
#[derive(Clone, Default)]
pub struct HostEngine(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// What this process exports, for imports by ranks that are threads of it.
    exported: Mutex<HashMap<ExportKey, Region>>,
    /// Peers' allocations that are mapped here.
    imported: Mutex<HashMap<AllocationKey, Weak<Mapping>>>,
    next: AtomicU64,
}

/// (number of the export here, address, size).
type ExportKey = (u64, u64, u64);

/// An allocation of a peer, as the peer names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct AllocationKey {
    job: JobNonce,
    owner: u32,
    process: u64,
    descriptor: u64,
}

impl HostEngine {
    /// An engine that nothing is mapped in yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Allocates zeroed memory that peers can map.
    ///
    /// # Errors
    /// See [`HostBuffer::allocate`].
    pub fn allocate<T: Element>(&self, len: u64) -> Result<HostBuffer<T>> {
        HostBuffer::allocate(len)
    }

    /// A local region by its address, for a record made in this process.
    fn own(&self, record: &MemoryRecord) -> Option<Region> {
        let exported = lock(&self.0.exported);
        let wanted = (record.original_address, record.size);
        exported.iter().find(|((_, address, size), _)| (*address, *size) == wanted).map(|(_, r)| r.clone())
    }

    fn mapping(
        &self,
        context: &EngineContext,
        record: &MemoryRecord,
        deadline: Deadline,
    ) -> Result<Arc<Mapping>> {
        let owner = context.rank_of(record.owner);
        let refuse = |why: &str| MemoryError::Import {
            owner,
            size: record.size,
            why: format!("{}: {why}", Transport::SharedMemory),
        };
        let shared = record.shared.as_ref().ok_or_else(|| refuse("the owner offers no descriptor"))?;
        let end = record.offset.checked_add(record.size);
        if end.is_none_or(|end| end > record.allocation_size) {
            return Err(refuse("the record reaches beyond its allocation").into());
        }
        let key = AllocationKey {
            job: context.control.job_nonce(),
            owner: record.owner,
            process: record.process,
            descriptor: shared.descriptor,
        };
        if let Some(mapping) = lock(&self.0.imported).get(&key).and_then(Weak::upgrade) {
            return mapping.expect_size(owner, record).map(|()| mapping);
        }
        // Not under the lock: the owner may be slow to answer.
        let descriptor = context.control.fetch_descriptor(record.owner, shared.descriptor, deadline);
        let descriptor = descriptor.map_err(|error| match error {
            // It names ranks of the job.
            Error::Bootstrap(BootstrapError::Descriptor { why, .. }) => refuse(&why).into(),
            other => other,
        })?;
        let mapping = Arc::new(Mapping::import(owner, descriptor, record.allocation_size)?);
        let mut imported = lock(&self.0.imported);
        imported.retain(|_, mapping| mapping.strong_count() > 0);
        // Another thread may have been faster; its mapping is as good.
        if let Some(first) = imported.get(&key).and_then(Weak::upgrade) {
            return first.expect_size(owner, record).map(|()| first);
        }
        imported.insert(key, Arc::downgrade(&mapping));
        Ok(mapping)
    }
}

impl Engine for HostEngine {
    fn transport(&self) -> Transport {
        Transport::SharedMemory
    }

    fn export(&self, _context: &EngineContext, region: &Region, _access: Access) -> Result<Export> {
        let (address, size) = (region.address().as_ptr() as u64, region.size());
        let refuse =
            |why| MemoryError::NotExportable { address, size, transport: Transport::SharedMemory, why };
        if region.device().kind != DeviceKind::Cpu {
            return Err(refuse("it is not host memory; use CudaIpc").into());
        }
        if region.backing().is_none() {
            return Err(refuse(
                "only memory with a descriptor can be mapped by other processes; allocate it with \
                 Communicator::alloc or HostBuffer, or register it for Ethernet",
            )
            .into());
        }
        let key = (self.0.next.fetch_add(1, Ordering::Relaxed), address, size);
        lock(&self.0.exported).insert(key, region.clone());
        let guard = Arc::new(Exported { engine: Arc::downgrade(&self.0), key });
        Ok(Export { guard: Some(guard), ..Export::new(Transport::SharedMemory) })
    }

    fn import(&self, context: &EngineContext, record: &MemoryRecord, deadline: Deadline) -> Result<Import> {
        let control = &context.control;
        let me = control.peers().get(control.job_rank() as usize).ok_or(Error::Internal {
            place: "HostEngine::import",
            what: "the job's list of ranks contains this rank",
        })?;
        let refuse = |why: &str| MemoryError::Import {
            owner: context.rank_of(record.owner),
            size: record.size,
            why: format!("{}: {why}", Transport::SharedMemory),
        };
        if record.device.kind != DeviceKind::Cpu {
            return Err(refuse("it is not host memory").into());
        }
        if record.host != me.host {
            return Err(refuse("its owner is on another host; use Ethernet").into());
        }
        let own = (record.process == me.process).then(|| self.own(record)).flatten();
        let region = match own {
            Some(region) => region,
            None => {
                let mapping = self.mapping(context, record, deadline)?;
                Mapping::region(&mapping, record.offset, record.size, None)?
            }
        };
        Ok(Import { transport: Transport::SharedMemory, region: Some(region) })
    }

    fn endpoint(&self, _context: &EngineContext, config: &EndpointConfig) -> Result<Endpoint> {
        let id = self.0.next.fetch_add(1, Ordering::Relaxed);
        Ok(Endpoint::new(Transport::SharedMemory, config.device, config, id))
    }

    fn connect(
        &self,
        context: &EngineContext,
        local: &Endpoint,
        remote: &Endpoint,
        _deadline: Deadline,
    ) -> Result<Box<dyn RawConnection>> {
        Ok(Box::new(SharedConnection::new(context.rank_of(remote.owner), local.max_write_queue_size)))
    }
}

/// Takes an export off the list when dropped.
struct Exported {
    engine: Weak<Inner>,
    key: ExportKey,
}

impl Drop for Exported {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.upgrade() {
            let region = lock(&engine.exported).remove(&self.key);
            // Outside the lock: the region may be the last owner of its memory.
            drop(region);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
