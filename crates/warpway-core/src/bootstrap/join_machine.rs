//! A rank's part of joining a job, sans-IO: check in at the root, link with the ranks 1, 2, 4, … ahead,
//! gather the whole table of ranks over those links (Bruck's algorithm), report to the root, go.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::PeerInfo;
use super::message::{Blame, CheckIn, FromRoot, PROTOCOL_VERSION, Report, ToRoot};
use super::root_machine::{CHECK_IN, LINK_SET_UP, ahead, behind, distances};
use crate::error::ErrorCode;

/// How much longer than its own deadline a rank waits for the root's word, which knows who is late.
const GRACE: Duration = Duration::from_secs(1);

/// What the driver must do.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Action {
    /// Send to the root.
    ToRoot(ToRoot),
    /// Link with this rank.
    Dial(Arc<PeerInfo>),
    /// Send the infos to `peer`, as its input `gathered` of step `step`.
    Gather { peer: u32, step: u32, infos: Vec<Arc<PeerInfo>> },
    /// The job stands; everybody, by rank.
    Joined(Vec<Arc<PeerInfo>>),
    /// It does not. Nothing follows.
    Failed(JoinError),
}

/// Why a rank could not join.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum JoinError {
    /// The root's words.
    Refused { culprit: Option<u32>, why: String },
    /// These have not come.
    Missing { missing: Vec<u32>, elapsed: Duration },
    /// A rank died or gave up.
    Failed(Report),
    /// The root's connection ended without a word.
    RootLost { hosted_by: Option<u32>, phase: &'static str },
    /// This rank's own deadline, without a word from the root.
    TimedOut { phase: &'static str },
    /// Somebody said what no correct program says.
    Protocol { from: String, what: &'static str },
}

/// See the module's page.
pub(super) struct JoinMachine {
    n_ranks: u32,
    info: Arc<PeerInfo>,
    deadline: Option<Instant>,
    hosted_by: Option<u32>,
    /// The root has been reached.
    contact: bool,
    state: State,
    phase: &'static str,
    table: Vec<Option<Arc<PeerInfo>>>,
    known: u32,
    /// Ranks that this one has dialled.
    linked: BTreeSet<u32>,
    sent: BTreeSet<u32>,
    /// Steps of the gather that have come, not yet taken in.
    early: BTreeMap<u32, Vec<Arc<PeerInfo>>>,
    /// The next step to take in.
    step: u32,
    actions: VecDeque<Action>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    CheckIn,
    Linking,
    Waiting,
    Ended,
}

impl JoinMachine {
    /// `info` is this rank's own.
    pub(super) fn new(info: Arc<PeerInfo>, n_ranks: u32, deadline: Option<Instant>) -> Self {
        let mut table = vec![None; n_ranks as usize];
        if let Some(own) = table.get_mut(info.rank as usize) {
            *own = Some(Arc::clone(&info));
        }
        Self {
            n_ranks,
            info,
            deadline,
            hosted_by: None,
            contact: false,
            state: State::CheckIn,
            phase: CHECK_IN,
            table,
            known: 1,
            linked: BTreeSet::new(),
            sent: BTreeSet::new(),
            early: BTreeMap::new(),
            step: 0,
            actions: VecDeque::new(),
        }
    }

    /// What is going on, or was when it ended, for errors.
    pub(super) fn phase(&self) -> &'static str {
        self.phase
    }

    /// The root has authenticated itself.
    pub(super) fn root_connected(&mut self, now: Instant, hosted_by: Option<u32>) {
        self.hosted_by = hosted_by;
        self.contact = true;
        let left = self.deadline.map(|at| at.saturating_duration_since(now).as_millis());
        let check_in = CheckIn {
            version: PROTOCOL_VERSION,
            rank: self.info.rank,
            n_ranks: self.n_ranks,
            patience_ms: left.map(|ms| ms.min(u128::from(u64::MAX - 1)) as u64),
            info: Some(Arc::clone(&self.info)),
        };
        self.actions.push_back(Action::ToRoot(ToRoot::CheckIn(check_in)));
    }

    /// The address of this rank that the root sees is a good one to tell the others.
    pub(super) fn amend(&mut self, amend: impl FnOnce(&mut PeerInfo)) {
        let mut info = PeerInfo::clone(&self.info);
        amend(&mut info);
        self.info = Arc::new(info);
        if let Some(own) = self.table.get_mut(self.info.rank as usize) {
            *own = Some(Arc::clone(&self.info));
        }
    }

    /// A message from the root.
    pub(super) fn root_said(&mut self, message: FromRoot) {
        match (message, self.state) {
            (_, State::Ended) => {}
            (FromRoot::Neighbours(infos), State::CheckIn) => {
                (self.state, self.phase) = (State::Linking, LINK_SET_UP);
                let by_rank: BTreeMap<u32, Arc<PeerInfo>> = infos.into_iter().map(|i| (i.rank, i)).collect();
                for distance in distances(self.n_ranks) {
                    match by_rank.get(&ahead(self.info.rank, distance, self.n_ranks)) {
                        Some(peer) => self.actions.push_back(Action::Dial(Arc::clone(peer))),
                        None => return self.violation("the root", "a neighbour is missing"),
                    }
                }
                self.advance();
            }
            (FromRoot::Go, State::Waiting) => {
                self.state = State::Ended;
                let table = std::mem::take(&mut self.table).into_iter().flatten().collect();
                self.actions.push_back(Action::Joined(table));
            }
            (FromRoot::Refused { culprit, why }, _) => self.end(JoinError::Refused { culprit, why }),
            (FromRoot::Missing { missing, elapsed_ms }, _) => {
                self.end(JoinError::Missing { missing, elapsed: Duration::from_millis(elapsed_ms) });
            }
            (FromRoot::Failed(report), _) => self.end(JoinError::Failed(report)),
            (FromRoot::Neighbours(_) | FromRoot::Go, _) => {
                self.violation("the root", "a message out of turn");
            }
        }
    }

    /// The root's connection has ended.
    pub(super) fn root_lost(&mut self) {
        self.end(JoinError::RootLost { hosted_by: self.hosted_by, phase: self.phase() });
    }

    /// The link dialled to `peer` stands.
    pub(super) fn link_up(&mut self, peer: u32) {
        self.linked.insert(peer);
        self.advance();
    }

    /// A step of the gather has come from `peer`.
    pub(super) fn gathered(&mut self, peer: u32, step: u32, infos: Vec<Arc<PeerInfo>>) {
        let expected =
            distances(self.n_ranks).nth(step as usize).map(|d| behind(self.info.rank, d, self.n_ranks));
        if expected != Some(peer) || step < self.step || self.early.contains_key(&step) {
            return self.violation(&format!("rank {peer}"), "a step of the gather that is not its to send");
        }
        self.early.insert(step, infos);
        self.advance();
    }

    /// A rank died, or its links broke, or this rank gives up because of it.
    pub(super) fn give_up(&mut self, culprit: Option<u32>, blame: Blame) {
        let report = Report { culprit, phase: self.phase().into(), blame };
        if self.state != State::Ended {
            self.actions.push_back(Action::ToRoot(ToRoot::Abandon(report.clone())));
        }
        self.end(JoinError::Failed(report));
    }

    /// Looks at the clock.
    pub(super) fn tick(&mut self, now: Instant) {
        if self.state != State::Ended && self.next_tick().is_some_and(|at| now >= at) {
            let phase = self.phase();
            let blame = Blame::Failed { code: ErrorCode::Timeout, message: "the deadline passed".into() };
            let report = Report { culprit: Some(self.info.rank), phase: phase.into(), blame };
            self.actions.push_back(Action::ToRoot(ToRoot::Abandon(report)));
            self.end(JoinError::TimedOut { phase });
        }
    }

    /// When `tick` wants to be called.
    pub(super) fn next_tick(&self) -> Option<Instant> {
        self.deadline.and_then(|at| at.checked_add(if self.contact { GRACE } else { Duration::ZERO }))
    }

    /// The next thing to do.
    pub(super) fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// After step k this rank knows the 2^(k+1) ranks that end with itself.
    fn advance(&mut self) {
        if self.state != State::Linking {
            return;
        }
        let (rank, n) = (self.info.rank, self.n_ranks);
        loop {
            let Some(distance) = distances(n).nth(self.step as usize) else { break };
            let peer = ahead(rank, distance, n);
            // What the receiver lacks: the `distance` ranks up to this one, unless that wraps around to it.
            let count = distance.min(n - distance);
            if self.linked.contains(&peer) && !self.sent.contains(&self.step) {
                let infos = (0..count)
                    .filter_map(|back| {
                        self.table.get(behind_or_self(rank, back, n) as usize).cloned().flatten()
                    })
                    .collect();
                self.sent.insert(self.step);
                self.actions.push_back(Action::Gather { peer, step: self.step, infos });
            }
            // A step ends when it has been sent and taken in, in whichever order.
            if !self.sent.contains(&self.step) {
                return;
            }
            let Some(infos) = self.early.remove(&self.step) else { return };
            let first = behind(rank, distance, n);
            let fits = infos.len() as u64 == u64::from(count)
                && infos.iter().zip(0..).all(|(info, back)| info.rank == behind_or_self(first, back, n));
            if !fits {
                return self.violation(&format!("rank {first}"), "a gather of other ranks than agreed");
            }
            for info in infos {
                if let Some(slot) = self.table.get_mut(info.rank as usize) {
                    self.known += u32::from(slot.is_none());
                    *slot = Some(info);
                }
            }
            self.step += 1;
        }
        if self.known == n {
            self.state = State::Waiting;
            self.actions.push_back(Action::ToRoot(ToRoot::Ready));
        }
    }

    fn violation(&mut self, from: &str, what: &'static str) {
        let blame = Blame::Failed { code: ErrorCode::RemoteError, message: format!("{from}: {what}") };
        let report = Report { culprit: None, phase: self.phase().into(), blame };
        self.actions.push_back(Action::ToRoot(ToRoot::Abandon(report)));
        self.end(JoinError::Protocol { from: from.into(), what });
    }

    fn end(&mut self, error: JoinError) {
        if self.state != State::Ended {
            self.state = State::Ended;
            self.actions.push_back(Action::Failed(error));
        }
    }
}

fn behind_or_self(rank: u32, back: u32, n_ranks: u32) -> u32 {
    if back == 0 { rank } else { behind(rank, back, n_ranks) }
}
