//! Threads that do what may block: importing and connecting. The control plane's thread only hands over.
//!
//! Work is ordered within a [`Strand`] and independent between strands, so that two ranks that connect on
//! two tags in different orders cannot wait for each other. Threads come when all are busy and go when idle.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::error::{Error, SystemError};
use crate::health::{Health, lock};

const LINGER: Duration = Duration::from_secs(1);

/// Something that may block for a bounded time.
pub(super) type Work = Box<dyn FnOnce() + Send>;

pub(super) struct Workers {
    health: Arc<Health>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Work>,
    idle: usize,
    closed: bool,
}

impl Workers {
    pub(super) fn new(health: Arc<Health>) -> Arc<Self> {
        Arc::new(Self { health, state: Mutex::default(), changed: Condvar::new() })
    }

    /// Does `work` on a thread of its own or an idle one. Without a thread the communicator fails.
    pub(super) fn submit(self: &Arc<Self>, work: Work) {
        let mut state = lock(&self.state);
        if state.closed {
            return;
        }
        state.queue.push_back(work);
        if state.queue.len() <= state.idle {
            drop(state);
            self.changed.notify_one();
            return;
        }
        drop(state);
        let workers = Arc::clone(self);
        let spawned = thread::Builder::new().name("warpway-exchange".into()).spawn(move || workers.run());
        if let Err(error) = spawned {
            let hint = "raise the limit on threads (ulimit -u) or start fewer ranks here";
            let error = SystemError::from_io("starting a thread", &error).with_hint(hint);
            self.health.fail_local("exchange", None, error.into());
        }
    }

    /// Queued work is forgotten; threads end when they have finished what they do.
    pub(super) fn close(&self) {
        let forgotten = {
            let mut state = lock(&self.state);
            state.closed = true;
            std::mem::take(&mut state.queue)
        };
        self.changed.notify_all();
        // Outside the lock: what the work holds may submit more when it is dropped.
        drop(forgotten);
    }

    fn run(&self) {
        let mut state = lock(&self.state);
        loop {
            if let Some(work) = state.queue.pop_front() {
                drop(state);
                if catch_unwind(AssertUnwindSafe(work)).is_err() {
                    let what = "an engine panicked; see its message on standard error";
                    self.health.fail_local("exchange", None, Error::Internal { place: "worker", what });
                }
                state = lock(&self.state);
                continue;
            }
            if state.closed {
                return;
            }
            state.idle += 1;
            let woken = self.changed.wait_timeout(state, LINGER);
            let (guard, waited) = woken.unwrap_or_else(PoisonError::into_inner);
            state = guard;
            state.idle -= 1;
            if waited.timed_out() && state.queue.is_empty() {
                return;
            }
        }
    }
}

/// Work done one after another, in the order of the calls of `push`.
pub(super) struct Strand {
    workers: Arc<Workers>,
    state: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Work>,
    running: bool,
}

impl Strand {
    pub(super) fn new(workers: &Arc<Workers>) -> Arc<Self> {
        Arc::new(Self { workers: Arc::clone(workers), state: Mutex::default() })
    }

    pub(super) fn push(self: &Arc<Self>, work: Work) {
        let mut state = lock(&self.state);
        state.waiting.push_back(work);
        if !std::mem::replace(&mut state.running, true) {
            drop(state);
            self.submit();
        }
    }

    fn submit(self: &Arc<Self>) {
        let strand = Arc::clone(self);
        self.workers.submit(Box::new(move || strand.run_one()));
    }

    /// One piece at a time, so that a panic in it does not take the rest along.
    fn run_one(self: &Arc<Self>) {
        struct Next<'a>(&'a Arc<Strand>);
        impl Drop for Next<'_> {
            fn drop(&mut self) {
                let mut state = lock(&self.0.state);
                if state.waiting.is_empty() {
                    state.running = false;
                } else {
                    drop(state);
                    self.0.submit();
                }
            }
        }
        let work = lock(&self.state).waiting.pop_front();
        let _next = Next(self);
        if let Some(work) = work {
            work();
        }
    }
}
