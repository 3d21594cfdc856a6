//! The lanes of one service, and what its stop means for devices that wait on them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use super::bell::ProxyBell;
use super::lane::Lane;
use super::source::TriggerSource;
use crate::connection::Connection;
use crate::error::Result;
use crate::health::lock;

/// One lane per connection, for as long as a semaphore of that connection is registered.
pub(super) struct Lanes {
    source: Option<Arc<dyn TriggerSource>>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    by_connection: HashMap<usize, Weak<Lane>>,
    /// Size at which the map is searched for lanes that are gone.
    purge_at: usize,
    /// Nothing is carried out now.
    stopped: bool,
    /// A request of unknown connection was lost: it may be of any.
    failed: bool,
}

impl Lanes {
    pub(super) fn new(source: Option<Arc<dyn TriggerSource>>) -> Self {
        Self { source, inner: Mutex::default() }
    }

    /// The lane of a connection.
    pub(super) fn of(&self, connection: &Connection, bell: &ProxyBell) -> Result<Arc<Lane>> {
        let mut inner = lock(&self.inner);
        // A lane keeps its connection, so the key of a live lane is not used again.
        if let Some(lane) = inner.by_connection.get(&connection.key()).and_then(Weak::upgrade) {
            return Ok(lane);
        }
        if inner.by_connection.len() >= inner.purge_at {
            inner.by_connection.retain(|_, lane| lane.strong_count() > 0);
            inner.purge_at = 2 * inner.by_connection.len() + 16;
        }
        let word = self.source.as_ref().map(|source| source.progress_word()).transpose()?;
        let lane = Lane::new(connection.clone(), bell.clone(), word);
        if inner.stopped || inner.failed {
            lane.flushes().stop();
        }
        inner.by_connection.insert(connection.key(), Arc::downgrade(&lane));
        Ok(lane)
    }

    /// Those that some semaphore is registered for.
    pub(super) fn all(&self) -> Vec<Arc<Lane>> {
        lock(&self.inner).by_connection.values().filter_map(Weak::upgrade).collect()
    }

    /// Devices that wait on a lane leave, and so does who comes now, until [`resume`](Self::resume).
    pub(super) fn stop(&self) {
        self.stop_all(|inner| inner.stopped = true);
    }

    /// The same for good.
    pub(super) fn fail(&self) {
        self.stop_all(|inner| inner.failed = true);
    }

    fn stop_all(&self, mark: impl FnOnce(&mut Inner)) {
        let mut inner = lock(&self.inner);
        mark(&mut inner);
        for lane in inner.by_connection.values().filter_map(Weak::upgrade) {
            lane.flushes().stop();
        }
    }

    /// Requests are carried out again, except on broken lanes.
    pub(super) fn resume(&self) {
        let mut inner = lock(&self.inner);
        inner.stopped = false;
        if inner.failed {
            return;
        }
        for lane in inner.by_connection.values().filter_map(Weak::upgrade) {
            if !lane.is_broken() {
                lane.flushes().resume();
            }
        }
    }
}
