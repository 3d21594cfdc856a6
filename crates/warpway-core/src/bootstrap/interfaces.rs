//! Network interfaces: which of them a rank's listeners use.

use std::convert::Infallible;
use std::net::IpAddr;
use std::str::FromStr;

use super::netlink;
use crate::config::ConfigError;
use crate::error::Result;

/// Limits the interfaces and addresses of listeners (`WARPWAY_SOCKET_FAMILY`, `WARPWAY_SOCKET_IFNAME`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InterfaceChoice {
    /// Only addresses of this family.
    pub family: Option<AddressFamily>,
    /// Only interfaces with these names.
    pub names: NameFilter,
    /// An address whose subnet is preferred if names are not limited: that of the root, as far as it is known.
    pub toward: Option<IpAddr>,
}

/// IPv4 or IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddressFamily {
    /// `AF_INET`
    V4,
    /// `AF_INET6`
    V6,
}

/// Names of interfaces in the list syntax of `WARPWAY_SOCKET_IFNAME`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum NameFilter {
    /// No filter; the preferred order applies.
    #[default]
    Any,
    /// Names that begin with one of these.
    Prefixes(Vec<String>),
    /// Exactly these (`=a,b`).
    Exact(Vec<String>),
    /// All but names that begin with one of these (`^a,b`).
    NotPrefixes(Vec<String>),
    /// All but exactly these (`^=a,b`).
    NotExact(Vec<String>),
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The kernel's number, which is also the scope of link-local addresses.
    pub index: u32,
    /// Name.
    pub name: String,
    /// True if it is administratively up.
    pub up: bool,
    /// True for the loopback.
    pub loopback: bool,
    /// Its addresses in the kernel's order.
    pub addresses: Vec<InterfaceAddress>,
}

/// An address of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The address.
    pub ip: IpAddr,
    /// Bits of the subnet.
    pub prefix_length: u8,
}

impl Interface {
    /// All interfaces of this network namespace in the kernel's order, also those that are down.
    ///
    /// # Errors
    /// `system` if the kernel cannot be asked.
    pub fn list() -> Result<Vec<Self>> {
        netlink::interfaces()
    }
}

impl InterfaceChoice {
    /// Addresses of this host to listen at, best first; never empty. `toward` stands in for the field if that is
    /// not set.
    ///
    /// # Errors
    /// `config.value` if no interface fits; `system` if the interfaces cannot be listed.
    pub fn addresses(&self, toward: Option<IpAddr>) -> Result<Vec<IpAddr>> {
        let choice = Self { toward: self.toward.or(toward), ..self.clone() };
        Ok(choice.select(&Interface::list()?)?)
    }

    /// The same from a given list.
    ///
    /// Without a filter, the addresses are those of the first group that is not empty: interfaces named `ib*`;
    /// those with `toward` in their subnet; any but `docker*` and loopback; `docker*`; loopback. Within a group
    /// the kernel's order holds, link-local addresses only if there is nothing else.
    ///
    /// # Errors
    /// `config.value` if no interface fits, listing those that are there.
    pub fn select(&self, all: &[Interface]) -> Result<Vec<IpAddr>, ConfigError> {
        let usable: Vec<&Interface> = all
            .iter()
            .filter(|i| i.up && self.names.accepts(&i.name) && self.of_family(i).next().is_some())
            .collect();
        let docker = |i: &Interface| i.name.starts_with("docker");
        let near = |i: &Interface| {
            self.toward.is_some_and(|ip| !i.loopback && i.addresses.iter().any(|a| a.contains(ip)))
        };
        let group: Vec<&Interface> = if self.names == NameFilter::Any {
            let groups: [&dyn Fn(&Interface) -> bool; 5] =
                [&|i| i.name.starts_with("ib"), &near, &|i| !docker(i) && !i.loopback, &docker, &|i| {
                    i.loopback
                }];
            groups
                .iter()
                .map(|of_group| usable.iter().copied().filter(|i| of_group(i)).collect::<Vec<_>>())
                .find(|group| !group.is_empty())
                .unwrap_or_default()
        } else {
            usable
        };
        let (link_local, routable): (Vec<IpAddr>, Vec<IpAddr>) =
            group.iter().flat_map(|i| self.of_family(i)).partition(is_link_local);
        let chosen = if routable.is_empty() { link_local } else { routable };
        if chosen.is_empty() { Err(self.nothing_fits(all)) } else { Ok(chosen) }
    }

    fn of_family<'a>(&self, interface: &'a Interface) -> impl Iterator<Item = IpAddr> + use<'a> {
        let family = self.family;
        interface.addresses.iter().map(|a| a.ip).filter(move |ip| family.is_none_or(|f| f.includes(*ip)))
    }

    fn nothing_fits(&self, all: &[Interface]) -> ConfigError {
        let names: Vec<&str> = all.iter().filter(|i| i.up).map(|i| i.name.as_str()).collect();
        let (variable, value) = match (&self.names, self.family) {
            (NameFilter::Any, family) => {
                ("WARPWAY_SOCKET_FAMILY", family.map_or("", AddressFamily::name).to_owned())
            }
            (names, _) => ("WARPWAY_SOCKET_IFNAME", names.to_string()),
        };
        ConfigError::Value {
            variable: variable.into(),
            value,
            expected: format!(
                "at least one interface with such an address among those that are up: {}",
                names.join(", ")
            ),
        }
    }
}

impl InterfaceAddress {
    /// True if `ip` is in the subnet.
    fn contains(&self, ip: IpAddr) -> bool {
        match (self.ip, ip) {
            (IpAddr::V4(a), IpAddr::V4(b)) => same_prefix(&a.octets(), &b.octets(), self.prefix_length),
            (IpAddr::V6(a), IpAddr::V6(b)) => same_prefix(&a.octets(), &b.octets(), self.prefix_length),
            _ => false,
        }
    }
}

fn same_prefix(a: &[u8], b: &[u8], bits: u8) -> bool {
    a.iter().zip(b).enumerate().all(|(at, (a, b))| {
        let counted = u32::from(bits).saturating_sub(8 * at as u32).min(8);
        let mask = (0xff00u32 >> counted) as u8;
        (a ^ b) & mask == 0
    })
}

fn is_link_local(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

impl AddressFamily {
    /// True for addresses of this family.
    pub fn includes(self, ip: IpAddr) -> bool {
        match self {
            Self::V4 => ip.is_ipv4(),
            Self::V6 => ip.is_ipv6(),
        }
    }

    /// As written in `WARPWAY_SOCKET_FAMILY`.
    pub fn name(self) -> &'static str {
        match self {
            Self::V4 => "AF_INET",
            Self::V6 => "AF_INET6",
        }
    }
}

impl NameFilter {
    /// True if an interface of this name may be used.
    pub fn accepts(&self, name: &str) -> bool {
        let begins = |list: &[String]| list.iter().any(|prefix| name.starts_with(prefix.as_str()));
        let equals = |list: &[String]| list.iter().any(|other| name == other);
        match self {
            Self::Any => true,
            Self::Prefixes(list) => begins(list),
            Self::Exact(list) => equals(list),
            Self::NotPrefixes(list) => !begins(list),
            Self::NotExact(list) => !equals(list),
        }
    }

    fn list(&self) -> (&'static str, &[String]) {
        match self {
            Self::Any => ("", &[]),
            Self::Prefixes(list) => ("", list),
            Self::Exact(list) => ("=", list),
            Self::NotPrefixes(list) => ("^", list),
            Self::NotExact(list) => ("^=", list),
        }
    }
}

impl FromStr for NameFilter {
    type Err = Infallible;

    /// Comma-separated names; a leading `^` excludes, a leading `=` (also after `^`) asks for equal names
    /// instead of equal beginnings. An empty list is no filter.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        let (exclude, rest) = text.strip_prefix('^').map_or((false, text), |rest| (true, rest));
        let (exact, rest) = rest.strip_prefix('=').map_or((false, rest), |rest| (true, rest));
        let list: Vec<String> =
            rest.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
        Ok(match (list.is_empty(), exclude, exact) {
            (true, ..) => Self::Any,
            (_, false, false) => Self::Prefixes(list),
            (_, false, true) => Self::Exact(list),
            (_, true, false) => Self::NotPrefixes(list),
            (_, true, true) => Self::NotExact(list),
        })
    }
}

impl std::fmt::Display for NameFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (marks, list) = self.list();
        write!(f, "{marks}{}", list.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, addresses: &[&str]) -> Interface {
        let addresses = addresses
            .iter()
            .map(|text| {
                let (ip, bits) = text.split_once('/').unwrap();
                InterfaceAddress { ip: ip.parse().unwrap(), prefix_length: bits.parse().unwrap() }
            })
            .collect();
        Interface { index: 1, name: name.into(), up: true, loopback: name == "lo", addresses }
    }

    fn machine() -> Vec<Interface> {
        vec![
            interface("lo", &["127.0.0.1/8", "::1/128"]),
            interface("docker0", &["172.17.0.1/16"]),
            interface("eth0", &["fe80::1/64", "10.0.0.5/24", "fd00::5/64"]),
            interface("eth1", &["192.168.7.5/20"]),
            interface("ib0", &["10.8.0.5/16"]),
            Interface { up: false, ..interface("eth9", &["10.9.9.9/8"]) },
        ]
    }

    fn select(filter: &str, all: &[Interface], toward: Option<&str>) -> Vec<String> {
        let toward = toward.map(|ip| ip.parse().unwrap());
        let choice = InterfaceChoice { family: None, names: filter.parse().unwrap(), toward };
        let chosen = choice.select(all).unwrap();
        chosen.iter().map(IpAddr::to_string).collect()
    }

    #[test]
    fn groups_in_their_order() {
        let mut all = machine();
        assert_eq!(select("", &all, Some("192.168.0.1")), ["10.8.0.5"], "ib first");
        all.retain(|i| i.name != "ib0");
        assert_eq!(select("", &all, Some("192.168.0.1")), ["192.168.7.5"], "then the root's subnet");
        assert_eq!(select("", &all, Some("192.168.16.1")), ["10.0.0.5", "fd00::5", "192.168.7.5"]);
        assert_eq!(select("", &all, Some("127.0.0.1")), ["10.0.0.5", "fd00::5", "192.168.7.5"]);
        all.retain(|i| !i.name.starts_with("eth0") && i.name != "eth1");
        assert_eq!(select("", &all, None), ["172.17.0.1"], "then docker");
        all.retain(|i| i.name != "docker0");
        assert_eq!(select("", &all, None), ["127.0.0.1", "::1"], "then loopback");
    }

    #[test]
    fn filters() {
        let all = machine();
        assert_eq!(select("eth", &all, None), ["10.0.0.5", "fd00::5", "192.168.7.5"]);
        assert_eq!(
            select("=eth", &[all.clone(), vec![interface("eth", &["1.2.3.4/8"])]].concat(), None),
            ["1.2.3.4"]
        );
        assert_eq!(select("lo,ib", &all, None), ["127.0.0.1", "::1", "10.8.0.5"]);
        assert_eq!(select("^docker,eth,lo", &all, None), ["10.8.0.5"]);
        assert_eq!(select("^=eth0,lo,docker0", &all, None), ["192.168.7.5", "10.8.0.5"]);
        assert_eq!(select("=eth1, ib0 ,", &all, None), ["192.168.7.5", "10.8.0.5"]);
        for text in ["", "eth", "=eth0,ib0", "^docker", "^=lo"] {
            assert_eq!(text.parse::<NameFilter>().unwrap().to_string(), text);
        }
        for empty in ["^", "=", "^=", ",", " "] {
            assert_eq!(empty.parse::<NameFilter>().unwrap(), NameFilter::Any);
        }
    }

    #[test]
    fn families() {
        let all = machine();
        let choose = |family, filter: &str| {
            InterfaceChoice { family: Some(family), names: filter.parse().unwrap(), toward: None }
                .select(&all)
        };
        assert_eq!(choose(AddressFamily::V4, "=eth0").unwrap(), ["10.0.0.5".parse::<IpAddr>().unwrap()]);
        assert_eq!(choose(AddressFamily::V6, "=eth0").unwrap(), ["fd00::5".parse::<IpAddr>().unwrap()]);
        // ib0 has no IPv6 address, so the next group takes its place.
        assert_eq!(choose(AddressFamily::V6, "").unwrap(), ["fd00::5".parse::<IpAddr>().unwrap()]);
        let error = choose(AddressFamily::V6, "=ib0").unwrap_err().to_string();
        assert!(error.contains("WARPWAY_SOCKET_IFNAME") && error.contains("eth1"), "{error}");
        assert!(choose(AddressFamily::V4, "=eth9").is_err(), "it is down");
    }

    #[test]
    fn link_local_addresses_are_the_last_resort() {
        let all = [interface("eth0", &["fe80::1/64"]), interface("lo", &["127.0.0.1/8"])];
        assert_eq!(select("", &all, None), ["fe80::1"]);
    }

    #[test]
    fn prefixes_of_any_length() {
        let a: u32 = 0b1010_1010_1100_1100_1111_0000_0000_1111;
        for bits in 0..=32u8 {
            for flipped in 0..32u32 {
                let b = a ^ (1 << (31 - flipped));
                assert_eq!(same_prefix(&a.to_be_bytes(), &b.to_be_bytes(), bits), flipped >= u32::from(bits));
            }
        }
    }

    #[test]
    fn this_machine_has_an_address() {
        assert!(!InterfaceChoice::default().addresses(None).unwrap().is_empty());
    }
}
