//! The one background thread of a process and job: accepts, authenticates, reads, delivers. Its siblings
//! `outbound` (writing, notices, closing), `reach` (dialling) and `joining` hold the rest of [`Service`].

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::super::link::{Link, READ_SIZE, Received};
use super::super::lobby::{Lobby, Room};
use super::super::message::{Blame, Frame, FromRoot, Greeting, Notice, PROTOCOL_VERSION, Role};
use super::super::poller::{Poller, Ready};
use super::super::session::{SessionError, Step};
use super::super::socket::{self, Listener};
use super::super::{Admission, BootstrapError, PeerInfo, ScopeId};
use super::dial::{Dial, Target, Trouble};
use super::joining::{Joining, SETUP_SCOPE};
use super::outbound::{Closing, Sending};
use super::shared::{Command, Shared};
use crate::error::{Result, SystemError};

/// Bytes of one message at most.
pub(super) const MAX_MESSAGE: u64 = 1 << 30;
/// Capacity given to an incoming message before its bytes have come.
const TRUSTED_CAPACITY: u64 = 1 << 20;
/// Reads from one connection before the others get their turn.
const READS_PER_TURN: usize = 16;
const FIRST_CONNECTION: u64 = 16;
/// Pause after an error of `accept` (out of descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What the thread starts with.
pub(super) struct ServiceSetup {
    pub(super) shared: Arc<Shared>,
    pub(super) poller: Poller,
    pub(super) key: [u8; 32],
    pub(super) admission: Admission,
    pub(super) own: PeerInfo,
    /// Port of the TCP listener, if there is one.
    pub(super) port: Option<u16>,
    pub(super) listeners: Vec<Listener>,
    pub(super) joining: Joining,
}

pub(super) struct Service {
    pub(super) shared: Arc<Shared>,
    pub(super) poller: Poller,
    pub(super) key: [u8; 32],
    pub(super) admission: Admission,
    pub(super) own: PeerInfo,
    pub(super) port: Option<u16>,
    pub(super) listeners: Vec<Listener>,
    listening: bool,
    accept_again: Option<Instant>,
    pub(super) lobby: Lobby,
    pub(super) connections: HashMap<u64, Connection>,
    next_connection: u64,
    pub(super) peers: BTreeMap<u32, Peer>,
    /// Targets with a dial under way.
    pub(super) dialling: BTreeSet<Target>,
    pub(super) joining: Option<Joining>,
    /// Failures of scopes that have been passed on.
    pub(super) heard: HashSet<(u32, u64)>,
    /// Scopes that this rank has left, for peers who link later.
    pub(super) left: Vec<(ScopeId, Vec<u32>)>,
    pub(super) closing: Option<Closing>,
}

/// What is known of a rank besides its info.
#[derive(Default)]
pub(super) struct Peer {
    pub(super) dial: Option<Dial>,
    /// Carries what this rank sends.
    pub(super) dialled: Option<u64>,
    /// Carries what the peer sends.
    pub(super) accepted: Option<u64>,
    pub(super) queue: VecDeque<Sending>,
}

pub(super) struct Connection {
    pub(super) link: Link,
    pub(super) kind: Kind,
    partial: Option<Partial>,
    pub(super) wants_write: bool,
    /// The other side has announced the end.
    pub(super) farewell: bool,
    /// This side has announced the end.
    pub(super) last_word: bool,
    /// This side has shut down its direction.
    pub(super) shut: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Accepted, not authenticated.
    Pending,
    /// Connecting, then shaking hands.
    Dialling {
        target: Target,
        connected: bool,
    },
    Root,
    Dialled(u32),
    Accepted(u32),
    Descriptors(u32),
}

impl Kind {
    /// True if the other side would take an unannounced end for a death.
    pub(super) fn hears_farewell(self) -> bool {
        matches!(self, Self::Pending | Self::Dialled(_) | Self::Accepted(_))
    }
}

/// A message of which parts have come.
struct Partial {
    scope: ScopeId,
    tag: i32,
    length: u64,
    data: Vec<u8>,
}

impl Service {
    pub(super) fn new(setup: ServiceSetup) -> Result<Self> {
        let ServiceSetup { shared, poller, key, admission, own, port, listeners, joining } = setup;
        for (listener, token) in listeners.iter().zip(1..) {
            poller
                .add(&listener.socket, token, false)
                .map_err(|errno| SystemError::new("epoll_ctl of a listener", errno))?;
        }
        Ok(Self {
            shared,
            poller,
            key,
            admission,
            own,
            port,
            listeners,
            listening: true,
            accept_again: None,
            lobby: Lobby::default(),
            connections: HashMap::new(),
            next_connection: FIRST_CONNECTION,
            peers: BTreeMap::new(),
            dialling: BTreeSet::from([Target::Root]),
            joining: Some(joining),
            heard: HashSet::new(),
            left: Vec::new(),
            closing: None,
        })
    }

    /// Runs until closed.
    pub(super) fn run(mut self) -> Result<()> {
        let mut ready = Vec::new();
        let mut scratch = vec![0; READ_SIZE];
        loop {
            let now = Instant::now();
            self.obey(now);
            self.evict_overdue(now);
            self.reach(now);
            self.join(now);
            self.shared.run_sinks();
            if self.closed(now) {
                self.dismiss_pending();
                return Ok(());
            }
            self.accept(now);
            self.poller.wait(&mut ready, self.next_tick())?;
            for Ready { token, read, write } in ready.drain(..) {
                if token >= FIRST_CONNECTION {
                    self.serve(token, read, write, &mut scratch);
                }
            }
        }
    }

    fn next_tick(&self) -> Option<Instant> {
        [self.accept_again, self.lobby.next_tick(), self.reach_due(), self.join_due(), self.closing_due()]
            .into_iter()
            .flatten()
            .min()
    }

    fn obey(&mut self, now: Instant) {
        let commands = std::mem::take(&mut self.shared.lock().commands);
        for command in commands {
            match command {
                Command::Post(peer, outgoing) => self.post(now, peer, outgoing),
                Command::Link(peer) => self.link_with(now, peer),
                Command::Leave(scope, members) => self.leave(scope, members),
                Command::Tell(failure) => {
                    self.heard.insert((failure.origin, failure.sequence));
                    self.flood(&Notice::Failed(failure), None);
                }
                Command::Close => self.begin_close(now),
            }
        }
    }

    fn evict_overdue(&mut self, now: Instant) {
        while let Some(token) = self.lobby.overdue(now) {
            self.ended(token, None);
        }
    }

    fn accept(&mut self, now: Instant) {
        self.accept_again = None;
        let mut next = 0;
        while next < self.listeners.len() {
            match self.lobby.room(now) {
                Room::Free => {}
                Room::After(token) => {
                    self.ended(token, None);
                    continue;
                }
                Room::Later(at) => {
                    self.accept_again = Some(at);
                    break;
                }
            }
            match self.listeners[next].accept() {
                Ok(Some(socket)) => self.admit(now, socket),
                Ok(None) => next += 1,
                Err(Errno::MFILE) if socket::raise_descriptor_limit() => {}
                Err(errno) => {
                    tracing::warn!(%errno, "cannot accept a connection; trying again");
                    self.accept_again = Some(now + ACCEPT_PAUSE);
                    break;
                }
            }
        }
        let listen = self.accept_again.is_none();
        if listen != self.listening {
            self.listening = listen;
            for (listener, token) in self.listeners.iter().zip(1..) {
                // Fails only for a listener that is not registered, and all are.
                let _ = self.poller.modify(&listener.socket, token, listen, false);
            }
        }
    }

    fn admit(&mut self, now: Instant, socket: OwnedFd) {
        let refused = self.admission == Admission::SameUser && !socket::is_same_user(&socket);
        let greeting = Greeting::Mesh { rank: self.shared.rank }.encode();
        match Link::accept(socket, &self.key, greeting).ok().filter(|_| !refused) {
            Some(link) => {
                if let Ok(token) = self.watch(link, Kind::Pending, false) {
                    self.lobby.enter(now, token);
                }
            }
            None => self.count_stray(),
        }
    }

    /// Adds a connection to those that are watched.
    pub(super) fn watch(&mut self, link: Link, kind: Kind, write: bool) -> Result<u64, Errno> {
        let token = self.next_connection;
        self.poller.add(link.socket(), token, write)?;
        self.next_connection += 1;
        let connection = Connection {
            link,
            kind,
            partial: None,
            wants_write: write,
            farewell: false,
            last_word: false,
            shut: false,
        };
        self.connections.insert(token, connection);
        Ok(token)
    }

    fn count_stray(&self) {
        self.shared.strays.fetch_add(1, Ordering::Relaxed);
    }

    fn serve(&mut self, token: u64, read: bool, write: bool, scratch: &mut [u8]) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        if let Kind::Dialling { target, connected: false } = connection.kind {
            match socket::connect_result(connection.link.socket()) {
                Ok(()) => connection.kind = Kind::Dialling { target, connected: true },
                Err(errno) => return self.ended(token, Some(errno)),
            }
        }
        if write {
            match connection.kind {
                Kind::Dialled(peer) => self.pump(peer),
                _ => self.flush(token),
            }
        }
        if read {
            self.read(token, scratch);
        }
    }

    fn read(&mut self, token: u64, scratch: &mut [u8]) {
        let mut plain = Vec::new();
        for _ in 0..READS_PER_TURN {
            let Some(connection) = self.connections.get_mut(&token) else { return };
            let length = match connection.link.receive(scratch) {
                Ok(Received::Bytes(length)) => length,
                Ok(Received::Nothing) => return,
                Ok(Received::End) => return self.ended(token, None),
                Err(errno) => return self.ended(token, Some(errno)),
            };
            while let Some(connection) = self.connections.get_mut(&token) {
                match connection.link.next(&mut plain) {
                    Ok(Step::Starved) => break,
                    Ok(Step::Answered) => self.flush(token),
                    Ok(Step::Greeted) => self.greeted(token, &plain),
                    Ok(Step::Message) => self.message(token, &plain),
                    Err(error) => return self.session_failed(token, error),
                }
            }
            if length < scratch.len() {
                return;
            }
        }
    }

    fn message(&mut self, token: u64, plain: &[u8]) {
        let Some(kind) = self.connections.get(&token).map(|c| c.kind) else { return };
        if kind == Kind::Root {
            return match FromRoot::decode(plain) {
                Ok(message) => self.root_said(message),
                Err(_) => self.ended(token, None),
            };
        }
        match (kind, Frame::decode(plain)) {
            (Kind::Pending, Ok(Frame::Hello { version, role, rank })) => {
                self.hello(token, version, role, rank);
            }
            (Kind::Accepted(peer), Ok(Frame::Begin { scope, tag, length, part })) => {
                self.begin(token, peer, Partial { scope, tag, length, data: Vec::new() }, part);
            }
            (Kind::Accepted(peer), Ok(Frame::Continue { part })) => self.proceed(token, peer, part),
            (Kind::Accepted(peer) | Kind::Dialled(peer), Ok(Frame::Notice(notice))) => {
                self.notice(token, peer, notice);
            }
            (Kind::Descriptors(_), Ok(Frame::DescriptorRequest { descriptor })) => {
                self.hand_out(token, descriptor);
            }
            (Kind::Pending, _) => self.ended(token, None),
            (_, Ok(_)) => self.violation(token, "a frame of a kind that does not belong on this link"),
            (_, Err(malformed)) => self.violation(token, malformed.0),
        }
    }

    /// The first frame of a connection that has just proved to know the secret.
    fn hello(&mut self, token: u64, version: u32, role: Role, rank: u32) {
        let fits = version == PROTOCOL_VERSION && rank < self.shared.n_ranks && rank != self.shared.rank;
        let taken = role == Role::Messages && self.peers.get(&rank).is_some_and(|p| p.accepted.is_some());
        if !fits || taken {
            tracing::warn!(rank, version, taken, "a connection of this job does not fit and is dropped");
            return self.ended(token, None);
        }
        self.lobby.leave(token);
        let Some(connection) = self.connections.get_mut(&token) else { return };
        match role {
            Role::Descriptors => connection.kind = Kind::Descriptors(rank),
            Role::Messages => {
                connection.kind = Kind::Accepted(rank);
                let peer = self.peers.entry(rank).or_default();
                peer.accepted = Some(token);
                let speaks = peer.dialled.is_none() && peer.dial.is_none();
                self.shared.lock().linked.insert(rank);
                if speaks {
                    self.tell_left(token, rank);
                }
                if self.closing.is_some() {
                    self.farewell_to_late(rank);
                }
            }
        }
    }

    fn begin(&mut self, token: u64, peer: u32, mut partial: Partial, part: &[u8]) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        if connection.partial.is_some() {
            return self.violation(token, "a message begins inside another");
        }
        if partial.length > MAX_MESSAGE || part.len() as u64 > partial.length {
            return self.violation(token, "a message longer than allowed or announced");
        }
        partial.data.reserve(partial.length.min(TRUSTED_CAPACITY) as usize);
        connection.partial = Some(partial);
        self.proceed(token, peer, part);
    }

    fn proceed(&mut self, token: u64, peer: u32, part: &[u8]) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let Some(mut partial) = connection.partial.take() else {
            return self.violation(token, "the continuation of no message");
        };
        if (partial.data.len() + part.len()) as u64 > partial.length {
            return self.violation(token, "a message longer than announced");
        }
        partial.data.extend_from_slice(part);
        if (partial.data.len() as u64) < partial.length {
            connection.partial = Some(partial);
            return;
        }
        let Partial { scope, tag, data, .. } = partial;
        if scope == SETUP_SCOPE {
            self.gathered(peer, tag, &data);
        } else {
            self.shared.deliver(scope, peer, tag, data);
        }
    }

    fn notice(&mut self, token: u64, peer: u32, notice: Notice) {
        match notice {
            Notice::Died { culprit } => self.died(culprit, Some(token)),
            Notice::Failed(failure) => {
                if self.heard.insert((failure.origin, failure.sequence)) {
                    self.flood(&Notice::Failed(failure.clone()), Some(token));
                    self.shared.scope_failed(failure);
                }
            }
            Notice::Left { scope } => self.shared.left(scope, peer),
            Notice::Goodbye => {
                self.shared.departed(peer);
                self.expect_end(token);
            }
            Notice::LinkEnds => self.expect_end(token),
        }
    }

    fn expect_end(&mut self, token: u64) {
        if let Some(connection) = self.connections.get_mut(&token) {
            connection.farewell = true;
        }
    }

    fn hand_out(&mut self, token: u64, descriptor: u64) {
        let offer = self.shared.lock().offers.get(&descriptor).map(Arc::clone);
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let refuse = |why: &str| Frame::DescriptorReply { refusal: Some(why.into()) }.encode();
        let pushed = match offer {
            Some(offer) => {
                let reply = Frame::DescriptorReply { refusal: None }.encode();
                match connection.link.push_with(&reply, offer) {
                    Ok(false) => connection.link.push(&refuse("one request at a time on this connection")),
                    other => other.map(|_| ()),
                }
            }
            None => connection.link.push(&refuse("it is not offered, or not any more")),
        };
        match pushed {
            Ok(()) => self.flush(token),
            Err(error) => self.session_failed(token, error),
        }
    }

    /// Somebody who knows the secret does not keep to the protocol.
    pub(super) fn violation(&mut self, token: u64, what: &'static str) {
        let rank = self.shared.rank;
        match self.connections.get(&token).map(|c| c.kind) {
            Some(Kind::Accepted(peer) | Kind::Dialled(peer)) => {
                let from = format!("rank {peer}");
                self.give_up_joining(
                    Some(peer),
                    Blame::Failed { code: crate::ErrorCode::RemoteError, message: format!("{from}: {what}") },
                );
                self.shared.peer_broken(peer, &BootstrapError::Protocol { rank, from, what }.into());
                self.expect_end(token);
                self.ended(token, None);
            }
            _ => self.ended(token, None),
        }
    }

    fn session_failed(&mut self, token: u64, error: SessionError) {
        match self.connections.get(&token).map(|c| c.kind) {
            Some(Kind::Dialling { target, .. }) => {
                self.forget(token);
                self.attempt_failed(target, Trouble::Stranger(error.text()));
            }
            Some(_) => self.violation(token, error.text()),
            None => {}
        }
    }

    /// Removes a connection, which closes its socket.
    pub(super) fn forget(&mut self, token: u64) -> Option<Connection> {
        let connection = self.connections.remove(&token)?;
        if self.lobby.leave(token) {
            self.count_stray();
        }
        if let Kind::Dialled(rank) | Kind::Accepted(rank) = connection.kind
            && let Some(peer) = self.peers.get_mut(&rank)
        {
            peer.dialled.take_if(|t| *t == token);
            peer.accepted.take_if(|t| *t == token);
        }
        Some(connection)
    }

    /// A connection has ended, by the other side or by an error of the system.
    pub(super) fn ended(&mut self, token: u64, errno: Option<Errno>) {
        let Some(Connection { kind, farewell, .. }) = self.forget(token) else { return };
        match kind {
            Kind::Pending | Kind::Descriptors(_) => {}
            Kind::Dialling { target, .. } => {
                let trouble = match errno {
                    Some(Errno::CONNREFUSED) => Trouble::Refused,
                    None | Some(Errno::CONNRESET | Errno::PIPE) => {
                        Trouble::Stranger("it closed the connection during the handshake")
                    }
                    Some(errno) => Trouble::Other(errno.to_string()),
                };
                self.attempt_failed(target, trouble);
            }
            Kind::Root => self.root_lost(),
            Kind::Dialled(peer) | Kind::Accepted(peer) => {
                if !farewell {
                    if self.closing.is_none() && !self.suspect(peer, Instant::now()) {
                        self.died(peer, None);
                    }
                } else if self.peers.get(&peer).is_some_and(|p| p.dialled.is_none() && p.accepted.is_none()) {
                    self.links_ended(peer);
                }
            }
        }
    }

    /// No link to a peer is left, and the end of the last one was announced. Without goodbye that one comes
    /// over a link that is still being made; if it never does, dialling finds that nobody listens any more.
    fn links_ended(&mut self, peer: u32) {
        if self.closing.is_none() && !self.shared.lock().is_gone(peer) {
            self.dial_rank(Instant::now(), peer);
        }
    }

    /// A rank is dead; whoever hears it first tells the others.
    pub(super) fn died(&mut self, culprit: u32, heard_on: Option<u64>) {
        if !self.shared.died(culprit) {
            return;
        }
        tracing::debug!(rank = self.shared.rank, culprit, "a rank died");
        self.flood(&Notice::Died { culprit }, heard_on);
        self.abandon(culprit);
        self.give_up_joining(Some(culprit), Blame::Died);
    }
}
