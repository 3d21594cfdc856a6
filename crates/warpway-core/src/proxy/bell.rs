//! What wakes a proxy besides a request.

use std::fmt;
use std::sync::Arc;

use super::intake::Alarm;
use crate::sync::{AtomicU64, Ordering};

/// Wakes a proxy's thread, so that it asks its handler for progress. Cheap to clone; any thread.
#[derive(Clone)]
pub struct ProxyBell(Arc<Inner>);

struct Inner {
    rings: AtomicU64,
    alarm: Alarm,
}

impl ProxyBell {
    pub(super) fn new(alarm: Alarm) -> Self {
        Self(Arc::new(Inner { rings: AtomicU64::new(0), alarm }))
    }

    /// The handler is asked once more after this; what the caller wrote before is visible to it.
    pub fn ring(&self) {
        // The thread compares this count, from before it asked, after it has announced its sleep; `wake` looks
        // for sleepers after a fence. So it does not fall asleep, or is woken.
        self.0.rings.fetch_add(1, Ordering::SeqCst);
        self.0.alarm.wake();
    }

    /// How often it has been rung.
    pub(super) fn rings(&self) -> u64 {
        self.0.rings.load(Ordering::SeqCst)
    }
}

impl fmt::Debug for ProxyBell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyBell").field("rings", &self.rings()).finish_non_exhaustive()
    }
}
