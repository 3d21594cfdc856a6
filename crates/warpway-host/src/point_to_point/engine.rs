//! The calls: one message, or a group of them, from the first look to the last.

use std::cell::OnceCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use warpway_core::communicator::Communicator;
use warpway_core::memory::Access;
use warpway_core::point_to_point::PointToPointError;
use warpway_core::trace::{Operation, Request};
use warpway_core::transport::{Transport, TransportFlags};
use warpway_core::wait::{GaveUp, WaitError, WaitSite, Waiter};
use warpway_core::{Error, Result, Timeout};

use super::link::Bell;
use super::message::{Checked, Direction, Message, check_disjoint};
use super::pair::{Connecting, Pair};
use super::receiving::Receiving;
use super::sending::{Sending, refusal};
use super::{NO_REGION, Step};
use crate::buffer::SharedBuffer;
use crate::copy::copy;

/// Limits and choices of a [`PointToPoint`].
#[derive(Debug, Clone, Copy)]
pub struct PointToPointConfig {
    /// How long a call waits for a message of which nothing moves, the first set-up with a peer included.
    pub timeout: Timeout,
    /// The way between all ranks; `None`: shared memory on one host, TCP between hosts.
    pub transport: Option<Transport>,
}

/// Sends and receives of one communicator. Costs nothing before the first message. Calls of several threads follow each
/// other.
pub struct PointToPoint {
    comm: Communicator,
    config: PointToPointConfig,
    /// What this rank sleeps on, made before the first pair.
    bell: OnceLock<Arc<Bell>>,
    state: Mutex<State>,
    /// Some rank has left: waits look whether it is one of theirs.
    departures: Arc<AtomicBool>,
    /// For waits that a thread of this process ends, which needs the core.
    polite: Waiter,
}

/// By rank.
#[derive(Default)]
struct State(Vec<Entry>);

/// What there is between this rank and another one.
#[derive(Default)]
enum Entry {
    #[default]
    Nothing,
    Connecting(Connecting),
    Ready(Box<Pair>),
}

/// A message under way.
struct Transfer<'a> {
    message: Checked<'a>,
    stage: Stage,
}

enum Stage {
    Sending(Sending),
    Receiving(Receiving),
}

/// Messages of a call between this rank and one other, one way: in order.
struct Lane<'t, 'a> {
    transfers: &'t mut [Transfer<'a>],
    /// The first one that is not complete.
    at: usize,
}

impl PointToPoint {
    /// For the ranks of `comm`. Not collective.
    pub fn new(comm: Communicator, config: PointToPointConfig) -> Self {
        let departures = Arc::new(AtomicBool::new(false));
        let noted = Arc::clone(&departures);
        // Relaxed: what it is about is behind a lock.
        comm.health().subscribe_departures(Arc::new(move |_| noted.store(true, Ordering::Relaxed)));
        let waiter = comm.waiter();
        let polite = waiter.with_policy(waiter.policy.without_spinning());
        Self { comm, config, bell: OnceLock::new(), state: Mutex::default(), departures, polite }
    }

    /// Sends or receives one message. A send may return before the peer has received.
    ///
    /// # Errors
    /// `bootstrap.peer`, `p2p.alone` for this rank itself, `mem.*` for bytes that are not there: nothing has
    /// happened then. Afterwards the communicator has failed: `p2p.mismatch`, a wait that gave up and names the peer, what
    /// the communicator failed of.
    pub fn run_one(&self, message: &Message<'_>) -> Result<()> {
        let operation = message.direction.operation();
        self.enter(operation, std::slice::from_ref(message))?;
        let rank = self.comm.rank();
        let message = message.check(rank, self.comm.n_ranks())?;
        if message.peer == rank {
            let (sends, receives) = if operation == Operation::Send { (1, 0) } else { (0, 1) };
            return Err(PointToPointError::Alone { rank, sends, receives }.into());
        }
        let mut transfer = Transfer::new(message);
        let mut state = lock(&self.state);
        let request =
            Request { operation, peer: Some(message.peer), object: 0, bytes: message.bytes, offset: 0 };
        let recorder = self.comm.flight_recorder();
        // A send that ends at once is recorded afterwards: the peer need not wait for that.
        let at_once = match message.direction {
            Direction::Send => self.step(&mut state, &mut transfer),
            Direction::Receive => Ok(Step::Idle),
        };
        let record = recorder.start(request);
        let result = match at_once {
            Ok(Step::Done) => Ok(()),
            Ok(_) => self.finish(&mut state, &mut [Lane::new(std::slice::from_mut(&mut transfer))]),
            Err(error) => Err(error),
        };
        match result {
            Ok(()) => {
                recorder.complete(record);
                Ok(())
            }
            Err(error) => {
                let error = self.failed(operation, &state, &[message], error);
                recorder.fail(record, &error);
                Err(error)
            }
        }
    }

    /// Sends and receives messages that progress together: whatever their order is, they do not wait for each other, except
    /// that those with one peer, one way, go in order.
    ///
    /// # Errors
    /// As [`run_one`](Self::run_one); `p2p.overlap` and `p2p.alone` before anything has happened.
    pub fn run(&self, messages: &[Message<'_>]) -> Result<()> {
        let operation = Operation::Group;
        self.enter(operation, messages)?;
        let (rank, n) = (self.comm.rank(), self.comm.n_ranks());
        let checked: Vec<Checked<'_>> =
            messages.iter().map(|message| message.check(rank, n)).collect::<Result<_>>()?;
        check_disjoint(rank, &checked)?;
        let own = own_messages(rank, &checked)?;
        let bytes = checked.iter().fold(0u64, |sum, message| sum.saturating_add(message.bytes));
        let mut state = lock(&self.state);
        let recorder = self.comm.flight_recorder();
        let request = Request { operation, peer: None, object: messages.len() as u64, bytes, offset: 0 };
        let record = recorder.start(request);
        for (from, to) in own {
            // SAFETY: both ranges have been checked and are as long; a group's receive shares no bytes with another member.
            unsafe { copy(to.first, from.first, from.bytes) };
        }
        let mut transfers: Vec<Transfer<'_>> =
            checked.iter().filter(|message| message.peer != rank).copied().map(Transfer::new).collect();
        // Stable: within a lane in the order of the calls.
        transfers.sort_by_key(|transfer| transfer.key());
        let mut lanes: Vec<Lane<'_, '_>> =
            transfers.chunk_by_mut(|a, b| a.key() == b.key()).map(Lane::new).collect();
        let result = self.finish(&mut state, &mut lanes);
        drop(lanes);
        match result {
            Ok(()) => {
                recorder.complete(record);
                Ok(())
            }
            Err(error) => {
                let error = self.failed(operation, &state, &checked, error);
                recorder.fail(record, &error);
                Err(error)
            }
        }
    }

    /// An error if the communicator has failed.
    fn enter(&self, operation: Operation, messages: &[Message<'_>]) -> Result<()> {
        let failed = self.comm.health().check_during(operation);
        failed.map_err(|error| {
            let state = lock(&self.state);
            self.explain(&state, messages.iter().map(|message| message.peer), error)
        })
    }

    /// Steps until all messages are complete. Each wait is for something to move.
    fn finish(&self, state: &mut State, lanes: &mut [Lane<'_, '_>]) -> Result<()> {
        // Of the first look at ranks that have left.
        let left = OnceCell::new();
        loop {
            let Some(first) = lanes.iter().find(|lane| !lane.is_done()) else { return Ok(()) };
            let site = first.site(state);
            let bell = self.bell()?;
            let near = lanes.iter().all(|lane| state.is_near(lane));
            let waiter = if near { self.comm.waiter() } else { &self.polite };
            let poll = || match self.round(state, lanes) {
                Ok(true) => Ok(Ok(())),
                Ok(false) if self.departures.load(Ordering::Relaxed) => {
                    let since = *left.get_or_init(Instant::now);
                    self.departed(state, lanes, since).map_or(Err(0), |error| Ok(Err(error)))
                }
                Ok(false) => Err(0),
                Err(error) => Ok(Err(error)),
            };
            match waiter.wait(|| site, self.config.timeout, Some(bell.token.event()), poll) {
                Ok(moved) => moved?,
                Err(error) => {
                    let waiting = lanes.iter().find(|lane| !lane.is_done());
                    return Err(WaitError { observed: waiting.map_or(0, Lane::progress), ..error }.into());
                }
            }
        }
    }

    /// One step of each lane; true if something moved.
    fn round(&self, state: &mut State, lanes: &mut [Lane<'_, '_>]) -> Result<bool> {
        let mut moved = false;
        for lane in lanes {
            let Some(transfer) = lane.transfers.get_mut(lane.at) else { continue };
            let step = self.step(state, transfer)?;
            moved |= step != Step::Idle;
            if step == Step::Done {
                lane.at += 1;
            }
        }
        Ok(moved)
    }

    #[inline]
    fn step(&self, state: &mut State, transfer: &mut Transfer<'_>) -> Result<Step> {
        let Some(pair) = state.pair(transfer.message.peer, self)? else { return Ok(Step::Idle) };
        match &mut transfer.stage {
            Stage::Sending(sending) => sending.step(&transfer.message, pair, &self.comm),
            Stage::Receiving(receiving) => receiving.step(&transfer.message, pair, &self.comm),
        }
    }

    /// A rank that has left and that a lane waits for.
    #[cold]
    fn departed(&self, state: &State, lanes: &[Lane<'_, '_>], since: Instant) -> Option<Error> {
        let health = self.comm.health();
        let lane = lanes.iter().find(|lane| !lane.is_done() && health.has_departed(lane.peer()))?;
        let site = lane.site(state);
        let (rank, elapsed, reason) = (self.comm.rank(), since.elapsed(), GaveUp::PeerLeft);
        Some(WaitError { rank, site, observed: lane.progress(), elapsed, reason }.into())
    }

    /// What has begun cannot end: marks the communicator as failed.
    #[cold]
    fn failed(&self, operation: Operation, state: &State, messages: &[Checked<'_>], error: Error) -> Error {
        let error = self.explain(state, messages.iter().map(|message| message.peer), error);
        let health = self.comm.health();
        let culprit = match &error {
            Error::PointToPoint(_) => Some(health.rank()),
            error => error.culprit(),
        };
        health.fail_local(operation.name(), culprit, error.clone());
        error
    }

    /// The refusal of a peer, if that is behind the error.
    #[cold]
    fn explain(&self, state: &State, mut peers: impl Iterator<Item = u32>, error: Error) -> Error {
        let rank = self.comm.rank();
        let refused = |peer| state.ready(peer).and_then(|pair| refusal(rank, pair));
        let own = matches!(error, Error::PointToPoint(_));
        match peers.find_map(refused).filter(|_| !own) {
            Some(refusal) => refusal.into(),
            None => error,
        }
    }

    fn bell(&self) -> Result<&Arc<Bell>> {
        if let Some(bell) = self.bell.get() {
            return Ok(bell);
        }
        let region = SharedBuffer::allocate(Bell::BYTES)?.region().cloned().ok_or(NO_REGION)?;
        let memory = self.comm.register_memory(region, TransportFlags::HOST, Access::ALL | Access::TOKENS)?;
        let made = Arc::new(Bell::new(memory)?);
        Ok(self.bell.get_or_init(|| made))
    }

    /// How messages to `peer` go.
    fn transport(&self, peer: u32) -> Transport {
        let (members, peers) = (self.comm.members(), self.comm.control().peers());
        let host = |rank: u32| {
            members.get(rank as usize).and_then(|member| peers.get(*member as usize)).map(|peer| peer.host)
        };
        let near = host(peer) == host(self.comm.rank());
        let fastest = if near { Transport::SharedMemory } else { Transport::Ethernet };
        self.config.transport.unwrap_or(fastest)
    }
}

impl State {
    /// The pair with `peer`, if it has been set up.
    fn ready(&self, peer: u32) -> Option<&Pair> {
        match self.0.get(peer as usize) {
            Some(Entry::Ready(pair)) => Some(pair),
            _ => None,
        }
    }

    /// The pair with `peer`, once it has been set up, which begins here.
    #[inline]
    fn pair(&mut self, peer: u32, shared: &PointToPoint) -> Result<Option<&mut Pair>> {
        if self.ready(peer).is_none() {
            self.connect(peer, shared)?;
        }
        Ok(match self.0.get_mut(peer as usize) {
            Some(Entry::Ready(pair)) => Some(pair),
            _ => None,
        })
    }

    #[cold]
    fn connect(&mut self, peer: u32, shared: &PointToPoint) -> Result<()> {
        self.0.resize_with(shared.comm.n_ranks() as usize, Entry::default);
        let entry = self.0.get_mut(peer as usize).ok_or(Error::Internal {
            place: "point to point",
            what: "peers are checked before anything begins",
        })?;
        let bell = shared.bell()?;
        let connecting = match std::mem::take(entry) {
            Entry::Connecting(connecting) => connecting,
            _ => Connecting::start(&shared.comm, peer, bell, shared.transport(peer))?,
        };
        *entry = match connecting.poll(&shared.comm, bell)? {
            Ok(pair) => Entry::Ready(Box::new(pair)),
            Err(connecting) => Entry::Connecting(connecting),
        };
        Ok(())
    }

    /// True if the peer itself does what the lane waits for.
    fn is_near(&self, lane: &Lane<'_, '_>) -> bool {
        self.ready(lane.peer()).is_some_and(|pair| !pair.is_far())
    }
}

impl<'a> Transfer<'a> {
    fn new(message: Checked<'a>) -> Self {
        let stage = match message.direction {
            Direction::Send => Stage::Sending(Sending::default()),
            Direction::Receive => Stage::Receiving(Receiving::default()),
        };
        Self { message, stage }
    }

    fn key(&self) -> (u32, Direction) {
        (self.message.peer, self.message.direction)
    }
}

impl<'t, 'a> Lane<'t, 'a> {
    /// Of one message at least.
    fn new(transfers: &'t mut [Transfer<'a>]) -> Self {
        Self { transfers, at: 0 }
    }

    fn is_done(&self) -> bool {
        self.at == self.transfers.len()
    }

    fn peer(&self) -> u32 {
        self.transfers.first().map_or(u32::MAX, |transfer| transfer.message.peer)
    }

    /// Bytes of the first message that is not complete.
    fn progress(&self) -> u64 {
        self.transfers.get(self.at).map_or(0, |Transfer { message, stage }| match stage {
            Stage::Sending(sending) => sending.progress(message),
            Stage::Receiving(receiving) => receiving.progress(message),
        })
    }

    /// The wait for that message.
    fn site(&self, state: &State) -> WaitSite {
        let transfer = self.transfers.get(self.at).or(self.transfers.last());
        let (operation, begun, expected) = match transfer {
            Some(Transfer { message, stage }) => {
                let begun = match stage {
                    Stage::Sending(Sending::New) | Stage::Receiving(Receiving::New) => 0,
                    _ => 1,
                };
                (message.direction.operation(), begun, message.bytes)
            }
            None => (Operation::Group, 0, 0),
        };
        let counted = state.ready(self.peer()).map_or(0, |pair| match operation {
            Operation::Send => pair.sent,
            _ => pair.received,
        });
        WaitSite { operation, peer: Some(self.peer()), object: 0, sequence: counted + 1 - begun, expected }
    }
}

/// Sends to this rank and the receives that they go to.
fn own_messages<'a>(rank: u32, messages: &[Checked<'a>]) -> Result<Vec<(Checked<'a>, Checked<'a>)>> {
    let of = |direction| {
        let own = move |message: &&Checked<'a>| message.peer == rank && message.direction == direction;
        messages.iter().filter(own).copied()
    };
    let (sends, receives) = (of(Direction::Send).count(), of(Direction::Receive).count());
    if sends != receives {
        return Err(PointToPointError::Alone { rank, sends, receives }.into());
    }
    let pairs: Vec<_> = of(Direction::Send).zip(of(Direction::Receive)).collect();
    for (message, (from, to)) in (1..).zip(&pairs) {
        if (from.bytes, from.element) != (to.bytes, to.element) {
            let (here, there) = (from.text(), to.text());
            return Err(
                PointToPointError::Mismatch { rank, peer: rank, sends: true, message, here, there }.into()
            );
        }
    }
    Ok(pairs)
}

impl std::fmt::Debug for PointToPoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PointToPoint").field("comm", &self.comm).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
