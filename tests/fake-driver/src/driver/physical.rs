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
    /// By a descriptor or an IPC handle.
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

    /// Memory of another process, by what an IPC handle says of it. `None` if that process or memory is gone.
    pub(super) fn fetch(process: u32, descriptor: i32, wanted: &Identity) -> Option<Self> {
        let path = format!("/proc/{process}/fd/{descriptor}");
        let memory = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok()?;
        // The process may have closed it and opened something else with that number.
        let found = Self::import(memory.as_fd()).ok()?;
        (found.identity == *wanted).then_some(found)
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
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
