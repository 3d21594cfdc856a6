//! The thread that looks at a control block while nobody else does.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use warpway_core::{Result, SystemError};

use super::control::Watched;
use crate::capture::leave_captures_alone;
use crate::context::lock;

/// Between two looks at the record. A failure reaches the peers that much later; two hundred looks a second cost nothing.
const INTERVAL: Duration = Duration::from_millis(5);

/// Looks between two questions to the driver, which cost a call: five a second.
const LOOKS_PER_PROBE: u32 = 40;

/// The thread; it has ended when the value is dropped.
#[derive(Debug)]
pub(super) struct Watchdog {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Stop {
    stopped: Mutex<bool>,
    bell: Condvar,
}

impl Watchdog {
    pub(super) fn start(watched: &Arc<Watched>) -> Result<Self> {
        let stop = Arc::new(Stop::default());
        let (watched, until) = (Arc::clone(watched), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name("warpway-watch".into())
            .spawn(move || watch(&watched, &until))
            .map_err(|error| SystemError::from_io("starting the watchdog of a GPU", &error))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

fn watch(watched: &Watched, stop: &Stop) {
    leave_captures_alone(watched.context().driver());
    let mut looks = 0;
    while !stop.wait(INTERVAL) {
        // The first failure stays; what else there was is of no interest.
        drop(watched.look());
        looks += 1;
        if looks == LOOKS_PER_PROBE {
            looks = 0;
            watched.probe();
        }
    }
    // A record that came in the last moment.
    drop(watched.look());
}

impl Stop {
    /// True once told to stop.
    fn wait(&self, at_most: Duration) -> bool {
        let stopped = lock(&self.stopped);
        let waited = self.bell.wait_timeout_while(stopped, at_most, |stopped| !*stopped);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        *lock(&self.stop.stopped) = true;
        self.stop.bell.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(target: "warpway::gpu", "the watchdog of a GPU has panicked");
        }
    }
}
