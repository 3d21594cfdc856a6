//! Our own allocations on a device.

use std::any::Any;
use std::fmt;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use warpway_core::Result;
use warpway_core::memory::{Backing, MemoryError, Region};
use warpway_cuda_sys::driver_types::CUdeviceptr;

use super::mapping::{Mapping, Physical};
use super::staging::DeviceStaging;
use crate::capture::RelaxedCapture;
use crate::context::Context;
use crate::in_flight::Lasting;

/// Memory of one device, zeroed by nobody. Cheap to clone; the last clone frees it, after
/// the launches by [`Gpu`](crate::Gpu)s of the process that are under way.
///
/// Where the device can export file descriptors, other processes map the memory through one; elsewhere it is a plain
/// allocation, which CUDA IPC exports.
#[derive(Clone)]
pub struct DeviceMemory(Arc<Lasting<Allocation>>);

enum Allocation {
    Mapped { mapping: Mapping, bytes: u64, descriptor: OnceLock<Arc<OwnedFd>> },
    Plain { context: Context, address: CUdeviceptr, bytes: u64 },
}

impl DeviceMemory {
    /// `bytes` on the context's device, which kernels of `peers` in this process may touch as well.
    ///
    /// # Errors
    /// `gpu.driver` if memory is exhausted, `mem.invalid` for no bytes, `gpu.device` without peer access.
    pub fn allocate(context: &Context, bytes: u64, peers: &[&Context]) -> Result<Self> {
        if bytes == 0 {
            return Err(MemoryError::Invalid { address: 0, size: 0, why: "the size is zero" }.into());
        }
        if !context.info().exports_descriptors {
            return Self::plain(context, bytes, peers);
        }
        let _relaxed = RelaxedCapture::begin(context)?;
        // What has been dropped may be in the way.
        context.driver().in_flight().release();
        // Permissions of a mapping go by device, but only where the hardware reaches it.
        for peer in peers {
            peer.enable_peer(context)?;
        }
        let mapping = Mapping::new(Physical::allocate(context, bytes)?, peers)?;
        let allocation = Allocation::Mapped { mapping, bytes, descriptor: OnceLock::new() };
        Ok(Self(Arc::new(Lasting::new(context, allocation))))
    }

    /// The same as a plain allocation, as other libraries make them.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    pub fn plain(context: &Context, bytes: u64, peers: &[&Context]) -> Result<Self> {
        let _relaxed = RelaxedCapture::begin(context)?;
        for peer in peers {
            peer.enable_peer(context)?;
        }
        context.driver().in_flight().release();
        let _entered = context.enter()?;
        let mut address: CUdeviceptr = 0;
        // SAFETY: writes one address; the context is current.
        let result = unsafe { (context.driver().table().cuMemAlloc)(&raw mut address, bytes as usize) };
        context.check(format_args!("allocating {bytes} bytes"), "cuMemAlloc", result)?;
        let allocation = Allocation::Plain { context: context.clone(), address, bytes };
        Ok(Self(Arc::new(Lasting::new(context, allocation))))
    }

    /// First byte, in the address space of this process's devices.
    pub fn address(&self) -> u64 {
        match &**self.0 {
            Allocation::Mapped { mapping, .. } => mapping.address(),
            Allocation::Plain { address, .. } => *address,
        }
    }

    /// Bytes asked for.
    pub fn bytes(&self) -> u64 {
        match &**self.0 {
            Allocation::Mapped { bytes, .. } | Allocation::Plain { bytes, .. } => *bytes,
        }
    }

    /// The context.
    pub fn context(&self) -> &Context {
        match &**self.0 {
            Allocation::Mapped { mapping, .. } => mapping.context(),
            Allocation::Plain { context, .. } => context,
        }
    }

    /// What is registered with a communicator: a range that keeps the memory, with its descriptor where there is one.
    ///
    /// # Errors
    /// `gpu.driver` if the memory cannot be exported.
    pub fn region(&self) -> Result<Region> {
        let backing = match &**self.0 {
            Allocation::Mapped { mapping, descriptor, .. } => Some(Backing {
                descriptor: match descriptor.get() {
                    Some(known) => Arc::clone(known),
                    None => {
                        let made = Arc::new(mapping.physical().export()?);
                        Arc::clone(descriptor.get_or_init(|| made))
                    }
                },
                offset: 0,
                allocation_size: mapping.physical().bytes(),
            }),
            Allocation::Plain { .. } => None,
        };
        let address = std::ptr::without_provenance_mut(self.address() as usize);
        let address = NonNull::new(address).ok_or(MemoryError::Invalid {
            address: 0,
            size: self.bytes(),
            why: "the driver gave a null address",
        })?;
        let keeper: Arc<dyn Any + Send + Sync> = Arc::new(self.clone());
        // SAFETY: the keeper owns the allocation, all of which stays mapped on the device; no Rust reference to device
        // memory is ever made.
        let region =
            unsafe { Region::new(address, self.bytes(), self.context().device(), backing, Some(keeper)) };
        Ok(region?.with_staging(Arc::new(DeviceStaging::new(self.context()))))
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if let Self::Plain { context, address, .. } = self {
            let _entered = context.enter_to_clean_up();
            // SAFETY: allocated by `plain`, and launches that use it have ended (`Lasting`).
            let result = unsafe { (context.driver().table().cuMemFree)(*address) };
            context.note("freeing memory", "cuMemFree", result);
        }
    }
}

impl fmt::Debug for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceMemory")
            .field("address", &format_args!("{:#x}", self.address()))
            .field("bytes", &self.bytes())
            .field("device", &self.context().ordinal())
            .finish_non_exhaustive()
    }
}
