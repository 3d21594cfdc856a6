//! Waits of a launch: bounded, and attentive to ranks that have launched something else.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use warpway_core::execution::ExecutionError;
use warpway_core::health::Health;
use warpway_core::wait::{EventCount, GaveUp, WaitError, WaitSite, Waiter};
use warpway_core::{Deadline, Error, Result, Timeout};

use super::control::{Control, Peer};
use super::record::{
    Difference, LaunchRecord, Words, agree, disagreement, extents, fingerprint, is_refused, waits_for,
};
use super::refusals::{Refusal, Refusals};

/// Tests between two looks at the peers' records.
const TESTS: u32 = 256;
/// Tests between two looks at the clock, while the wait does not sleep.
const CLOCK: u32 = 64;
/// How often a wait tests for each of its yields.
const TESTS_PER_YIELD: u32 = 9;
/// Whoever waits longer looks at the peers' records, and tells ranks that the plan makes it not work with.
const LATE: Duration = Duration::from_millis(20);
/// The reason of a refusal goes another way than the refusal, and is waited for so long.
const REASON: Duration = Duration::from_secs(2);

/// Until when the reason of a refusal is waited for.
pub(super) fn reason_deadline() -> Deadline {
    Deadline::after(REASON)
}

/// What this rank has launched.
#[derive(Debug)]
pub(super) struct Launched<'a> {
    pub(super) control: &'a Control,
    pub(super) refusals: &'a Refusals,
    pub(super) rank: u32,
    /// Its name.
    pub(super) plan: &'a str,
    pub(super) sequence: u64,
    pub(super) record: &'a LaunchRecord,
    /// The same, as peers read it.
    pub(super) words: &'a Words,
    /// Ranks that the plan makes this one work with, ascending.
    pub(super) peers: &'a [u32],
    /// By peer, for plans with sized chunks: digest of the extents that both use.
    pub(super) extents: &'a [u64],
    /// Peers whose extents are compared one by one, ascending.
    pub(super) owners: &'a [u32],
    /// All ranks have been told.
    pub(super) told_all: AtomicBool,
}

impl Launched<'_> {
    /// The first peer that has launched something else, as far as they have told. Whoever finds one fails: the peers have
    /// this rank's record then.
    pub(super) fn difference(&self) -> Option<ExecutionError> {
        let own = fingerprint(self.words);
        let agrees = |peer: &u32| self.control.agrees(*peer, self.sequence, own);
        if self.extents.is_empty() && self.peers.iter().all(agrees) {
            return None;
        }
        let found = self.peers.iter().find_map(|peer| match self.control.peer(*peer, self.sequence) {
            Peer::Here(there) => self.compare(*peer, &there),
            Peer::Apart => Some(self.apart(*peer)),
            Peer::Behind(_) | Peer::Gone => None,
        });
        let refused = || self.refusals.until(self.sequence).map(|refusal| self.refused(refusal));
        found.or_else(refused).inspect(|_| self.control.settle())
    }

    /// The difference between what this rank and a peer of this host have told each other of a step that both may have
    /// left; `None` if one of them has told nothing.
    pub(super) fn difference_at(&self, peer: u32, sequence: u64) -> Option<ExecutionError> {
        let own = self.control.told(peer, sequence)?;
        if self.control.agrees(peer, sequence, fingerprint(&own)) {
            return None;
        }
        let Peer::Here(there) = self.control.peer(peer, sequence) else { return None };
        let record = LaunchRecord::from_words(&own)?;
        Launched { sequence, words: &own, record: &record, told_all: true.into(), ..*self }
            .compare(peer, &there)
    }

    /// What ended a launch: a failure of the communicator may stem from what a peer has launched.
    pub(super) fn explained(&self, error: Error) -> Error {
        match tells_of_another_call(&error) {
            true => error,
            false => self.difference().map_or(error, Error::from),
        }
    }

    fn refused(&self, refusal: Refusal) -> ExecutionError {
        let (here, Refusal { rank: peer, step, why }) = (format!("launches plan {:?}", self.plan), refusal);
        ExecutionError::PeerRefused { sequence: step, rank: self.rank, here, peer, why }
    }

    /// Has the peers' records fetched; there is nothing to see yet.
    #[inline]
    pub(super) fn fetch_records(&self) {
        // Of many peers the first few: a wait is not to be full of them.
        self.peers.iter().take(4).for_each(|peer| self.control.fetch(*peer, self.sequence));
    }

    pub(super) fn compare(&self, peer: u32, there: &Words) -> Option<ExecutionError> {
        if is_refused(there) {
            let why = self.refusals.reason(peer, self.sequence, reason_deadline());
            return Some(self.refused(Refusal { rank: peer, step: self.sequence, why }));
        }
        let found = match agree(self.words, there) {
            true => self.extents_differ(peer, there),
            false => Some(disagreement(self.record, self.words, there)),
        };
        let (field, here, there) = found?;
        // A rank that has refused an earlier call alone may have been waited for by nobody then.
        if let Some(refusal) = self.refusals.until(self.sequence).filter(|refusal| refusal.rank == peer) {
            return Some(self.refused(refusal));
        }
        let (sequence, rank) = (self.sequence, self.rank);
        let plan = self.plan.to_owned();
        Some(ExecutionError::Difference { sequence, plan, field, rank, here, peer, there })
    }

    fn extents_differ(&self, peer: u32, there: &Words) -> Option<Difference> {
        if self.extents.is_empty() {
            return None;
        }
        let (own, there) = (self.extents.get(self.peers.binary_search(&peer).ok()?)?, extents(there));
        let compared = self.owners.binary_search(&peer).is_err() && *own != there;
        let text = |digest: u64| format!("extents with digest {digest:016x}");
        compared.then(|| ("count", text(*own), text(there)))
    }

    pub(super) fn apart(&self, peer: u32) -> ExecutionError {
        let root = self.record.root.map(|root| format!(" with root {root}")).unwrap_or_default();
        ExecutionError::Difference {
            sequence: self.sequence,
            plan: self.plan.to_owned(),
            field: "plan",
            rank: self.rank,
            here: format!("{}{root}", super::record::hexadecimal(&self.record.identity)),
            peer,
            there: format!("one without rank {}", self.rank),
        }
    }

    /// Tells all ranks, once. A rank that has launched something else may wait for one that the plan here does not make it
    /// work with: a broadcast from another root.
    fn tell_all(&self) -> Result<()> {
        // Relaxed: whoever is first tells, and orders nothing by it.
        if self.told_all.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let more = self.control.others(self.rank).filter(|rank| self.peers.binary_search(rank).is_err());
        let more: Vec<u32> = more.filter(|rank| self.control.reaches(*rank)).collect();
        self.control.announce(self.sequence, self.words, &more, &[], false)
    }

    /// A peer that has not started this launch.
    fn laggard(&self) -> Option<u32> {
        self.peers
            .iter()
            .copied()
            .find(|peer| matches!(self.control.peer(*peer, self.sequence), Peer::Behind(_)))
    }

    /// A peer that has left without this launch. Whoever leaves right after a launch has told of it before.
    fn deserter(&self, health: &Health) -> Option<u32> {
        // In this order: who has gone tells no more, so what is not told then never will be.
        let deserted = |peer: &u32| {
            health.has_departed(*peer) && matches!(self.control.peer(*peer, self.sequence), Peer::Behind(_))
        };
        self.peers.iter().copied().find(deserted)
    }

    /// What a wait that gave up was really about: a difference, or a rank that has not come. The one that was waited for may
    /// itself wait for another one, as far as it has told.
    fn explain(&self, mut error: WaitError) -> Error {
        if let Some(difference) = self.difference() {
            return difference.into();
        }
        error.site.peer = error.site.peer.or_else(|| self.laggard());
        let Some(through) = error.site.peer.filter(|_| matches!(error.reason, GaveUp::TimedOut)) else {
            return error.into();
        };
        // A rank may still be in an earlier step, where it waits for the one that has not come even there.
        let next = |rank: &u32| {
            let step = match self.control.peer(*rank, self.sequence) {
                Peer::Behind(started) => started,
                _ => self.sequence,
            };
            match self.control.peer(*rank, step) {
                Peer::Here(words) => waits_for(&words).filter(|next| *next != self.rank),
                _ => None,
            }
        };
        // Ranks that wait for each other in a circle are as good as each other.
        let chain = std::iter::successors(Some(through), next).take(self.control.n_ranks());
        let peer = chain.last().unwrap_or(through);
        if peer == through {
            return error.into();
        }
        let (sequence, plan) = (self.sequence, self.plan.to_owned());
        ExecutionError::Absent { sequence, plan, peer, through, cause: Box::new(error.into()) }.into()
    }

    /// Tells all ranks, which have been told of the launch, whom this one waits for.
    fn tell_wait(&self, peer: Option<u32>) -> Result<()> {
        let ranks: Vec<u32> =
            self.control.others(self.rank).filter(|rank| self.control.reaches(*rank)).collect();
        self.control.announce_wait(self.sequence, &ranks, peer)
    }
}

/// True for errors about what another rank has called: they have nothing to do with the operation that noticed it.
pub(super) fn tells_of_another_call(error: &Error) -> bool {
    use ExecutionError::{Difference, PeerRefused};
    matches!(error, Error::Execution(Difference { .. } | PeerRefused { .. }))
}

/// The waits of one block, or of the launching thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting<'a> {
    pub(super) launched: &'a Launched<'a>,
    pub(super) waiter: &'a Waiter,
    pub(super) timeout: Timeout,
}

impl Waiting<'_> {
    /// As [`Waiter::wait`].
    #[inline]
    pub(super) fn until<T>(
        &self,
        site: impl FnOnce() -> WaitSite,
        event: Option<&EventCount>,
        mut poll: impl FnMut() -> Result<T, u64>,
    ) -> Result<T> {
        match poll() {
            Ok(value) => Ok(value),
            Err(_) => self.until_slowly(site, event, &mut poll),
        }
    }

    #[inline(never)]
    fn until_slowly<T>(
        &self,
        site: impl FnOnce() -> WaitSite,
        event: Option<&EventCount>,
        poll: &mut dyn FnMut() -> Result<T, u64>,
    ) -> Result<T> {
        let mut tests = 0u32;
        let mut looked: Option<Instant> = None;
        let mut began: Option<Instant> = None;
        let mut heard = 0;
        let site = site();
        let mut told = false;
        // Then tests are naps apart.
        let awake = self.waiter.policy.yields.saturating_mul(TESTS_PER_YIELD);
        let attentive = || {
            let seen = match poll() {
                Ok(value) => return Ok(Ok(value)),
                Err(seen) => seen,
            };
            tests = tests.wrapping_add(1);
            let count = self.launched.refusals.count();
            let mut look = tests.is_multiple_of(TESTS) || count != heard;
            heard = count;
            if tests > awake || tests.is_multiple_of(CLOCK) {
                let now = Instant::now();
                let began = *began.get_or_insert(now);
                if now.duration_since(*looked.get_or_insert(now)) >= LATE {
                    looked = Some(now);
                    look = true;
                    // A wait for one peer looks itself whether that has left.
                    let gone = match site.peer {
                        Some(_) => None,
                        None => self.launched.deserter(&self.waiter.health),
                    };
                    if let Some(peer) = gone {
                        // What it sent before it left is here by now.
                        let observed = match poll() {
                            Ok(value) => return Ok(Ok(value)),
                            Err(observed) => observed,
                        };
                        let (rank, site) = (self.launched.rank, WaitSite { peer: Some(peer), ..site });
                        let elapsed = now.duration_since(began);
                        let reason = GaveUp::PeerLeft;
                        return Ok(Err(WaitError { rank, site, observed, elapsed, reason }.into()));
                    }
                    let mut tell = || {
                        self.launched.tell_all()?;
                        if site.peer.is_some() && !std::mem::replace(&mut told, true) {
                            self.launched.tell_wait(site.peer)?;
                        }
                        Ok(())
                    };
                    if let Err(error) = tell() {
                        return Ok(Err(error));
                    }
                }
            }
            if let Some(difference) = look.then(|| self.launched.difference()).flatten() {
                return Ok(Err(difference.into()));
            }
            Err(seen)
        };
        let waited = self.waiter.wait(|| site, self.timeout, event, attentive);
        if told && matches!(waited, Ok(Ok(_))) {
            self.launched.tell_wait(None)?;
        }
        match waited {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(error),
            Err(error) => Err(self.launched.explain(error)),
        }
    }
}
