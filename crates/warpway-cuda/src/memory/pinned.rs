//! Host memory that devices read and write.

use std::ffi::c_void;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use warpway_core::Result;
use warpway_core::memory::MemoryError;
use warpway_cuda_sys::driver_types::{CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTALLOC_PORTABLE, CUdeviceptr};

use crate::capture::RelaxedCapture;
use crate::context::Context;
use crate::in_flight::Lasting;

/// Page-locked host memory, zeroed, for all devices of the process. Cheap to clone; the last clone
/// frees it, after the launches by [`Gpu`](crate::Gpu)s of the process that are under way.
///
/// Kernels and the host touch it at the same time, so it is reached by address only; there are no references to it.
#[derive(Clone)]
pub struct PinnedMemory(Arc<Lasting<Pinned>>);

struct Pinned {
    context: Context,
    host: NonNull<u8>,
    device: CUdeviceptr,
    bytes: u64,
}

// SAFETY: an address and a length; accesses are made by code that follows the rules of shared memory.
unsafe impl Send for Pinned {}
// SAFETY: as above; the value itself is immutable.
unsafe impl Sync for Pinned {}

impl PinnedMemory {
    /// `bytes` of zeroes.
    ///
    /// # Errors
    /// `gpu.driver` if memory is exhausted, `mem.invalid` for no bytes.
    pub fn allocate(context: &Context, bytes: u64) -> Result<Self> {
        let invalid = |why| MemoryError::Invalid { address: 0, size: bytes, why };
        if bytes == 0 {
            return Err(invalid("the size is zero").into());
        }
        let _relaxed = RelaxedCapture::begin(context)?;
        let _entered = context.enter()?;
        let table = context.driver().table();
        let what = format_args!("allocating {bytes} bytes of pinned host memory");
        let mut host: *mut c_void = std::ptr::null_mut();
        let flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: writes one address; the context is current.
        let result = unsafe { (table.cuMemHostAlloc)(&raw mut host, bytes as usize, flags) };
        context.check(what, "cuMemHostAlloc", result)?;
        let host =
            NonNull::new(host.cast::<u8>()).ok_or_else(|| invalid("the driver gave a null address"))?;
        let mut pinned = Pinned { context: context.clone(), host, device: 0, bytes };
        // SAFETY: the bytes have just been allocated, and nobody else knows them.
        unsafe { host.as_ptr().write_bytes(0, bytes as usize) };
        // SAFETY: writes one address; the memory is mapped for devices.
        let result =
            unsafe { (table.cuMemHostGetDevicePointer)(&raw mut pinned.device, host.as_ptr().cast(), 0) };
        context.check(what, "cuMemHostGetDevicePointer", result)?;
        Ok(Self(Arc::new(Lasting::new(context, pinned))))
    }

    /// First byte for the host.
    pub fn host(&self) -> NonNull<u8> {
        self.0.host
    }

    /// First byte for kernels.
    pub fn address(&self) -> u64 {
        self.0.device
    }

    /// Bytes.
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// The context that it was allocated for.
    pub fn context(&self) -> &Context {
        &self.0.context
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _entered = self.context.enter_to_clean_up();
        // SAFETY: allocated by `allocate`, and launches that use it have ended (`Lasting`).
        let result = unsafe { (self.context.driver().table().cuMemFreeHost)(self.host.as_ptr().cast()) };
        self.context.note("freeing pinned host memory", "cuMemFreeHost", result);
    }
}

impl fmt::Debug for PinnedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedMemory").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}
