//! A mailbox as one of the two ranks sees it: words that are read and written whole, and a ring of bytes.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use warpway_core::memory::RegisteredMemory;
use warpway_core::{Error, Result};

use super::layout::{DESCRIPTOR_WORDS, LINE, Layout};
use crate::copy::copy;

/// See the module's page. The memory stays mapped as long as this lives.
#[derive(Debug)]
pub(super) struct Mailbox {
    first: NonNull<u8>,
    pub(super) layout: Layout,
    pub(super) memory: RegisteredMemory,
}

// SAFETY: an address of shared memory, which is reached by atomics and raw copies only.
unsafe impl Send for Mailbox {}

impl Mailbox {
    /// # Errors
    /// If the memory has another size, or no address here.
    pub(super) fn new(memory: RegisteredMemory, layout: Layout) -> Result<Self> {
        let wrong =
            Error::Internal { place: "mailbox", what: "both ranks of a pair have mailboxes of one size" };
        (memory.size() == layout.bytes()).then_some(()).ok_or(wrong)?;
        let first = memory.pointer("mailbox", 0, layout.bytes())?;
        let aligned = (first.as_ptr() as u64).is_multiple_of(8);
        aligned
            .then_some(())
            .ok_or(Error::Internal { place: "mailbox", what: "mappings begin with pages" })?;
        Ok(Self { first, layout, memory })
    }

    /// The word at `offset`, one of the layout's.
    #[inline]
    pub(super) fn word(&self, offset: u64) -> &AtomicU64 {
        debug_assert!(offset.is_multiple_of(8) && offset + 8 <= self.layout.bytes());
        // SAFETY: offsets are those of the layout, whole words inside the memory, which is mapped while `self` lives and
        // aligned (checked in `new`); an atomic may be shared with other processes.
        unsafe { AtomicU64::from_ptr(self.first.add(offset as usize).cast().as_ptr()) }
    }

    /// Sets words from `offset` on; whoever acquires the first one sees all, and what was written before.
    #[inline]
    pub(super) fn set(&self, offset: u64, words: &[u64]) {
        let [first, rest @ ..] = words else { return };
        for (at, word) in (1..).zip(rest) {
            self.word(offset + 8 * at).store(*word, Ordering::Relaxed);
        }
        // Pairs with the Acquire loads of whoever looks whether it has come.
        self.word(offset).store(*first, Ordering::Release);
    }

    /// Words from `offset` on, of which the first has been acquired.
    #[inline]
    pub(super) fn get<const N: usize>(&self, offset: u64) -> [u64; N] {
        std::array::from_fn(|at| self.word(offset + 8 * at as u64).load(Ordering::Relaxed))
    }

    /// The words of a descriptor.
    #[inline]
    pub(super) fn descriptor(&self, number: u64) -> [u64; DESCRIPTOR_WORDS] {
        self.get(Layout::descriptor(number))
    }

    /// Copies `bytes` bytes to the ring, to `position`.
    ///
    /// # Safety
    /// As many bytes must be readable at `source`, outside of this mailbox, and the ring must be free there.
    pub(super) unsafe fn fill(&self, position: u64, source: NonNull<u8>, bytes: u64) {
        let mut done = 0;
        while done < bytes {
            let (offset, room) = self.layout.place(position + done);
            let part = room.min(bytes - done);
            // SAFETY: `place` stays inside the ring, which is mapped while `self` lives; the rest is the caller's word.
            unsafe { copy(self.first.add(offset as usize), source.add(done as usize), part) };
            done += part;
        }
    }

    /// Asks for the lines of `bytes` bytes of the ring, from `position` on. Changes nothing that can be seen.
    #[inline]
    pub(super) fn prefetch(&self, position: u64, bytes: u64) {
        for line in 0..bytes.div_ceil(LINE) {
            let (offset, _) = self.layout.place(position + line * LINE);
            prefetch(self.first.as_ptr().wrapping_add(offset as usize));
        }
    }

    /// Copies `bytes` bytes from the ring, from `position`.
    ///
    /// # Safety
    /// As many bytes must be writable at `destination`, outside of this mailbox, and no other rank may write the
    /// ring there.
    pub(super) unsafe fn drain(&self, position: u64, destination: NonNull<u8>, bytes: u64) {
        let mut done = 0;
        while done < bytes {
            let (offset, room) = self.layout.place(position + done);
            let part = room.min(bytes - done);
            // SAFETY: as in `fill`.
            unsafe { copy(destination.add(done as usize), self.first.add(offset as usize), part) };
            done += part;
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn prefetch(address: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a hint, which reads nothing as far as programs can tell, whatever the address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn prefetch(_address: *const u8) {}
