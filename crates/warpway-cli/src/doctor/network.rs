//! Interfaces, and whether TCP works at all.

use std::{
    io::{self, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream},
    time::Duration,
};

use warpway_core::bootstrap::Interface;

use super::report::{Report, Status};

/// What TCP can reach.
pub(super) struct Network {
    pub(super) loopback: bool,
    /// There is an address that other hosts could reach.
    pub(super) other_hosts: bool,
}

pub(super) fn check(report: &mut Report) -> Network {
    let mut area = report.area("network");
    let mut other_hosts = false;
    match Interface::list() {
        Ok(interfaces) => {
            for interface in &interfaces {
                let addresses: Vec<String> = interface
                    .addresses
                    .iter()
                    .map(|address| format!("{}/{}", address.ip, address.prefix_length))
                    .collect();
                let usable = interface.up && !addresses.is_empty();
                other_hosts |= usable && !interface.loopback;
                let state = if interface.up { "" } else { " (down)" };
                let addresses =
                    if addresses.is_empty() { "no address".to_owned() } else { addresses.join(", ") };
                area.ok(&interface.name, format!("{addresses}{state}"));
            }
            if !other_hosts {
                area.ok("other hosts", "not reachable: only the loopback has an address");
            }
        }
        Err(error) => area.add(
            "interfaces",
            Status::Warn,
            format!("cannot be listed: {error}"),
            "ranks on several hosts need them: allow netlink sockets in the sandbox",
        ),
    }
    let mut loopback = false;
    for (name, address) in
        [("TCP on 127.0.0.1", IpAddr::from(Ipv4Addr::LOCALHOST)), ("TCP on ::1", Ipv6Addr::LOCALHOST.into())]
    {
        match echo(address) {
            Ok(()) => {
                loopback = true;
                area.ok(name, "works");
            }
            Err(error) => area.add(
                name,
                Status::Warn,
                format!("does not work: {error}"),
                "bring the loopback up: ip link set lo up",
            ),
        }
    }
    Network { loopback, other_hosts }
}

/// A byte there and back. Connecting to a listener's backlog needs no second thread, and what has connected
/// can be accepted at once; a firewall that drops packets is not awaited for ever.
fn echo(address: IpAddr) -> io::Result<()> {
    const PATIENCE: Duration = Duration::from_secs(2);
    let listener = TcpListener::bind((address, 0))?;
    let mut here = TcpStream::connect_timeout(&listener.local_addr()?, PATIENCE)?;
    let (mut there, _) = listener.accept()?;
    here.set_read_timeout(Some(PATIENCE))?;
    there.set_read_timeout(Some(PATIENCE))?;
    here.write_all(b"x")?;
    let mut byte = [0];
    there.read_exact(&mut byte)?;
    there.write_all(&byte)?;
    here.read_exact(&mut byte)
}
