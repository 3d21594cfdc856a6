//! Sockets: creation and options.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use warpway_core::SystemError;

const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

/// A listening socket on a free port of `ip`, with its address.
pub(crate) fn listen(ip: IpAddr) -> Result<(OwnedFd, SocketAddr), SystemError> {
    let failed = |call: &str, errno| SystemError::new(format!("{call} for {ip}"), errno);
    let socket = stream_for(ip).map_err(|e| failed("socket", e))?;
    if ip.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true).map_err(|e| failed("IPV6_V6ONLY", e))?;
    }
    rustix::net::bind(&socket, &SocketAddr::new(ip, 0)).map_err(|e| failed("bind", e))?;
    rustix::net::listen(&socket, 256).map_err(|e| failed("listen", e))?;
    let address = rustix::net::getsockname(&socket)
        .and_then(SocketAddr::try_from)
        .map_err(|e| failed("getsockname", e))?;
    Ok((socket, address))
}

/// The next connection of a listening socket.
pub(crate) fn accept(listener: impl AsFd) -> Result<OwnedFd, Errno> {
    rustix::net::accept_with(listener, FLAGS)
}

/// A non-blocking stream socket of the family of `ip`.
pub(crate) fn stream_for(ip: IpAddr) -> Result<OwnedFd, Errno> {
    let family = if ip.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    rustix::net::socket_with(family, SocketType::STREAM, FLAGS, None)
}

/// No delay for small frames, and an end for connections whose host is gone: silence is probed, and data
/// that is not acknowledged for `limit` breaks the connection.
pub(crate) fn tune(socket: impl AsFd, limit: Duration) -> Result<(), Errno> {
    let socket = socket.as_fd();
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    let second = Duration::from_secs(1);
    sockopt::set_tcp_keepidle(socket, (limit / 3).max(second))?;
    sockopt::set_tcp_keepintvl(socket, (limit / 6).max(second))?;
    sockopt::set_tcp_keepcnt(socket, 4)?;
    sockopt::set_tcp_user_timeout(socket, u32::try_from(limit.as_millis()).unwrap_or(u32::MAX))
}
