//! The health of one communicator: an abort word that every wait looks at, the first failure, and
//! who wants to be told.
//!
//! The first failure wins and is never replaced. A failure found in a background thread (a dead peer,
//! a broken connection, a proxy error) is stored here and returned by every later call; nothing is
//! swallowed. `Health` does no I/O: the bootstrap subscribes to tell the peers, the flight recorder to
//! write a dump.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorCode};
use crate::sync::{AtomicU32, Ordering};

/// What went wrong, apart from who and where.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Cause {
    /// The process of the culprit ended or its host is gone.
    PeerDied,
    /// The culprit left the communicator (dropped it) while it was still needed.
    PeerLeft,
    /// The culprit failed with this error, or another rank blames it for this error; code and text as told.
    PeerFailed {
        /// Who told it, if that is known.
        reporter: Option<u32>,
        /// Its code.
        code: ErrorCode,
        /// Its text.
        message: String,
    },
    /// Somebody called abort; the reason as given.
    Aborted {
        /// The caller's words.
        reason: String,
    },
    /// An error of this rank, also one from a background thread.
    Local(Arc<Error>),
}

/// Why a communicator is broken: who, in which phase, and what happened.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The rank that this record was made on.
    pub rank: u32,
    /// The rank that is to blame, if one is known.
    pub culprit: Option<u32>,
    /// What was going on (`"bootstrap check-in"`, `"wait"`, `"tcp receive"`).
    pub phase: String,
    /// What happened.
    pub cause: Cause,
}

impl Failure {
    /// The same as a call learns of it: the death or departure of a rank interrupts `operation`, whoever
    /// noticed it, while a reported error has a phase of its own.
    pub fn during(self, operation: impl fmt::Display) -> Self {
        match self.cause {
            Cause::PeerDied | Cause::PeerLeft => Self { phase: operation.to_string(), ..self },
            _ => self,
        }
    }

    /// The numeric code.
    pub fn code(&self) -> ErrorCode {
        match &self.cause {
            Cause::PeerDied | Cause::PeerLeft | Cause::PeerFailed { .. } => ErrorCode::RemoteError,
            Cause::Aborted { .. } => ErrorCode::Aborted,
            Cause::Local(e) => e.code(),
        }
    }

    /// A stable id.
    pub fn id(&self) -> &'static str {
        match &self.cause {
            Cause::PeerDied => "peer.died",
            Cause::PeerLeft => "peer.left",
            Cause::PeerFailed { .. } => "peer.failed",
            Cause::Aborted { .. } => "aborted",
            Cause::Local(e) => e.id(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}: communicator failed ({}): ", self.rank, self.phase)?;
        let culprit = |f: &mut fmt::Formatter<'_>| match self.culprit {
            Some(peer) => write!(f, "rank {peer}"),
            None => write!(f, "a peer"),
        };
        match &self.cause {
            Cause::PeerDied => {
                culprit(f).and_then(|()| write!(f, " died (its process ended or its host is gone)"))
            }
            Cause::PeerLeft => {
                culprit(f).and_then(|()| write!(f, " left the communicator while it was still needed"))
            }
            Cause::PeerFailed { reporter: Some(reporter), message, .. }
                if self.culprit == Some(self.rank) && *reporter != self.rank =>
            {
                write!(f, "rank {reporter} blames this rank: {message}")
            }
            Cause::PeerFailed { reporter, message, .. } => {
                culprit(f)?;
                match reporter.filter(|reporter| Some(*reporter) != self.culprit) {
                    Some(reporter) => write!(f, " failed: rank {reporter} reports: {message}"),
                    None => write!(f, " failed: {message}"),
                }
            }
            Cause::Aborted { reason } => {
                write!(f, "aborted by ")?;
                culprit(f)?;
                write!(f, ": {reason}")
            }
            Cause::Local(e) => write!(f, "{e}"),
        }
    }
}

impl std::error::Error for Failure {}

/// Called once, on the thread that found the failure. Must not block.
pub type FailureListener = Box<dyn Fn(&Failure) + Send + Sync>;

/// Called for every rank that leaves in good order, on the thread that learned of it. Must not block.
pub type DepartureListener = Arc<dyn Fn(u32) + Send + Sync>;

/// How long a wait for a rank that has left goes on: what it sent before it left may still be under way
/// on another socket.
pub const DEPARTURE_GRACE: Duration = Duration::from_millis(500);

/// Health of one communicator. See the module's page.
pub struct Health {
    rank: u32,
    /// 0 = run; otherwise `1 + ErrorCode` of `failure`, and written after it.
    abort_word: AtomicU32,
    failure: OnceLock<Failure>,
    departed: Mutex<BTreeMap<u32, Instant>>,
    listeners: Mutex<Vec<FailureListener>>,
    departure_listeners: Mutex<Vec<DepartureListener>>,
}

impl Health {
    /// A healthy record for `rank`.
    pub fn new(rank: u32) -> Self {
        Self {
            rank,
            abort_word: AtomicU32::new(0),
            failure: OnceLock::new(),
            departed: Mutex::new(BTreeMap::new()),
            listeners: Mutex::new(Vec::new()),
            departure_listeners: Mutex::new(Vec::new()),
        }
    }

    /// The rank this record belongs to.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// True once failed; one load, for polling loops.
    #[inline]
    pub fn is_failed(&self) -> bool {
        // Pairs with the Release store in `raise_abort_word`.
        self.abort_word.load(Ordering::Acquire) != 0
    }

    /// The failure as an error, if there is one.
    #[inline]
    pub fn check(&self) -> Result<(), Error> {
        if self.is_failed() { self.failure().map_or(Ok(()), |f| Err(f.into())) } else { Ok(()) }
    }

    /// The same for the caller of `operation`, which becomes the phase of a [death](Failure::during).
    #[inline]
    pub fn check_during(&self, operation: impl fmt::Display) -> Result<(), Error> {
        if self.is_failed() {
            self.failure().map_or(Ok(()), |f| Err(f.during(operation).into()))
        } else {
            Ok(())
        }
    }

    /// The first failure.
    pub fn failure(&self) -> Option<Failure> {
        self.failure.get().cloned()
    }

    /// Records `failure` if it is the first, and tells the listeners. True if it was the first.
    pub fn fail(&self, failure: Failure) -> bool {
        let code = failure.code();
        if self.failure.set(failure).is_err() {
            // The first one's thread may not have come as far as the abort word. Whoever reports a failure
            // must not find the communicator healthy afterwards.
            if let Some(first) = self.failure.get() {
                self.raise_abort_word(first.code());
            }
            return false;
        }
        self.raise_abort_word(code);
        // Listeners run outside the lock so that one of them may subscribe or fail again.
        let listeners = std::mem::take(&mut *lock(&self.listeners));
        if let Some(failure) = self.failure.get() {
            for listener in &listeners {
                listener(failure);
            }
        }
        true
    }

    fn raise_abort_word(&self, code: ErrorCode) {
        // Pairs with the Acquire load in `is_failed`.
        self.abort_word.store(1 + code as u32, Ordering::Release);
    }

    /// Records an error of this rank found outside a call of the user.
    pub fn fail_local(&self, phase: impl Into<String>, culprit: Option<u32>, error: Error) -> bool {
        self.fail(Failure {
            rank: self.rank,
            culprit,
            phase: phase.into(),
            cause: Cause::Local(Arc::new(error)),
        })
    }

    /// Marks the communicator as aborted by this rank. Idempotent, returns at once, any thread.
    pub fn abort(&self, reason: impl Into<String>) -> bool {
        self.fail(Failure {
            rank: self.rank,
            culprit: Some(self.rank),
            phase: "abort".into(),
            cause: Cause::Aborted { reason: reason.into() },
        })
    }

    /// Calls `listener` at the first failure, or at once if it has happened.
    pub fn subscribe(&self, listener: FailureListener) {
        let mut listeners = lock(&self.listeners);
        // `fail` stores the failure before it takes the list, so one of the two sees the listener.
        if let Some(failure) = self.failure.get() {
            drop(listeners);
            listener(failure);
        } else {
            listeners.push(listener);
        }
    }

    /// Notes that `peer` has left in good order. Waits for it go on for [`DEPARTURE_GRACE`].
    pub fn note_departure(&self, peer: u32) {
        {
            let mut departed = lock(&self.departed);
            if departed.contains_key(&peer) {
                return;
            }
            departed.insert(peer, Instant::now());
        }
        let listeners = lock(&self.departure_listeners).clone();
        for listener in &listeners {
            listener(peer);
        }
    }

    /// Calls `listener` for every rank that leaves (once or twice), and at once for those that have left.
    pub fn subscribe_departures(&self, listener: DepartureListener) {
        lock(&self.departure_listeners).push(Arc::clone(&listener));
        // A rank that leaves meanwhile may be reported twice, never not at all.
        let departed: Vec<u32> = lock(&self.departed).keys().copied().collect();
        for peer in departed {
            listener(peer);
        }
    }

    /// True if `peer` has left, be it only just now.
    pub fn has_left(&self, peer: u32) -> bool {
        lock(&self.departed).contains_key(&peer)
    }

    /// True if `peer` left longer than [`DEPARTURE_GRACE`] ago.
    pub fn has_departed(&self, peer: u32) -> bool {
        lock(&self.departed).get(&peer).is_some_and(|at| at.elapsed() >= DEPARTURE_GRACE)
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health")
            .field("rank", &self.rank)
            .field("failure", &self.failure.get())
            .finish_non_exhaustive()
    }
}

/// A lock whose poisoning is ignored: the data behind it stays consistent between statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn first_failure_wins_and_listeners_run_once() {
        let health = Health::new(3);
        let calls = Arc::new(AtomicUsize::new(0));
        let count = |calls: &Arc<AtomicUsize>| {
            let calls = Arc::clone(calls);
            Box::new(move |f: &Failure| {
                assert_eq!(f.id(), "aborted");
                calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            })
        };
        health.subscribe(count(&calls));
        assert!(health.check().is_ok());
        assert!(health.abort("first"));
        assert!(!health.abort("second"));
        health.subscribe(count(&calls));
        assert_eq!(calls.load(std::sync::atomic::Ordering::SeqCst), 2);
        let error = health.check().unwrap_err();
        assert_eq!(error.code(), ErrorCode::Aborted);
        assert!(error.to_string().contains("first"), "{error}");
    }

    /// "Rank 0 failed" would tell rank 0 nothing.
    #[test]
    fn who_is_blamed_is_told_by_whom() {
        let reported = |rank, reporter| {
            let (code, message) = (ErrorCode::ExecutorError, "the count differs".to_owned());
            let cause = Cause::PeerFailed { reporter, code, message };
            Failure { rank, culprit: Some(0), phase: "plan".into(), cause }.to_string()
        };
        let text = |rank: u32, text: &str| format!("rank {rank}: communicator failed (plan): {text}");
        assert_eq!(reported(0, Some(1)), text(0, "rank 1 blames this rank: the count differs"));
        assert_eq!(reported(2, Some(1)), text(2, "rank 0 failed: rank 1 reports: the count differs"));
        assert_eq!(reported(2, Some(0)), text(2, "rank 0 failed: the count differs"));
        assert_eq!(reported(0, None), text(0, "rank 0 failed: the count differs"));
    }

    #[test]
    fn a_departed_peer_is_given_its_grace() {
        let health = Health::new(0);
        health.note_departure(1);
        assert!(!health.has_departed(1));
        assert!(!health.has_departed(2));
        std::thread::sleep(DEPARTURE_GRACE);
        assert!(health.has_departed(1));
    }
}
