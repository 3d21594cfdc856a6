//! Memory channels: one-sided access to a mapped memory of a peer, ordered by a semaphore.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::handle::{DeviceHandle, Liveness, MemoryChannelHandle, SemaphoreHandle};
use crate::deadline::Timeout;
use crate::error::Result;
use crate::memory::{MemoryError, RegisteredMemory};
use crate::semaphore::MemoryDevice2DeviceSemaphore;

/// How long a wait of a block takes at most if nothing else is said (`WARPWAY_DEVICE_TIMEOUT_MS`).
pub const DEVICE_TIMEOUT: Timeout = Timeout::after(Duration::from_secs(600));

/// Signals without memory.
#[derive(Debug, Clone)]
pub struct BaseMemoryChannel {
    semaphore: MemoryDevice2DeviceSemaphore,
    timeout: Timeout,
}

impl BaseMemoryChannel {
    /// A channel that only signals.
    pub fn new(semaphore: MemoryDevice2DeviceSemaphore) -> Self {
        Self { semaphore, timeout: DEVICE_TIMEOUT }
    }

    /// The same with another limit for each wait of a block.
    pub fn with_timeout(self, timeout: Timeout) -> Self {
        Self { timeout, ..self }
    }

    /// Limit of each wait of a block.
    pub fn timeout(&self) -> Timeout {
        self.timeout
    }

    /// The semaphore.
    pub fn semaphore(&self) -> &MemoryDevice2DeviceSemaphore {
        &self.semaphore
    }

    /// What kernels take by value; the guard keeps the semaphore alive.
    ///
    /// # Errors
    /// `mem.transport` if the peer's token has no address here.
    pub fn device_handle(&self) -> Result<DeviceHandle<SemaphoreHandle, Self>> {
        Ok(DeviceHandle::new(semaphore_handle(&self.semaphore)?, self.clone()))
    }
}

/// Peer memory `destination`, local memory `source`, optionally a local packet buffer, and a semaphore.
///
/// Cheap to clone. It holds everything it needs: connection, tokens and memories live as long as it.
#[derive(Clone)]
pub struct MemoryChannel(Arc<Inner>);

struct Inner {
    base: BaseMemoryChannel,
    destination: RegisteredMemory,
    source: RegisteredMemory,
    packet_buffer: Option<RegisteredMemory>,
    liveness: Liveness,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.liveness.end();
    }
}

impl MemoryChannel {
    /// Joins what [`BaseMemoryChannel`] or a semaphore gives with memories.
    ///
    /// # Errors
    /// `mem.transport` if `destination` is not mapped here or not reachable by the semaphore's transport,
    /// `mem.side` if `source` or `packet_buffer` is a peer's memory.
    pub fn new(
        semaphore: MemoryDevice2DeviceSemaphore,
        destination: RegisteredMemory,
        source: RegisteredMemory,
        packet_buffer: Option<RegisteredMemory>,
    ) -> Result<Self> {
        Self::on(BaseMemoryChannel::new(semaphore), destination, source, packet_buffer)
    }

    /// The same on a base channel, whose timeout it takes over.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn on(
        base: BaseMemoryChannel,
        destination: RegisteredMemory,
        source: RegisteredMemory,
        packet_buffer: Option<RegisteredMemory>,
    ) -> Result<Self> {
        const NAME: &str = "memory channel";
        destination.require(NAME, base.semaphore.semaphore().connection().transport())?;
        destination.address(NAME, 0, 0)?;
        require_local(&source, "the source must be a local memory, not a peer's")?;
        if let Some(packet_buffer) = &packet_buffer {
            require_local(packet_buffer, "the packet buffer must be a local memory, not a peer's")?;
        }
        let liveness = Liveness::new();
        Ok(Self(Arc::new(Inner { base, destination, source, packet_buffer, liveness })))
    }

    /// The semaphore and its timeout.
    pub fn base(&self) -> &BaseMemoryChannel {
        &self.0.base
    }

    /// The semaphore.
    pub fn semaphore(&self) -> &MemoryDevice2DeviceSemaphore {
        &self.0.base.semaphore
    }

    /// The peer's memory.
    pub fn destination(&self) -> &RegisteredMemory {
        &self.0.destination
    }

    /// The local memory.
    pub fn source(&self) -> &RegisteredMemory {
        &self.0.source
    }

    /// Where the peer's packets arrive.
    pub fn packet_buffer(&self) -> Option<&RegisteredMemory> {
        self.0.packet_buffer.as_ref()
    }

    /// Tells whether handles leaked from this channel are still valid.
    pub fn liveness(&self) -> &Liveness {
        &self.0.liveness
    }

    /// What kernels take by value; the guard keeps the channel alive.
    ///
    /// # Errors
    /// `mem.transport` if the peer's token has no address here.
    pub fn device_handle(&self) -> Result<DeviceHandle<MemoryChannelHandle, Self>> {
        Ok(DeviceHandle::new(self.handle()?, self.clone()))
    }

    /// The plain data without a guard, for callers that keep the channel alive themselves. Its liveness
    /// word stays for ever (a few bytes), so that a debug build of a kernel can find a stale handle.
    ///
    /// # Errors
    /// As [`device_handle`](Self::device_handle).
    pub fn leak_device_handle(&self) -> Result<MemoryChannelHandle> {
        let handle = self.handle()?;
        self.0.liveness.leak();
        Ok(handle)
    }

    fn handle(&self) -> Result<MemoryChannelHandle> {
        let Inner { base, destination, source, packet_buffer, liveness } = &*self.0;
        let address = |m: &RegisteredMemory| m.data().map_or(0, |p| p.as_ptr() as u64);
        Ok(MemoryChannelHandle {
            semaphore: semaphore_handle(&base.semaphore)?,
            destination: address(destination),
            destination_size: destination.size(),
            source: address(source),
            source_size: source.size(),
            packet_buffer: packet_buffer.as_ref().map_or(0, address),
            packet_buffer_size: packet_buffer.as_ref().map_or(0, RegisteredMemory::size),
            generation: liveness.generation(),
            liveness: liveness.address(),
        })
    }
}

impl fmt::Debug for MemoryChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryChannel")
            .field("semaphore", &self.0.base.semaphore)
            .field("destination", &self.0.destination)
            .field("source", &self.0.source)
            .field("packet_buffer", &self.0.packet_buffer)
            .finish()
    }
}

fn require_local(memory: &RegisteredMemory, what: &'static str) -> Result<(), MemoryError> {
    if memory.is_local() {
        return Ok(());
    }
    Err(MemoryError::WrongSide { operation: "memory channel", what })
}

fn semaphore_handle(semaphore: &MemoryDevice2DeviceSemaphore) -> Result<SemaphoreHandle> {
    let semaphore = semaphore.semaphore();
    Ok(SemaphoreHandle {
        inbound: std::ptr::from_ref(semaphore.inbound().token()?) as u64,
        remote_inbound: std::ptr::from_ref(semaphore.remote().token()?) as u64,
        taken: std::ptr::from_ref(semaphore.taken()) as u64,
    })
}
