//! The status socket: an abstract Unix socket that answers every connection of the same user with a
//! dump and closes it.
//!
//! A client has to send nothing; what it sends is thrown away, up to a limit. At most
//! [`MAX_CLIENTS`] are served at once, each until a deadline; others wait in the kernel's queue.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::SendFlags;

use super::{DumpError, DumpIdentity, FlightDump};
use crate::deadline::Deadline;
use crate::error::SystemError;

/// Every status socket's abstract name begins with this; process id, job, scope and rank follow.
pub const STATUS_PREFIX: &str = "warpway-status.";

/// Clients served at once.
pub(super) const MAX_CLIENTS: usize = 4;

/// How long a client has to take its document.
pub(super) const CLIENT_TIME: Duration = Duration::from_secs(2);

/// Bytes a client may send before it is dropped.
const MAX_INPUT: usize = 64 << 10;

/// Longer documents are not read from a status socket; dumps of the usual length are 300 KB.
const MAX_DOCUMENT: u64 = 1 << 30;

/// How long nobody is accepted after `accept` failed, so that a lack of descriptors is no busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// The abstract name of a communicator's status socket.
pub fn status_name(process: u32, identity: &DumpIdentity) -> String {
    let DumpIdentity { job, scope, rank, .. } = identity;
    let [a, b, c, d, ..] = job.0;
    format!("{STATUS_PREFIX}{process}.{a:02x}{b:02x}{c:02x}{d:02x}.{:x}.{rank}", scope.0)
}

/// The status sockets of this network namespace, also other users'; they answer only their own.
///
/// # Errors
/// If `/proc/net/unix` cannot be read.
pub fn status_sockets() -> Result<Vec<String>, SystemError> {
    let table =
        std::fs::read("/proc/net/unix").map_err(|e| SystemError::from_io("read of /proc/net/unix", &e))?;
    Ok(listening_names(&String::from_utf8_lossy(&table)))
}

/// Names of listening status sockets in the kernel's table.
fn listening_names(table: &str) -> Vec<String> {
    // Num RefCount Protocol Flags Type St Inode Path; flag 0x10000 says that it listens.
    let name = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let listens = fields.nth(3)? == "00010000";
        let name = fields.nth(3)?.strip_prefix('@')?;
        (listens && name.starts_with(STATUS_PREFIX)).then(|| name.to_owned())
    };
    let mut names: Vec<String> = table.lines().filter_map(name).collect();
    names.sort();
    names
}

/// Asks a status socket for its dump.
///
/// # Errors
/// `trace.status` if nobody listens, the socket is another user's or the deadline passes;
/// `trace.malformed` and `trace.version` for the answer.
pub fn fetch_status(name: &str, deadline: Deadline) -> Result<FlightDump, DumpError> {
    let failed = |call: &str, errno: Errno| DumpError::Status {
        name: name.to_owned(),
        source: SystemError::new(call, errno),
    };
    let socket = connect(name, deadline).map_err(|e| failed("connect", e))?;
    let mut stream = UnixStream::from(socket).take(MAX_DOCUMENT);
    let mut document = Vec::new();
    let mut chunk = [0; 16 << 10];
    loop {
        let limit = deadline.remaining().map(|left| left.max(Duration::from_millis(1)));
        let read = stream.get_ref().set_read_timeout(limit).and_then(|()| stream.read(&mut chunk));
        match read {
            Ok(0) if document.is_empty() => {
                return Err(failed("read (another user's socket?)", Errno::CONNRESET));
            }
            Ok(0) => return FlightDump::parse(&document),
            Ok(n) => document.extend_from_slice(&chunk[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(failed("read", errno(&e))),
        }
        if deadline.expired() {
            return Err(failed("read", Errno::TIMEDOUT));
        }
    }
}

fn connect(name: &str, deadline: Deadline) -> Result<OwnedFd, Errno> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Also bounds a connect that finds the queue full.
    let limit = deadline.remaining().map(|left| left.max(Duration::from_millis(1)));
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, limit)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    Ok(socket)
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// The serving side: owned and polled by the dump service's thread.
#[derive(Debug)]
pub(super) struct StatusServer {
    listener: UnixListener,
    clients: Vec<Client>,
    paused_until: Option<Instant>,
}

impl StatusServer {
    pub(super) fn bind(name: &str) -> io::Result<Self> {
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, clients: Vec::new(), paused_until: None })
    }

    /// What to poll: the listener unless it is full or paused, then the clients in order.
    pub(super) fn interests(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        let accepts = self.clients.len() < MAX_CLIENTS && self.paused_until.is_none();
        let listener = if accepts { PollFlags::IN } else { PollFlags::empty() };
        std::iter::once((self.listener.as_fd(), listener))
            .chain(self.clients.iter().map(|client| (client.stream.as_fd(), client.interest())))
    }

    /// When `advance` has something to do even if nothing is ready.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.clients.iter().map(|client| client.deadline).chain(self.paused_until).min()
    }

    /// Serves whoever is ready and lets go of whoever is done or late.
    pub(super) fn advance(&mut self, document: impl Fn() -> Vec<u8>) {
        let now = Instant::now();
        self.clients.retain_mut(|client| now < client.deadline && client.advance());
        if self.paused_until.is_some_and(|until| now >= until) {
            self.paused_until = None;
        }
        while self.clients.len() < MAX_CLIENTS && self.paused_until.is_none() {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    self.clients.extend(Client::admit(stream, now + CLIENT_TIME, &document));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    tracing::warn!("status socket: accept failed: {e}; trying again in a second");
                    self.paused_until = Some(now + ACCEPT_PAUSE);
                }
            }
        }
    }
}

#[derive(Debug)]
struct Client {
    stream: UnixStream,
    document: Vec<u8>,
    sent: usize,
    /// Bytes the client may still send; `None` once it has closed its side.
    input_left: Option<usize>,
    deadline: Instant,
}

impl Client {
    /// A client of the same user, unless it could be served at once.
    fn admit(stream: UnixStream, deadline: Instant, document: impl Fn() -> Vec<u8>) -> Option<Self> {
        let peer = rustix::net::sockopt::socket_peercred(&stream).ok()?;
        if peer.uid != rustix::process::geteuid() {
            tracing::warn!("status socket: refused process {:?} of user {:?}", peer.pid, peer.uid);
            return None;
        }
        stream.set_nonblocking(true).ok()?;
        let mut client =
            Self { stream, document: document(), sent: 0, input_left: Some(MAX_INPUT), deadline };
        client.advance().then_some(client)
    }

    fn interest(&self) -> PollFlags {
        // The end of its input must not be polled for again, it would be ready for ever.
        if self.input_left.is_some() { PollFlags::IN | PollFlags::OUT } else { PollFlags::OUT }
    }

    /// Takes input and gives output as far as both go without waiting; false once done.
    fn advance(&mut self) -> bool {
        let mut scratch = [0; 4 << 10];
        while let Some(left) = self.input_left {
            match self.stream.read(&mut scratch) {
                Ok(0) => self.input_left = None,
                Ok(n) if n > left => return false,
                Ok(n) => self.input_left = Some(left - n),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        while self.sent < self.document.len() {
            // Not `write`: a client that has gone must not raise SIGPIPE in the user's program.
            match rustix::net::send(&self.stream, &self.document[self.sent..], SendFlags::NOSIGNAL) {
                Ok(n) => self.sent += n,
                Err(Errno::AGAIN) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap::ScopeId;
    use crate::wire::JobNonce;

    #[test]
    fn names_are_found_in_the_kernels_table() {
        let identity = DumpIdentity {
            job: JobNonce([0xab; 16]),
            scope: ScopeId(0x1f),
            rank: 3,
            n_ranks: 4,
            job_rank: 9,
        };
        let name = status_name(17, &identity);
        assert_eq!(name, "warpway-status.17.abababab.1f.3");
        let table = format!(
            "Num       RefCount Protocol Flags    Type St Inode Path\n\
             000: 00000002 00000000 00010000 0001 01 4095 @{name}\n\
             000: 00000003 00000000 00000000 0001 03 4096 @{name}\n\
             000: 00000002 00000000 00010000 0001 01 4097 /run/{name}\n\
             000: 00000002 00000000 00010000 0001 01 4098\n\
             000: 00000002 00000000 00010000 0001 01 4099 @other\n"
        );
        assert_eq!(listening_names(&table), [name]);
        assert_eq!(listening_names(""), [""; 0]);
    }
}
