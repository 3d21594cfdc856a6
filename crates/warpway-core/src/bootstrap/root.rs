//! The root of a job: one thread that lets the ranks find each other and ends when they have.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::link::{Link, READ_SIZE, Received};
use super::lobby::{Lobby, Room};
use super::message::{Greeting, ToRoot};
use super::poller::{Poller, Ready, WAKER, Waker};
use super::root_machine::RootMachine;
use super::session::Step;
use super::socket::{self, Address, Listener};
use super::{Admission, RootLocation};
use crate::deadline::Deadline;
use crate::error::{Result, SystemError};

const LISTENER: u64 = 1;
const FIRST_CONNECTION: u64 = 2;
/// How long the last words may take to reach the ranks.
const FAREWELL: Duration = Duration::from_secs(1);
/// Pause after an error of `accept` (out of descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a root is to be.
pub(super) struct RootSetup {
    pub(super) location: RootLocation,
    pub(super) key: [u8; 32],
    pub(super) admission: Admission,
    /// Rank whose process this is and world size; `None`: the first check-in says the size.
    pub(super) host: Option<(u32, u32)>,
}

/// Handle of the root's thread; dropping it ends the thread.
pub(super) struct RootServer {
    stop: Arc<AtomicBool>,
    strays: Arc<AtomicU64>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl RootServer {
    /// Listens and starts the thread.
    ///
    /// # Errors
    /// `system` if no candidate address can be bound.
    pub(super) fn start(setup: &RootSetup) -> Result<Self> {
        Self::serve(bind(&setup.location)?, setup.key, setup.admission, setup.host)
    }

    /// The same with a listener that is there. `host`: see [`RootSetup`].
    pub(super) fn serve(
        listener: Listener,
        key: [u8; 32],
        admission: Admission,
        host: Option<(u32, u32)>,
    ) -> Result<Self> {
        let poller = Poller::new()?;
        poller
            .add(&listener.socket, LISTENER, false)
            .map_err(|errno| SystemError::new("epoll_ctl of the root's listener", errno))?;
        let (stop, strays, waker) = (Arc::default(), Arc::default(), poller.waker());
        let server = Server {
            machine: RootMachine::new(Instant::now(), host.map(|(_, n)| n)),
            poller,
            listener: Some(listener),
            listening: true,
            accept_again: None,
            connections: HashMap::new(),
            next: FIRST_CONNECTION,
            lobby: Lobby::default(),
            key,
            admission,
            greeting: Greeting::Root { hosted_by: host.map(|(rank, _)| rank) }.encode(),
            stop: Arc::clone(&stop),
            strays: Arc::clone(&strays),
        };
        let thread = std::thread::Builder::new()
            .name("warpway-root".into())
            .spawn(move || server.run())
            .map_err(|e| SystemError::from_io("spawn of the root's thread", &e))?;
        Ok(Self { stop, strays, waker, thread: Some(thread) })
    }

    /// Connections that were dropped because they did not authenticate.
    pub(super) fn stray_connections(&self) -> u64 {
        self.strays.load(Ordering::Relaxed)
    }

    /// Waits until every rank that can be told the outcome has been, or the deadline.
    pub(super) fn finish(&self, deadline: Deadline) {
        while self.thread.as_ref().is_some_and(|t| !t.is_finished()) && !deadline.expired() {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

impl Drop for RootServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.waker.wake();
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            tracing::error!(
                "the root's thread panicked; ranks that joined through it saw its connections end"
            );
        }
    }
}

/// Listens at the first candidate that is free.
pub(super) fn bind(location: &RootLocation) -> Result<Listener, SystemError> {
    let candidates: Vec<Address> = match location {
        RootLocation::Unix { name } => vec![Address::Unix(name.clone())],
        RootLocation::Tcp { addresses } => addresses.iter().copied().map(Address::Tcp).collect(),
    };
    let mut last = SystemError {
        call: "listen as the job's root: no address given".into(),
        errno: Errno::INVAL.raw_os_error(),
        hint: None,
    };
    for candidate in &candidates {
        let result = Listener::bind(candidate).or_else(|error| match candidate {
            // The address the others use may belong to a gateway of this host.
            Address::Tcp(wanted) if error.errno == Errno::ADDRNOTAVAIL.raw_os_error() => {
                let any = if wanted.is_ipv6() {
                    std::net::IpAddr::from(std::net::Ipv6Addr::UNSPECIFIED)
                } else {
                    std::net::IpAddr::from(std::net::Ipv4Addr::UNSPECIFIED)
                };
                Listener::bind(&Address::Tcp((any, wanted.port()).into()))
            }
            _ => Err(error),
        });
        match result {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(last
        .with_hint("another job or program may be using the root's address; choose another port or job id"))
}

struct Server {
    machine: RootMachine,
    poller: Poller,
    listener: Option<Listener>,
    listening: bool,
    accept_again: Option<Instant>,
    connections: HashMap<u64, Connection>,
    next: u64,
    lobby: Lobby,
    key: [u8; 32],
    admission: Admission,
    greeting: Vec<u8>,
    stop: Arc<AtomicBool>,
    strays: Arc<AtomicU64>,
}

struct Connection {
    link: Link,
    checked_in: bool,
    wants_write: bool,
}

impl Server {
    fn run(mut self) {
        let mut ready = Vec::new();
        let mut scratch = vec![0; READ_SIZE];
        let mut farewell: Option<Instant> = None;
        loop {
            let now = Instant::now();
            self.machine.tick(now);
            while let Some(token) = self.lobby.overdue(now) {
                self.drop_stray(token);
            }
            self.send_outbox();
            if farewell.is_none() && (self.machine.finished(now) || self.stop.load(Ordering::SeqCst)) {
                farewell = Some(now + FAREWELL);
                self.begin_farewell();
            }
            match farewell {
                Some(until) if now >= until || self.connections.is_empty() => return,
                Some(_) => {}
                None => self.accept(now),
            }
            let until = [farewell, self.machine.next_tick(), self.lobby.next_tick(), self.accept_again]
                .into_iter()
                .flatten()
                .min();
            if let Err(error) = self.poller.wait(&mut ready, until) {
                tracing::error!(%error, "the root cannot wait for its connections");
                return;
            }
            for Ready { token, read, write } in ready.drain(..) {
                match token {
                    WAKER | LISTENER => {}
                    token => self.serve(token, read, write, &mut scratch),
                }
            }
        }
    }

    /// No new connections; those that have nothing to be told any more are shut down, the rest after that.
    fn begin_farewell(&mut self) {
        self.listener = None;
        self.accept_again = None;
        self.connections.retain(|_, connection| connection.checked_in);
        for connection in self.connections.values() {
            if connection.link.backlog() == 0 {
                connection.link.shut_down();
            }
        }
    }

    fn accept(&mut self, now: Instant) {
        self.accept_again = None;
        let mut listen = true;
        while let Some(listener) = &self.listener {
            match self.lobby.room(now) {
                Room::Free => {}
                Room::After(token) => {
                    self.drop_stray(token);
                    continue;
                }
                Room::Later(at) => {
                    (self.accept_again, listen) = (Some(at), false);
                    break;
                }
            }
            match listener.accept() {
                Ok(Some(socket)) => self.admit(now, socket),
                Ok(None) => break,
                Err(Errno::MFILE) if socket::raise_descriptor_limit() => {}
                Err(errno) => {
                    tracing::warn!(%errno, "the root cannot accept a connection; trying again");
                    (self.accept_again, listen) = (Some(now + ACCEPT_PAUSE), false);
                    break;
                }
            }
        }
        if let Some(listener) = self.listener.as_ref().filter(|_| listen != self.listening)
            && self.poller.modify(&listener.socket, LISTENER, listen, false).is_ok()
        {
            self.listening = listen;
        }
    }

    fn admit(&mut self, now: Instant, socket: std::os::fd::OwnedFd) {
        let token = self.next;
        let refused = self.admission == Admission::SameUser && !socket::is_same_user(&socket);
        let link = Link::accept(socket, &self.key, self.greeting.clone()).ok().filter(|_| !refused);
        match link {
            Some(link) if self.poller.add(link.socket(), token, false).is_ok() => {
                self.next += 1;
                self.lobby.enter(now, token);
                self.connections.insert(token, Connection { link, checked_in: false, wants_write: false });
            }
            _ => {
                self.strays.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn serve(&mut self, token: u64, read: bool, write: bool, scratch: &mut [u8]) {
        let mut alive = true;
        if read {
            alive = self.read(token, scratch);
        }
        if let Some(connection) = self.connections.get_mut(&token) {
            if write || connection.link.backlog() > 0 {
                alive &= flush(&self.poller, token, connection).is_ok();
                if self.listener.is_none() && connection.link.backlog() == 0 {
                    connection.link.shut_down();
                }
            }
            if !alive {
                self.drop_connection(token);
            }
        }
    }

    /// False once the connection has ended.
    fn read(&mut self, token: u64, scratch: &mut [u8]) -> bool {
        let mut plain = Vec::new();
        while let Some(connection) = self.connections.get_mut(&token) {
            match connection.link.receive(scratch) {
                Ok(Received::Bytes(_)) => {}
                Ok(Received::Nothing) => return true,
                Ok(Received::End) | Err(_) => return false,
            }
            while let Some(connection) = self.connections.get_mut(&token) {
                match connection.link.next(&mut plain) {
                    Ok(Step::Starved) => break,
                    Ok(Step::Message) => match ToRoot::decode(&plain) {
                        Ok(message) => self.dispatch(token, message),
                        Err(_) => return false,
                    },
                    Ok(Step::Answered) => {}
                    Ok(Step::Greeted) | Err(_) => return false,
                }
            }
        }
        false
    }

    fn dispatch(&mut self, token: u64, message: ToRoot) {
        let now = Instant::now();
        if self.lobby.leave(token)
            && let Some(connection) = self.connections.get_mut(&token)
        {
            connection.checked_in = true;
        }
        match message {
            ToRoot::CheckIn(check_in) => self.machine.check_in(now, token, check_in),
            ToRoot::Ready => self.machine.ready(token),
            ToRoot::Abandon(report) => self.machine.abandon(now, token, report),
        }
        self.send_outbox();
    }

    fn send_outbox(&mut self) {
        while let Some((token, message)) = self.machine.poll_outbox() {
            if let Some(connection) = self.connections.get_mut(&token) {
                let sent = connection.link.push(&message.encode()).is_ok()
                    && flush(&self.poller, token, connection).is_ok();
                if !sent {
                    self.drop_connection(token);
                }
            }
        }
    }

    fn drop_connection(&mut self, token: u64) {
        if self.lobby.leave(token) {
            self.strays.fetch_add(1, Ordering::Relaxed);
        }
        if self.connections.remove(&token).is_some() {
            self.machine.disconnected(Instant::now(), token);
        }
    }

    fn drop_stray(&mut self, token: u64) {
        self.drop_connection(token);
    }
}

/// Writes, and asks to be told when more can be written.
fn flush(poller: &Poller, token: u64, connection: &mut Connection) -> Result<(), Errno> {
    connection.link.flush()?;
    let wants_write = connection.link.backlog() > 0;
    if wants_write != connection.wants_write {
        poller.modify(connection.link.socket(), token, true, wants_write)?;
        connection.wants_write = wants_write;
    }
    Ok(())
}
