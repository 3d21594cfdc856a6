//! What host threads and blocks do with a port channel: each call is one request to its proxy service.

use std::fmt;
use std::sync::Arc;

use super::port::{BasePortChannel, Memories, PortCopy};
use crate::connection::{Put, Span};
use crate::deadline::{Deadline, Timeout};
use crate::error::Result;
use crate::fifo::{MemoryId, SemaphoreId, Trigger, TriggerKind};
use crate::memory::MemoryError;
use crate::proxy::{FlushState, ProxyError};
use crate::trace::Operation;
use crate::wait::WaitSite;

/// Calls of a [`BasePortChannel`], each by one thread, any number of threads. Calls that push return the
/// FIFO position of their element.
///
/// A push waits only while the FIFO is full. Every wait ends at the channel's timeout, when the
/// communicator of the connection or the service fails, and when the service is stopped.
///
/// Calls that push are `proxy.usage` errors where the service takes its requests from a device.
#[derive(Clone)]
pub struct BasePortChannelHandle(BasePortChannel);

impl BasePortChannelHandle {
    pub(super) fn new(channel: BasePortChannel) -> Self {
        Self(channel)
    }

    /// Copies asynchronously. The source may be written again once a later [`flush`](Self::flush) returns.
    ///
    /// # Errors
    /// See the type's page. Ids and ranges are checked by the service when it takes the request up: an
    /// error there fails the communicator.
    pub fn put(&self, copy: &PortCopy) -> Result<u64> {
        self.copy(TriggerKind::DATA, copy)
    }

    /// Raises the peer's semaphore after all earlier requests of the connection.
    ///
    /// # Errors
    /// See the type's page.
    pub fn signal(&self) -> Result<u64> {
        self.push(&Trigger::new(TriggerKind::FLAG, self.0.id), self.0.timeout)
    }

    /// [`put`](Self::put) and [`signal`](Self::signal) in one request.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn put_with_signal(&self, copy: &PortCopy) -> Result<u64> {
        self.copy(TriggerKind::DATA | TriggerKind::FLAG, copy)
    }

    /// [`put_with_signal`](Self::put_with_signal) and [`flush`](Self::flush) in one request.
    ///
    /// # Errors
    /// As both.
    pub fn put_with_signal_and_flush(&self, copy: &PortCopy) -> Result<u64> {
        let kind = TriggerKind::DATA | TriggerKind::FLAG | TriggerKind::SYNC;
        self.push_and_flush(&copy.trigger(kind, self.0.id))
    }

    /// Returns when everything pushed before on the connection, from whatever channel or thread, is
    /// complete: sources may be written again, effects are ordered there. Later requests do not delay it.
    ///
    /// # Errors
    /// [`WaitError`](crate::wait::WaitError) naming the peer; `proxy.stopped` if the service was stopped
    /// before it was complete.
    pub fn flush(&self) -> Result<u64> {
        self.push_and_flush(&Trigger::new(TriggerKind::SYNC, self.0.id))
    }

    /// Adds `value` (wrapping) to the 64-bit word at `offset` of the peer's memory, after all earlier
    /// requests of the connection. Covered by [`flush`](Self::flush).
    ///
    /// # Errors
    /// `mem.alignment` unless the offset is a multiple of 8; else as [`put`](Self::put).
    pub fn atomic_add(&self, destination: MemoryId, offset: u64, value: i64) -> Result<u64> {
        if !offset.is_multiple_of(8) {
            return Err(MemoryError::Misaligned { operation: "atomic_add", offset, alignment: 8 }.into());
        }
        let kind = TriggerKind::ATOMIC_ADD;
        let trigger =
            Trigger { destination, destination_offset: offset, value, ..Trigger::new(kind, self.0.id) };
        self.push(&trigger, self.0.timeout)
    }

    /// [`put`](Self::put) without the service: the calling thread posts the copy to the connection, and then raises the peer's
    /// semaphore if `signals`. That saves the way to another thread where the connection works on its own once something is
    /// posted, as TCP does; elsewhere the caller does the copying.
    ///
    /// A later [`flush`](Self::flush) covers it. It does not wait for requests that are still in the FIFO: threads that need an
    /// order on a connection use one way or the other.
    ///
    /// # Errors
    /// `proxy.stale_id`, those of [`Connection::write`](crate::connection::Connection::write), and why the communicator has
    /// failed.
    pub fn put_directly(&self, copy: &PortCopy, signals: bool) -> Result<()> {
        let semaphore = self.0.semaphore();
        let connection = semaphore.connection();
        connection.waiter().health.check_during(Operation::Write)?;
        let destination = self.0.service.memory(copy.destination)?;
        let source = self.0.service.memory(copy.source)?;
        if !signals {
            let PortCopy { destination_offset, source_offset, size, .. } = *copy;
            return connection
                .write(&destination, destination_offset, &source, source_offset, size)
                .map(drop);
        }
        semaphore.write_and_signal(Put {
            destination: Span { memory: &destination, offset: copy.destination_offset },
            source: Span { memory: &source, offset: copy.source_offset },
            size: copy.size,
        })
    }

    /// [`signal`](Self::signal) without the service, as [`put_directly`](Self::put_directly).
    ///
    /// # Errors
    /// As there.
    pub fn signal_directly(&self) -> Result<()> {
        let semaphore = self.0.semaphore();
        semaphore.connection().waiter().health.check_during(Operation::Signal)?;
        semaphore.signal()
    }

    /// Takes one signal of the peer if there is one.
    ///
    /// # Errors
    /// If the token has no address here.
    pub fn poll(&self) -> Result<bool> {
        self.0.semaphore().poll()
    }

    /// Waits for one signal of the peer and takes it.
    ///
    /// # Errors
    /// [`WaitError`](crate::wait::WaitError) naming the peer.
    pub fn wait(&self) -> Result<()> {
        // Whoever signals has its proxy do it: on this host, that takes a core.
        self.0.semaphore().wait_with(self.0.entry.lane.waiter(), self.0.timeout)
    }

    /// The channel.
    pub fn channel(&self) -> &BasePortChannel {
        &self.0
    }

    fn copy(&self, kind: TriggerKind, copy: &PortCopy) -> Result<u64> {
        self.push(&copy.trigger(kind, self.0.id), self.0.timeout)
    }

    fn push(&self, trigger: &Trigger, timeout: Timeout) -> Result<u64> {
        let connection = self.0.semaphore().connection();
        connection.waiter().health.check_during(Operation::ProxyRequest)?;
        self.0.service.fifo()?.push_for(Some(connection.peer()), trigger, timeout)
    }

    fn push_and_flush(&self, trigger: &Trigger) -> Result<u64> {
        let deadline = self.0.timeout.start();
        let position = self.push(trigger, deadline.into())?;
        self.await_flush(position, deadline)?;
        Ok(position)
    }

    fn await_flush(&self, position: u64, deadline: Deadline) -> Result<()> {
        let (connection, flushes) = (self.0.entry.lane.connection(), self.0.entry.lane.flushes());
        let service_health = &self.0.service.waiter().health;
        let site = || WaitSite {
            operation: Operation::Flush,
            peer: Some(connection.peer()),
            object: self.0.semaphore().id(),
            sequence: position,
            expected: position + 1,
        };
        self.0.entry.lane.waiter().wait(site, deadline.into(), Some(flushes.event()), || {
            match flushes.state(position) {
                FlushState::Done => Ok(Ok(())),
                FlushState::Stopped => {
                    flushes.forget(position);
                    Ok(Err(ProxyError::Stopped { position }.into()))
                }
                // The connection's own health is looked at by the wait; the service may have another one.
                FlushState::Pending(seen) => {
                    service_health.check_during(Operation::Flush).map_or_else(|e| Ok(Err(e)), |()| Err(seen))
                }
            }
        })?
    }
}

impl PortCopy {
    fn trigger(&self, kind: TriggerKind, semaphore: SemaphoreId) -> Trigger {
        let Self { destination, destination_offset, source, source_offset, size } = *self;
        Trigger {
            destination,
            source,
            destination_offset,
            source_offset,
            size,
            ..Trigger::new(kind, semaphore)
        }
    }
}

/// Calls of a [`PortChannel`](super::PortChannel); as [`BasePortChannelHandle`], with the memories left out. Ranges are
/// checked before anything is pushed.
#[derive(Clone)]
pub struct PortChannelHandle {
    base: BasePortChannelHandle,
    memories: Arc<Memories>,
}

impl PortChannelHandle {
    pub(super) fn new(base: BasePortChannelHandle, memories: Arc<Memories>) -> Self {
        Self { base, memories }
    }

    /// See [`BasePortChannelHandle::put`].
    ///
    /// # Errors
    /// Also `mem.bounds`.
    pub fn put(&self, destination_offset: u64, source_offset: u64, size: u64) -> Result<u64> {
        self.base.put(&self.copy("put", destination_offset, source_offset, size)?)
    }

    /// See [`BasePortChannelHandle::signal`].
    ///
    /// # Errors
    /// As there.
    pub fn signal(&self) -> Result<u64> {
        self.base.signal()
    }

    /// See [`BasePortChannelHandle::put_with_signal`].
    ///
    /// # Errors
    /// Also `mem.bounds`.
    pub fn put_with_signal(&self, destination_offset: u64, source_offset: u64, size: u64) -> Result<u64> {
        self.base.put_with_signal(&self.copy("put_with_signal", destination_offset, source_offset, size)?)
    }

    /// See [`BasePortChannelHandle::put_with_signal_and_flush`].
    ///
    /// # Errors
    /// Also `mem.bounds`.
    pub fn put_with_signal_and_flush(
        &self,
        destination_offset: u64,
        source_offset: u64,
        size: u64,
    ) -> Result<u64> {
        let copy = self.copy("put_with_signal_and_flush", destination_offset, source_offset, size)?;
        self.base.put_with_signal_and_flush(&copy)
    }

    /// See [`BasePortChannelHandle::flush`].
    ///
    /// # Errors
    /// As there.
    pub fn flush(&self) -> Result<u64> {
        self.base.flush()
    }

    /// See [`BasePortChannelHandle::atomic_add`].
    ///
    /// # Errors
    /// Also `mem.bounds`.
    pub fn atomic_add(&self, offset: u64, value: i64) -> Result<u64> {
        self.memories.destination.check_word("atomic_add", offset)?;
        self.base.atomic_add(self.memories.destination_id, offset, value)
    }

    /// See [`BasePortChannelHandle::poll`].
    ///
    /// # Errors
    /// As there.
    pub fn poll(&self) -> Result<bool> {
        self.base.poll()
    }

    /// See [`BasePortChannelHandle::wait`].
    ///
    /// # Errors
    /// As there.
    pub fn wait(&self) -> Result<()> {
        self.base.wait()
    }

    fn copy(
        &self,
        operation: &'static str,
        destination_offset: u64,
        source_offset: u64,
        size: u64,
    ) -> Result<PortCopy> {
        let Memories { destination_id, destination, source_id, source } = &*self.memories;
        destination.check_range(operation, destination_offset, size)?;
        source.check_range(operation, source_offset, size)?;
        Ok(PortCopy {
            destination: *destination_id,
            destination_offset,
            source: *source_id,
            source_offset,
            size,
        })
    }
}

impl fmt::Debug for BasePortChannelHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BasePortChannelHandle").field(&self.0).finish()
    }
}

impl fmt::Debug for PortChannelHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PortChannelHandle").field("base", &self.base).finish_non_exhaustive()
    }
}
