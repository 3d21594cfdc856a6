//! Bounded, attributed waits: the one back-off of the project.
//!
//! A wait tests its condition first. Then it spins briefly (only where there are cores to spin on),
//! yields, and finally sleeps on a futex. From the first yield on it looks at the communicator's health
//! and at its deadline, so no wait is unbounded; when it gives up, [`WaitError`] says who waited for
//! whom, where, for what value and what was seen instead.

mod event;
#[cfg(all(test, loom))]
mod loom_models;
mod policy;
#[cfg(all(test, not(loom)))]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::deadline::Timeout;
use crate::error::{Error, ErrorCode};
use crate::health::{Failure, Health};
use crate::sync::{spin_loop, yield_now};
use crate::trace::{FlightRecorder, Operation, RecordId};

pub use event::EventCount;
use policy::SpinBudget;
pub use policy::WaitPolicy;

/// What a wait is for; ends up in errors and in the flight recorder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitSite {
    /// The operation that waits.
    pub operation: Operation,
    /// The rank waited for, if it is one rank.
    pub peer: Option<u32>,
    /// Channel, semaphore, connection, tag or slot, as known to the operation.
    pub object: u64,
    /// Sequence number of the operation on that object.
    pub sequence: u64,
    /// The value that ends the wait.
    pub expected: u64,
}

/// Why a wait gave up.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum GaveUp {
    /// Its time was over.
    TimedOut,
    /// The communicator failed or was aborted meanwhile.
    Failed(Box<Failure>),
    /// The peer left the communicator and cannot bring the value any more.
    PeerLeft,
}

/// A wait that gave up.
#[derive(Debug, Clone, thiserror::Error)]
#[error(
    "rank {rank}: {} {}{} gave up after {:.3} s: {}; expected {}, observed {observed}",
    .site.operation, peer_text(&.site.peer), place_text(.site), elapsed.as_secs_f64(), reason_text(.reason), site.expected
)]
pub struct WaitError {
    /// The rank that waited.
    pub rank: u32,
    /// What for.
    pub site: WaitSite,
    /// The last value seen.
    pub observed: u64,
    /// How long.
    pub elapsed: Duration,
    /// Why it ended.
    pub reason: GaveUp,
}

fn peer_text(peer: &Option<u32>) -> String {
    peer.map(|p| format!("for rank {p} ")).unwrap_or_default()
}

/// What the site's numbers are numbers of, which depends on the operation.
fn place_text(site: &WaitSite) -> String {
    let WaitSite { operation, object, sequence, .. } = *site;
    match operation {
        Operation::Wait | Operation::Signal => format!("on semaphore {object} (after {sequence} signals)"),
        Operation::Flush => format!("on channel or connection {object} (request {sequence})"),
        // Blocks of plans and channels number them alike; whose they are is said elsewhere.
        Operation::ReadPackets => format!("(packet {sequence})"),
        Operation::FifoPush | Operation::FifoSync => format!("(position {sequence})"),
        Operation::GridBarrier => format!("(round {sequence})"),
        Operation::Launch => format!("(launch {sequence})"),
        Operation::Send | Operation::Recv => format!("(message {sequence}, in bytes)"),
        // Exchanges: a tag is a number of 32 bits.
        Operation::SendMemory | Operation::RecvMemory | Operation::Connect | Operation::BuildSemaphore => {
            format!("with tag {object} (exchange {sequence})")
        }
        Operation::ImportMemory => format!("of memory {object} (generation {sequence})"),
        _ => format!("on object {object} (sequence {sequence})"),
    }
}

fn reason_text(reason: &GaveUp) -> String {
    match reason {
        GaveUp::TimedOut => "the deadline passed".into(),
        GaveUp::Failed(f) => format!("{f}"),
        GaveUp::PeerLeft => "the peer has left the communicator".into(),
    }
}

impl WaitError {
    /// The numeric code.
    pub fn code(&self) -> ErrorCode {
        match &self.reason {
            GaveUp::TimedOut => ErrorCode::Timeout,
            GaveUp::Failed(f) => f.code(),
            GaveUp::PeerLeft => ErrorCode::RemoteError,
        }
    }

    /// A stable id.
    pub fn id(&self) -> &'static str {
        match &self.reason {
            GaveUp::TimedOut => "wait.timeout",
            GaveUp::Failed(f) => f.id(),
            GaveUp::PeerLeft => "peer.left",
        }
    }
}

/// Tests between two yields. A yield that found nobody else to run comes back at once; without these, half
/// the time of a wait on a core of one's own would be system calls.
const POLLS_PER_YIELD: u32 = 8;

/// Everything a wait of one communicator needs besides its condition. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Waiter {
    /// Health that ends the wait.
    pub health: Arc<Health>,
    /// Where waits that leave the fast path are recorded.
    pub recorder: Arc<FlightRecorder>,
    /// Back-off.
    pub policy: WaitPolicy,
    /// Shared by all clones: what one wait learns about the machine holds for the next.
    spins: Arc<SpinBudget>,
}

impl Waiter {
    /// Waits that end when `health` fails, are recorded in `recorder`, and back off by `policy`.
    pub fn new(health: Arc<Health>, recorder: Arc<FlightRecorder>, policy: WaitPolicy) -> Self {
        Self { health, recorder, policy, spins: Arc::default() }
    }

    /// The same with another back-off.
    pub fn with_policy(&self, policy: WaitPolicy) -> Self {
        Self { policy, ..self.clone() }
    }

    /// Calls `poll` until it gives `Ok`, the timeout passes or the communicator fails.
    ///
    /// `poll` returns `Err(observed)` while its condition does not hold. `event`, if given, is what the
    /// other side notifies; without one the wait sleeps in short slices instead.
    #[inline]
    pub fn wait<T>(
        &self,
        site: impl FnOnce() -> WaitSite,
        timeout: Timeout,
        event: Option<&EventCount>,
        mut poll: impl FnMut() -> Result<T, u64>,
    ) -> Result<T, WaitError> {
        if let Ok(value) = poll() {
            return Ok(value);
        }
        let spins = self.spins.get(&self.policy);
        for _ in 0..spins {
            spin_loop();
            if let Ok(value) = poll() {
                self.spins.paid(spins, &self.policy);
                return Ok(value);
            }
        }
        if spins > 0 {
            self.spins.wasted(spins);
        }
        self.wait_slowly(&site(), timeout, event, &mut poll)
    }

    #[cold]
    fn wait_slowly<T>(
        &self,
        site: &WaitSite,
        timeout: Timeout,
        event: Option<&EventCount>,
        poll: &mut dyn FnMut() -> Result<T, u64>,
    ) -> Result<T, WaitError> {
        let started = Instant::now();
        let deadline = timeout.start();
        let mut record = None;
        let mut round = 0u32;
        loop {
            if let Ok(value) = poll() {
                return Ok(self.ended(record, value));
            }
            let reason = if let Some(failure) =
                self.health.is_failed().then(|| self.health.failure()).flatten()
            {
                Some(GaveUp::Failed(Box::new(failure.during(site.operation))))
            } else if round.is_multiple_of(16) && deadline.expired() {
                Some(GaveUp::TimedOut)
            } else if round >= self.policy.yields && site.peer.is_some_and(|p| self.health.has_departed(p)) {
                Some(GaveUp::PeerLeft)
            } else {
                None
            };
            if let Some(reason) = reason {
                // A value that has come counts even if the peer failed right after, and this thread may have
                // been held up since its last test: what came meanwhile is not late. Whoever fails or leaves
                // has published before, so this test sees it.
                let observed = match poll() {
                    Ok(value) => return Ok(self.ended(record, value)),
                    Err(observed) => observed,
                };
                let record = record.unwrap_or_else(|| self.recorder.start_wait(site));
                let error = WaitError {
                    rank: self.health.rank(),
                    site: *site,
                    observed,
                    elapsed: started.elapsed(),
                    reason,
                };
                self.recorder.fail(record, &error);
                return Err(error);
            }
            if round < self.policy.yields {
                yield_now();
                round += 1;
                for _ in 0..POLLS_PER_YIELD {
                    if let Ok(value) = poll() {
                        return Ok(value);
                    }
                    spin_loop();
                }
                continue;
            }
            // About to sleep: from here on the cost of a record does not matter.
            record.get_or_insert_with(|| self.recorder.start_wait(site));
            round = round.saturating_add(16) & !15;
            let left = deadline.remaining().unwrap_or(self.policy.slice);
            let slice = left.min(self.policy.slice);
            // The test before falling asleep may take something (a signal): what it took is the result.
            let mut taken = None;
            match event {
                Some(event) => event.sleep_unless(slice, || {
                    taken = poll().ok();
                    taken.is_some()
                }),
                None => std::thread::sleep(slice.min(Duration::from_micros(50))),
            }
            if let Some(value) = taken {
                return Ok(self.ended(record, value));
            }
        }
    }

    fn ended<T>(&self, record: Option<RecordId>, value: T) -> T {
        if let Some(record) = record {
            self.recorder.complete(record);
        }
        value
    }
}

impl From<WaitError> for Failure {
    fn from(error: WaitError) -> Self {
        let (rank, culprit, phase) = (error.rank, error.site.peer, error.site.operation.to_string());
        match error.reason {
            GaveUp::Failed(failure) => *failure,
            _ => Self {
                rank,
                culprit,
                phase,
                cause: crate::health::Cause::Local(Arc::new(Error::Wait(error))),
            },
        }
    }
}
