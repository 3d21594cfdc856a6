//! Stream sockets of the bootstrap: TCP and abstract Unix, never blocking.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::SystemError;

/// Connections the kernel completes for a listener before it accepts them. All ranks of a job may dial
/// the root at once; the kernel lowers this to its own limit.
const BACKLOG: i32 = 4096;

/// Where to dial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Address {
    /// Abstract name, without the leading zero byte.
    Unix(Vec<u8>),
    Tcp(SocketAddr),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(name) => write!(f, "unix:@{}", name.escape_ascii()),
            Self::Tcp(address) => write!(f, "{address}"),
        }
    }
}

/// A socket that accepts connections at an address.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) socket: OwnedFd,
    /// The address, with the port the kernel chose.
    pub(super) address: Address,
}

impl Listener {
    /// Binds and listens. Port 0 lets the kernel choose. An IPv6 wildcard also takes IPv4.
    pub(super) fn bind(address: &Address) -> Result<Self, SystemError> {
        let failed = |errno| SystemError::new(format!("listen at {address}"), errno);
        let socket = open(address).map_err(failed)?;
        let address = match address {
            Address::Unix(name) => {
                let name = SocketAddrUnix::new_abstract_name(name).map_err(failed)?;
                net::bind(&socket, &name).map_err(failed)?;
                address.clone()
            }
            Address::Tcp(wanted) => {
                // The port of a job that ended a moment ago may be used again at once.
                sockopt::set_socket_reuseaddr(&socket, true).map_err(failed)?;
                if wanted.is_ipv6() {
                    sockopt::set_ipv6_v6only(&socket, !wanted.ip().is_unspecified()).map_err(failed)?;
                }
                net::bind(&socket, wanted).map_err(failed)?;
                let bound = net::getsockname(&socket).map_err(failed)?;
                Address::Tcp(SocketAddr::try_from(bound).map_err(failed)?)
            }
        };
        net::listen(&socket, BACKLOG).map_err(failed)?;
        Ok(Self { socket, address })
    }

    /// The next connection, `None` if there is none now.
    pub(super) fn accept(&self) -> Result<Option<OwnedFd>, Errno> {
        loop {
            match net::accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => {
                    tune(&socket, &self.address);
                    return Ok(Some(socket));
                }
                Err(Errno::AGAIN) => return Ok(None),
                // A connection that ended before it was accepted.
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

/// Begins to connect; the socket becomes writable when the connection stands or has failed.
///
/// # Errors
/// `AGAIN`: the backlog of a Unix listener is full, try again.
pub(super) fn connect(address: &Address) -> Result<OwnedFd, Errno> {
    let socket = open(address)?;
    let result = match address {
        Address::Unix(name) => net::connect(&socket, &SocketAddrUnix::new_abstract_name(name)?),
        Address::Tcp(peer) => net::connect(&socket, peer),
    };
    match result {
        Ok(()) | Err(Errno::INPROGRESS) => {
            tune(&socket, address);
            Ok(socket)
        }
        Err(errno) => Err(errno),
    }
}

/// How a connection attempt ended.
pub(super) fn connect_result(socket: &OwnedFd) -> Result<(), Errno> {
    sockopt::socket_error(socket)?
}

/// The local IP address of a TCP connection.
pub(super) fn local_ip(socket: &OwnedFd) -> Option<std::net::IpAddr> {
    net::getsockname(socket)
        .ok()
        .and_then(|any| SocketAddr::try_from(any).ok())
        .map(|a| a.ip().to_canonical())
}

/// True if the process at the other end of a Unix socket belongs to this process's user.
pub(super) fn is_same_user(socket: &OwnedFd) -> bool {
    sockopt::socket_peercred(socket).is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}

/// Raises this process's limit of open descriptors as far as it may without privilege; a job of thousands of
/// ranks needs as many at its root. True if there are more now than before.
pub(super) fn raise_descriptor_limit() -> bool {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    limit.current != limit.maximum && setrlimit(Resource::Nofile, raised).is_ok()
}

fn open(address: &Address) -> Result<OwnedFd, Errno> {
    let family = match address {
        Address::Unix(_) => AddressFamily::UNIX,
        Address::Tcp(SocketAddr::V4(_)) => AddressFamily::INET,
        Address::Tcp(SocketAddr::V6(_)) => AddressFamily::INET6,
    };
    net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
}

/// Small messages leave at once; a host that is gone is noticed within about 15 s. Refusals of the kernel
/// only cost speed or patience.
fn tune(socket: &OwnedFd, address: &Address) {
    if matches!(address, Address::Tcp(_)) {
        let _ = sockopt::set_tcp_nodelay(socket, true);
        let _ = sockopt::set_socket_keepalive(socket, true);
        let _ = sockopt::set_tcp_keepidle(socket, Duration::from_secs(5));
        let _ = sockopt::set_tcp_keepintvl(socket, Duration::from_secs(2));
        let _ = sockopt::set_tcp_keepcnt(socket, 5);
        let _ = sockopt::set_tcp_user_timeout(socket, 15_000);
    }
}
