//! 64-bit words of pinned memory that the host writes and kernels poll, each on a cache line of its own.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use warpway_core::proxy::ProgressWord;
use warpway_core::{Error, Result};

use crate::context::{Context, lock};
use crate::memory::PinnedMemory;

/// Bytes from one word to the next, so that a store to one does not fetch the line of another from a kernel that polls it.
const STRIDE: u64 = 128;

/// Words of a chunk: pinning memory may wait for the device, so it is done seldom.
const CHUNK: u64 = 64;

/// Words are given out and come back. Cheap to clone.
#[derive(Clone)]
pub(super) struct PinnedWords(Arc<Pool>);

struct Pool {
    context: Context,
    free: Mutex<Vec<Place>>,
}

#[derive(Clone)]
struct Place {
    chunk: PinnedMemory,
    offset: u64,
}

/// One word; returned when dropped.
pub(super) struct PinnedWord {
    pool: PinnedWords,
    place: Place,
}

impl PinnedWords {
    /// A pool with a first chunk.
    pub(super) fn new(context: &Context) -> Result<Self> {
        let free = Mutex::new(places(context)?);
        Ok(Self(Arc::new(Pool { context: context.clone(), free })))
    }

    /// A word that holds 0.
    pub(super) fn take(&self) -> Result<PinnedWord> {
        let mut free = lock(&self.0.free);
        if free.is_empty() {
            *free = places(&self.0.context)?;
        }
        let place = free.pop().ok_or(Error::Internal { place: "pinned words", what: "a chunk has words" })?;
        place.word().store(0, Ordering::Relaxed);
        Ok(PinnedWord { pool: self.clone(), place })
    }
}

/// The words of a new chunk.
fn places(context: &Context) -> Result<Vec<Place>> {
    let chunk = PinnedMemory::allocate(context, CHUNK * STRIDE)?;
    Ok((0..CHUNK).map(|i| Place { chunk: chunk.clone(), offset: i * STRIDE }).collect())
}

impl Place {
    fn word(&self) -> &AtomicU64 {
        // SAFETY: an aligned word within the chunk, which lives as long as the place; host and device touch it by whole
        // 64-bit accesses only.
        unsafe { AtomicU64::from_ptr(self.chunk.host().as_ptr().add(self.offset as usize).cast()) }
    }
}

impl PinnedWord {
    /// The word for the host.
    pub(super) fn get(&self) -> &AtomicU64 {
        self.place.word()
    }
}

impl ProgressWord for PinnedWord {
    fn store(&self, value: u64) {
        // A plain store on the host is a release at system scope; kernels acquire at system scope.
        self.get().store(value, Ordering::Release);
    }

    fn address(&self) -> u64 {
        self.place.chunk.address() + self.place.offset
    }
}

impl Drop for PinnedWord {
    fn drop(&mut self) {
        lock(&self.pool.0.free).push(self.place.clone());
    }
}

impl fmt::Debug for PinnedWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedWord")
            .field("value", &self.get().load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}
