//! Memory itself, apart from its addresses: a memfd that other processes can map too.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, Mode, OFlags};
use warpway_cuda_sys::driver_types::{CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY};

use super::call::Answer;

/// Who made a piece of memory, where, and how it may be shared. The same in all processes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity {
    pub(super) process: u32,
    /// Counts up within the process.
    pub(super) number: u64,
    /// The machine's number of the device.
    pub(super) device: u32,
    /// Handle types that the maker asked for.
    pub(super) shareable: u32,
}

#[derive(Debug)]
pub(super) struct Physical {
    pub(super) identity: Identity,
    pub(super) size: u64,
    /// By a descriptor or a handle.
    pub(super) imported: bool,
    memory: OwnedFd,
}

impl Physical {
    pub(super) fn create(device: u32, size: u64, shareable: u32) -> Answer<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        // Relaxed: only uniqueness matters.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let identity = Identity { process: std::process::id(), number, device, shareable };
        let memory = rustix::fs::memfd_create(identity.to_string(), MemfdFlags::CLOEXEC)
            .map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
        rustix::fs::ftruncate(&memory, size).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
        Ok(Self { identity, size, imported: false, memory })
    }

    /// Memory of another process (or this one), by a descriptor of it.
    pub(super) fn import(descriptor: BorrowedFd<'_>) -> Answer<Self> {
        let link = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
        let name = std::fs::read_link(link).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        let identity = Identity::parse(&name.to_string_lossy()).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let memory = rustix::io::fcntl_dupfd_cloexec(descriptor, 0).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        let size = rustix::fs::fstat(&memory).map_err(|_| CUDA_ERROR_INVALID_VALUE)?.st_size as u64;
        Ok(Self { identity, size, imported: true, memory })
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    /// What another process needs to [`fetch`](Ticket::fetch) it, as the bytes of a handle.
    pub(super) fn ticket(&self, magic: &[u8; 8], size: u64) -> [u8; 64] {
        let Identity { process, number, device, shareable } = &self.identity;
        let parts: [&[u8]; 7] = [
            magic,
            &process.to_le_bytes(),
            &self.memory.as_raw_fd().to_le_bytes(),
            &number.to_le_bytes(),
            &size.to_le_bytes(),
            &device.to_le_bytes(),
            &shareable.to_le_bytes(),
        ];
        let mut bytes = [0; 64];
        bytes.iter_mut().zip(parts.concat()).for_each(|(to, byte)| *to = byte);
        bytes
    }
}

/// A handle that has been read.
pub(super) struct Ticket {
    pub(super) identity: Identity,
    pub(super) size: u64,
    descriptor: i32,
}

impl Ticket {
    /// What [`Physical::ticket`] has written, if it has.
    pub(super) fn read(bytes: &[u8; 64], magic: &[u8; 8]) -> Option<Self> {
        let four = |at: usize| bytes[at..at + 4].try_into().map(u32::from_le_bytes).ok();
        let eight = |at: usize| bytes[at..at + 8].try_into().map(u64::from_le_bytes).ok();
        if bytes[..8] != *magic {
            return None;
        }
        let identity =
            Identity { process: four(8)?, number: eight(16)?, device: four(32)?, shareable: four(36)? };
        Some(Self { identity, size: eight(24)?, descriptor: four(12)? as i32 })
    }

    /// The memory. `None` if its process or itself is gone.
    pub(super) fn fetch(&self) -> Option<Physical> {
        let path = format!("/proc/{}/fd/{}", self.identity.process, self.descriptor);
        let memory = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok()?;
        // The process may have closed it and opened something else with that number.
        let found = Physical::import(memory.as_fd()).ok()?;
        (found.identity == self.identity).then_some(found)
    }
}

impl fmt::Display for Identity {
    /// The name of the memfd.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fake-cuda.{}.{}.{}.{}", self.process, self.number, self.device, self.shareable)
    }
}

impl Identity {
    /// From the name that the system shows: `/memfd:fake-cuda.17.1.0.1 (deleted)`.
    fn parse(name: &str) -> Option<Self> {
        let mut fields = name.strip_prefix("/memfd:fake-cuda.")?.split_whitespace().next()?.split('.');
        Some(Self {
            process: fields.next()?.parse().ok()?,
            number: fields.next()?.parse().ok()?,
            device: fields.next()?.parse().ok()?,
            shareable: fields.next()?.parse().ok()?,
        })
    }
}
