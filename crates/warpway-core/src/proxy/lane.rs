//! What producers and the proxy share about one connection: how far its flushes have come.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, Weak};

use super::bell::ProxyBell;
use super::source::{PROXY_STOPPED, ProgressWord};
use crate::connection::{CompletionListener, Connection, Position};
use crate::fifo::TriggerKind;
use crate::health::lock;
use crate::semaphore::Semaphore;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};
use crate::wait::{EventCount, Waiter};

/// State of one flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlushState {
    /// Not complete; one past the highest position that is.
    Pending(u64),
    /// Complete.
    Done,
    /// The service was stopped before it was complete.
    Stopped,
}

/// How far the flushes of one connection have come, told apart by their positions in the FIFO.
pub(crate) struct Flushes {
    /// One past the highest position whose flush is complete. Positions of one connection complete in
    /// order.
    flushed: AtomicU64,
    /// Flushes given up when the service was stopped. They must stay so after it is started again and
    /// later flushes raise `flushed`.
    stopped: Mutex<BTreeSet<u64>>,
    any_stopped: AtomicU32,
    event: EventCount,
    /// Where kernels read `flushed`, if the requests come from a device.
    word: Option<Arc<dyn ProgressWord>>,
    /// [`PROXY_STOPPED`] or 0; part of that word.
    word_flag: AtomicU64,
}

impl Flushes {
    fn new(word: Option<Arc<dyn ProgressWord>>) -> Self {
        Self {
            flushed: AtomicU64::new(0),
            stopped: Mutex::new(BTreeSet::new()),
            any_stopped: AtomicU32::new(0),
            event: EventCount::new(),
            word,
            word_flag: AtomicU64::new(0),
        }
    }

    /// Where kernels find one past the highest position that is complete.
    pub(crate) fn word(&self) -> Option<u64> {
        self.word.as_ref().map(|word| word.address())
    }

    /// What a waiter sleeps on.
    pub(crate) fn event(&self) -> &EventCount {
        &self.event
    }

    /// How far the flush at `position` has come.
    pub(crate) fn state(&self, position: u64) -> FlushState {
        // Acquire: pairs with `complete`, so that a mark made before is seen, too.
        let flushed = self.flushed.load(Ordering::Acquire);
        if self.any_stopped.load(Ordering::Acquire) != 0 && lock(&self.stopped).contains(&position) {
            return FlushState::Stopped;
        }
        if flushed > position { FlushState::Done } else { FlushState::Pending(flushed) }
    }

    /// The waiter for `position` has had its answer.
    pub(crate) fn forget(&self, position: u64) {
        lock(&self.stopped).remove(&position);
    }

    /// The flush at `position` is complete.
    pub(super) fn complete(&self, position: u64) {
        // Pairs with `state`: the waiter sees everything that was complete before.
        self.flushed.store(position + 1, Ordering::Release);
        // Kernels that were told to leave are told of nothing more: one of them may wait for a request that was lost.
        if self.word_flag.load(Ordering::Relaxed) == 0 {
            self.publish();
        }
        self.event.notify();
    }

    /// What is not complete will not be, as far as kernels see.
    pub(super) fn stop(&self) {
        if self.word_flag.swap(PROXY_STOPPED, Ordering::Relaxed) == 0 {
            self.publish();
        }
    }

    /// Takes [`stop`](Self::stop) back; only while nothing has been left undone.
    pub(super) fn resume(&self) {
        self.word_flag.store(0, Ordering::Relaxed);
        self.publish();
    }

    /// Relaxed: only the thread that carries requests out changes the two, or whoever has taken its place.
    fn publish(&self) {
        if let Some(word) = &self.word {
            word.store(self.flushed.load(Ordering::Relaxed) | self.word_flag.load(Ordering::Relaxed));
        }
    }

    /// The flush at `position` will never complete because the service stops.
    pub(super) fn give_up(&self, position: u64) {
        lock(&self.stopped).insert(position);
        self.any_stopped.store(1, Ordering::Release);
        self.event.notify();
    }
}

/// No position has this number.
const NOTHING: u64 = u64::MAX;

/// One connection of a service. Its requests are carried out in the order of their positions.
pub(crate) struct Lane {
    connection: Connection,
    /// The connection's, for waits that the proxy's thread ends.
    waiter: Waiter,
    flushes: Flushes,
    bell: ProxyBell,
    /// The connection tells us how far it has come.
    watched: bool,
    /// The position of the connection that the proxy waits for; [`NOTHING`] if it does not.
    awaited: AtomicU64,
    /// A stop has rejected requests that nobody waits for; the next flush says so.
    lost: AtomicU32,
    /// Set for good when a request failed: a later flush would claim that it was carried out.
    broken: AtomicU32,
}

/// A semaphore as the proxy finds it by its id.
pub(crate) struct Entry {
    pub(crate) semaphore: Semaphore,
    pub(crate) lane: Arc<Lane>,
}

impl Lane {
    pub(super) fn new(
        connection: Connection,
        bell: ProxyBell,
        word: Option<Arc<dyn ProgressWord>>,
    ) -> Arc<Self> {
        // The proxy is a thread of this process and may need the core that a spinning wait would hold.
        let waiter = connection.waiter().with_policy(connection.waiter().policy.without_spinning());
        Arc::new_cyclic(|this: &Weak<Self>| {
            let watched = connection.watch(this.clone());
            Self {
                connection,
                waiter,
                flushes: Flushes::new(word),
                bell,
                watched,
                awaited: AtomicU64::new(NOTHING),
                lost: AtomicU32::new(0),
                broken: AtomicU32::new(0),
            }
        })
    }

    /// For waits that the proxy's thread ends.
    pub(crate) fn waiter(&self) -> &Waiter {
        &self.waiter
    }

    /// Whether the bell rings once an awaited position is reached.
    pub(super) fn is_watched(&self) -> bool {
        self.watched
    }

    /// From now on the bell rings when `position` is reached or the connection fails. It may have been reached
    /// just before, so the caller has to look once more.
    pub(super) fn expect(&self, position: u64) {
        self.awaited.store(position, Ordering::SeqCst);
        // With the fence that `RawConnection::watch` demands: either the look that follows sees the position, or
        // `advanced` sees that it is awaited.
        fence(Ordering::SeqCst);
    }

    /// No more rings.
    pub(super) fn expect_nothing(&self) {
        self.awaited.store(NOTHING, Ordering::Relaxed);
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(crate) fn flushes(&self) -> &Flushes {
        &self.flushes
    }

    /// The parts `kind` of the request at `position` are not carried out because the service stops.
    pub(super) fn lose(&self, position: u64, kind: TriggerKind) {
        if kind.contains(TriggerKind::SYNC) {
            self.flushes.give_up(position);
        }
        if kind != TriggerKind::SYNC {
            self.lost.store(1, Ordering::Relaxed);
        }
    }

    /// True once after [`lose`](Self::lose) dropped something other than a flush.
    pub(super) fn take_loss(&self) -> bool {
        self.lost.swap(0, Ordering::Relaxed) != 0
    }

    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed) != 0
    }

    /// Nothing more is carried out on this lane. Its waiters leave through the connection's health, which
    /// the caller fails.
    pub(super) fn break_down(&self) {
        self.broken.store(1, Ordering::Relaxed);
    }
}

impl CompletionListener for Lane {
    fn advanced(&self, completed: Option<Position>) {
        let awaited = self.awaited.load(Ordering::SeqCst);
        if awaited != NOTHING && completed.is_none_or(|completed| completed.0 >= awaited) {
            self.bell.ring();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// N34: a waiter that looks late still learns that its flush was given up, whatever completed since.
    #[test]
    fn n34_a_flush_given_up_is_never_taken_for_complete() {
        let flushes = Flushes::new(None);
        flushes.complete(2);
        flushes.give_up(5);
        flushes.give_up(7);
        flushes.complete(9);
        let states = [0, 2, 5, 6, 7, 9, 10].map(|position| flushes.state(position));
        use FlushState::{Done, Pending, Stopped};
        assert_eq!(states, [Done, Done, Stopped, Done, Stopped, Done, Pending(10)]);
        flushes.forget(5);
        assert_eq!(flushes.state(7), Stopped);
    }
}
