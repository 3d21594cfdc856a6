//! Waits of a launch: bounded, and attentive to ranks that have launched something else.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use warpway_core::execution::ExecutionError;
use warpway_core::wait::{EventCount, WaitError, WaitSite, Waiter};
use warpway_core::{Error, Result, Timeout};

use super::control::{Control, Peer};
use super::record::{Difference, LaunchRecord, Words, agree, disagreement, extents, fingerprint};

/// Tests between two looks at the peers' records.
const TESTS: u32 = 256;
/// Tests between two looks at the clock.
const CLOCK: u32 = 64;
/// Whoever waits longer looks at the peers' records, and tells ranks that the plan makes it not work with.
const LATE: Duration = Duration::from_millis(20);

/// What this rank has launched.
#[derive(Debug)]
pub(super) struct Launched<'a> {
    pub(super) control: &'a Control,
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
        found.inspect(|_| self.control.settle())
    }

    /// What ended a launch: a failure of the communicator may stem from what a peer has launched.
    pub(super) fn explained(&self, error: Error) -> Error {
        match error {
            Error::Execution(ExecutionError::Difference { .. }) => error,
            other => self.difference().map_or(other, Error::from),
        }
    }

    /// Has the peers' records fetched; there is nothing to see yet.
    #[inline]
    pub(super) fn fetch_records(&self) {
        // Of many peers the first few: a wait is not to be full of them.
        self.peers.iter().take(4).for_each(|peer| self.control.fetch(*peer, self.sequence));
    }

    pub(super) fn compare(&self, peer: u32, there: &Words) -> Option<ExecutionError> {
        let found = match agree(self.words, there) {
            true => self.extents_differ(peer, there),
            false => Some(disagreement(self.record, self.words, there)),
        };
        let (field, here, there) = found?;
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

    /// What a wait that gave up was really about: a difference, or a rank that has not come.
    fn explain(&self, mut error: WaitError) -> Error {
        if let Some(difference) = self.difference() {
            return difference.into();
        }
        error.site.peer = error.site.peer.or_else(|| self.laggard());
        error.into()
    }
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
        let attentive = || {
            let seen = match poll() {
                Ok(value) => return Ok(Ok(value)),
                Err(seen) => seen,
            };
            tests = tests.wrapping_add(1);
            let mut look = tests.is_multiple_of(TESTS);
            if tests.is_multiple_of(CLOCK) {
                let now = Instant::now();
                if now.duration_since(*looked.get_or_insert(now)) >= LATE {
                    looked = Some(now);
                    look = true;
                    if let Err(error) = self.launched.tell_all() {
                        return Ok(Err(error));
                    }
                }
            }
            if let Some(difference) = look.then(|| self.launched.difference()).flatten() {
                return Ok(Err(difference.into()));
            }
            Err(seen)
        };
        match self.waiter.wait(site, self.timeout, event, attentive) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(error),
            Err(error) => Err(self.launched.explain(error)),
        }
    }
}
