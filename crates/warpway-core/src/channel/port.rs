//! Port channels: requests to a proxy, for any transport.
//!
//! The channel objects; their handles are for host threads and blocks of the host engine. A request is one
//! FIFO element; elements of one connection are carried out in the order in which they were pushed, also
//! between channels that share the connection.

use std::fmt;
use std::sync::Arc;

use super::DEVICE_TIMEOUT;
use super::port_handle::{BasePortChannelHandle, PortChannelHandle};
use crate::deadline::Timeout;
use crate::error::Result;
use crate::fifo::{MemoryId, SemaphoreId};
use crate::memory::{MemoryError, RegisteredMemory};
use crate::proxy::{Entry, ProxyService};
use crate::semaphore::Semaphore;

/// A copy between two memories of a proxy service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortCopy {
    /// The peer's memory.
    pub destination: MemoryId,
    /// First byte there.
    pub destination_offset: u64,
    /// The local memory.
    pub source: MemoryId,
    /// First byte here.
    pub source_offset: u64,
    /// Bytes.
    pub size: u64,
}

/// A port channel whose calls name memories. Cheap to clone; keeps service, semaphore and connection.
#[derive(Clone)]
pub struct BasePortChannel {
    pub(super) id: SemaphoreId,
    pub(super) entry: Arc<Entry>,
    pub(super) service: ProxyService,
    pub(super) timeout: Timeout,
}

impl BasePortChannel {
    /// On a semaphore of `service`.
    ///
    /// # Errors
    /// `proxy.stale_id`.
    pub fn new(semaphore: SemaphoreId, service: ProxyService) -> Result<Self> {
        Ok(Self { id: semaphore, entry: service.entry(semaphore)?, service, timeout: DEVICE_TIMEOUT })
    }

    /// The same with another limit for each call of a handle.
    pub fn with_timeout(self, timeout: Timeout) -> Self {
        Self { timeout, ..self }
    }

    /// Limit of each call of a handle.
    pub fn timeout(&self) -> Timeout {
        self.timeout
    }

    /// The semaphore.
    pub fn semaphore(&self) -> &Semaphore {
        &self.entry.semaphore
    }

    /// Its id in the service.
    pub fn semaphore_id(&self) -> SemaphoreId {
        self.id
    }

    /// The service.
    pub fn service(&self) -> &ProxyService {
        &self.service
    }

    /// Where kernels find one past the highest position of the connection that is complete; `None` if requests come
    /// from host threads.
    pub fn flush_word(&self) -> Option<u64> {
        self.entry.lane.flushes().word()
    }

    /// What blocks use; it keeps the channel.
    pub fn device_handle(&self) -> BasePortChannelHandle {
        BasePortChannelHandle::new(self.clone())
    }
}

/// A port channel between two fixed memories. Cheap to clone; keeps what it needs.
#[derive(Clone)]
pub struct PortChannel {
    base: BasePortChannel,
    memories: Arc<Memories>,
}

pub(super) struct Memories {
    pub(super) destination_id: MemoryId,
    pub(super) destination: RegisteredMemory,
    pub(super) source_id: MemoryId,
    pub(super) source: RegisteredMemory,
}

impl PortChannel {
    /// From `source` to `destination`, both memories of the channel's service.
    ///
    /// # Errors
    /// `proxy.stale_id`, `mem.side` if the source is no local memory, `mem.transport` if the connection
    /// does not reach the destination.
    pub fn new(base: BasePortChannel, destination: MemoryId, source: MemoryId) -> Result<Self> {
        const NAME: &str = "port channel";
        let memories = Memories {
            destination_id: destination,
            destination: base.service.memory(destination)?,
            source_id: source,
            source: base.service.memory(source)?,
        };
        memories.destination.require(NAME, base.semaphore().connection().transport())?;
        if !memories.source.is_local() {
            let what = "the source must be a local memory, not a peer's";
            return Err(MemoryError::WrongSide { operation: NAME, what }.into());
        }
        Ok(Self { base, memories: Arc::new(memories) })
    }

    /// The semaphore, service and timeout.
    pub fn base(&self) -> &BasePortChannel {
        &self.base
    }

    /// The same with another limit for each call of a handle.
    pub fn with_timeout(self, timeout: Timeout) -> Self {
        Self { base: self.base.with_timeout(timeout), ..self }
    }

    /// The peer's memory.
    pub fn destination(&self) -> &RegisteredMemory {
        &self.memories.destination
    }

    /// Its id in the service.
    pub fn destination_id(&self) -> MemoryId {
        self.memories.destination_id
    }

    /// Its id in the service.
    pub fn source_id(&self) -> MemoryId {
        self.memories.source_id
    }

    /// The local memory.
    pub fn source(&self) -> &RegisteredMemory {
        &self.memories.source
    }

    /// What blocks use; it keeps the channel.
    pub fn device_handle(&self) -> PortChannelHandle {
        PortChannelHandle::new(self.base.device_handle(), Arc::clone(&self.memories))
    }
}

impl fmt::Debug for BasePortChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BasePortChannel").field("id", &self.id).field("semaphore", self.semaphore()).finish()
    }
}

impl fmt::Debug for PortChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PortChannel")
            .field("base", &self.base)
            .field("destination", self.destination())
            .field("source", self.source())
            .finish()
    }
}
