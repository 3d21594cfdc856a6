//! Addresses of device memory, and the host memory behind them.
//!
//! One reservation of two halves. A device address lies in the first half, where nothing is mapped: a host program that
//! follows it faults, as it would with a GPU. The bytes are mapped in the second half, at the same offset; only the fake
//! looks there. Pinned host memory is mapped in the first half itself. Addresses are never given out again.

use std::ffi::c_void;
use std::os::fd::BorrowedFd;

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous};
use warpway_cuda_sys::driver_types::CUDA_ERROR_OUT_OF_MEMORY;

use super::call::Answer;

/// Least multiple in which memory is created, mapped and reserved.
pub(super) const GRANULARITY: u64 = 2 << 20;

/// Bytes of each half.
const HALF: u64 = 4 << 40;

#[derive(Debug)]
pub(super) struct Arena {
    base: u64,
    /// Offset of the first address not yet given out.
    next: u64,
}

impl Arena {
    pub(super) fn new() -> Self {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping that nobody may touch, at a place that the kernel chooses.
        let start =
            unsafe { mmap_anonymous(std::ptr::null_mut(), (2 * HALF) as usize, ProtFlags::empty(), flags) }
                .expect("address space for the fake's device memory");
        Self { base: (start as u64).next_multiple_of(GRANULARITY), next: GRANULARITY }
    }

    /// New addresses, with a gap behind them so that overruns are seen.
    pub(super) fn take(&mut self, size: u64, alignment: u64) -> Answer<u64> {
        let align = alignment.max(GRANULARITY);
        let start =
            (self.base + self.next).checked_next_multiple_of(align).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let end = size
            .checked_next_multiple_of(GRANULARITY)
            .and_then(|size| start.checked_add(size)?.checked_add(GRANULARITY))
            // The base was rounded up, so the halves are a little shorter.
            .filter(|end| *end <= self.base + HALF - GRANULARITY)
            .ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        self.next = end - self.base;
        Ok(start)
    }

    /// Whether an address is one of ours, alive or not.
    pub(super) fn contains(&self, address: u64) -> bool {
        (self.base..self.base + HALF).contains(&address)
    }

    /// Where the bytes of a device address are.
    pub(super) fn bytes(address: u64) -> u64 {
        address + HALF
    }

    /// Puts memory behind device addresses.
    pub(super) fn back(&self, address: u64, size: u64, memory: BorrowedFd<'_>) -> Answer {
        debug_assert!(self.contains(address) && self.contains(address + size));
        let (to, protection) = (Self::bytes(address) as *mut c_void, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: replaces a part of our own reservation, which `take` gave to the caller alone.
        unsafe { mmap(to, size as usize, protection, MapFlags::SHARED | MapFlags::FIXED, memory, 0) }
            .map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
        Ok(())
    }

    /// Puts memory at addresses that the host may use as well.
    pub(super) fn pin(&self, address: u64, size: u64) -> Answer {
        debug_assert!(self.contains(address) && self.contains(address + size));
        let (to, protection) = (address as *mut c_void, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: as in `back`.
        unsafe { mmap_anonymous(to, size as usize, protection, MapFlags::PRIVATE | MapFlags::FIXED) }
            .map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
        Ok(())
    }

    /// Takes the memory away again, in both halves. The addresses stay reserved.
    pub(super) fn clear(&self, address: u64, size: u64) {
        for start in [address, Self::bytes(address)] {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
            // SAFETY: as in `back`; the caller has taken the range out of the books under the same lock.
            unsafe { mmap_anonymous(start as *mut c_void, size as usize, ProtFlags::empty(), flags) }
                .expect("replacing a mapping");
        }
    }
}
