//! Small objects in device memory: a few bytes each, from chunks that stay until the end.
//!
//! Freeing device memory waits for the device, that is for kernels of other ranks on it, which may wait for this rank. So
//! objects come and go without the driver.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use warpway_core::Result;

use super::control::finish;
use crate::context::lock;
use crate::in_flight::Lasting;
use crate::memory::{DeviceMemory, copy_from_host, copy_to_host};
use crate::stream::Stream;

/// Bytes that a chunk has at least.
const CHUNK: u64 = 64 << 10;

/// Objects begin at cache lines, so that atomics of one do not slow down those of another.
const LINE: u64 = 64;

/// Cheap to clone; clones share the memory.
#[derive(Clone)]
pub(super) struct Arena(Arc<Inner>);

struct Inner {
    stream: Arc<Stream>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    chunks: Vec<DeviceMemory>,
    /// Unused bytes at the end of the last chunk.
    rest: (u64, u64),
    /// Returned places by size.
    free: HashMap<u64, Vec<u64>>,
}

/// Bytes of an arena, given back when dropped and no launch is under way: whoever uses them keeps the value.
pub(super) struct Place(Lasting<Taken>);

struct Taken {
    arena: Arena,
    address: u64,
    bytes: u64,
}

impl Arena {
    /// `stream` is for copies.
    pub(super) fn new(stream: &Arc<Stream>) -> Self {
        Self(Arc::new(Inner { stream: Arc::clone(stream), state: Mutex::default() }))
    }

    /// Bytes that hold `content`, which has arrived.
    pub(super) fn place<T: Copy>(&self, content: &[T]) -> Result<Place> {
        let bytes = (size_of_val(content) as u64).next_multiple_of(LINE).max(LINE);
        let address = self.take(bytes)?;
        let taken = Taken { arena: self.clone(), address, bytes };
        let place = Place(Lasting::new(self.0.stream.context(), taken));
        place.write(0, content)?;
        Ok(place)
    }

    /// Sees to it that so many more places of these bytes can be taken without the driver.
    pub(super) fn reserve(&self, bytes: u64, count: usize) -> Result<()> {
        let bytes = bytes.next_multiple_of(LINE).max(LINE);
        let mut taken = Vec::new();
        let enough = loop {
            if taken.len() == count {
                break Ok(());
            }
            match self.take(bytes) {
                Ok(address) => taken.push(address),
                Err(error) => break Err(error),
            }
        };
        lock(&self.0.state).free.entry(bytes).or_default().extend(taken);
        enough
    }

    fn take(&self, bytes: u64) -> Result<u64> {
        let mut state = lock(&self.0.state);
        if let Some(address) = state.free.get_mut(&bytes).and_then(Vec::pop) {
            return Ok(address);
        }
        let (mut address, mut left) = state.rest;
        if left < bytes {
            let chunk = DeviceMemory::plain(self.0.stream.context(), bytes.max(CHUNK), &[])?;
            (address, left) = (chunk.address(), chunk.bytes());
            state.chunks.push(chunk);
        }
        state.rest = (address + bytes, left - bytes);
        Ok(address)
    }
}

impl Place {
    pub(super) fn address(&self) -> u64 {
        self.0.address
    }

    /// Writes values at byte `offset`; they have arrived.
    pub(super) fn write<T: Copy>(&self, offset: u64, content: &[T]) -> Result<()> {
        debug_assert!(offset + size_of_val(content) as u64 <= self.0.bytes, "the place is that long");
        let stream = &self.0.arena.0.stream;
        // SAFETY: within the place, which nobody else writes; the arena keeps the memory.
        unsafe { copy_from_host(stream, self.0.address + offset, content)? };
        Ok(finish(stream)?)
    }

    /// The value at byte `offset`.
    pub(super) fn read<const N: usize>(&self, offset: u64) -> Result<[u64; N]> {
        debug_assert!(offset + 8 * N as u64 <= self.0.bytes, "the place is that long");
        let stream = &self.0.arena.0.stream;
        let mut values = Box::new([0; N]);
        // SAFETY: within the place; the values are kept for ever if the copy does not end.
        unsafe { copy_to_host(stream, &mut *values, self.0.address + offset)? };
        match finish(stream) {
            Ok(()) => Ok(*values),
            Err(error) => {
                std::mem::forget(values);
                Err(error.into())
            }
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        lock(&self.arena.0.state).free.entry(self.bytes).or_default().push(self.address);
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").field("chunks", &lock(&self.0.state).chunks.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place")
            .field("address", &format_args!("{:#x}", self.0.address))
            .field("bytes", &self.0.bytes)
            .finish_non_exhaustive()
    }
}
