//! Network interfaces: which of them a rank's listeners use, and how addresses are written.

/// Limits the interfaces and addresses of listeners (`WARPWAY_SOCKET_FAMILY`, `WARPWAY_SOCKET_IFNAME`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InterfaceChoice {
    /// Only addresses of this family.
    pub family: Option<AddressFamily>,
    /// Only interfaces with these names.
    pub names: NameFilter,
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
