//! The eventcount: how every wait of the project sleeps and is woken.

use std::time::Duration;

use crate::futex::Futex;
use crate::sync::{AtomicU32, Ordering, fence};

/// Two words that let a waiter sleep and a signaller know that somebody sleeps. May lie in memory
/// shared between processes; all-zero bytes are a valid value.
///
/// Signaller: publish the value, then [`notify`](Self::notify). Waiter: announce, test the value again,
/// sleep. Both sides put a sequentially consistent step between their store and their load, so either
/// the waiter sees the value or the signaller sees the waiter.
#[derive(Debug, Default)]
#[repr(C)]
pub struct EventCount {
    sleepers: AtomicU32,
    doorbell: Futex,
}

impl EventCount {
    /// Nobody sleeps.
    pub fn new() -> Self {
        Self { sleepers: AtomicU32::new(0), doorbell: Futex::new() }
    }

    /// Wakes all sleepers; one fence and one load where there are none. Call after publishing.
    #[inline]
    pub fn notify(&self) {
        // Orders the published value before the look at `sleepers`; pairs with the fence in `sleep_unless`.
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            self.ring();
        }
    }

    /// The same after a sequentially consistent read-modify-write, which is a fence already.
    #[inline]
    pub fn notify_after_rmw(&self) {
        // loom takes sequentially consistent accesses for acquire and release; its fences are exact.
        #[cfg(loom)]
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) != 0 {
            self.ring();
        }
    }

    /// True if somebody sleeps or is about to. Orders nothing by itself: between publishing and this look
    /// there must be a sequentially consistent step, as in [`notify`](Self::notify).
    #[inline]
    pub(crate) fn has_sleepers(&self) -> bool {
        self.sleepers.load(Ordering::SeqCst) != 0
    }

    /// Wakes all sleepers without looking whether there are any.
    #[cold]
    pub(crate) fn ring(&self) {
        self.doorbell.ring();
    }

    /// Sleeps at most `slice` unless `ready` holds; may wake for no reason.
    ///
    /// A process killed while it sleeps leaves `sleepers` too high: later signals then make one
    /// needless system call each, nothing worse.
    pub fn sleep_unless(&self, slice: Duration, mut ready: impl FnMut() -> bool) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let bell = self.doorbell.load();
        // Orders the announcement before the test; pairs with the fence in `notify`.
        fence(Ordering::SeqCst);
        if !ready() {
            self.doorbell.wait(bell, slice);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}
