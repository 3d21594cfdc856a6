//! The ring that kernels fill.
//!
//! Slots and tail are pinned host memory: the proxy reads the first and writes the second without crossing the bus. The
//! head and the copy of the tail that producers look at are device memory, where their atomics are fast; the host
//! reads the head only when the proxy stops.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use warpway_core::fifo::{EncodedTrigger, MAX_FIFO_SIZE, Slot};
use warpway_core::proxy::{ProgressWord, ProxyError, TriggerSource};
use warpway_core::{Result, Timeout};

use super::words::{PinnedWord, PinnedWords};
use crate::capture::RelaxedCapture;
use crate::context::{Context, lock};
use crate::handle::{FifoHandle, Site};
use crate::memory::{DeviceMemory, PinnedMemory, copy, copy_from_host};
use crate::stream::Stream;

/// Offsets of the counters in device memory, on lines of their own: the second one is read by every producer.
const HEAD: u64 = 0;
const CACHED_TAIL: u64 = 128;
const COUNTERS: u64 = 256;

/// Limit of a copy of one counter: no kernel is waited for in it.
const COPY: Timeout = Timeout::after(Duration::from_secs(10));

const SLOT: u64 = size_of::<Slot>() as u64;

/// A trigger FIFO whose producers are kernels. Cheap to clone; it must outlive the kernels that push.
#[derive(Clone)]
pub struct DeviceFifo(Arc<Inner>);

struct Inner {
    // Dropped first: it may still be copying.
    reader: Mutex<Reader>,
    slots: PinnedMemory,
    counters: DeviceMemory,
    tail: PinnedWord,
    words: PinnedWords,
    size: u64,
}

/// What brings a counter to the host.
struct Reader {
    stream: Stream,
    place: PinnedWord,
}

impl DeviceFifo {
    /// An empty FIFO of `size` elements for kernels of the context's device.
    ///
    /// # Errors
    /// `fifo.size` unless the size is a power of two from 2 to [`MAX_FIFO_SIZE`]; `gpu.driver` if memory is exhausted.
    pub fn new(context: &Context, size: u64) -> Result<Self> {
        if !size.is_power_of_two() || !(2..=MAX_FIFO_SIZE).contains(&size) {
            return Err(ProxyError::FifoSize { size }.into());
        }
        let words = PinnedWords::new(context)?;
        let slots = PinnedMemory::allocate(context, size * SLOT)?;
        let counters = DeviceMemory::plain(context, COUNTERS, &[])?;
        let stream = Stream::new(context)?;
        let zeroes = [0u64; COUNTERS as usize / 8];
        // SAFETY: the allocation is that long, and nobody else knows it.
        unsafe { copy_from_host(&stream, counters.address(), &zeroes)? };
        stream.synchronize(COPY.start())?;
        let reader = Mutex::new(Reader { stream, place: words.take()? });
        Ok(Self(Arc::new(Inner { reader, slots, counters, tail: words.take()?, words, size })))
    }

    /// What a kernel pushes with: `warpway::Fifo`. Valid as long as the FIFO; `site` says whose failures its waits report.
    pub fn handle(&self, site: Site) -> FifoHandle {
        let Inner { slots, counters, tail, size, .. } = &*self.0;
        FifoHandle {
            slots: slots.address(),
            head: counters.address() + HEAD,
            tail: tail.address(),
            cached_tail: counters.address() + CACHED_TAIL,
            size: *size,
            site,
        }
    }
}

impl TriggerSource for DeviceFifo {
    fn size(&self) -> u64 {
        self.0.size
    }

    #[inline]
    fn front(&self, position: u64) -> Option<EncodedTrigger> {
        let index = position & (self.0.size - 1);
        // SAFETY: a slot within the ring, aligned (the memory begins at a page) and alive as long as `self`. It consists of
        // atomics, for which every bit pattern is valid; kernels write each word of it by one store.
        let slot = unsafe { self.0.slots.host().cast::<Slot>().add(index as usize).as_ref() };
        slot.read(position, self.0.size)
    }

    #[inline]
    fn publish_tail(&self, tail: u64) {
        // Pairs with the system-scope acquire of producers: they overwrite a slot after it has been read.
        self.0.tail.store(tail);
    }

    fn head(&self) -> Result<u64> {
        let reader = lock(&self.0.reader);
        let _relaxed = RelaxedCapture::begin(reader.stream.context())?;
        // SAFETY: both words live as long as `self`, whose stream is dropped before them.
        unsafe { copy(&reader.stream, reader.place.address(), self.0.counters.address() + HEAD, 8)? };
        reader.stream.synchronize(COPY.start())?;
        Ok(reader.place.get().load(Ordering::Acquire))
    }

    fn progress_word(&self) -> Result<Arc<dyn ProgressWord>> {
        Ok(Arc::new(self.0.words.take()?))
    }
}

impl fmt::Debug for DeviceFifo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceFifo")
            .field("size", &self.0.size)
            .field("tail", &self.0.tail)
            .finish_non_exhaustive()
    }
}
