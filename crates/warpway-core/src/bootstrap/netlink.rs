//! Lists network interfaces and their addresses through a route netlink socket (rtnetlink(7)).
//!
//! Chosen over `getifaddrs`, which would take a further crate or unsafe code for the same two questions.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use rustix::net::{
    AddressFamily as Family, RecvFlags, SendFlags, SocketFlags, SocketType, netlink::SocketAddrNetlink,
    sockopt,
};

use super::interfaces::{Interface, InterfaceAddress};
use crate::error::{Result, SystemError};

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_GETADDR: u16 = 22;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const IFLA_IFNAME: u16 = 3;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFF_UP: u32 = 1;
const IFF_LOOPBACK: u32 = 8;
/// Duplicate address detection has failed or is under way.
const IFA_F_UNUSABLE: u8 = 0x08 | 0x40;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// All interfaces of this network namespace in the kernel's order, also those that are down.
pub(super) fn interfaces() -> Result<Vec<Interface>> {
    let system = |call: &'static str| move |errno| SystemError::new(call, errno);
    let socket = rustix::net::socket_with(Family::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)
        .map_err(system("socket(AF_NETLINK)"))?;
    // The kernel answers within the call; the limit is for what should not happen.
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(Duration::from_secs(5)))
        .map_err(system("setsockopt(SO_RCVTIMEO) on netlink"))?;

    let mut listing = Listing::default();
    for (sequence, kind, body) in [(1, RTM_GETLINK, 16), (2, RTM_GETADDR, 8)] {
        let request = dump_request(kind, sequence, body);
        rustix::net::sendto(&socket, &request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))
            .map_err(system("sendto(netlink)"))?;
        let mut buffer = vec![0; 64 << 10];
        loop {
            let (length, _) = rustix::net::recv(&socket, &mut buffer[..], RecvFlags::empty())
                .map_err(system("recv(netlink)"))?;
            if listing.read(&buffer[..length], sequence)? == Progress::Done {
                break;
            }
        }
    }
    Ok(listing.interfaces)
}

/// A request for all objects of a kind: message header and `body` zero bytes.
fn dump_request(kind: u16, sequence: u32, body: usize) -> Vec<u8> {
    let mut request = Vec::with_capacity(16 + body);
    request.extend((16 + body as u32).to_ne_bytes());
    request.extend(kind.to_ne_bytes());
    request.extend((NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    request.extend(sequence.to_ne_bytes());
    request.resize(16 + body, 0);
    request
}

#[derive(Debug, PartialEq, Eq)]
enum Progress {
    More,
    Done,
}

/// What has been read so far. Links are asked for first, so addresses find theirs.
#[derive(Default)]
struct Listing {
    interfaces: Vec<Interface>,
}

impl Listing {
    /// One datagram, which holds any number of messages.
    fn read(&mut self, mut bytes: &[u8], sequence: u32) -> Result<Progress, SystemError> {
        while let Some((header, rest)) = bytes.split_first_chunk::<16>() {
            let length = u32_at(header, 0) as usize;
            let Some(body) = length.checked_sub(16).and_then(|n| rest.get(..n)) else {
                return Err(malformed());
            };
            bytes = rest.get(aligned(length) - 16..).unwrap_or_default();
            if u32_at(header, 8) != sequence {
                continue;
            }
            match u16_at(header, 4) {
                NLMSG_DONE => return Ok(Progress::Done),
                NLMSG_ERROR => {
                    let code = body.first_chunk::<4>().map_or(0, |c| i32::from_ne_bytes(*c));
                    return Err(SystemError::new(
                        "netlink request",
                        rustix::io::Errno::from_raw_os_error(code.wrapping_neg()),
                    ));
                }
                RTM_NEWLINK => self.link(body),
                RTM_NEWADDR => self.address(body),
                _ => {}
            }
        }
        Ok(Progress::More)
    }

    /// `struct ifinfomsg` and attributes.
    fn link(&mut self, body: &[u8]) {
        let Some((info, attributes)) = body.split_first_chunk::<16>() else { return };
        let (index, flags) = (u32_at(info, 4), u32_at(info, 8));
        let name = Attributes(attributes).find(|(kind, _)| *kind == IFLA_IFNAME).map(|(_, value)| value);
        let Some(name) = name else { return };
        let name = name.split(|b| *b == 0).next().unwrap_or_default();
        self.interfaces.push(Interface {
            index,
            name: String::from_utf8_lossy(name).into_owned(),
            up: flags & IFF_UP != 0,
            loopback: flags & IFF_LOOPBACK != 0,
            addresses: Vec::new(),
        });
    }

    /// `struct ifaddrmsg` and attributes.
    fn address(&mut self, body: &[u8]) {
        let Some((info, attributes)) = body.split_first_chunk::<8>() else { return };
        let (family, prefix_length, flags, index) = (info[0], info[1], info[2], u32_at(info, 4));
        if flags & IFA_F_UNUSABLE != 0 {
            return;
        }
        let find = |wanted| {
            Attributes(attributes)
                .find(|(kind, _)| *kind == wanted)
                .and_then(|(_, value)| ip_from(family, value))
        };
        // On point-to-point links IFA_ADDRESS is the other end.
        let Some(ip) = find(IFA_LOCAL).or_else(|| find(IFA_ADDRESS)) else { return };
        if let Some(interface) = self.interfaces.iter_mut().find(|i| i.index == index) {
            interface.addresses.push(InterfaceAddress { ip, prefix_length });
        }
    }
}

/// Iterates over `struct rtattr`; ends at the first that does not fit.
struct Attributes<'a>(&'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (header, rest) = self.0.split_first_chunk::<4>()?;
        let length = usize::from(u16_at(header, 0));
        let value = rest.get(..length.checked_sub(4)?)?;
        self.0 = rest.get(aligned(length) - 4..).unwrap_or_default();
        Some((u16_at(header, 2), value))
    }
}

fn ip_from(family: u8, value: &[u8]) -> Option<IpAddr> {
    match family {
        AF_INET => <[u8; 4]>::try_from(value).ok().map(|o| Ipv4Addr::from(o).into()),
        AF_INET6 => <[u8; 16]>::try_from(value).ok().map(|o| Ipv6Addr::from(o).into()),
        _ => None,
    }
}

/// Messages and attributes begin at multiples of four.
fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}

fn u16_at<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn malformed() -> SystemError {
    SystemError::new("reading a netlink message", rustix::io::Errno::BADMSG)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_loopback_is_there() {
        let all = interfaces().unwrap();
        let lo = all.iter().find(|i| i.name == "lo").unwrap();
        assert!(lo.loopback);
        // An independent source for names and indices.
        for interface in &all {
            let path = format!("/sys/class/net/{}/ifindex", interface.name);
            if let Ok(text) = std::fs::read_to_string(path) {
                assert_eq!(text.trim(), interface.index.to_string());
            }
        }
        if lo.up {
            let localhost = InterfaceAddress { ip: Ipv4Addr::LOCALHOST.into(), prefix_length: 8 };
            assert!(lo.addresses.contains(&localhost), "{lo:?}");
        }
        let inet6 = std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
        let listed: usize = all.iter().flat_map(|i| &i.addresses).filter(|a| a.ip.is_ipv6()).count();
        assert_eq!(listed, inet6.lines().count());
    }

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = dump_request(kind, 7, 0);
        bytes[..4].copy_from_slice(&(16 + body.len() as u32).to_ne_bytes());
        bytes.extend(body);
        bytes.resize(aligned(bytes.len()), 0);
        bytes
    }

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = (4 + value.len() as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(aligned(bytes.len()), 0);
        bytes
    }

    fn sample() -> Vec<u8> {
        let mut link = vec![0, 0, 0, 0];
        link.extend(5u32.to_ne_bytes());
        link.extend(IFF_UP.to_ne_bytes());
        link.extend([0; 4]);
        link.extend(attribute(9, b"x"));
        link.extend(attribute(IFLA_IFNAME, b"ppp0\0"));
        let mut address = vec![AF_INET, 30, 0, 0];
        address.extend(5u32.to_ne_bytes());
        address.extend(attribute(IFA_ADDRESS, &[10, 0, 0, 2]));
        address.extend(attribute(IFA_LOCAL, &[10, 0, 0, 1]));
        let mut tentative = address.clone();
        tentative[2] = 0x40;
        [message(RTM_NEWLINK, &link), message(RTM_NEWADDR, &address), message(RTM_NEWADDR, &tentative)]
            .concat()
    }

    #[test]
    fn point_to_point_links_show_their_own_end() {
        let mut listing = Listing::default();
        assert_eq!(listing.read(&sample(), 7).unwrap(), Progress::More);
        assert_eq!(listing.read(&message(NLMSG_DONE, &[0; 4]), 7).unwrap(), Progress::Done);
        let expected = Interface {
            index: 5,
            name: "ppp0".into(),
            up: true,
            loopback: false,
            addresses: vec![InterfaceAddress { ip: Ipv4Addr::new(10, 0, 0, 1).into(), prefix_length: 30 }],
        };
        assert_eq!(listing.interfaces, [expected]);
    }

    #[test]
    fn errors_and_other_sequences() {
        let mut listing = Listing::default();
        let refused = message(NLMSG_ERROR, &(-13i32).to_ne_bytes());
        assert_eq!(listing.read(&refused, 7).unwrap_err().errno, 13);
        assert_eq!(listing.read(&refused, 8).unwrap(), Progress::More);
    }

    proptest! {
        #[test]
        fn nothing_panics(edits in prop::collection::vec((0usize..400, any::<u8>()), 0..8), cut in 0usize..400) {
            let mut bytes = sample();
            for (at, value) in edits {
                let at = at % bytes.len();
                bytes[at] = value;
            }
            bytes.truncate(cut);
            let _ = Listing::default().read(&bytes, 7);
        }
    }
}
