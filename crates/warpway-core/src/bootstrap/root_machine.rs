//! The root's part of joining a job, sans-IO: who has checked in, whether the check-ins fit each other, and
//! who must be told what. Driven with explicit time; connections are numbers that the driver chooses.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::PeerInfo;
use super::message::{Blame, CheckIn, FromRoot, PROTOCOL_VERSION, Report};
use crate::error::ErrorCode;

/// How long the root stays after a failure to tell the reason to ranks that come late.
const LINGER: Duration = Duration::from_millis(500);
/// How many missing ranks are listed.
const MAX_LISTED: usize = 64;

pub(super) const CHECK_IN: &str = "bootstrap check-in";
pub(super) const LINK_SET_UP: &str = "bootstrap link set-up";

/// Names a connection for the driver.
pub(super) type ConnectionId = u64;

/// See the module's page.
pub(super) struct RootMachine {
    started: Instant,
    /// World size, and who said so (`None`: the process that hosts the root).
    expected: Option<(u32, Option<u32>)>,
    ranks: BTreeMap<u32, CheckedIn>,
    connections: HashMap<ConnectionId, u32>,
    /// When the first of the ranks that wait loses its patience.
    deadline: Option<Instant>,
    state: State,
    /// Ranks that know the outcome or cannot be told any more.
    told: BTreeSet<u32>,
    outbox: VecDeque<(ConnectionId, FromRoot)>,
}

struct CheckedIn {
    connection: ConnectionId,
    info: Arc<PeerInfo>,
    ready: bool,
}

enum State {
    Gathering,
    Linking,
    Complete,
    Failed { verdict: FromRoot, at: Instant },
}

impl RootMachine {
    /// `n_ranks` is known where a rank hosts the root; otherwise the first check-in says it.
    pub(super) fn new(now: Instant, n_ranks: Option<u32>) -> Self {
        Self {
            started: now,
            expected: n_ranks.map(|n| (n, None)),
            ranks: BTreeMap::new(),
            connections: HashMap::new(),
            deadline: None,
            state: State::Gathering,
            told: BTreeSet::new(),
            outbox: VecDeque::new(),
        }
    }

    /// A rank's first message.
    pub(super) fn check_in(&mut self, now: Instant, connection: ConnectionId, message: CheckIn) {
        let CheckIn { version, rank, n_ranks, patience_ms, info } = message;
        match &self.state {
            State::Failed { verdict, .. } => {
                self.outbox.push_back((connection, verdict.clone()));
                self.told.insert(rank);
                return;
            }
            State::Complete => {
                let why = "the job has started already; a unique id is good for one job".to_owned();
                self.outbox.push_back((connection, FromRoot::Refused { culprit: Some(rank), why }));
                return;
            }
            State::Gathering | State::Linking => {}
        }
        let fault = match (&info, self.expected) {
            (None, _) => Some(format!(
                "rank {rank} speaks version {version} of the bootstrap protocol, the root version {PROTOCOL_VERSION}"
            )),
            _ if rank >= n_ranks => Some(format!("rank {rank} of {n_ranks} does not exist")),
            (_, Some((expected, None))) if expected != n_ranks => {
                Some(format!("rank {rank} says that there are {n_ranks} ranks, the root {expected}"))
            }
            (_, Some((expected, Some(first)))) if expected != n_ranks => {
                Some(format!("rank {rank} says that there are {n_ranks} ranks, rank {first} says {expected}"))
            }
            (Some(info), _) => self.ranks.get(&rank).map(|first| {
                format!(
                    "two processes say that they are rank {rank}: {} on {} and {} on {}",
                    first.info.process_id, first.info.host_name, info.process_id, info.host_name
                )
            }),
        };
        let Some(info) = info.filter(|_| fault.is_none()) else {
            self.fail(now, FromRoot::Refused { culprit: Some(rank), why: fault.unwrap_or_default() });
            if let State::Failed { verdict, .. } = &self.state {
                self.outbox.push_back((connection, verdict.clone()));
            }
            self.told.insert(rank);
            return;
        };
        self.expected.get_or_insert((n_ranks, Some(rank)));
        self.connections.insert(connection, rank);
        self.ranks.insert(rank, CheckedIn { connection, info, ready: false });
        let patience = patience_ms.and_then(|ms| now.checked_add(Duration::from_millis(ms)));
        self.deadline = match (self.deadline, patience) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        if self.ranks.len() as u64 == u64::from(n_ranks) {
            self.introduce(n_ranks);
        }
    }

    /// A rank's links stand.
    pub(super) fn ready(&mut self, connection: ConnectionId) {
        if !matches!(self.state, State::Linking) {
            return;
        }
        if let Some(checked_in) = self.rank_of(connection).and_then(|rank| self.ranks.get_mut(&rank)) {
            checked_in.ready = true;
        }
        if self.ranks.values().all(|c| c.ready) {
            self.state = State::Complete;
            self.tell_all(&FromRoot::Go);
        }
    }

    /// A rank gives up and says why.
    pub(super) fn abandon(&mut self, now: Instant, connection: ConnectionId, mut report: Report) {
        let rank = self.rank_of(connection);
        self.told.extend(rank);
        report.culprit = report.culprit.or(rank);
        self.fail(now, FromRoot::Failed(report));
    }

    /// A connection has ended.
    pub(super) fn disconnected(&mut self, now: Instant, connection: ConnectionId) {
        let Some(rank) = self.connections.remove(&connection) else { return };
        self.told.insert(rank);
        let phase = self.phase().to_owned();
        self.fail(now, FromRoot::Failed(Report { culprit: Some(rank), phase, blame: Blame::Died }));
    }

    /// Looks at the clock.
    pub(super) fn tick(&mut self, now: Instant) {
        if self.deadline.is_none_or(|at| now < at) {
            return;
        }
        match self.state {
            State::Gathering => {
                let n = self.expected.map_or(0, |(n, _)| n);
                let missing = (0..n).filter(|r| !self.ranks.contains_key(r)).take(MAX_LISTED).collect();
                let elapsed_ms =
                    now.duration_since(self.started).as_millis().min(u128::from(u64::MAX)) as u64;
                self.fail(now, FromRoot::Missing { missing, elapsed_ms });
            }
            State::Linking => {
                let late: Vec<u32> =
                    self.ranks.iter().filter(|(_, c)| !c.ready).map(|(r, _)| *r).take(MAX_LISTED).collect();
                let message = format!("ranks {late:?} have not set up their links in time");
                self.fail(
                    now,
                    FromRoot::Failed(Report {
                        culprit: late.first().copied(),
                        phase: LINK_SET_UP.into(),
                        blame: Blame::Failed { code: ErrorCode::Timeout, message },
                    }),
                );
            }
            State::Complete | State::Failed { .. } => {}
        }
    }

    /// When `tick` wants to be called.
    pub(super) fn next_tick(&self) -> Option<Instant> {
        match self.state {
            State::Gathering | State::Linking => self.deadline,
            State::Complete => None,
            State::Failed { at, .. } => at.checked_add(LINGER),
        }
    }

    /// The next message to send.
    pub(super) fn poll_outbox(&mut self) -> Option<(ConnectionId, FromRoot)> {
        self.outbox.pop_front()
    }

    /// True once nobody is left to be told anything.
    pub(super) fn finished(&self, now: Instant) -> bool {
        match &self.state {
            State::Gathering | State::Linking => false,
            State::Complete => true,
            State::Failed { verdict, at } => {
                // After a deadline nobody waits any more.
                matches!(verdict, FromRoot::Missing { .. })
                    || now.duration_since(*at) >= LINGER
                    || self.expected.is_some_and(|(n, _)| self.told.len() as u64 >= u64::from(n))
            }
        }
    }

    /// True once all ranks have been told to go.
    #[cfg(test)]
    pub(super) fn complete(&self) -> bool {
        matches!(self.state, State::Complete)
    }

    fn introduce(&mut self, n_ranks: u32) {
        self.state = State::Linking;
        for (rank, checked_in) in &self.ranks {
            let infos = neighbours(*rank, n_ranks)
                .into_iter()
                .filter_map(|peer| self.ranks.get(&peer).map(|c| Arc::clone(&c.info)))
                .collect();
            self.outbox.push_back((checked_in.connection, FromRoot::Neighbours(infos)));
        }
    }

    /// The first failure counts.
    fn fail(&mut self, now: Instant, verdict: FromRoot) {
        if matches!(self.state, State::Gathering | State::Linking) {
            self.tell_all(&verdict);
            self.told.extend(self.ranks.keys());
            self.state = State::Failed { verdict, at: now };
        }
    }

    fn tell_all(&mut self, message: &FromRoot) {
        for checked_in in self.ranks.values().filter(|c| self.connections.contains_key(&c.connection)) {
            self.outbox.push_back((checked_in.connection, message.clone()));
        }
    }

    fn rank_of(&self, connection: ConnectionId) -> Option<u32> {
        self.connections.get(&connection).copied()
    }

    fn phase(&self) -> &'static str {
        if matches!(self.state, State::Gathering) { CHECK_IN } else { LINK_SET_UP }
    }
}

/// 1, 2, 4, … below `n_ranks`: the distances over which ranks are linked.
pub(super) fn distances(n_ranks: u32) -> impl Iterator<Item = u32> {
    (0..32).map(|k| 1u32 << k).take_while(move |d| *d < n_ranks)
}

/// `(rank + distance) mod n_ranks`, for `rank` and `distance` below `n_ranks`.
pub(super) fn ahead(rank: u32, distance: u32, n_ranks: u32) -> u32 {
    ((u64::from(rank) + u64::from(distance)) % u64::from(n_ranks.max(1))) as u32
}

/// `(rank - distance) mod n_ranks`.
pub(super) fn behind(rank: u32, distance: u32, n_ranks: u32) -> u32 {
    ahead(rank, n_ranks - distance, n_ranks)
}

fn neighbours(rank: u32, n_ranks: u32) -> BTreeSet<u32> {
    distances(n_ranks).flat_map(|d| [ahead(rank, d, n_ranks), behind(rank, d, n_ranks)]).collect()
}
