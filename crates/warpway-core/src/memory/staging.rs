//! How a host thread moves bytes to and from memory that only a device touches: through host buffers, by copies
//! of the device. Engines of devices provide it, engines that reach memory by the CPU use it.

use std::fmt;
use std::ptr::NonNull;

use super::Region;
use crate::error::Result;

/// Provided by the engine of a device for the memory on it; see [`Region::with_staging`].
///
/// No call waits for kernels, and each gives up in the end: a kernel may be waiting for what the caller brings.
pub trait Staging: Send + Sync + fmt::Debug {
    /// For one thread at a time that reads.
    ///
    /// # Errors
    /// If there is no memory for buffers.
    fn reader(&self) -> Result<Box<dyn StagedReader>>;

    /// For one thread at a time that writes.
    ///
    /// # Errors
    /// If there is no memory for buffers.
    fn writer(&self) -> Result<Box<dyn StagedWriter>>;
}

/// Brings bytes to the host, one request while another one is being used. Dropping it waits for what is under way.
pub trait StagedReader: Send {
    /// Bytes of a request at most.
    fn limit(&self) -> u64;

    /// Begins to bring `size` bytes of `region`, which must stay valid until then; at most two requests that have not
    /// been [released](Self::release).
    ///
    /// # Errors
    /// `mem.bounds`, a third request, a failure of the device.
    fn request(&mut self, region: &Region, offset: u64, size: u64) -> Result<()>;

    /// Requests that have not been released.
    fn requests(&self) -> usize;

    /// Waits for the oldest request. Its bytes stay until it is released.
    ///
    /// # Errors
    /// If there is none, a failure of the device.
    fn wait(&mut self) -> Result<NonNull<u8>>;

    /// The bytes of the oldest request are not needed any more.
    fn release(&mut self);
}

/// Takes bytes and words to the device; they take effect in the order of the calls. Dropping it waits for them.
pub trait StagedWriter: Send {
    /// Bytes of a buffer.
    fn limit(&self) -> u64;

    /// The next buffer to fill; waits until what it held has been copied.
    ///
    /// # Errors
    /// A failure of the device.
    fn buffer(&mut self) -> Result<NonNull<u8>>;

    /// Copies the first `size` bytes of that buffer to `region`, which must stay valid until [`drain`](Self::drain).
    ///
    /// # Errors
    /// `mem.bounds`, more than the buffer has, a failure of the device.
    fn write(&mut self, region: &Region, offset: u64, size: u64) -> Result<()>;

    /// Makes a 64-bit word equal `value`.
    ///
    /// # Errors
    /// `mem.bounds`, `mem.alignment`, a failure of the device.
    fn store(&mut self, region: &Region, offset: u64, value: u64) -> Result<()>;

    /// Adds to a 64-bit word (wrapping). Atomic with respect to this writer alone; waits for what came before.
    ///
    /// # Errors
    /// As [`store`](Self::store).
    fn add(&mut self, region: &Region, offset: u64, delta: u64) -> Result<()>;

    /// Waits until everything has arrived.
    ///
    /// # Errors
    /// A failure of the device.
    fn drain(&mut self) -> Result<()>;
}
