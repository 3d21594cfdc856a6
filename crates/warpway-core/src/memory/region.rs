//! A range of addresses of this process, and what keeps it there.

use std::any::Any;
use std::fmt;
use std::ops::BitOr;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use super::{MemoryError, Staging};
use crate::transport::Device;

/// What peers may do, and how the words are to be treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Access(u32);

impl Access {
    /// Peers may read.
    pub const READ: Self = Self(1);
    /// Peers may write.
    pub const WRITE: Self = Self(2);
    /// Peers may update and add to 64-bit words.
    pub const ATOMIC: Self = Self(4);
    /// The memory is an array of [`Token`](crate::token::Token)s: who updates the first word of one
    /// must also wake its sleepers.
    pub const TOKENS: Self = Self(8);
    /// The default: read, write and atomic.
    pub const ALL: Self = Self(7);

    /// From the wire form; `None` if a bit is unknown.
    pub const fn from_bits(bits: u32) -> Option<Self> {
        if bits & !15 == 0 { Some(Self(bits)) } else { None }
    }

    /// The wire form.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// True if every bit of `other` is set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Access {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The descriptor behind a region, for memory that other processes can map.
#[derive(Debug, Clone)]
pub struct Backing {
    /// A memfd (host) or an exported allocation (GPU).
    pub descriptor: Arc<OwnedFd>,
    /// Offset of the region in it.
    pub offset: u64,
    /// Size of the whole allocation.
    pub allocation_size: u64,
}

/// A range of addresses valid in this process for as long as the value lives.
///
/// Where [`device`](Self::device) is a GPU, these are addresses of that GPU: kernels and copies of a driver use them,
/// the CPU must never read or write through them. Safe code cannot: [`RegisteredMemory::pointer`] and the tokens made
/// of it refuse such memory.
///
/// [`RegisteredMemory::pointer`]: super::RegisteredMemory::pointer
#[derive(Clone)]
pub struct Region {
    address: NonNull<u8>,
    size: u64,
    device: Device,
    backing: Option<Backing>,
    /// Owner of the mapping; `None` where the caller vouches for the memory.
    keeper: Option<Arc<dyn Any + Send + Sync>>,
    /// How the CPU reaches it nevertheless, if it is not the CPU's.
    staging: Option<Arc<dyn Staging>>,
}

// SAFETY: a region is an address and a length; every access through it is made by code that upholds
// the rules of shared memory (raw copies and atomics, never references), which are thread-agnostic.
unsafe impl Send for Region {}
// SAFETY: as above; the value itself is immutable.
unsafe impl Sync for Region {}

impl Region {
    /// Describes `size` bytes at `address`.
    ///
    /// # Errors
    /// [`MemoryError::Invalid`] if the size is zero or the range wraps around the address space.
    ///
    /// # Safety
    /// The bytes must stay mapped, readable and writable while any clone of the region lives: either
    /// `keeper` owns the mapping or the caller guarantees it. Other processes may write them at any
    /// time, so nobody may hold a Rust reference to bytes that a peer is allowed to touch meanwhile.
    /// `device` must say whose addresses they are: of anything but [`DeviceKind::Cpu`] the CPU touches no byte.
    ///
    /// [`DeviceKind::Cpu`]: crate::transport::DeviceKind::Cpu
    pub unsafe fn new(
        address: NonNull<u8>,
        size: u64,
        device: Device,
        backing: Option<Backing>,
        keeper: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Result<Self, MemoryError> {
        let invalid = |why| MemoryError::Invalid { address: address.as_ptr() as u64, size, why };
        if size == 0 {
            return Err(invalid("the size is zero"));
        }
        (address.as_ptr() as u64).checked_add(size).ok_or_else(|| invalid("the range wraps around"))?;
        Ok(Self { address, size, device, backing, keeper, staging: None })
    }

    /// The same, and engines that reach memory by the CPU may use it through `staging`.
    pub fn with_staging(self, staging: Arc<dyn Staging>) -> Self {
        Self { staging: Some(staging), ..self }
    }

    /// How the CPU reaches memory of a device; `None` where it reaches it by itself, or not at all.
    pub fn staging(&self) -> Option<&Arc<dyn Staging>> {
        self.staging.as_ref()
    }

    /// First byte, as [`device`](Self::device) addresses it.
    pub fn address(&self) -> NonNull<u8> {
        self.address
    }

    /// Length in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Where the memory lives.
    pub fn device(&self) -> Device {
        self.device
    }

    /// True if the region keeps its bytes mapped itself, so that the caller need not.
    pub fn owns_mapping(&self) -> bool {
        self.keeper.is_some()
    }

    /// The descriptor other processes can map, if there is one.
    pub fn backing(&self) -> Option<&Backing> {
        self.backing.as_ref()
    }

    /// A part of the region.
    pub fn slice(&self, offset: u64, size: u64) -> Result<Self, MemoryError> {
        check_range("slice", offset, size, self.size)?;
        if size == 0 {
            return Err(MemoryError::Invalid {
                address: self.address.as_ptr() as u64,
                size,
                why: "the size is zero",
            });
        }
        // Arithmetic of addresses, since those of a GPU are no allocation that Rust knows; it cannot wrap (`new`).
        let address = self.address.map_addr(|first| first.saturating_add(offset as usize));
        let backing = self.backing.clone().map(|b| Backing { offset: b.offset + offset, ..b });
        Ok(Self { address, backing, size, ..self.clone() })
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("address", &self.address)
            .field("size", &self.size)
            .field("device", &self.device)
            .field("exportable", &self.backing.is_some())
            .finish()
    }
}

/// The one range check: `offset + size` must not overflow and must end inside `limit`.
pub(crate) fn check_range(
    operation: &'static str,
    offset: u64,
    size: u64,
    limit: u64,
) -> Result<(), MemoryError> {
    match offset.checked_add(size) {
        Some(end) if end <= limit => Ok(()),
        _ => Err(MemoryError::OutOfBounds { operation, offset, size, limit }),
    }
}
