//! Dialling an endpoint: its addresses in turn, each with a limit of its own, then authentication.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, sockopt};
use warpway_core::connection::ConnectionError;
use warpway_core::endpoint::Endpoint;
use warpway_core::trace::Operation;
use warpway_core::transport::Transport;
use warpway_core::{Deadline, Health, Result};

use crate::engine::TcpConfig;
use crate::handshake::{ANSWER_BYTES, Identity, Initiator};
use crate::socket;

/// Time for one address before the next is tried.
const ATTEMPT: Duration = Duration::from_secs(3);

/// Rounds over all addresses that may fail for certain (refused, unreachable) before dialling gives up; a
/// handshake that is cut off (the listener was full of strays) does not count.
const ROUNDS: u32 = 4;

/// How often a wait looks at the communicator's health.
const SLICE: Duration = Duration::from_millis(20);

/// A link to be made.
pub(crate) struct Call<'a> {
    pub(crate) key: &'a [u8; 32],
    pub(crate) identity: Identity,
    /// Same host: loopback addresses are his.
    pub(crate) same_host: bool,
    pub(crate) remote: &'a Endpoint,
    /// Rank of its owner in the communicator.
    pub(crate) peer: u32,
    pub(crate) health: &'a Health,
    pub(crate) config: &'a TcpConfig,
    pub(crate) deadline: Deadline,
}

/// Why one attempt failed.
#[derive(Debug, thiserror::Error)]
enum AttemptError {
    #[error("{0} failed: {1}")]
    System(&'static str, Errno),
    #[error("no answer in time")]
    Timeout,
    #[error("the handshake was cut off")]
    CutOff,
    #[error("{0}")]
    Authentication(#[from] crate::handshake::HandshakeError),
    #[error("the communicator has failed")]
    Failed,
}

impl Call<'_> {
    /// The authenticated socket.
    pub(crate) fn dial(&self) -> Result<OwnedFd> {
        let started = Instant::now();
        let mut pause = Duration::from_millis(10);
        let mut certain = 0;
        loop {
            let (mut reasons, mut all_certain) = (Vec::new(), true);
            for address in self.candidates() {
                match self.attempt(address) {
                    Ok(socket) => return Ok(socket),
                    Err(error) => {
                        self.health.check_during(Operation::Connect)?;
                        all_certain &= !matches!(error, AttemptError::CutOff);
                        reasons.push(format!("{address}: {error}"));
                    }
                }
            }
            certain += u32::from(all_certain);
            if certain >= ROUNDS || self.deadline.expired() {
                let why = match reasons.is_empty() {
                    true => "its endpoint has no address that can be reached from this host".to_owned(),
                    false => reasons.join("; "),
                };
                let (peer, transport) = (self.peer, Transport::Ethernet);
                let elapsed = started.elapsed();
                return Err(ConnectionError::Unreachable { peer, transport, elapsed, why }.into());
            }
            let left = self.deadline.remaining().unwrap_or(pause);
            std::thread::sleep(pause.min(left));
            pause = (pause * 2).min(Duration::from_millis(200));
        }
    }

    /// Loopback first for a peer on this host, never for one on another.
    fn candidates(&self) -> Vec<SocketAddr> {
        let (loopback, others): (Vec<_>, Vec<_>) =
            self.remote.addresses.iter().copied().partition(|address| address.ip().is_loopback());
        if self.same_host { [loopback, others].concat() } else { others }
    }

    fn attempt(&self, address: SocketAddr) -> Result<OwnedFd, AttemptError> {
        let system = |call| move |errno| AttemptError::System(call, errno);
        let deadline = self.deadline.min(Deadline::after(ATTEMPT));
        let socket = socket::stream_for(address.ip()).map_err(system("socket"))?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) => {}
            Err(Errno::INPROGRESS) => {
                self.ready(&socket, PollFlags::OUT, deadline)?;
                let result = sockopt::socket_error(&socket).map_err(system("SO_ERROR"))?;
                result.map_err(system("connect"))?;
            }
            Err(errno) => return Err(AttemptError::System("connect", errno)),
        }
        socket::tune(&socket, self.config.host_timeout).map_err(system("setsockopt"))?;
        let (initiator, greeting) = Initiator::new(self.key, &self.identity)?;
        self.send(&socket, &greeting)?;
        let mut answer = [0; ANSWER_BYTES];
        let mut filled = 0;
        while let Some(free @ [_, ..]) = answer.get_mut(filled..) {
            self.ready(&socket, PollFlags::IN, deadline)?;
            match rustix::io::read(&socket, free) {
                Ok(0) | Err(Errno::CONNRESET) => return Err(AttemptError::CutOff),
                Ok(read) => filled += read,
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(AttemptError::System("read", errno)),
            }
        }
        self.send(&socket, &initiator.finish(&answer)?)?;
        Ok(socket)
    }

    /// Sends a handshake message, which a socket takes whole unless it is broken.
    fn send(&self, socket: &OwnedFd, message: &[u8]) -> Result<(), AttemptError> {
        match rustix::net::send(socket, message, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(sent) if sent == message.len() => Ok(()),
            Ok(_) | Err(Errno::PIPE | Errno::CONNRESET) => Err(AttemptError::CutOff),
            Err(errno) => Err(AttemptError::System("send", errno)),
        }
    }

    /// Waits for the socket, with an eye on health and deadline.
    fn ready(&self, socket: &OwnedFd, what: PollFlags, deadline: Deadline) -> Result<(), AttemptError> {
        let slice = Timespec { tv_sec: 0, tv_nsec: i64::from(SLICE.subsec_nanos()) };
        loop {
            let mut sockets = [PollFd::from_borrowed_fd(socket.as_fd(), what)];
            match poll(&mut sockets, Some(&slice)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(errno) => return Err(AttemptError::System("poll", errno)),
            }
            if self.health.is_failed() {
                return Err(AttemptError::Failed);
            }
            if deadline.expired() {
                return Err(AttemptError::Timeout);
            }
        }
    }
}
