//! Transports, sets of them, and devices.

use std::fmt;
use std::ops::{BitAnd, BitOr, BitXor, Not};

/// How bytes reach a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Transport {
    /// Not chosen; rejected at connect.
    Unknown,
    /// GPU peer mapping (NVLink or PCIe).
    CudaIpc,
    /// RDMA through the n-th visible adapter. Named from the start; answers "unavailable" for now.
    Ib(u16),
    /// TCP.
    Ethernet,
    /// Memory shared between CPU endpoints of one host.
    SharedMemory,
}

impl Transport {
    /// Position in [`TransportFlags`]; adapters beyond the 27 that fit share the last bit.
    const fn bit(self) -> u32 {
        match self {
            Self::Unknown => 0,
            Self::CudaIpc => 1 << 1,
            Self::Ethernet => 1 << 2,
            Self::SharedMemory => 1 << 3,
            Self::Ib(n) => 1 << (4 + if n < 27 { n as u32 } else { 27 }),
        }
    }

    /// True if the two can be joined by a connection (adapters of one fabric may differ).
    pub fn same_family(self, other: Self) -> bool {
        self == other || matches!((self, other), (Self::Ib(_), Self::Ib(_)))
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("Unknown"),
            Self::CudaIpc => f.write_str("CudaIpc"),
            Self::Ib(n) => write!(f, "IB{n}"),
            Self::Ethernet => f.write_str("Ethernet"),
            Self::SharedMemory => f.write_str("SharedMemory"),
        }
    }
}

/// A set of transports.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TransportFlags(u32);

impl TransportFlags {
    /// The empty set.
    pub const NONE: Self = Self(0);
    /// Every RDMA adapter.
    pub const ALL_IB: Self = Self(!0b1111);
    /// Every transport.
    pub const ALL: Self = Self(!1);
    /// What reaches CPU memory: shared memory and TCP.
    pub const HOST: Self = Self(Transport::SharedMemory.bit() | Transport::Ethernet.bit());

    /// From the wire form; bit 0 is not used and dropped.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits & !1)
    }

    /// The wire form.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// True if `transport` is in the set.
    pub const fn has(self, transport: Transport) -> bool {
        self.0 & transport.bit() != 0
    }

    /// True if the set is empty.
    pub const fn none(self) -> bool {
        self.0 == 0
    }

    /// True if the set is not empty.
    pub const fn any(self) -> bool {
        self.0 != 0
    }

    /// True if every transport is in the set.
    pub const fn all(self) -> bool {
        self.0 == Self::ALL.0
    }

    /// How many are in the set.
    pub const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// The members, the adapters last.
    pub fn iter(self) -> impl Iterator<Item = Transport> {
        [Transport::CudaIpc, Transport::Ethernet, Transport::SharedMemory]
            .into_iter()
            .chain((0..28).map(Transport::Ib))
            .filter(move |t| self.has(*t))
    }
}

impl From<Transport> for TransportFlags {
    fn from(transport: Transport) -> Self {
        Self(transport.bit())
    }
}

impl<T: Into<TransportFlags>> BitOr<T> for TransportFlags {
    type Output = Self;
    fn bitor(self, other: T) -> Self {
        Self(self.0 | other.into().0)
    }
}

impl<T: Into<TransportFlags>> BitAnd<T> for TransportFlags {
    type Output = Self;
    fn bitand(self, other: T) -> Self {
        Self(self.0 & other.into().0)
    }
}

impl<T: Into<TransportFlags>> BitXor<T> for TransportFlags {
    type Output = Self;
    fn bitxor(self, other: T) -> Self {
        Self(self.0 ^ other.into().0)
    }
}

impl Not for TransportFlags {
    type Output = Self;
    fn not(self) -> Self {
        Self(!self.0 & Self::ALL.0)
    }
}

impl BitOr for Transport {
    type Output = TransportFlags;
    fn bitor(self, other: Self) -> TransportFlags {
        TransportFlags::from(self) | other
    }
}

impl fmt::Debug for TransportFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// Kind of a [`Device`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DeviceKind {
    /// Not known.
    Unknown = 0,
    /// Host memory.
    Cpu = 1,
    /// A GPU.
    Gpu = 2,
}

/// Where memory lives and kernels run. A GPU with id −1 is the current device, resolved at endpoint
/// creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Device {
    /// CPU or GPU.
    pub kind: DeviceKind,
    /// Ordinal of a GPU, NUMA node or −1 for the CPU.
    pub id: i32,
}

impl Device {
    /// Host memory, any NUMA node.
    pub const CPU: Self = Self { kind: DeviceKind::Cpu, id: -1 };
    /// The current GPU.
    pub const CURRENT_GPU: Self = Self { kind: DeviceKind::Gpu, id: -1 };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_behave_like_sets() {
        let host = Transport::SharedMemory | Transport::Ethernet;
        assert_eq!(host, TransportFlags::HOST);
        assert_eq!(host.count(), 2);
        assert!(
            host.has(Transport::Ethernet) && !host.has(Transport::CudaIpc) && !host.has(Transport::Ib(0))
        );
        assert!(!host.has(Transport::Unknown));
        assert!((!host & host).none());
        assert!((!host | host).all());
        assert_eq!((host ^ Transport::Ethernet).iter().collect::<Vec<_>>(), [Transport::SharedMemory]);
        assert_eq!(TransportFlags::ALL_IB.count(), 28);
        assert!(
            TransportFlags::ALL_IB.has(Transport::Ib(7)) && !TransportFlags::ALL_IB.has(Transport::CudaIpc)
        );
        assert_eq!(TransportFlags::ALL.iter().count() as u32, TransportFlags::ALL.count());
        assert_eq!(TransportFlags::from_bits(u32::MAX), TransportFlags::ALL);
    }

    #[test]
    fn only_adapters_may_differ() {
        assert!(Transport::Ib(0).same_family(Transport::Ib(5)));
        assert!(!Transport::Ib(0).same_family(Transport::Ethernet));
        assert!(Transport::Ethernet.same_family(Transport::Ethernet));
    }
}
