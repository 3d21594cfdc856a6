//! Memory of a device for threads of the host: pinned buffers, and a stream that copies in their order.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use warpway_core::gpu::GpuError;
use warpway_core::memory::{MemoryError, Region, StagedReader, StagedWriter, Staging};
use warpway_core::{Error, Result, Timeout};

use super::{PinnedMemory, copy, write_word};
use crate::capture::RelaxedCapture;
use crate::context::Context;
use crate::event::Event;
use crate::stream::Stream;

/// Bytes of a buffer: a copy takes some 10 µs besides its 10 µs per 512 KiB.
const BUFFER: u64 = 512 << 10;

/// Requests of a reader: one is sent while the next one comes.
const READS: usize = 2;

/// Buffers of a writer: one is filled, one is copied, one may be late.
const WRITES: usize = 3;

/// Bytes behind the buffers: a word that is read, and one that is written where the stream does not write by itself.
const WORDS: u64 = 16;

/// Longer than any copy waits for others: it waits for no kernel.
const PATIENCE: Timeout = Timeout::after(Duration::from_secs(30));

/// How threads of the host reach memory of one device.
#[derive(Debug)]
pub(crate) struct DeviceStaging {
    context: Context,
}

impl DeviceStaging {
    pub(crate) fn new(context: &Context) -> Self {
        Self { context: context.clone() }
    }
}

impl Staging for DeviceStaging {
    fn reader(&self) -> Result<Box<dyn StagedReader>> {
        Ok(Box::new(Reader { lane: Lane::new(&self.context, READS)?, first: 0, requests: 0 }))
    }

    fn writer(&self) -> Result<Box<dyn StagedWriter>> {
        Ok(Box::new(Writer { lane: Lane::new(&self.context, WRITES)?, next: 0 }))
    }
}

/// Buffers and the stream that copies them.
struct Lane {
    stream: Stream,
    /// For each buffer, the end of its last copy.
    copied: Vec<Event>,
    /// The words behind them.
    buffers: PinnedMemory,
}

impl Lane {
    fn new(context: &Context, count: usize) -> Result<Self> {
        let buffers = PinnedMemory::allocate(context, count as u64 * BUFFER + WORDS)?;
        let stream = Stream::new(context)?;
        let copied = (0..count).map(|_| Event::new(context)).collect::<Result<_, _>>()?;
        Ok(Self { stream, copied, buffers })
    }

    /// A buffer's address for the device.
    fn device_address(&self, index: usize) -> u64 {
        self.buffers.address() + index as u64 * BUFFER
    }

    fn host_address(&self, index: usize) -> NonNull<u8> {
        // SAFETY: the index is below the count, so the offset lies in the allocation.
        unsafe { self.buffers.host().add(index * BUFFER as usize) }
    }

    /// The device's address of one of the two words behind the buffers, and the word for the host.
    fn word(&self, index: u64) -> (u64, &AtomicU64) {
        let offset = self.copied.len() as u64 * BUFFER + index % 2 * 8;
        // SAFETY: an aligned word within the allocation, which host and device touch by whole accesses only.
        let word = unsafe { AtomicU64::from_ptr(self.buffers.host().as_ptr().add(offset as usize).cast()) };
        (self.buffers.address() + offset, word)
    }

    /// Copies, and notes the end for the buffer.
    ///
    /// # Safety
    /// Both ranges must stay valid until the copy is done.
    unsafe fn copy(&self, index: usize, destination: u64, source: u64, size: u64) -> Result<()> {
        let _relaxed = RelaxedCapture::begin(self.stream.context())?;
        // SAFETY: the caller's; a buffer and memory of a device do not overlap.
        unsafe { copy(&self.stream, destination, source, size)? };
        Ok(self.event(index)?.record(&self.stream)?)
    }

    fn await_copy(&self, index: usize) -> Result<()> {
        let _relaxed = RelaxedCapture::begin(self.stream.context())?;
        let event = self.event(index)?;
        let deadline = PATIENCE.start();
        while !event.is_done()? {
            if deadline.expired() {
                // Says what it waited for.
                return Ok(self.stream.synchronize(deadline)?);
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    fn event(&self, index: usize) -> Result<&Event> {
        self.copied.get(index).ok_or(internal("a buffer that there is"))
    }

    fn drain(&self) -> Result<()> {
        let _relaxed = RelaxedCapture::begin(self.stream.context())?;
        Ok(self.stream.synchronize(PATIENCE.start())?)
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // What is copied may go away after this. A device that has failed copies nothing any more.
        let _relaxed = RelaxedCapture::begin(self.stream.context());
        if let Err(error) = self.stream.settle(PATIENCE.start()) {
            tracing::warn!(target: "warpway::gpu", %error, "a staging stream was not done when it was dropped");
            if matches!(error, GpuError::Timeout { .. }) {
                // It may still copy.
                std::mem::forget(self.buffers.clone());
            }
        }
    }
}

struct Reader {
    lane: Lane,
    /// Buffer of the oldest request.
    first: usize,
    requests: usize,
}

impl StagedReader for Reader {
    fn limit(&self) -> u64 {
        BUFFER
    }

    fn request(&mut self, region: &Region, offset: u64, size: u64) -> Result<()> {
        let source = checked(region, "staged read", offset, size, BUFFER)?;
        if self.requests == READS {
            return Err(internal("at most two requests at a time"));
        }
        let index = (self.first + self.requests) % READS;
        // SAFETY: in range; the caller keeps the region, and dropping the lane waits.
        unsafe { self.lane.copy(index, self.lane.device_address(index), source, size)? };
        self.requests += 1;
        Ok(())
    }

    fn requests(&self) -> usize {
        self.requests
    }

    fn wait(&mut self) -> Result<NonNull<u8>> {
        if self.requests == 0 {
            return Err(internal("a request to wait for"));
        }
        self.lane.await_copy(self.first)?;
        Ok(self.lane.host_address(self.first))
    }

    fn release(&mut self) {
        if self.requests > 0 {
            self.requests -= 1;
            self.first = (self.first + 1) % READS;
        }
    }
}

struct Writer {
    lane: Lane,
    /// The buffer to fill.
    next: usize,
}

impl StagedWriter for Writer {
    fn limit(&self) -> u64 {
        BUFFER
    }

    fn buffer(&mut self) -> Result<NonNull<u8>> {
        self.lane.await_copy(self.next)?;
        Ok(self.lane.host_address(self.next))
    }

    fn write(&mut self, region: &Region, offset: u64, size: u64) -> Result<()> {
        let destination = checked(region, "staged write", offset, size, BUFFER)?;
        let index = self.next;
        // SAFETY: in range; the caller keeps the region until it has drained, and dropping the lane waits.
        unsafe { self.lane.copy(index, destination, self.lane.device_address(index), size)? };
        self.next = (index + 1) % WRITES;
        Ok(())
    }

    fn store(&mut self, region: &Region, offset: u64, value: u64) -> Result<()> {
        let address = word(region, "staged store", offset)?;
        let Lane { stream, .. } = &self.lane;
        if stream.context().writes_words() {
            // SAFETY: in range and aligned; the caller keeps the region until it has drained.
            return unsafe { write_word(stream, address, value) };
        }
        // The word before has been copied after this.
        self.lane.drain()?;
        let (source, place) = self.lane.word(0);
        place.store(value, Ordering::Release);
        // SAFETY: as above; the word lives as long as the lane, which waits when it is dropped.
        unsafe { copy(stream, address, source, 8) }?;
        Ok(())
    }

    fn add(&mut self, region: &Region, offset: u64, delta: u64) -> Result<()> {
        let address = word(region, "staged add", offset)?;
        let (place, before) = self.lane.word(1);
        // SAFETY: in range, kept as above; the word of our own lives as long as the lane.
        unsafe { copy(&self.lane.stream, place, address, 8)? };
        self.lane.drain()?;
        let sum = before.load(Ordering::Acquire).wrapping_add(delta);
        self.store(region, offset, sum)
    }

    fn drain(&mut self) -> Result<()> {
        self.lane.drain()
    }
}

/// The device address of a range that is checked.
fn checked(region: &Region, operation: &'static str, offset: u64, size: u64, limit: u64) -> Result<u64> {
    if size > limit {
        return Err(MemoryError::OutOfBounds { operation, offset: 0, size, limit }.into());
    }
    Ok(region.slice(offset, size)?.address().as_ptr() as u64)
}

fn word(region: &Region, operation: &'static str, offset: u64) -> Result<u64> {
    let address = checked(region, operation, offset, 8, 8)?;
    if !address.is_multiple_of(8) {
        return Err(MemoryError::Misaligned { operation, offset, alignment: 8 }.into());
    }
    Ok(address)
}

fn internal(what: &'static str) -> Error {
    Error::Internal { place: "staging", what }
}
