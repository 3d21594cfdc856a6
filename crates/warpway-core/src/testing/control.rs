//! A control plane in memory.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak, mpsc};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use crate::bootstrap::{
    BootstrapError, ControlPlane, DescriptorOffer, MessageSink, PeerInfo, Processors, ScopeGuard, ScopeId,
    Subscription,
};
use crate::deadline::Deadline;
use crate::error::{Error, Result, SystemError};
use crate::health::{Cause, Failure, Health, lock};
use crate::trace::Operation;
use crate::wire::JobNonce;

/// A job whose ranks are threads of this process.
pub struct LocalJob {
    controls: Vec<Arc<LocalControl>>,
}

impl LocalJob {
    /// `n_ranks` ranks of one host and, as far as they know, of one process.
    pub fn new(n_ranks: u32) -> Self {
        Self::with_peers(|_| (1, 1), n_ranks)
    }

    /// Ranks of one host that take each other for different processes.
    pub fn of_processes(n_ranks: u32) -> Self {
        Self::with_peers(|rank| (1, 100 + u64::from(rank)), n_ranks)
    }

    /// `identity` gives the hashes of a rank's host and process.
    pub fn with_peers(identity: impl Fn(u32) -> (u64, u64), n_ranks: u32) -> Self {
        let peer = |rank| {
            let (host, process) = identity(rank);
            PeerInfo {
                rank,
                host,
                process,
                process_id: std::process::id(),
                host_name: format!("host-{host}"),
                processors: Processors::of_this_thread(),
                addresses: Vec::new(),
                unix_name: Vec::new(),
            }
        };
        let peers: Arc<[PeerInfo]> = (0..n_ranks).map(peer).collect();
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..n_ranks).map(|_| mpsc::channel()).unzip();
        let hub = Arc::new(Hub { ranks: senders.into_iter().map(Seat::new).collect() });
        let controls = receivers.into_iter().zip(0..).map(|(events, rank)| {
            let (hub, peers) = (Arc::clone(&hub), Arc::clone(&peers));
            let control = Arc::new(LocalControl { rank, peers, hub });
            let seat = Arc::downgrade(&control.hub);
            // Ends when the hub, which holds the senders, is gone.
            let spawned = thread::Builder::new().name(format!("local-control-{rank}")).spawn(move || {
                while let Ok(event) = events.recv() {
                    let Some(hub) = Weak::upgrade(&seat) else { break };
                    hub.deliver(rank, event);
                }
            });
            if let Err(error) = spawned {
                lock(&control.hub.seat(rank).state).broken = Some(SystemError::from_io("thread", &error));
            }
            control
        });
        Self { controls: controls.collect() }
    }

    /// How many ranks there are.
    pub fn n_ranks(&self) -> u32 {
        self.controls.len() as u32
    }

    /// The control plane of one rank.
    pub fn control(&self, rank: u32) -> Arc<LocalControl> {
        Arc::clone(&self.controls[rank as usize])
    }

    /// Every other rank learns that `rank` has died; nothing from or to it arrives any more.
    pub fn kill(&self, rank: u32) {
        if let Some(control) = self.controls.first() {
            control.hub.kill(rank);
        }
    }
}

/// One rank's side of a [`LocalJob`].
pub struct LocalControl {
    rank: u32,
    peers: Arc<[PeerInfo]>,
    hub: Arc<Hub>,
}

struct Hub {
    ranks: Vec<Seat>,
}

/// What belongs to one rank.
struct Seat {
    events: mpsc::Sender<Event>,
    state: Mutex<State>,
    arrival: Condvar,
    dead: AtomicBool,
    next_offer: AtomicU64,
}

/// (sender, message).
type Queue = VecDeque<(u32, Vec<u8>)>;

#[derive(Default)]
struct State {
    /// Messages that nobody has taken, in order per sender.
    queues: HashMap<(ScopeId, i32), Queue>,
    sinks: HashMap<(ScopeId, i32), Arc<Sink>>,
    scopes: HashMap<ScopeId, Scope>,
    offers: HashMap<u64, Arc<OwnedFd>>,
    delivery: Option<ThreadId>,
    broken: Option<SystemError>,
}

struct Scope {
    members: Vec<u32>,
    health: Weak<Health>,
}

struct Sink {
    call: MessageSink,
    closed: AtomicBool,
    /// Held while `call` runs.
    running: Mutex<()>,
}

enum Event {
    Message { scope: ScopeId, tag: i32, from: u32, data: Vec<u8> },
    Subscribed { scope: ScopeId, tag: i32 },
    Left { scope: ScopeId, from: u32 },
    Failed { scope: ScopeId, from: u32, failure: Failure },
    Died { rank: u32 },
}

impl Seat {
    fn new(events: mpsc::Sender<Event>) -> Self {
        Self {
            events,
            state: Mutex::default(),
            arrival: Condvar::new(),
            dead: AtomicBool::new(false),
            next_offer: AtomicU64::new(1),
        }
    }

    fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }
}

impl Hub {
    fn seat(&self, rank: u32) -> &Seat {
        &self.ranks[rank as usize]
    }

    fn send(&self, from: u32, to: u32, event: Event) {
        if !self.seat(from).is_dead() && !self.seat(to).is_dead() {
            // The receiver ends only with the hub.
            let _ = self.seat(to).events.send(event);
        }
    }

    fn kill(&self, rank: u32) {
        for (seat, other) in self.ranks.iter().zip(0..) {
            if other != rank && !seat.is_dead() {
                let _ = seat.events.send(Event::Died { rank });
            }
        }
        self.seat(rank).dead.store(true, Ordering::SeqCst);
    }

    fn deliver(&self, rank: u32, event: Event) {
        let seat = self.seat(rank);
        lock(&seat.state).delivery.get_or_insert_with(|| thread::current().id());
        match event {
            Event::Message { scope, tag, from, data } => {
                lock(&seat.state).queues.entry((scope, tag)).or_default().push_back((from, data));
                seat.pump(scope, tag);
            }
            Event::Subscribed { scope, tag } => seat.pump(scope, tag),
            Event::Left { scope, from } => {
                if let Some((health, local)) = seat.member(scope, from) {
                    health.note_departure(local);
                }
            }
            Event::Failed { scope, from, failure } => {
                if let Some((health, local)) = seat.member(scope, from) {
                    health.fail(Failure { rank: health.rank(), culprit: Some(local), ..failure });
                }
            }
            Event::Died { rank: culprit } => {
                let scopes: Vec<ScopeId> = lock(&seat.state).scopes.keys().copied().collect();
                for (health, local) in scopes.into_iter().filter_map(|scope| seat.member(scope, culprit)) {
                    let cause = Cause::PeerDied;
                    let rank = health.rank();
                    health.fail(Failure { rank, culprit: Some(local), phase: "local job".into(), cause });
                }
            }
        }
        seat.arrival.notify_all();
    }
}

impl Seat {
    /// Hands what has come to the sink of (scope, tag), if there is one. Only on the delivery thread.
    fn pump(&self, scope: ScopeId, tag: i32) {
        loop {
            let (sink, from, data) = {
                let mut state = lock(&self.state);
                let Some(sink) = state.sinks.get(&(scope, tag)).cloned() else { return };
                let Some((from, data)) = state.queues.get_mut(&(scope, tag)).and_then(VecDeque::pop_front)
                else {
                    return;
                };
                (sink, from, data)
            };
            let running = lock(&sink.running);
            if !sink.closed.load(Ordering::SeqCst) {
                (sink.call)(from, data);
            }
            drop(running);
        }
    }

    /// The health of a scope and the rank in it of a member.
    fn member(&self, scope: ScopeId, job_rank: u32) -> Option<(Arc<Health>, u32)> {
        let state = lock(&self.state);
        let scope = state.scopes.get(&scope)?;
        let local = scope.members.iter().position(|member| *member == job_rank)?;
        Some((scope.health.upgrade()?, local as u32))
    }
}

impl LocalControl {
    fn seat(&self) -> &Seat {
        self.hub.seat(self.rank)
    }

    fn check_peer(&self, peer: u32, operation: Operation) -> Result<()> {
        let n_ranks = self.peers.len() as u32;
        if peer < n_ranks {
            return Ok(());
        }
        Err(BootstrapError::NoSuchPeer { operation, peer, n_ranks }.into())
    }

    fn take(&self, scope: ScopeId, peer: u32, tag: i32) -> Option<Vec<u8>> {
        let mut state = lock(&self.seat().state);
        let queue = state.queues.get_mut(&(scope, tag))?;
        let at = queue.iter().position(|(from, _)| *from == peer)?;
        queue.remove(at).map(|(_, data)| data)
    }
}

impl ControlPlane for LocalControl {
    fn job_rank(&self) -> u32 {
        self.rank
    }

    fn peers(&self) -> &[PeerInfo] {
        &self.peers
    }

    fn job_nonce(&self) -> JobNonce {
        JobNonce(*b"local job nonce!")
    }

    fn post(&self, scope: ScopeId, peer: u32, tag: i32, data: &[u8]) -> Result<()> {
        self.check_peer(peer, Operation::BootstrapSend)?;
        let data = data.to_vec();
        self.hub.send(self.rank, peer, Event::Message { scope, tag, from: self.rank, data });
        Ok(())
    }

    fn receive(&self, scope: ScopeId, peer: u32, tag: i32, deadline: Deadline) -> Result<Vec<u8>> {
        self.check_peer(peer, Operation::BootstrapRecv)?;
        let started = Instant::now();
        loop {
            if let Some(data) = self.take(scope, peer, tag) {
                return Ok(data);
            }
            if let Some((health, local)) = self.seat().member(scope, peer) {
                health.check()?;
                if health.has_departed(local) {
                    let (rank, phase) = (health.rank(), Operation::BootstrapRecv.to_string());
                    let cause = Cause::PeerLeft;
                    return Err(Failure { rank, culprit: Some(local), phase, cause }.into());
                }
            }
            if deadline.expired() {
                let (rank, elapsed) = (self.rank, started.elapsed());
                let operation = Operation::BootstrapRecv;
                return Err(BootstrapError::Timeout { rank, peer, tag, operation, elapsed }.into());
            }
            let state = lock(&self.seat().state);
            if let Some(error) = &state.broken {
                return Err(error.clone().into());
            }
            let slice = Duration::from_millis(5).min(deadline.remaining().unwrap_or(Duration::MAX));
            drop(self.seat().arrival.wait_timeout(state, slice));
        }
    }

    fn try_receive(&self, scope: ScopeId, peer: u32, tag: i32) -> Result<Option<Vec<u8>>> {
        self.check_peer(peer, Operation::BootstrapRecv)?;
        Ok(self.take(scope, peer, tag))
    }

    fn subscribe(&self, scope: ScopeId, tag: i32, sink: MessageSink) -> Subscription {
        let sink = Arc::new(Sink { call: sink, closed: AtomicBool::new(false), running: Mutex::new(()) });
        lock(&self.seat().state).sinks.insert((scope, tag), Arc::clone(&sink));
        // What is queued already is delivered by the thread that delivers everything else.
        let _ = self.seat().events.send(Event::Subscribed { scope, tag });
        let hub = Arc::clone(&self.hub);
        Subscription(Box::new(OnDrop::new(
            move |rank: u32| {
                let mut state = lock(&hub.seat(rank).state);
                if state.sinks.get(&(scope, tag)).is_some_and(|current| Arc::ptr_eq(current, &sink)) {
                    state.sinks.remove(&(scope, tag));
                }
                let on_delivery = state.delivery == Some(thread::current().id());
                drop(state);
                sink.closed.store(true, Ordering::SeqCst);
                if !on_delivery {
                    drop(lock(&sink.running));
                }
            },
            self.rank,
        )))
    }

    fn open_scope(&self, scope: ScopeId, members: &[u32], health: Arc<Health>) -> Result<ScopeGuard> {
        let members = members.to_vec();
        let entry = Scope { members: members.clone(), health: Arc::downgrade(&health) };
        if lock(&self.seat().state).scopes.insert(scope, entry).is_some() {
            return Err(Error::Internal { place: "LocalControl::open_scope", what: "the scope is open" });
        }
        let rank = self.rank;
        let others: Vec<u32> = members.into_iter().filter(|member| *member != rank).collect();
        for dead in others.iter().filter(|member| self.hub.seat(**member).is_dead()) {
            let _ = self.seat().events.send(Event::Died { rank: *dead });
        }
        let (hub, told) = (Arc::downgrade(&self.hub), others.clone());
        health.subscribe(Box::new(move |failure| {
            let cause = match &failure.cause {
                // The peers find these themselves.
                Cause::PeerDied | Cause::PeerLeft | Cause::PeerFailed { .. } => return,
                Cause::Aborted { reason } if failure.culprit == Some(failure.rank) => {
                    Cause::Aborted { reason: reason.clone() }
                }
                Cause::Aborted { .. } => return,
                Cause::Local(error) => {
                    let (code, message) = (error.code(), error.to_string());
                    Cause::PeerFailed { reporter: Some(failure.rank), code, message }
                }
            };
            let Some(hub) = hub.upgrade() else { return };
            for member in &told {
                let failure = Failure { cause: cause.clone(), ..failure.clone() };
                hub.send(rank, *member, Event::Failed { scope, from: rank, failure });
            }
        }));
        let hub = Arc::clone(&self.hub);
        Ok(ScopeGuard(Box::new(OnDrop::new(
            move |rank: u32| {
                lock(&hub.seat(rank).state).scopes.remove(&scope);
                for member in &others {
                    hub.send(rank, *member, Event::Left { scope, from: rank });
                }
            },
            rank,
        ))))
    }

    fn offer_descriptor(&self, descriptor: Arc<OwnedFd>) -> Result<DescriptorOffer> {
        let number = self.seat().next_offer.fetch_add(1, Ordering::Relaxed);
        lock(&self.seat().state).offers.insert(number, descriptor);
        let hub = Arc::clone(&self.hub);
        let withdraw = move |rank: u32| drop(lock(&hub.seat(rank).state).offers.remove(&number));
        Ok(DescriptorOffer { descriptor: number, guard: Box::new(OnDrop::new(withdraw, self.rank)) })
    }

    fn fetch_descriptor(&self, peer: u32, descriptor: u64, _deadline: Deadline) -> Result<OwnedFd> {
        self.check_peer(peer, Operation::ImportMemory)?;
        let refuse = |why: String| BootstrapError::Descriptor { rank: self.rank, peer, descriptor, why };
        let offer = lock(&self.hub.seat(peer).state).offers.get(&descriptor).cloned();
        let offer = offer.ok_or_else(|| refuse("it is not offered".into()))?;
        Ok(offer.try_clone().map_err(|error| refuse(error.to_string()))?)
    }
}

/// Runs a closure once, when dropped.
struct OnDrop<F: Fn(u32)> {
    act: F,
    rank: u32,
}

impl<F: Fn(u32)> OnDrop<F> {
    fn new(act: F, rank: u32) -> Self {
        Self { act, rank }
    }
}

impl<F: Fn(u32)> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.act)(self.rank);
    }
}
