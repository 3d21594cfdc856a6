//! Both ends of the ring for host threads, with bounded waits.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Trigger;
use super::ring::{Refused, Ring};
use crate::deadline::Timeout;
use crate::error::Result;
use crate::proxy::ProxyError;
use crate::trace::Operation;
use crate::wait::{WaitSite, Waiter};

/// The consumer's end. There is one; producers take a [`handle`](Self::handle).
pub struct Fifo {
    ring: Arc<Ring>,
    waiter: Waiter,
    /// Elements consumed; the ring's tail is a copy of it.
    tail: u64,
    /// The element at `tail` has been seen.
    seen: bool,
}

/// A producer's end: cheap to clone, any number of threads.
#[derive(Clone)]
pub struct FifoHandle {
    ring: Arc<Ring>,
    waiter: Waiter,
}

impl Fifo {
    /// An empty FIFO of `size` elements. Waits of producers end when the health of `waiter` fails.
    ///
    /// # Errors
    /// `fifo.size` unless the size is a power of two from 2 to [`MAX_FIFO_SIZE`](super::MAX_FIFO_SIZE).
    pub fn new(size: u64, waiter: Waiter) -> Result<Self, ProxyError> {
        Ok(Self { ring: Arc::new(Ring::new(size)?), waiter, tail: 0, seen: false })
    }

    /// The next element, without consuming it; `None` if it has not come. An element that no producer
    /// of ours writes is an error; it is consumed by [`pop`](Self::pop) like any other.
    #[inline]
    pub fn poll(&mut self) -> Option<Result<Trigger, ProxyError>> {
        let element = self.ring.front(self.tail)?;
        self.seen = true;
        Some(element.decode())
    }

    /// Consumes the element that [`poll`](Self::poll) showed and frees its slot. False, and nothing
    /// happens, without such an element.
    #[inline]
    pub fn pop(&mut self) -> bool {
        if !std::mem::take(&mut self.seen) {
            return false;
        }
        self.ring.pop(self.tail);
        self.tail += 1;
        true
    }

    /// Elements consumed; the position of the next one.
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// Elements pushed, or about to be written by a producer that has its position.
    pub fn head(&self) -> u64 {
        self.ring.head()
    }

    /// Number of slots.
    pub fn size(&self) -> u64 {
        self.ring.size()
    }

    /// A producer's end.
    pub fn handle(&self) -> FifoHandle {
        FifoHandle { ring: Arc::clone(&self.ring), waiter: self.waiter.clone() }
    }

    /// Sleeps at most `slice` while nothing has been pushed and `interrupted` does not hold; may wake for
    /// no reason. A push wakes it, and so does [`FifoHandle::wake`].
    pub fn sleep(&self, slice: Duration, interrupted: impl Fn() -> bool) {
        self.ring.pushed().sleep_unless(slice, || self.ring.head() != self.tail || interrupted());
    }
}

impl FifoHandle {
    /// Pushes one element and returns its position. Blocks only while the previous element of its slot
    /// has not been consumed; `timeout` limits that. What the thread wrote before is visible to whoever
    /// handles the element. A push that fails has pushed nothing.
    ///
    /// # Errors
    /// [`Trigger::encode`]'s, [`WaitError`](crate::wait::WaitError) if the FIFO stays full,
    /// `proxy.stopped` if the consumer has been stopped.
    #[inline]
    pub fn push(&self, trigger: &Trigger, timeout: Timeout) -> Result<u64> {
        self.push_for(None, trigger, timeout)
    }

    /// The same, with the rank that the request concerns for errors and records.
    pub(crate) fn push_for(&self, peer: Option<u32>, trigger: &Trigger, timeout: Timeout) -> Result<u64> {
        let element = trigger.encode()?;
        let stopped = |position| ProxyError::Stopped { position }.into();
        let full = match self.ring.try_push(&element) {
            Ok(position) => return Ok(position),
            Err(Refused::Closed { position }) => return Err(stopped(position)),
            Err(Refused::Full { position, .. }) => position,
        };
        let site = || WaitSite {
            operation: Operation::FifoPush,
            peer,
            object: u64::from(trigger.semaphore.bits()),
            sequence: full,
            expected: full + 1 - self.ring.size(),
        };
        self.waiter.wait(site, timeout, Some(self.ring.popped()), || match self.ring.try_push(&element) {
            Ok(position) => Ok(Ok(position)),
            Err(Refused::Closed { position }) => Ok(Err(stopped(position))),
            Err(Refused::Full { tail, .. }) => Err(tail),
        })?
    }

    /// True once the element has been consumed: taken up by the consumer, not necessarily carried out.
    #[inline]
    pub fn poll(&self, position: u64) -> bool {
        self.ring.tail() > position
    }

    /// Waits until the element has been consumed.
    ///
    /// # Errors
    /// [`WaitError`](crate::wait::WaitError) on timeout and failure.
    pub fn sync(&self, position: u64, timeout: Timeout) -> Result<()> {
        let site = || WaitSite {
            operation: Operation::FifoSync,
            peer: None,
            object: 0,
            sequence: position,
            expected: position.saturating_add(1),
        };
        self.waiter.wait(site, timeout, Some(self.ring.popped()), || {
            let tail = self.ring.tail();
            if tail > position { Ok(()) } else { Err(tail) }
        })?;
        Ok(())
    }

    /// Number of slots.
    pub fn size(&self) -> u64 {
        self.ring.size()
    }

    /// Elements consumed.
    pub fn tail(&self) -> u64 {
        self.ring.tail()
    }

    /// Elements pushed, or about to be written by a producer that has its position.
    pub fn head(&self) -> u64 {
        self.ring.head()
    }

    /// Refuses pushes from now on. What has a position already is still written.
    pub fn close(&self) {
        self.ring.close();
    }

    /// Accepts pushes again.
    pub fn open(&self) {
        self.ring.open();
    }

    /// True while pushes are refused.
    pub fn is_closed(&self) -> bool {
        self.ring.is_closed()
    }

    /// Wakes a sleeping consumer so that it looks around.
    pub fn wake(&self) {
        self.ring.pushed().notify();
    }
}

impl fmt::Debug for Fifo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fifo")
            .field("size", &self.size())
            .field("head", &self.head())
            .field("tail", &self.tail)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for FifoHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FifoHandle")
            .field("size", &self.size())
            .field("tail", &self.tail())
            .finish_non_exhaustive()
    }
}
