//! Device handles: plain data that kernels take by value, and the guard that keeps it valid.

use std::ops::Deref;
use std::sync::Arc;

use crate::sync::{AtomicU64, Ordering};

/// Addresses of a semaphore, in the address space of its owner's blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct SemaphoreHandle {
    /// The local [`Token`](crate::token::Token) that the peer raises.
    pub inbound: u64,
    /// The peer's token.
    pub remote_inbound: u64,
    /// The local 64-bit counter of signals taken.
    pub taken: u64,
}

/// A memory channel as blocks see it. An address of 0 means that there is no such memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct MemoryChannelHandle {
    /// The tokens.
    pub semaphore: SemaphoreHandle,
    /// First byte of the peer's memory.
    pub destination: u64,
    /// Its bytes.
    pub destination_size: u64,
    /// First byte of the local memory.
    pub source: u64,
    /// Its bytes.
    pub source_size: u64,
    /// First byte of the local packet buffer.
    pub packet_buffer: u64,
    /// Its bytes.
    pub packet_buffer_size: u64,
    /// What the word at `liveness` held when the handle was made.
    pub generation: u64,
    /// Address of the word that changes when the channel goes.
    pub liveness: u64,
}

const _: () = assert!(size_of::<SemaphoreHandle>() == 24 && size_of::<MemoryChannelHandle>() == 88);

impl MemoryChannelHandle {
    /// The bytes of the handle, as a kernel takes them.
    pub fn to_bytes(&self) -> [u8; 88] {
        let Self { semaphore, .. } = self;
        let words = [
            semaphore.inbound,
            semaphore.remote_inbound,
            semaphore.taken,
            self.destination,
            self.destination_size,
            self.source,
            self.source_size,
            self.packet_buffer,
            self.packet_buffer_size,
            self.generation,
            self.liveness,
        ];
        let mut bytes = [0; 88];
        for (slot, word) in bytes.chunks_exact_mut(8).zip(words) {
            slot.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

/// A word that tells whether the object behind a leaked handle still lives.
#[derive(Debug, Clone)]
pub struct Liveness(Arc<AtomicU64>);

impl Liveness {
    const LIVE: u64 = 1;
    const GONE: u64 = 2;

    /// For an object that lives.
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicU64::new(Self::LIVE)))
    }

    /// The object goes; handles made before are stale from here on.
    pub(crate) fn end(&self) {
        // Release: who sees the new generation also sees everything that was done with the old one.
        self.0.store(Self::GONE, Ordering::Release);
    }

    /// Changes when the object goes; handles carry the value they were made at.
    pub fn generation(&self) -> u64 {
        // Pairs with `end`.
        self.0.load(Ordering::Acquire)
    }

    /// True while the object that a handle of this generation names is there.
    pub fn is_current(&self, generation: u64) -> bool {
        self.generation() == generation
    }

    pub(crate) fn address(&self) -> u64 {
        Arc::as_ptr(&self.0) as u64
    }

    /// Keeps the word (and nothing else) for the rest of the process.
    pub(crate) fn leak(&self) {
        std::mem::forget(Arc::clone(&self.0));
    }
}

/// Plain data for kernels, and the channel that keeps what it points to alive.
///
/// Drop it after the last kernel that uses it; the order among other objects does not matter.
#[derive(Debug, Clone)]
pub struct DeviceHandle<H, C> {
    handle: H,
    channel: C,
}

impl<H: Copy, C> DeviceHandle<H, C> {
    /// Joins a handle with the channel that it was taken from; for engines, whose handles name addresses of their own.
    pub fn new(handle: H, channel: C) -> Self {
        Self { handle, channel }
    }

    /// The channel.
    pub fn channel(&self) -> &C {
        &self.channel
    }
}

/// The plain data; a copy of it is valid only as long as the guard lives.
impl<H, C> Deref for DeviceHandle<H, C> {
    type Target = H;
    fn deref(&self) -> &H {
        &self.handle
    }
}
