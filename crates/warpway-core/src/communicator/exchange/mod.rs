//! Exchange of handles between two ranks: memories, endpoints, semaphores.

mod lane;
mod pending;

use std::collections::HashMap;
use std::panic::Location;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};

use self::lane::{Action, Arrival, Break, Call, Lane};
pub use self::pending::Exchange;
use self::pending::{About, Cell, Outstanding};
use super::ExchangeError;
use super::state::State;
use super::workers::Strand;
use crate::connection::{Connection, check_compatible};
use crate::endpoint::{Endpoint, EndpointConfig};
use crate::error::{Error, Result};
use crate::health::{Cause, Failure, lock};
use crate::memory::{Access, RegisteredMemory};
use crate::semaphore::{Semaphore, TokenSlot};
use crate::trace::Operation;
use crate::wire::{AnyHandle, ControlMessage, Handle, Kind, Label, SemaphoreRecord, WireError};

/// What an endpoint is made from, or one that exists already.
#[derive(Debug, Clone)]
pub enum EndpointSource {
    /// To be made.
    Config(EndpointConfig),
    /// Made by [`Communicator::create_endpoint`](super::Communicator::create_endpoint).
    Endpoint(Endpoint),
}

impl From<EndpointConfig> for EndpointSource {
    fn from(config: EndpointConfig) -> Self {
        Self::Config(config)
    }
}

impl From<Endpoint> for EndpointSource {
    fn from(endpoint: Endpoint) -> Self {
        Self::Endpoint(endpoint)
    }
}

/// The exchanges of one communicator.
#[derive(Default)]
pub(super) struct Exchanges {
    lanes: Mutex<HashMap<(u32, i32), Arc<Track>>>,
    outstanding: Mutex<Register>,
}

/// One (peer, tag).
struct Track {
    lane: Mutex<Lane<Arc<Waiting>, AnyHandle>>,
    /// What is done with handles that have met their calls, in that order.
    strand: Arc<Strand>,
}

#[derive(Default)]
struct Register {
    cells: Vec<Weak<dyn Outstanding>>,
    /// Length after the last sweep; the next is due at twice as many.
    swept: usize,
}

/// A call that has begun, with what it needs to end.
enum Waiting {
    /// The memory stays registered until the peer has imported it.
    Send {
        cell: Arc<Cell<()>>,
        _memory: RegisteredMemory,
    },
    Receive(Arc<Cell<RegisteredMemory>>),
    Connect {
        cell: Arc<Cell<Connection>>,
        local: Endpoint,
    },
    Build {
        cell: Arc<Cell<Semaphore>>,
        connection: Connection,
        inbound: TokenSlot,
    },
}

impl Exchanges {
    /// True if something is outstanding with `peer`.
    pub(super) fn concern(&self, peer: u32) -> bool {
        self.outstanding().iter().any(|cell| cell.about().peer == peer)
    }

    /// Exchanges that await something of a peer; what has been sent only does not count.
    pub(super) fn awaiting(&self) -> Option<String> {
        let outstanding = self.outstanding();
        let cell = outstanding.iter().find(|cell| cell.about().operation != Operation::SendMemory)?;
        let about = cell.about();
        Some(format!("{} with rank {}, tag {}", about.text(), about.peer, about.tag))
    }

    /// The communicator has failed.
    pub(super) fn fail(&self, failure: &Failure) {
        for cell in self.outstanding() {
            cell.fail(failure.clone().during(cell.about().operation).into());
        }
    }

    /// The user has dropped the communicator.
    pub(super) fn fail_dropped(&self, rank: u32) {
        for cell in self.outstanding() {
            let About { name: operation, peer, .. } = *cell.about();
            cell.fail(ExchangeError::Dropped { rank, peer, operation }.into());
        }
    }

    /// `departed` has left and cannot do its part.
    pub(super) fn fail_departed(&self, rank: u32, departed: u32) {
        for cell in self.outstanding() {
            let About { operation, peer, .. } = *cell.about();
            if peer == departed {
                let (phase, cause) = (operation.to_string(), Cause::PeerLeft);
                cell.fail(Failure { rank, culprit: Some(peer), phase, cause }.into());
            }
        }
    }

    fn outstanding(&self) -> Vec<Arc<dyn Outstanding>> {
        let register = lock(&self.outstanding);
        register.cells.iter().filter_map(Weak::upgrade).filter(|cell| !cell.is_done()).collect()
    }

    fn enter(&self, cell: Weak<dyn Outstanding>) {
        let mut register = lock(&self.outstanding);
        if register.cells.len() >= 2 * register.swept.max(32) {
            register.cells.retain(|weak| weak.upgrade().is_some_and(|cell| !cell.is_done()));
            register.swept = register.cells.len();
        }
        register.cells.push(cell);
    }
}

/// The calls of the user.
impl State {
    pub(super) fn send_memory(
        &self,
        memory: &RegisteredMemory,
        peer: u32,
        tag: i32,
        site: &'static Location<'static>,
    ) -> Result<Exchange<()>> {
        let about = self.begin(Operation::SendMemory, "send_memory", peer, tag, site)?;
        self.require_own("send_memory", memory)?;
        let record = memory.record().clone();
        let handle = move |sequence, label| AnyHandle::Memory(Handle { sequence, label, body: record });
        let _memory = memory.clone();
        self.exchange(about, Some(handle), None, |cell| Waiting::Send { cell, _memory })
    }

    pub(super) fn recv_memory(
        &self,
        peer: u32,
        tag: i32,
        site: &'static Location<'static>,
    ) -> Result<Exchange<RegisteredMemory>> {
        let about = self.begin(Operation::RecvMemory, "recv_memory", peer, tag, site)?;
        let nothing = None::<fn(u64, Option<Label>) -> AnyHandle>;
        self.exchange(about, nothing, Some(Kind::Memory), Waiting::Receive)
    }

    pub(super) fn create_endpoint(&self, config: &EndpointConfig) -> Result<Endpoint> {
        let made = self.engine(config.transport)?.endpoint(&self.context, config)?;
        let me = self.me();
        Ok(Endpoint { owner: me.rank, host: me.host, process: me.process, ..made })
    }

    pub(super) fn connect(
        &self,
        source: EndpointSource,
        peer: u32,
        tag: i32,
        site: &'static Location<'static>,
    ) -> Result<Exchange<Connection>> {
        let about = self.begin(Operation::Connect, "connect", peer, tag, site)?;
        let local = match source {
            EndpointSource::Config(config) => self.create_endpoint(&config)?,
            EndpointSource::Endpoint(endpoint) => endpoint,
        };
        let body = local.clone();
        let handle = move |sequence, label| AnyHandle::Endpoint(Handle { sequence, label, body });
        self.exchange(about, Some(handle), Some(Kind::Endpoint), |cell| Waiting::Connect { cell, local })
    }

    pub(super) fn build_semaphore(
        &self,
        connection: &Connection,
        peer: u32,
        tag: i32,
        site: &'static Location<'static>,
    ) -> Result<Exchange<Semaphore>> {
        const NAME: &str = "build_semaphore";
        let about = self.begin(Operation::BuildSemaphore, NAME, peer, tag, site)?;
        if connection.peer() != peer {
            let why = format!("the connection leads to rank {}, not to rank {peer}", connection.peer());
            return Err(ExchangeError::Argument { operation: NAME, why }.into());
        }
        let register = |page| self.register_widely(page, Access::ALL | Access::TOKENS);
        let token = self.tokens.lease(connection.local().device.kind, register)?;
        let body = SemaphoreRecord {
            memory: token.slot.memory.record().clone(),
            offset: token.slot.offset,
            token: token.number,
            connection: connection.local().id,
            device: connection.local().device.kind,
        };
        let handle = move |sequence, label| AnyHandle::Semaphore(Handle { sequence, label, body });
        let (connection, inbound) = (connection.clone(), token.slot);
        self.tokens.share(token.number, peer);
        let exchange = self.exchange(about, Some(handle), Some(Kind::Semaphore), |cell| Waiting::Build {
            cell,
            connection,
            inbound,
        });
        if exchange.is_err() {
            // The peer has not heard of the token.
            self.tokens.release(token.number, peer);
        }
        exchange
    }

    fn begin(
        &self,
        operation: Operation,
        name: &'static str,
        peer: u32,
        tag: i32,
        site: &'static Location<'static>,
    ) -> Result<About> {
        self.check(operation, peer)?;
        Self::check_tag(name, tag)?;
        Ok(About { operation, name, site, peer, tag })
    }

    /// Sends a handle, if there is one, and awaits one, if a kind is given: one step of the lane.
    fn exchange<T: Clone + Send + Sync + 'static>(
        &self,
        about: About,
        handle: Option<impl FnOnce(u64, Option<Label>) -> AnyHandle>,
        awaits: Option<Kind>,
        waiting: impl FnOnce(Arc<Cell<T>>) -> Waiting,
    ) -> Result<Exchange<T>> {
        let About { peer, tag, .. } = about;
        let cell = Cell::new(about, self.context.waiter.clone());
        let call = Call { awaits, text: about.text(), payload: Arc::new(waiting(Arc::clone(&cell))) };
        let started = self.drive(peer, tag, |lane| {
            if let Some(broken) = lane.broken() {
                return Err(self.broken(peer, tag, broken.clone()));
            }
            cell.set_sequence(if awaits.is_some() { lane.next_awaited() } else { lane.next_out() });
            let mut arrival = None;
            if let Some(handle) = handle {
                let label = Label { tag, call: about.text() };
                let handle = handle(lane.next_out(), Some(label));
                // Posted under the lane's lock, so that numbers leave in order; queued only, never blocks.
                let envelope = handle.encode(self.nonce())?;
                if peer == self.rank {
                    arrival = arrival_of(handle);
                } else {
                    self.post(peer, &envelope)?;
                }
                lane.sent(call.clone());
            }
            let mut actions = if awaits.is_some() { lane.expect(call) } else { Vec::new() };
            actions.extend(arrival.into_iter().flat_map(|(_, arrival)| lane.arrive(arrival)));
            Ok(actions)
        });
        if let Err(error) = started {
            cell.complete(Err(error.clone()));
            return Err(error);
        }
        let weak: Weak<dyn Outstanding> = Arc::downgrade(&(Arc::clone(&cell) as Arc<dyn Outstanding>));
        self.exchanges.enter(weak);
        // What ended things before the entry has not seen it.
        if let Err(error) = self.health().check_during(cell.about().operation) {
            cell.complete(Err(error));
        } else if self.health().has_left(peer) && !cell.is_done() {
            self.fail_departed_later(peer);
        }
        Ok(Exchange { cell })
    }
}

/// What comes from the peer.
impl State {
    pub(super) fn handle_arrived(&self, peer: u32, handle: AnyHandle) {
        let Some((tag, arrival)) = arrival_of(handle) else {
            let error = WireError::Record { record: "exchange label", problem: "missing" };
            self.health().fail_local("exchange", Some(peer), error.into());
            return;
        };
        self.drive_message(peer, tag, |lane| lane.arrive(arrival));
    }

    pub(super) fn matched(&self, peer: u32, tag: i32, below: u64) {
        self.drive_message(peer, tag, |lane| lane.matched(below));
    }

    pub(super) fn mismatched(&self, peer: u32, tag: i32, sequence: u64, call: String) {
        self.drive_message(peer, tag, |lane| lane.mismatched(sequence, call));
    }

    fn drive_message(
        &self,
        peer: u32,
        tag: i32,
        step: impl FnOnce(&mut Lane<Arc<Waiting>, AnyHandle>) -> Actions,
    ) {
        if let Err(error) = self.drive(peer, tag, |lane| Ok(step(lane))) {
            self.health().fail_local("exchange", Some(peer), error);
        }
    }

    /// One step of a lane, and what follows from it.
    fn drive(
        &self,
        peer: u32,
        tag: i32,
        step: impl FnOnce(&mut Lane<Arc<Waiting>, AnyHandle>) -> Result<Actions>,
    ) -> Result<()> {
        let track = self.track(peer, tag);
        let mut ended = Vec::new();
        let mut lane = lock(&track.lane);
        let mut actions = std::collections::VecDeque::from(step(&mut lane)?);
        while let Some(action) = actions.pop_front() {
            match action {
                // Handed over under the lock, so that the strand keeps the lane's order.
                Action::Meet { payload, message, below } => {
                    self.meet_later(&track, (peer, tag), payload, message, below);
                }
                Action::TellMismatched { sequence, call } if peer == self.rank => {
                    actions.extend(lane.mismatched(sequence, call));
                }
                Action::TellMismatched { sequence, call } => {
                    self.tell(peer, ControlMessage::Mismatched { tag, sequence, call });
                }
                Action::Delivered { payload } => ended.push((payload, None)),
                Action::Fail { payload, why } => ended.push((payload, Some(self.broken(peer, tag, why)))),
            }
        }
        drop(lane);
        // Completion runs wakers, which may call back; the lane is unlocked now.
        for (payload, error) in ended {
            match (&*payload, error) {
                (waiting, Some(error)) => waiting.fail(error),
                (Waiting::Send { cell, .. }, None) => cell.complete(Ok(())),
                (_, None) => {}
            }
        }
        Ok(())
    }

    fn track(&self, peer: u32, tag: i32) -> Arc<Track> {
        let mut lanes = lock(&self.exchanges.lanes);
        let track = lanes.entry((peer, tag)).or_insert_with(|| {
            Arc::new(Track { lane: Mutex::new(Lane::new()), strand: Strand::new(&self.workers) })
        });
        Arc::clone(track)
    }

    fn broken(&self, peer: u32, tag: i32, why: Break) -> Error {
        let rank = self.rank;
        Error::Exchange(match why {
            Break::Mismatch { sequence, here, there } => {
                ExchangeError::Mismatch { rank, peer, tag, sequence, here, there }
            }
            Break::Sequence { expected, found } => {
                ExchangeError::Sequence { rank, peer, tag, expected, found }
            }
        })
    }

    fn meet_later(
        &self,
        track: &Track,
        (peer, tag): (u32, i32),
        waiting: Arc<Waiting>,
        handle: AnyHandle,
        below: u64,
    ) {
        let state = self.this.clone();
        track.strand.push(Box::new(move || {
            // Gone: the communicator has been dropped, and with it every outstanding exchange has failed.
            let Some(state) = state.upgrade().filter(|state| !state.is_closed()) else { return };
            match (&*waiting, handle) {
                (Waiting::Receive(cell), AnyHandle::Memory(handle)) => {
                    cell.complete(state.import(&handle.body, state.members[peer as usize]));
                }
                (Waiting::Connect { cell, local }, AnyHandle::Endpoint(handle)) => {
                    cell.complete(state.join(local, &handle.body, peer, tag));
                }
                (Waiting::Build { cell, connection, inbound }, AnyHandle::Semaphore(handle)) => {
                    cell.complete(state.pair(connection, inbound, &handle.body, peer));
                }
                (waiting, _) => {
                    let what = "a call has met a handle of another kind";
                    waiting.fail(Error::Internal { place: "exchange", what });
                }
            }
            state.tell(peer, ControlMessage::Matched { tag, below });
        }));
    }

    /// Joins the two endpoints of a connection.
    fn join(&self, local: &Endpoint, remote: &Endpoint, peer: u32, tag: i32) -> Result<Connection> {
        let sender = self.members[peer as usize];
        self.check_identity(sender, [remote.owner.into(), remote.host, remote.process])?;
        check_compatible(local, remote, peer)?;
        let engine = self.engine(local.transport)?;
        let raw = engine.connect(&self.context, local, remote, self.setup_deadline())?;
        let waiter = self.context.waiter.clone();
        let connection = Connection::new(raw, local.clone(), remote.clone(), peer, waiter)
            .keeping(Arc::clone(&self.scope_guard));
        self.remember(connection.downgrade(), tag);
        Ok(connection)
    }

    /// Joins the two tokens of a semaphore.
    fn pair(
        &self,
        connection: &Connection,
        inbound: &TokenSlot,
        record: &SemaphoreRecord,
        peer: u32,
    ) -> Result<Semaphore> {
        // From here on the peer's token goes back to it whatever happens.
        let lease = Arc::new(PeerToken { state: self.this.clone(), peer, token: record.token });
        let memory = self.import(&record.memory, self.members[peer as usize])?;
        let remote = TokenSlot { memory, offset: record.offset, lease: Some(lease) };
        let id = self.next_semaphore.fetch_add(1, Ordering::Relaxed);
        Semaphore::new(connection.clone(), inbound.clone(), remote, id)
    }
}

type Actions = Vec<Action<Arc<Waiting>, AnyHandle>>;

impl Waiting {
    fn fail(&self, error: Error) {
        match self {
            Self::Send { cell, .. } => cell.complete(Err(error)),
            Self::Receive(cell) => cell.complete(Err(error)),
            Self::Connect { cell, .. } => cell.complete(Err(error)),
            Self::Build { cell, .. } => cell.complete(Err(error)),
        }
    }
}

/// Tells the owner of a token that it will not be raised any more.
struct PeerToken {
    state: Weak<State>,
    peer: u32,
    token: u64,
}

impl Drop for PeerToken {
    fn drop(&mut self) {
        // Without the communicator the peer learns it from our departure.
        if let Some(state) = self.state.upgrade() {
            state.tell(self.peer, ControlMessage::TokenReleased { token: self.token });
        }
    }
}

/// The tag, and what the lane wants to know of a handle.
fn arrival_of(handle: AnyHandle) -> Option<(i32, Arrival<AnyHandle>)> {
    let (kind, sequence, label) = match &handle {
        AnyHandle::Memory(h) => (Kind::Memory, h.sequence, h.label.clone()),
        AnyHandle::Endpoint(h) => (Kind::Endpoint, h.sequence, h.label.clone()),
        AnyHandle::Semaphore(h) => (Kind::Semaphore, h.sequence, h.label.clone()),
        AnyHandle::Control(_) => return None,
    };
    let Label { tag, call: text } = label?;
    Some((tag, Arrival { kind, sequence, text, message: handle }))
}
