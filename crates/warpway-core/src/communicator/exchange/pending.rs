//! The future of an exchange.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::health::lock;
use crate::trace::{Operation, RecordId, Request};
use crate::wait::{GaveUp, WaitError, WaitSite, Waiter};

/// How late the departure of a peer is noticed at worst.
const SLICE: Duration = Duration::from_millis(50);

/// Something that another rank has to do its part for. Progress is made in the background, whether or not
/// anybody waits; the result may be asked for any number of times, in any of three ways: [`poll`](Self::poll),
/// [`wait`](Self::wait), `.await`. Dropping it changes nothing.
pub struct Exchange<T> {
    pub(super) cell: Arc<Cell<T>>,
}

impl<T: Clone> Exchange<T> {
    /// The result, if it is there. Does not block.
    pub fn poll(&self) -> Option<Result<T>> {
        lock(&self.cell.state).outcome.clone()
    }

    /// Waits for the result. A wait that times out may be repeated.
    ///
    /// # Errors
    /// The exchange's own error; or a [`WaitError`] naming the peer, when the deadline passes or the peer
    /// has left; or the failure of the communicator.
    pub fn wait(&self, deadline: Deadline) -> Result<T> {
        self.cell.wait(deadline)
    }
}

impl<T: Clone> Future for Exchange<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let mut state = lock(&self.cell.state);
        if let Some(outcome) = &state.outcome {
            return Poll::Ready(outcome.clone());
        }
        if !state.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            state.wakers.push(context.waker().clone());
        }
        Poll::Pending
    }
}

impl<T> fmt::Debug for Exchange<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let about = &self.cell.about;
        f.debug_struct("Exchange")
            .field("operation", &about.name)
            .field("peer", &about.peer)
            .field("tag", &about.tag)
            .field("done", &lock(&self.cell.state).outcome.is_some())
            .finish()
    }
}

/// Which call it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct About {
    pub(super) operation: Operation,
    pub(super) name: &'static str,
    pub(super) site: &'static Location<'static>,
    pub(super) peer: u32,
    pub(super) tag: i32,
}

impl About {
    /// For errors on both sides.
    pub(super) fn text(&self) -> String {
        format!("{} at {}", self.name, self.site)
    }
}

/// The place of one result.
pub(super) struct Cell<T> {
    pub(super) about: About,
    waiter: Waiter,
    record: RecordId,
    state: Mutex<State<T>>,
    done: Condvar,
}

struct State<T> {
    sequence: u64,
    outcome: Option<Result<T>>,
    wakers: Vec<Waker>,
}

impl<T: Clone> Cell<T> {
    pub(super) fn new(about: About, waiter: Waiter) -> Arc<Self> {
        let About { operation, peer, tag, .. } = about;
        let request = Request { operation, peer: Some(peer), object: tag as u64, bytes: 0, offset: 0 };
        let record = waiter.recorder.start(request);
        let state = Mutex::new(State { sequence: 0, outcome: None, wakers: Vec::new() });
        Arc::new(Self { about, waiter, record, state, done: Condvar::new() })
    }

    pub(super) fn set_sequence(&self, sequence: u64) {
        lock(&self.state).sequence = sequence;
    }

    /// Stores the result; the first one stays. Calls wakers: no lock of the communicator may be held.
    pub(super) fn complete(&self, outcome: Result<T>) {
        let mut state = lock(&self.state);
        if state.outcome.is_some() {
            return;
        }
        match &outcome {
            Ok(_) => self.waiter.recorder.complete(self.record),
            Err(error) => self.waiter.recorder.fail(self.record, error),
        }
        state.outcome = Some(outcome);
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        self.done.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(super) fn is_done(&self) -> bool {
        lock(&self.state).outcome.is_some()
    }

    fn wait(&self, deadline: Deadline) -> Result<T> {
        let started = Instant::now();
        let mut state = lock(&self.state);
        loop {
            if let Some(outcome) = &state.outcome {
                return outcome.clone();
            }
            let reason = if let Some(failure) = self.waiter.health.failure() {
                GaveUp::Failed(Box::new(failure))
            } else if deadline.expired() {
                GaveUp::TimedOut
            } else if self.waiter.health.has_departed(self.about.peer) {
                GaveUp::PeerLeft
            } else {
                let slice = SLICE.min(deadline.remaining().unwrap_or(SLICE));
                let woken = self.done.wait_timeout(state, slice);
                state = woken.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            };
            return Err(self.gave_up(&state, started.elapsed(), reason).into());
        }
    }

    fn gave_up(&self, state: &State<T>, elapsed: Duration, reason: GaveUp) -> WaitError {
        let About { operation, peer, tag, .. } = self.about;
        let (object, sequence) = (tag as u64, state.sequence);
        let site = WaitSite { operation, peer: Some(peer), object, sequence, expected: 1 };
        WaitError { rank: self.waiter.health.rank(), site, observed: 0, elapsed, reason }
    }
}

/// A cell of any type, as the communicator keeps it until it is done.
pub(super) trait Outstanding: Send + Sync {
    fn about(&self) -> &About;
    fn is_done(&self) -> bool;
    fn fail(&self, error: Error);
}

impl<T: Clone + Send + Sync> Outstanding for Cell<T> {
    fn about(&self) -> &About {
        &self.about
    }

    fn is_done(&self) -> bool {
        Cell::is_done(self)
    }

    fn fail(&self, error: Error) {
        self.complete(Err(error));
    }
}
