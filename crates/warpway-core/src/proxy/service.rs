//! The service behind port channels.

use std::fmt;
use std::sync::Arc;

use super::ProxyError;
use super::dispatch::{Dispatcher, Registries};
use super::lane::Entry;
use super::lanes::Lanes;
use super::removals::Removal;
use super::worker::{Proxy, ProxyConfig, StopReport};
use crate::channel::{BasePortChannel, PortChannel};
use crate::communicator::Communicator;
use crate::connection::Connection;
use crate::deadline::Deadline;
use crate::error::Result;
use crate::fifo::{FifoHandle, MemoryId, SemaphoreId};
use crate::memory::RegisteredMemory;
use crate::semaphore::Semaphore;
use crate::wait::Waiter;

/// How a [`ProxyService`] runs.
#[derive(Clone)]
pub struct ProxyServiceConfig {
    /// FIFO, thread, and the health that takes errors of requests that name no connection.
    pub proxy: ProxyConfig,
    /// Requests of blocked connections that are set aside, all connections together. Beyond that the
    /// service takes no more from the FIFO until one of them moves, so memory stays bounded.
    pub max_parked: usize,
}

impl ProxyServiceConfig {
    /// The defaults of [`ProxyConfig::new`], 65536 requests set aside.
    pub fn new(waiter: Waiter) -> Self {
        Self { proxy: ProxyConfig::new(waiter), max_parked: 1 << 16 }
    }
}

/// Carries out requests of port channels. Cheap to clone; the last clone, also one inside a channel, stops
/// the service and joins its thread. All calls may be made from any thread, also while it runs.
#[derive(Clone)]
pub struct ProxyService(Arc<Inner>);

struct Inner {
    registries: Arc<Registries>,
    lanes: Arc<Lanes>,
    proxy: Proxy<Dispatcher>,
}

impl ProxyService {
    /// A service that does not run yet. Ids can be added and requests pushed before it is started.
    ///
    /// # Errors
    /// `fifo.size`.
    pub fn new(config: ProxyServiceConfig) -> Result<Self> {
        let registries = Arc::new(Registries::new());
        let lanes = Arc::new(Lanes::new(config.proxy.source.clone()));
        let dispatcher = Dispatcher::new(Arc::clone(&registries), Arc::clone(&lanes), config.max_parked);
        let proxy = Proxy::new(dispatcher, config.proxy)?;
        Ok(Self(Arc::new(Inner { registries, lanes, proxy })))
    }

    /// Starts the service, also again after a stop. Does nothing if it runs.
    ///
    /// # Errors
    /// As [`Proxy::start`].
    pub fn start_proxy(&self) -> Result<()> {
        self.0.proxy.start()
    }

    /// Refuses new requests, carries out and completes what was pushed before until `deadline`, and ends
    /// the waits for the rest with `proxy.stopped`. A rejected request that nobody waits for shows in the
    /// report, and as `proxy.stopped` in the first flush of its connection after another start.
    ///
    /// # Errors
    /// As [`Proxy::stop`].
    pub fn stop_proxy(&self, deadline: Deadline) -> Result<StopReport> {
        self.0.proxy.stop(deadline)
    }

    /// True while the service's thread runs.
    pub fn is_running(&self) -> bool {
        self.0.proxy.is_running()
    }

    /// Registers a semaphore, and with it its connection.
    ///
    /// # Errors
    /// `proxy.full`; if requests come from a device, also those of [`TriggerSource::progress_word`](super::TriggerSource::progress_word).
    pub fn add_semaphore(&self, semaphore: &Semaphore) -> Result<SemaphoreId> {
        let lane = self.0.lanes.of(semaphore.connection(), self.0.proxy.bell())?;
        let entry = Arc::new(Entry { semaphore: semaphore.clone(), lane });
        Ok(SemaphoreId::from_bits(self.0.registries.semaphores.add(entry)?))
    }

    /// Builds a semaphore on `connection` and registers it. Both ranks of the connection build one, and wait for
    /// each other until `deadline`; it is the next exchange under the connection's own tag.
    ///
    /// # Errors
    /// `exchange.argument` for a connection of another communicator; other `exchange.*` if the peer does not
    /// build one in time; `proxy.full`.
    #[track_caller]
    pub fn build_and_add_semaphore(
        &self,
        communicator: &Communicator,
        connection: &Connection,
        deadline: Deadline,
    ) -> Result<SemaphoreId> {
        let (peer, tag) = (communicator.remote_rank_of(connection)?, communicator.tag_of(connection)?);
        self.add_semaphore(&communicator.build_semaphore(connection, peer, tag)?.wait(deadline)?)
    }

    /// Requests that name the semaphore are errors from now on; those pushed before are carried out. (Those of a device
    /// only if they have been taken up: nobody can ask it what it has pushed.)
    ///
    /// # Errors
    /// `proxy.stale_id`.
    pub fn remove_semaphore(&self, id: SemaphoreId) -> Result<()> {
        let at = self.pushed();
        if self.0.registries.semaphores.retire(id.bits())? {
            self.remove(at, Removal::Semaphore(id.bits()));
        }
        Ok(())
    }

    /// Registers a memory, local or imported.
    ///
    /// # Errors
    /// `proxy.full`.
    pub fn add_memory(&self, memory: &RegisteredMemory) -> Result<MemoryId> {
        Ok(MemoryId::from_bits(self.0.registries.memories.add(memory.clone())?))
    }

    /// Sets `count` consecutive ids aside and returns the first; [`set_memory`](Self::set_memory) gives
    /// them their memories.
    ///
    /// # Errors
    /// `proxy.usage` for a count of 0, `proxy.full`.
    pub fn next_memory_id(&self, count: u32) -> Result<MemoryId> {
        if count == 0 {
            let (operation, why) = ("next_memory_id", "the count is 0");
            return Err(ProxyError::Usage { operation, why }.into());
        }
        Ok(MemoryId::from_bits(self.0.registries.memories.reserve(count)?))
    }

    /// Gives a reserved id its memory.
    ///
    /// # Errors
    /// `proxy.stale_id`, or `proxy.usage` if it has one.
    pub fn set_memory(&self, id: MemoryId, memory: &RegisteredMemory) -> Result<()> {
        Ok(self.0.registries.memories.fill(id.bits(), memory.clone())?)
    }

    /// Requests that name the memory are errors from now on; those pushed before are carried out, as with
    /// [`remove_semaphore`](Self::remove_semaphore). Releases a reserved id, too.
    ///
    /// # Errors
    /// `proxy.stale_id`.
    pub fn remove_memory(&self, id: MemoryId) -> Result<()> {
        let at = self.pushed();
        if self.0.registries.memories.retire(id.bits())? {
            self.remove(at, Removal::Memory(id.bits()));
        }
        Ok(())
    }

    /// Requests pushed by host threads so far.
    fn pushed(&self) -> u64 {
        self.0.proxy.fifo().map_or(0, FifoHandle::head)
    }

    /// Removes what has been retired when `at` requests had been pushed.
    fn remove(&self, at: u64, removal: Removal) {
        let Inner { registries, proxy, .. } = &*self.0;
        registries.removals.add(at, removal);
        // After that: whichever of the two threads comes later sees what the other one has done.
        match proxy.fifo() {
            Ok(fifo) if fifo.tail() < at => proxy.bell().ring(),
            _ => registries.expire(at),
        }
    }

    /// The memory of an id.
    ///
    /// # Errors
    /// `proxy.stale_id`.
    pub fn memory(&self, id: MemoryId) -> Result<RegisteredMemory> {
        Ok(self.0.registries.memories.get(id.bits())?)
    }

    /// A channel that names memories in each call.
    ///
    /// # Errors
    /// `proxy.stale_id`.
    pub fn base_port_channel(&self, semaphore: SemaphoreId) -> Result<BasePortChannel> {
        BasePortChannel::new(semaphore, self.clone())
    }

    /// A channel from `source` to `destination`.
    ///
    /// # Errors
    /// `proxy.stale_id`, `mem.side` if the source is no local memory, `mem.transport` if the connection
    /// does not reach the destination.
    pub fn port_channel(
        &self,
        semaphore: SemaphoreId,
        destination: MemoryId,
        source: MemoryId,
    ) -> Result<PortChannel> {
        PortChannel::new(self.base_port_channel(semaphore)?, destination, source)
    }

    /// Where producers push; requests that are not made by a channel are checked by the service only.
    ///
    /// # Errors
    /// As [`Proxy::fifo`].
    pub fn fifo(&self) -> Result<&FifoHandle, ProxyError> {
        self.0.proxy.fifo()
    }

    /// True if both are the same service.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The service's own health, recorder and back-off.
    pub fn waiter(&self) -> &Waiter {
        self.0.proxy.waiter()
    }

    pub(crate) fn entry(&self, id: SemaphoreId) -> Result<Arc<Entry>> {
        Ok(self.0.registries.entry(id.bits())?)
    }
}

impl fmt::Debug for ProxyService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyService")
            .field("running", &self.is_running())
            .field("fifo", &self.fifo().ok())
            .finish_non_exhaustive()
    }
}
