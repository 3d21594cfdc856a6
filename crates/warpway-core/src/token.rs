//! The 64-byte token behind every semaphore: a monotonic counter that peers add to, and the words that
//! let its owner sleep. Lies in memory shared between processes; all-zero bytes are a fresh token.

use crate::sync::{AtomicU64, Ordering};
use crate::wait::EventCount;

/// Bytes of a token, one cache line. Token memories are arrays of these.
pub const TOKEN_BYTES: u64 = 64;

/// See the module's page. Reached through a pointer into shared memory, never moved.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Token {
    value: AtomicU64,
    event: EventCount,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Token>() as u64 == TOKEN_BYTES);

impl Token {
    /// A counter at zero.
    pub fn new() -> Self {
        Self { value: AtomicU64::new(0), event: EventCount::new() }
    }

    /// Adds `delta` and wakes the waiter. Everything written before is visible to whoever sees the sum.
    #[inline]
    pub fn add(&self, delta: u64) {
        // SeqCst: a release for the data, and the fence that `notify_after_rmw` relies on.
        self.value.fetch_add(delta, Ordering::SeqCst);
        self.event.notify_after_rmw();
    }

    /// Sets the counter and wakes the waiter. Everything written before is visible to whoever sees it.
    #[inline]
    pub fn store(&self, value: u64) {
        // Pairs with the Acquire load in `load`.
        self.value.store(value, Ordering::Release);
        self.event.notify();
    }

    /// [`store`](Self::store) that wakes nobody. The caller puts a sequentially consistent fence behind it, and calls
    /// [`notify_after_rmw`](EventCount::notify_after_rmw) of the [event](Self::event) behind that.
    #[inline]
    pub fn store_quietly(&self, value: u64) {
        // Pairs with the Acquire load in `load`.
        self.value.store(value, Ordering::Release);
    }

    /// The counter; acquires what was written before it was raised.
    #[inline]
    pub fn load(&self) -> u64 {
        // Pairs with `add` and `store`.
        self.value.load(Ordering::Acquire)
    }

    /// What `add` and `store` notify, for [`Waiter::wait`](crate::wait::Waiter::wait).
    #[inline]
    pub fn event(&self) -> &EventCount {
        &self.event
    }
}
