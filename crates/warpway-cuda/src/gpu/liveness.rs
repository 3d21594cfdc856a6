//! Words that tell debug builds of kernels whether the object behind a handle still lives.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use warpway_core::Result;

use crate::context::{Context, lock};
use crate::memory::PinnedMemory;

/// Bytes of a chunk.
const CHUNK: u64 = 4096;

/// Pinned words. Ending one is a store of the host, so it needs neither the device nor a stream. Cheap to clone.
#[derive(Clone)]
pub(super) struct LivenessWords(Arc<Inner>);

struct Inner {
    context: Context,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    chunks: Vec<PinnedMemory>,
    /// Words of the last chunk that have never been used.
    unused: u64,
    /// Words whose objects are gone, as they stand.
    free: Vec<(PinnedMemory, u64)>,
}

/// The word of one object: it changes when the value is dropped. A word serves many objects one after another, and never
/// takes a value that it has had.
pub(super) struct LivenessWord {
    words: LivenessWords,
    chunk: PinnedMemory,
    offset: u64,
    generation: u64,
}

impl LivenessWords {
    pub(super) fn new(context: &Context) -> Self {
        Self(Arc::new(Inner { context: context.clone(), state: Mutex::default() }))
    }

    pub(super) fn take(&self) -> Result<LivenessWord> {
        let mut state = lock(&self.0.state);
        let (chunk, offset) = match state.free.pop() {
            Some(returned) => returned,
            None => {
                if state.unused == 0 {
                    state.chunks.push(PinnedMemory::allocate(&self.0.context, CHUNK)?);
                    state.unused = CHUNK / 8;
                }
                state.unused -= 1;
                let offset = CHUNK - 8 * (state.unused + 1);
                let last = state.chunks.last().cloned();
                (last.ok_or_else(|| internal("a chunk has just been allocated"))?, offset)
            }
        };
        let mut word = LivenessWord { words: self.clone(), chunk, offset, generation: 0 };
        word.generation = word.word().load(Ordering::Relaxed);
        Ok(word)
    }
}

fn internal(what: &'static str) -> warpway_core::Error {
    warpway_core::Error::Internal { place: "liveness words", what }
}

impl LivenessWord {
    /// For the device.
    pub(super) fn address(&self) -> u64 {
        self.chunk.address() + self.offset
    }

    /// What the word holds as long as the value lives.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: an aligned word within the chunk, which lives as long as `self`; the host alone writes it.
        unsafe { AtomicU64::from_ptr(self.chunk.host().as_ptr().add(self.offset as usize).cast()) }
    }
}

impl Drop for LivenessWord {
    fn drop(&mut self) {
        // Release: a kernel that sees the new generation sees what was done with the old one.
        self.word().store(self.generation + 1, Ordering::Release);
        lock(&self.words.0.state).free.push((self.chunk.clone(), self.offset));
    }
}

impl fmt::Debug for LivenessWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LivenessWord").field("generation", &self.generation).finish_non_exhaustive()
    }
}
