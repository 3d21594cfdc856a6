//! What the service's thread and the callers' threads share: mailboxes, sinks, scopes, offers, and the
//! commands for the service.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};

use super::super::message::{Blame, Report, ScopeFailure};
use super::super::poller::Waker;
use super::super::{MessageSink, PeerInfo, ScopeId};
use crate::error::Error;
use crate::health::{Cause, Failure, Health, lock};

/// Phase of failures that nobody was waiting for.
pub(super) const CONTROL_PLANE: &str = "control plane";

/// A message that waits to be sent.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) scope: ScopeId,
    pub(super) tag: i32,
    pub(super) data: Vec<u8>,
}

/// What the service is asked to do.
#[derive(Debug)]
pub(super) enum Command {
    /// Send.
    Post(u32, Outgoing),
    /// Somebody waits for this rank: its death must be noticed.
    Link(u32),
    /// This rank has left the scope.
    Leave(ScopeId, Vec<u32>),
    /// Tell everybody.
    Tell(ScopeFailure),
    /// Say goodbye and end.
    Close,
}

/// One open scope.
#[derive(Debug)]
pub(super) struct Scope {
    pub(super) id: ScopeId,
    pub(super) members: Vec<u32>,
    pub(super) health: Arc<Health>,
    /// The members know of the failure of `health`, or are told by others.
    told: AtomicBool,
}

impl Scope {
    /// Rank within the scope.
    fn rank_of(&self, job_rank: u32) -> Option<u32> {
        self.members.iter().position(|m| *m == job_rank).and_then(|at| u32::try_from(at).ok())
    }

    /// Fails the scope's health with news that came from outside; `reporter` has told an error of its own.
    fn fail(&self, report: Report, reporter: Option<u32>) {
        // Before `fail`, whose listener looks at it.
        self.told.store(true, Ordering::SeqCst);
        self.health.fail(Failure {
            rank: self.health.rank(),
            culprit: report.culprit.and_then(|job_rank| self.rank_of(job_rank)),
            phase: report.phase,
            cause: report.blame.into_cause(reporter.and_then(|job_rank| self.rank_of(job_rank))),
        });
    }
}

/// What the lock protects.
#[derive(Default)]
pub(super) struct State {
    pub(super) commands: Vec<Command>,
    pub(super) mail: HashMap<(ScopeId, u32, i32), VecDeque<Vec<u8>>>,
    pub(super) sinks: HashMap<(ScopeId, i32), (u64, MessageSink)>,
    /// Messages of tags with a sink, in the order in which the sinks are to be called.
    pub(super) for_sinks: VecDeque<(ScopeId, u32, i32, Vec<u8>)>,
    pub(super) scopes: HashMap<ScopeId, Arc<Scope>>,
    /// Scopes that this rank has left: what still comes for them is discarded.
    pub(super) closed: HashSet<ScopeId>,
    /// Failures of scopes that are not open yet.
    early_failures: HashMap<ScopeId, (u32, Report)>,
    /// Members that left a scope.
    left: HashMap<ScopeId, BTreeSet<u32>>,
    dead: BTreeSet<u32>,
    departed: BTreeSet<u32>,
    pub(super) offers: HashMap<u64, Arc<OwnedFd>>,
    /// Ranks with a link in one direction at least, or with one asked for.
    pub(super) linked: BTreeSet<u32>,
    next_number: u64,
    /// This rank has said goodbye, or is about to.
    pub(super) has_ended: bool,
    /// Why the service has ended, if not because it was closed.
    pub(super) broken: Option<Error>,
    /// How joining ended.
    pub(super) joined: Option<Result<(), Error>>,
}

impl State {
    /// A number not given out before.
    pub(super) fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// True if nothing more can come from `peer` in `scope`.
    pub(super) fn has_left(&self, scope: ScopeId, peer: u32) -> bool {
        self.departed.contains(&peer) || self.left.get(&scope).is_some_and(|ranks| ranks.contains(&peer))
    }

    pub(super) fn is_gone(&self, peer: u32) -> bool {
        self.dead.contains(&peer) || self.departed.contains(&peer)
    }

    /// Puts a message where it belongs. The caller notifies and wakes.
    fn put(&mut self, scope: ScopeId, from: u32, tag: i32, data: Vec<u8>) {
        if self.closed.contains(&scope) {
            return;
        }
        if self.sinks.contains_key(&(scope, tag)) {
            self.for_sinks.push_back((scope, from, tag, data));
        } else {
            self.mail.entry((scope, from, tag)).or_default().push_back(data);
        }
    }
}

/// See the module's page.
pub(super) struct Shared {
    pub(super) rank: u32,
    pub(super) n_ranks: u32,
    pub(super) waker: Arc<Waker>,
    pub(super) strays: AtomicU64,
    pub(super) peers: OnceLock<Vec<PeerInfo>>,
    pub(super) changed: Condvar,
    state: Mutex<State>,
}

impl Shared {
    pub(super) fn new(rank: u32, n_ranks: u32, waker: Arc<Waker>) -> Self {
        Self {
            rank,
            n_ranks,
            waker,
            strays: AtomicU64::new(0),
            peers: OnceLock::new(),
            changed: Condvar::new(),
            state: Mutex::default(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Hands a command to the service.
    pub(super) fn command(&self, command: Command) {
        self.lock().commands.push(command);
        self.waker.wake();
    }

    /// A complete message has come, or this rank has sent one to itself.
    pub(super) fn deliver(&self, scope: ScopeId, from: u32, tag: i32, data: Vec<u8>) {
        self.lock().put(scope, from, tag, data);
        self.changed.notify_all();
    }

    /// Calls the sinks for what has come; on the service's thread only, so that the order holds.
    pub(super) fn run_sinks(&self) {
        loop {
            let mut state = self.lock();
            let Some((scope, from, tag, data)) = state.for_sinks.pop_front() else { return };
            let Some(sink) = state.sinks.get(&(scope, tag)).map(|(_, sink)| Arc::clone(sink)) else {
                state.put(scope, from, tag, data);
                continue;
            };
            drop(state);
            sink(from, data);
        }
    }

    /// Registers a scope; tells its health what has happened to its members before.
    pub(super) fn open(self: &Arc<Self>, id: ScopeId, members: &[u32], health: Arc<Health>) -> Arc<Scope> {
        let told = AtomicBool::new(false);
        let scope = Arc::new(Scope { id, members: members.to_vec(), health, told });
        let mut state = self.lock();
        state.scopes.insert(id, Arc::clone(&scope));
        state.closed.remove(&id);
        let early = state.early_failures.remove(&id);
        let dead = members.iter().copied().find(|m| state.dead.contains(m)).map(died);
        let broken = state.broken.clone();
        let left: Vec<u32> = members.iter().copied().filter(|m| state.has_left(id, *m)).collect();
        drop(state);
        for peer in left.into_iter().filter_map(|m| scope.rank_of(m)) {
            scope.health.note_departure(peer);
        }
        match (early, dead) {
            (Some((origin, report)), _) => scope.fail(report, Some(origin)),
            (None, Some(report)) => scope.fail(report, None),
            (None, None) => {}
        }
        if let Some(error) = broken {
            scope.health.fail_local(CONTROL_PLANE, None, error);
        }
        let (shared, weak_scope) = (Arc::downgrade(self), Arc::downgrade(&scope));
        scope.health.subscribe(Box::new(move |failure| {
            if let (Some(shared), Some(scope)) = (shared.upgrade(), weak_scope.upgrade()) {
                shared.health_failed(&scope, failure);
            }
        }));
        scope
    }

    /// Wakes who waits in the scope, and tells the members what they do not know.
    fn health_failed(&self, scope: &Scope, failure: &Failure) {
        let mut state = self.lock();
        if !scope.told.swap(true, Ordering::SeqCst) {
            let culprit = failure.culprit.and_then(|r| scope.members.get(r as usize).copied());
            // An error of this rank that is nobody else's fault is its own.
            let own = matches!(failure.cause, Cause::Local(_) | Cause::PeerFailed { .. });
            let culprit = culprit.or(own.then_some(self.rank));
            let report = Report { culprit, phase: failure.phase.clone(), blame: Blame::from(&failure.cause) };
            let sequence = state.number();
            let failure = ScopeFailure { origin: self.rank, sequence, scope: scope.id, report };
            state.commands.push(Command::Tell(failure));
        }
        drop(state);
        self.changed.notify_all();
        self.waker.wake();
    }

    /// This rank leaves a scope.
    pub(super) fn close(&self, scope: &Scope) {
        let mut state = self.lock();
        if state.scopes.get(&scope.id).is_some_and(|open| std::ptr::eq(Arc::as_ptr(open), scope)) {
            state.scopes.remove(&scope.id);
            state.closed.insert(scope.id);
            state.mail.retain(|(id, _, _), _| *id != scope.id);
            state.sinks.retain(|(id, _), _| *id != scope.id);
            state.for_sinks.retain(|(id, _, _, _)| *id != scope.id);
            state.left.remove(&scope.id);
            state.commands.push(Command::Leave(scope.id, scope.members.clone()));
        }
        drop(state);
        self.changed.notify_all();
        self.waker.wake();
    }

    /// A rank died. True if that is news.
    pub(super) fn died(&self, culprit: u32) -> bool {
        let mut state = self.lock();
        if state.departed.contains(&culprit) || !state.dead.insert(culprit) {
            return false;
        }
        let affected: Vec<_> =
            state.scopes.values().filter(|s| s.members.contains(&culprit)).map(Arc::clone).collect();
        drop(state);
        for scope in affected {
            scope.fail(died(culprit), None);
        }
        self.changed.notify_all();
        true
    }

    /// A scope failed somewhere else.
    pub(super) fn scope_failed(&self, failure: ScopeFailure) {
        let ScopeFailure { origin, scope, report, .. } = failure;
        let mut state = self.lock();
        let open = state.scopes.get(&scope).map(Arc::clone);
        if open.is_none() && !state.closed.contains(&scope) {
            state.early_failures.entry(scope).or_insert_with(|| (origin, report.clone()));
        }
        drop(state);
        if let Some(open) = open {
            open.fail(report, Some(origin));
        }
    }

    /// A rank left a scope in good order.
    pub(super) fn left(&self, scope: ScopeId, peer: u32) {
        let mut state = self.lock();
        let open = state.scopes.get(&scope).map(Arc::clone);
        if !state.closed.contains(&scope) {
            state.left.entry(scope).or_default().insert(peer);
        }
        drop(state);
        if let Some((scope, peer)) = open.and_then(|s| s.rank_of(peer).map(|r| (s, r))) {
            scope.health.note_departure(peer);
        }
        self.changed.notify_all();
    }

    /// A rank left the job in good order.
    pub(super) fn departed(&self, peer: u32) {
        let mut state = self.lock();
        if state.dead.contains(&peer) || !state.departed.insert(peer) {
            return;
        }
        let scopes: Vec<_> = state.scopes.values().map(Arc::clone).collect();
        drop(state);
        for scope in scopes {
            if let Some(rank) = scope.rank_of(peer) {
                scope.health.note_departure(rank);
            }
        }
        self.changed.notify_all();
    }

    /// A rank cannot be reached or does not keep to the protocol: an error of every scope with it.
    pub(super) fn peer_broken(&self, peer: u32, error: &Error) {
        let scopes: Vec<_> = self.lock().scopes.values().map(Arc::clone).collect();
        for scope in scopes {
            if let Some(rank) = scope.rank_of(peer) {
                scope.health.fail_local(CONTROL_PLANE, Some(rank), error.clone());
            }
        }
    }

    /// The service cannot go on.
    pub(super) fn service_broken(&self, error: &Error) {
        let mut state = self.lock();
        state.broken = Some(error.clone());
        state.joined.get_or_insert_with(|| Err(error.clone()));
        let scopes: Vec<_> = state.scopes.values().map(Arc::clone).collect();
        drop(state);
        for scope in scopes {
            scope.health.fail_local(CONTROL_PLANE, None, error.clone());
        }
        self.changed.notify_all();
    }

    /// Joining has ended.
    pub(super) fn finish_join(&self, result: Result<(), Error>) {
        self.lock().joined.get_or_insert(result);
        self.changed.notify_all();
    }
}

fn died(culprit: u32) -> Report {
    Report { culprit: Some(culprit), phase: CONTROL_PLANE.into(), blame: Blame::Died }
}
