//! What wakes a proxy besides a request.

use std::sync::Arc;

use crate::fifo::FifoHandle;
use crate::sync::{AtomicU64, Ordering};

/// Wakes a proxy's thread, so that it asks its handler for progress. Cheap to clone; any thread.
#[derive(Debug, Clone)]
pub struct ProxyBell(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    rings: AtomicU64,
    /// Where the thread sleeps.
    fifo: FifoHandle,
}

impl ProxyBell {
    pub(super) fn new(fifo: FifoHandle) -> Self {
        Self(Arc::new(Inner { rings: AtomicU64::new(0), fifo }))
    }

    /// The handler is asked once more after this; what the caller wrote before is visible to it.
    pub fn ring(&self) {
        // The thread compares this count, from before it asked, after it has announced its sleep; `wake` looks
        // for sleepers after a fence. So it does not fall asleep, or is woken.
        self.0.rings.fetch_add(1, Ordering::SeqCst);
        self.0.fifo.wake();
    }

    /// How often it has been rung.
    pub(super) fn rings(&self) -> u64 {
        self.0.rings.load(Ordering::SeqCst)
    }
}
