//! Bounded, attributed waits: the one back-off of the project.
//!
//! A wait tests its condition first. Then it spins briefly (only where there are cores to spin on),
//! yields, and finally sleeps on a futex. From the first yield on it looks at the communicator's health
//! and at its deadline, so no wait is unbounded; when it gives up, [`WaitError`] says who waited for
//! whom, where, for what value and what was seen instead.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::deadline::Timeout;
use crate::error::{Error, ErrorCode};
use crate::futex::Futex;
use crate::health::{Failure, Health};
use crate::sync::{AtomicU32, Ordering, fence, spin_loop, yield_now};
use crate::trace::{FlightRecorder, Operation, RecordId};

/// What a wait is for; ends up in errors and in the flight recorder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitSite {
    /// The operation that waits.
    pub operation: Operation,
    /// The rank waited for, if it is one rank.
    pub peer: Option<u32>,
    /// Channel, semaphore, connection or slot, as known to the operation.
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
    "rank {rank}: {} {}on object {} (sequence {}) gave up after {:.3} s: {}; expected {}, observed {observed}",
    .site.operation, peer_text(&.site.peer), site.object, site.sequence, elapsed.as_secs_f64(), reason_text(.reason), site.expected
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

/// How a wait backs off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitPolicy {
    /// Tests before the first yield.
    pub spins: u32,
    /// Yields before the first sleep.
    pub yields: u32,
    /// The longest single sleep; also how late an abort is noticed at worst.
    pub slice: Duration,
}

impl WaitPolicy {
    /// For `runnable` ranks (or blocks) that share `cores` cores: spinning pays only where each has a core.
    pub fn for_load(runnable: usize, cores: usize) -> Self {
        Self::spinning_if(runnable <= cores)
    }

    /// Spins only if whoever is waited for can run meanwhile.
    pub fn spinning_if(each_has_a_core: bool) -> Self {
        let spins = if each_has_a_core { 4000 } else { 0 };
        Self { spins, yields: 200, slice: Duration::from_millis(10) }
    }

    /// For `ranks` ranks of this host, each with one runnable thread, on the cores that this process may use.
    pub fn for_ranks(ranks: usize) -> Self {
        // Follows the affinity mask and the container's quota; unknown means be polite.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self::for_load(ranks, cores)
    }

    /// The same for a condition that another thread of this process brings about: it needs the core.
    pub fn without_spinning(self) -> Self {
        Self { spins: 0, yields: self.yields.min(8), ..self }
    }

    /// Sleeps almost at once: for service threads that must not take a core from anybody.
    pub fn patient() -> Self {
        Self { spins: 0, yields: 1, slice: Duration::from_millis(10) }
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

/// How long spinning has paid lately. Where two ranks share a core after all (another program took one, the
/// scheduler put them together), whoever spins keeps the other from running: each fruitless spin halves the
/// next, each fruitful one doubles it again.
#[derive(Debug)]
// std's atomic also under loom: a hint that orders nothing would only multiply the states.
struct SpinBudget(std::sync::atomic::AtomicU32);

impl SpinBudget {
    /// Long enough for a reply that is under way between two cores.
    const LEAST: u32 = 64;

    fn get(&self, policy: &WaitPolicy) -> u32 {
        // Relaxed, here and below: a hint, which orders nothing.
        policy.spins.min(self.0.load(Relaxed))
    }

    fn paid(&self, spun: u32, policy: &WaitPolicy) {
        if spun < policy.spins {
            self.0.store(spun.saturating_mul(2), Relaxed);
        }
    }

    fn wasted(&self, spun: u32) {
        self.0.store((spun / 2).max(Self::LEAST), Relaxed);
    }
}

impl Waiter {
    /// Waits that end when `health` fails, are recorded in `recorder`, and back off by `policy`.
    pub fn new(health: Arc<Health>, recorder: Arc<FlightRecorder>, policy: WaitPolicy) -> Self {
        Self { health, recorder, policy, spins: Arc::new(SpinBudget(u32::MAX.into())) }
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

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    fn waiter(policy: WaitPolicy) -> Waiter {
        Waiter::new(Arc::new(Health::new(7)), Arc::new(FlightRecorder::new(8)), policy)
    }

    fn site(peer: u32) -> WaitSite {
        WaitSite { operation: Operation::Wait, peer: Some(peer), object: 5, sequence: 2, expected: 3 }
    }

    const SLEEPY: WaitPolicy = WaitPolicy { spins: 0, yields: 0, slice: Duration::from_millis(2) };

    /// A poll that takes one item each time it succeeds must have taken exactly one when the wait returns.
    /// The value and the end of the wait both come after one test and before the next look at the
    /// reasons to give up, as when this thread is not scheduled for a while.
    #[test]
    fn a_value_that_comes_just_before_a_failure_counts() {
        for policy in [WaitPolicy::patient(), WaitPolicy::for_load(2, 1)] {
            for calls_until_failure in [1, 2, 3, 17] {
                let waiter = waiter(policy);
                let mut calls = 0;
                let poll = || {
                    calls += 1;
                    // One test before `wait` leaves its fast path.
                    match calls {
                        n if n == calls_until_failure + 1 => {
                            waiter.health.abort("right after the value");
                            Err(3)
                        }
                        n if n > calls_until_failure + 1 => Ok(n),
                        _ => Err(0),
                    }
                };
                let found = waiter.wait(|| site(1), Timeout::after(Duration::from_secs(10)), None, poll);
                assert_eq!(found.unwrap(), calls_until_failure + 2);
            }
        }
    }

    #[test]
    fn a_value_that_comes_just_before_the_deadline_counts() {
        let waiter = waiter(WaitPolicy::patient());
        let mut calls = 0;
        let poll = || {
            calls += 1;
            if calls == 2 {
                std::thread::sleep(Duration::from_millis(20));
            }
            if calls > 2 { Ok(calls) } else { Err(0) }
        };
        let found = waiter.wait(|| site(1), Timeout::after(Duration::from_millis(1)), None, poll);
        assert_eq!(found.unwrap(), 3);
    }

    #[test]
    fn what_the_last_test_before_sleep_takes_is_returned() {
        for succeed_at in 0..8 {
            let (mut polls, mut taken) = (0, 0);
            let event = EventCount::new();
            let poll = || {
                polls += 1;
                if polls > succeed_at {
                    taken += 1;
                    return Ok(taken);
                }
                Err(0)
            };
            let value =
                waiter(SLEEPY).wait(|| site(1), Timeout::from(Duration::from_secs(5)), Some(&event), poll);
            assert_eq!((value.unwrap(), taken), (1, 1), "success at poll {succeed_at}");
        }
    }

    #[test]
    fn spinning_that_does_not_pay_is_given_up_until_it_pays_again() {
        let policy = WaitPolicy { spins: 4000, yields: 10_000, slice: Duration::from_millis(1) };
        let waiter = waiter(policy);
        // Polls before the first yield of a wait whose condition comes at poll `succeed_at`.
        let spun = |succeed_at: u32| {
            let mut polls = 0;
            let poll = || {
                polls += 1;
                if polls > succeed_at { Ok(()) } else { Err(0) }
            };
            waiter.wait(|| site(1), Timeout::from(Duration::from_secs(5)), None, poll).unwrap();
            waiter.spins.get(&policy)
        };
        let falling: Vec<u32> = (0..8).map(|_| spun(5000)).collect();
        assert_eq!(falling, [2000, 1000, 500, 250, 125, 64, 64, 64]);
        let rising: Vec<u32> = (0..8).map(|_| spun(10)).collect();
        assert_eq!(rising, [128, 256, 512, 1024, 2048, 4000, 4000, 4000]);
        assert_eq!(spun(0), 4000, "a condition that holds at once says nothing about spinning");
    }

    #[test]
    fn every_way_to_give_up_names_the_peer_and_is_recorded() {
        let limit = Timeout::from(Duration::from_millis(20));
        let never = || Err::<(), _>(1);
        let timed = waiter(SLEEPY);
        let error = timed.wait(|| site(4), limit, None, never).unwrap_err();
        assert!(
            matches!(error.reason, GaveUp::TimedOut) && error.rank == 7 && error.observed == 1,
            "{error}"
        );
        assert!(error.to_string().contains("rank 4"), "{error}");
        let lines = timed.recorder.snapshot();
        assert_eq!((lines.len(), lines[0].peer), (1, Some(4)));

        let aborted = waiter(SLEEPY);
        aborted.health.abort("enough");
        let error = aborted.wait(|| site(4), Timeout::NONE, Some(&EventCount::new()), never).unwrap_err();
        assert_eq!((error.code(), error.id()), (ErrorCode::Aborted, "aborted"));

        let left = waiter(SLEEPY);
        left.health.note_departure(4);
        let error = left.wait(|| site(4), Timeout::NONE, Some(&EventCount::new()), never).unwrap_err();
        assert_eq!((error.code(), error.id()), (ErrorCode::RemoteError, "peer.left"));
    }

    #[test]
    fn a_notified_sleeper_wakes_long_before_its_slice_ends() {
        let slow = WaitPolicy { slice: Duration::from_secs(60), ..SLEEPY };
        let (event, value) = (EventCount::new(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let waiter = waiter(slow);
                let (event, value) = (&event, &value);
                scope.spawn(move || {
                    let poll = || match value.load(Ordering::Acquire) {
                        3 => Ok(()),
                        other => Err(other),
                    };
                    waiter
                        .wait(|| site(0), Timeout::from(Duration::from_secs(60)), Some(event), poll)
                        .unwrap();
                });
            }
            std::thread::sleep(Duration::from_millis(30));
            value.store(3, Ordering::Release);
            event.notify();
        });
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;
    use crate::sync::AtomicU64;
    use crate::token::Token;

    /// The sleeping part of [`Waiter::wait`]: without spinning and without time, so that only a wake-up
    /// ends it.
    fn wait_until(event: &EventCount, mut ready: impl FnMut() -> bool) {
        let mut done = ready();
        while !done {
            event.sleep_unless(Duration::MAX, || {
                done = ready();
                done
            });
            done = done || ready();
        }
    }

    #[test]
    fn loom_an_added_token_wakes_its_owner() {
        loom::model(|| {
            let token = Arc::new(Token::new());
            let signaller = thread::spawn({
                let token = Arc::clone(&token);
                move || token.add(1)
            });
            wait_until(token.event(), || token.load() == 1);
            signaller.join().unwrap();
        });
    }

    #[test]
    fn loom_a_stored_token_wakes_its_owner() {
        loom::model(|| {
            let token = Arc::new(Token::new());
            let signaller = thread::spawn({
                let token = Arc::clone(&token);
                move || token.store(5)
            });
            wait_until(token.event(), || token.load() == 5);
            signaller.join().unwrap();
        });
    }

    /// Also a relaxed word outside the token, as packets are.
    #[test]
    fn loom_a_packet_wakes_its_reader() {
        loom::model(|| {
            let shared = Arc::new((AtomicU64::new(0), EventCount::new()));
            let writer = thread::spawn({
                let shared = Arc::clone(&shared);
                move || {
                    shared.0.store(9, Ordering::Relaxed);
                    shared.1.notify();
                }
            });
            wait_until(&shared.1, || shared.0.load(Ordering::Relaxed) == 9);
            writer.join().unwrap();
        });
    }

    #[test]
    fn loom_two_signallers_are_both_seen() {
        // Unbounded, three threads take minutes; more than two preemptions have never been needed to
        // break a protocol of this kind.
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let token = Arc::new(Token::new());
            let signallers = [(); 2].map(|()| {
                let token = Arc::clone(&token);
                thread::spawn(move || token.add(1))
            });
            wait_until(token.event(), || token.load() == 2);
            for signaller in signallers {
                signaller.join().unwrap();
            }
        });
    }

    #[test]
    fn loom_one_signal_wakes_two_sleepers() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let token = Arc::new(Token::new());
            let waiter = thread::spawn({
                let token = Arc::clone(&token);
                move || wait_until(token.event(), || token.load() == 1)
            });
            let signaller = thread::spawn({
                let token = Arc::clone(&token);
                move || token.add(1)
            });
            wait_until(token.event(), || token.load() == 1);
            waiter.join().unwrap();
            signaller.join().unwrap();
        });
    }

    /// The data written before a signal is visible to whoever sees it.
    #[test]
    fn loom_a_signal_carries_data() {
        loom::model(|| {
            let shared = Arc::new((AtomicU64::new(0), Token::new()));
            let signaller = thread::spawn({
                let shared = Arc::clone(&shared);
                move || {
                    shared.0.store(42, Ordering::Relaxed);
                    shared.1.add(1);
                }
            });
            wait_until(shared.1.event(), || shared.1.load() == 1);
            assert_eq!(shared.0.load(Ordering::Relaxed), 42);
            signaller.join().unwrap();
        });
    }

    /// The models can fail: a signaller that does not look for sleepers loses a wake-up.
    #[test]
    #[should_panic(expected = "deadlock")]
    fn loom_a_lost_wake_up_is_a_deadlock() {
        loom::model(|| {
            let shared = Arc::new((AtomicU64::new(0), EventCount::new()));
            let writer = thread::spawn({
                let shared = Arc::clone(&shared);
                move || shared.0.store(9, Ordering::Release)
            });
            wait_until(&shared.1, || shared.0.load(Ordering::Acquire) == 9);
            writer.join().unwrap();
        });
    }
}
