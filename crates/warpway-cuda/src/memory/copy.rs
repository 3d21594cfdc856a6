//! Copies and fills, in the order of a stream.

use warpway_core::Result as CoreResult;
use warpway_core::gpu::GpuError;

use crate::context::Entered;
use crate::driver::missing;
use crate::stream::Stream;

/// Copies `bytes` between any two addresses that the stream's device reaches, by the copy engine.
///
/// # Errors
/// `gpu.driver`.
///
/// # Safety
/// Both ranges must be valid until the copy is done, and not overlap.
pub unsafe fn copy(stream: &Stream, destination: u64, source: u64, bytes: u64) -> Result<(), GpuError> {
    // SAFETY: the caller answers for the ranges.
    unsafe { stream.context().enter()?.copy(stream, destination, source, bytes) }
}

/// Copies plain values to a device. Returns when the host's copy may be changed, which may be before they have arrived.
///
/// # Errors
/// `gpu.driver`.
///
/// # Safety
/// The destination must be valid until the copy is done.
pub unsafe fn copy_from_host<T: Copy>(
    stream: &Stream,
    destination: u64,
    source: &[T],
) -> Result<(), GpuError> {
    let context = stream.context();
    let _entered = context.enter()?;
    let (at, bytes) = (source.as_ptr().cast(), size_of_val(source));
    // SAFETY: the caller answers for the destination; pageable host memory is staged before the call returns.
    let result =
        unsafe { (context.driver().table().cuMemcpyHtoDAsync)(destination, at, bytes, stream.raw()) };
    let what = format_args!("copying {bytes} bytes to the device");
    context.check(what, "cuMemcpyHtoDAsync", result)
}

/// Copies plain values from a device; they are there when the stream has been synchronised.
///
/// # Errors
/// `gpu.driver`.
///
/// # Safety
/// Both ranges must be valid until the copy is done, and any bytes be a valid `T`.
pub unsafe fn copy_to_host<T: Copy>(
    stream: &Stream,
    destination: &mut [T],
    source: u64,
) -> Result<(), GpuError> {
    let context = stream.context();
    let _entered = context.enter()?;
    let bytes = size_of_val(destination);
    // SAFETY: the caller answers for both ranges.
    let result = unsafe {
        let at = destination.as_mut_ptr().cast();
        (context.driver().table().cuMemcpyDtoHAsync)(at, source, bytes, stream.raw())
    };
    let what = format_args!("copying {bytes} bytes from the device");
    context.check(what, "cuMemcpyDtoHAsync", result)
}

/// Sets bytes of device memory.
///
/// # Errors
/// `gpu.driver`.
///
/// # Safety
/// The range must be valid until the fill is done.
pub unsafe fn fill(stream: &Stream, destination: u64, value: u8, bytes: u64) -> Result<(), GpuError> {
    let context = stream.context();
    let _entered = context.enter()?;
    // SAFETY: the caller answers for the range.
    let result = unsafe {
        (context.driver().table().cuMemsetD8Async)(destination, value, bytes as usize, stream.raw())
    };
    context.check(format_args!("filling {bytes} bytes"), "cuMemsetD8Async", result)
}

/// Writes a 64-bit word after everything that the stream was given before, visible to whoever sees the word. Needs
/// neither a copy engine nor a kernel.
///
/// # Errors
/// `gpu.driver`, for an address that is no multiple of 8; `unavailable` with a driver that does not have the call.
///
/// # Safety
/// The word must be valid until it is written, and be read and written by atomic operations or in order only.
pub unsafe fn write_word(stream: &Stream, address: u64, value: u64) -> CoreResult<()> {
    // SAFETY: the caller answers for the word.
    unsafe { stream.context().enter()?.write_word(stream, address, value) }
}

/// The same for whoever gives several things to streams of the context that has been entered.
impl Entered<'_> {
    /// # Errors
    /// As [`copy`].
    ///
    /// # Safety
    /// As [`copy`]; the stream is one of this context.
    pub(crate) unsafe fn copy(
        &self,
        stream: &Stream,
        destination: u64,
        source: u64,
        bytes: u64,
    ) -> Result<(), GpuError> {
        let call = self.context().driver().table().cuMemcpyAsync;
        // SAFETY: the caller answers for the ranges.
        let result = unsafe { call(destination, source, bytes as usize, stream.raw()) };
        self.context().check(format_args!("copying {bytes} bytes"), "cuMemcpyAsync", result)
    }

    /// Copies bytes of the host to a device, pinned or not; where they are not, the driver has read them when the call
    /// returns.
    ///
    /// # Errors
    /// As [`copy`].
    ///
    /// # Safety
    /// As [`copy`](Self::copy); others may write the source meanwhile, of which the device then sees some mixture.
    pub(crate) unsafe fn copy_from_pageable(
        &self,
        stream: &Stream,
        destination: u64,
        source: u64,
        bytes: u64,
    ) -> Result<(), GpuError> {
        let call = self.context().driver().table().cuMemcpyHtoDAsync;
        let at = std::ptr::with_exposed_provenance(source as usize);
        // SAFETY: the caller answers for the ranges.
        let result = unsafe { call(destination, at, bytes as usize, stream.raw()) };
        let what = format_args!("copying {bytes} bytes to the device");
        self.context().check(what, "cuMemcpyHtoDAsync", result)
    }

    /// # Errors
    /// As [`write_word`].
    ///
    /// # Safety
    /// As [`write_word`]; the stream is one of this context.
    pub(crate) unsafe fn write_word(&self, stream: &Stream, address: u64, value: u64) -> CoreResult<()> {
        let call = "cuStreamWriteValue64";
        let write = self.context().driver().table().cuStreamWriteValue64.ok_or_else(|| missing(call))?;
        // SAFETY: the caller answers for the word; no flag means a fence before the write.
        let result = unsafe { write(stream.raw(), address, value, 0) };
        Ok(self.context().check(format_args!("writing a word at {address:#x}"), call, result)?)
    }
}
