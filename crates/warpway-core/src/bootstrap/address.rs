//! How the address of a root is written.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// `host:port`, `ip:port`, `[ipv6]:port`, each with `interface:` before it if this rank is to use that interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootAddress {
    /// Interface for this rank's own listeners; ranks may name different ones.
    pub interface: Option<String>,
    /// Name or address, without brackets and scope.
    pub host: String,
    /// Port, not 0.
    pub port: u16,
}

impl RootAddress {
    /// The host, if it is written as an address.
    pub fn ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// True if the host can only be this one: `localhost` or a loopback address.
    pub fn is_loopback(&self) -> bool {
        is_loopback(&self.host)
    }
}

/// True for `localhost` and loopback addresses.
pub(super) fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host.parse().is_ok_and(|ip: IpAddr| ip.to_canonical().is_loopback())
}

impl FromStr for RootAddress {
    type Err = String;

    /// # Errors
    /// What would have been accepted.
    fn from_str(text: &str) -> Result<Self, String> {
        parse(text).ok_or_else(|| {
            "host:port, ip:port, [ipv6]:port (brackets are needed), or one of these after interface:".into()
        })
    }
}

fn parse(text: &str) -> Option<RootAddress> {
    let (interface, host, port) = match text.split_once('[') {
        Some((before, rest)) => {
            let interface = if before.is_empty() { None } else { Some(before.strip_suffix(':')?) };
            let (host, after) = rest.split_once(']')?;
            let (host, scope) =
                host.split_once('%').map_or((host, None), |(host, scope)| (host, Some(scope)));
            host.parse::<Ipv6Addr>().ok()?;
            (interface.or(scope), host, after.strip_prefix(':')?)
        }
        None => {
            let parts: Vec<&str> = text.split(':').collect();
            match parts[..] {
                [host, port] => (None, host, port),
                [interface, host, port] => (Some(interface), host, port),
                _ => return None,
            }
        }
    };
    let name =
        |text: &str| !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || "[]%/,".contains(c));
    if !name(host) || !interface.is_none_or(name) || !port.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let port = port.parse().ok().filter(|port| *port > 0)?;
    Some(RootAddress { interface: interface.map(str::to_owned), host: host.to_owned(), port })
}

impl fmt::Display for RootAddress {
    /// The part that all ranks share, in one spelling for equal addresses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ip() {
            Some(ip) => SocketAddr::new(ip, self.port).fmt(f),
            None => write!(f, "{}:{}", self.host.to_ascii_lowercase(), self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        let parts = |text: &str| {
            let address: RootAddress = text.parse().unwrap();
            (
                address.interface.clone().unwrap_or_default(),
                address.host.clone(),
                address.port,
                address.to_string(),
            )
        };
        let expect = |i: &str, h: &str, p, shown: &str| (i.into(), h.into(), p, shown.to_owned());
        assert_eq!(parts("10.0.0.1:29500"), expect("", "10.0.0.1", 29500, "10.0.0.1:29500"));
        assert_eq!(parts("eth0:10.0.0.1:1"), expect("eth0", "10.0.0.1", 1, "10.0.0.1:1"));
        assert_eq!(
            parts("Node-1.example:65535"),
            expect("", "Node-1.example", 65535, "node-1.example:65535")
        );
        assert_eq!(parts("ib0:node1:7"), expect("ib0", "node1", 7, "node1:7"));
        assert_eq!(parts("[fd00:0:0::2]:80"), expect("", "fd00:0:0::2", 80, "[fd00::2]:80"));
        assert_eq!(parts("eth0:[::1]:80"), expect("eth0", "::1", 80, "[::1]:80"));
        assert_eq!(parts("[fe80::1%eth0]:80"), expect("eth0", "fe80::1", 80, "[fe80::1]:80"));
    }

    #[test]
    fn everything_else_is_refused() {
        for bad in [
            "",
            ":",
            "10.0.0.1",
            "10.0.0.1:",
            ":29500",
            "10.0.0.1:0",
            "10.0.0.1:65536",
            "10.0.0.1:-1",
            "10.0.0.1:+1",
            "10.0.0.1:x",
            "::1:29500",
            "fd00::2",
            "[fd00::2]",
            "[fd00::2]:",
            "[fd00::2]29500",
            "[10.0.0.1]:1",
            "eth0[::1]:1",
            ":[::1]:1",
            "a b:1",
            "a:b:c:1",
            "eth0::1",
            ":10.0.0.1:1",
            "[::1",
            "10.0.0.1:1 ",
        ] {
            assert!(bad.parse::<RootAddress>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn loopback_is_recognised() {
        for yes in
            ["localhost:1", "LOCALHOST:1", "127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"]
        {
            assert!(yes.parse::<RootAddress>().unwrap().is_loopback(), "{yes}");
        }
        for no in ["localhost.example:1", "128.0.0.1:1", "[::2]:1"] {
            assert!(!no.parse::<RootAddress>().unwrap().is_loopback(), "{no}");
        }
    }
}
