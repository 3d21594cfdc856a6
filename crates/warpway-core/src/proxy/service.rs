//! The service behind port channels.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};

use super::ProxyError;
use super::bell::ProxyBell;
use super::dispatch::{Dispatcher, Registries};
use super::lane::{Entry, Lane};
use super::worker::{Proxy, ProxyConfig, StopReport};
use crate::channel::{BasePortChannel, PortChannel};
use crate::communicator::Communicator;
use crate::connection::Connection;
use crate::deadline::Deadline;
use crate::error::Result;
use crate::fifo::{FifoHandle, MemoryId, SemaphoreId};
use crate::health::lock;
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
    lanes: Mutex<Lanes>,
    proxy: Proxy<Dispatcher>,
}

/// One lane per connection, for as long as a semaphore of that connection is registered.
#[derive(Default)]
struct Lanes {
    by_connection: HashMap<usize, Weak<Lane>>,
    /// Size at which the map is searched for lanes that are gone.
    purge_at: usize,
}

impl ProxyService {
    /// A service that does not run yet. Ids can be added and requests pushed before it is started.
    ///
    /// # Errors
    /// `fifo.size`.
    pub fn new(config: ProxyServiceConfig) -> Result<Self> {
        let registries = Arc::new(Registries::new());
        let dispatcher = Dispatcher::new(Arc::clone(&registries), config.max_parked);
        let proxy = Proxy::new(dispatcher, config.proxy)?;
        Ok(Self(Arc::new(Inner { registries, lanes: Mutex::default(), proxy })))
    }

    /// Starts the service, also again after a stop. Does nothing if it runs.
    ///
    /// # Errors
    /// If the system gives no thread.
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
    /// `proxy.full`.
    pub fn add_semaphore(&self, semaphore: &Semaphore) -> Result<SemaphoreId> {
        let lane = lock(&self.0.lanes).lane(semaphore.connection(), self.0.proxy.bell());
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

    /// Requests that name the semaphore are errors from now on; those taken up before are carried out.
    ///
    /// # Errors
    /// `proxy.stale_id`.
    pub fn remove_semaphore(&self, id: SemaphoreId) -> Result<()> {
        self.0.registries.semaphores.remove(id.bits())?;
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

    /// Requests that name the memory are errors from now on; those taken up before are carried out.
    /// Releases a reserved id, too.
    ///
    /// # Errors
    /// `proxy.stale_id`.
    pub fn remove_memory(&self, id: MemoryId) -> Result<()> {
        self.0.registries.memories.remove(id.bits())?;
        Ok(())
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
    pub fn fifo(&self) -> &FifoHandle {
        self.0.proxy.fifo()
    }

    /// The service's own health, recorder and back-off.
    pub fn waiter(&self) -> &Waiter {
        self.0.proxy.waiter()
    }

    pub(crate) fn entry(&self, id: SemaphoreId) -> Result<Arc<Entry>> {
        Ok(self.0.registries.entry(id.bits())?)
    }
}

impl Lanes {
    fn lane(&mut self, connection: &Connection, bell: &ProxyBell) -> Arc<Lane> {
        // A lane keeps its connection, so the key of a live lane is not used again.
        if let Some(lane) = self.by_connection.get(&connection.key()).and_then(Weak::upgrade) {
            return lane;
        }
        if self.by_connection.len() >= self.purge_at {
            self.by_connection.retain(|_, lane| lane.strong_count() > 0);
            self.purge_at = 2 * self.by_connection.len() + 16;
        }
        let lane = Lane::new(connection.clone(), bell.clone());
        self.by_connection.insert(connection.key(), Arc::downgrade(&lane));
        lane
    }
}

impl fmt::Debug for ProxyService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyService")
            .field("running", &self.is_running())
            .field("fifo", self.fifo())
            .finish_non_exhaustive()
    }
}
