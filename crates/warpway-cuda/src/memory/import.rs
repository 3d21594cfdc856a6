//! Memory of other processes, and of plain allocations of this one.

use std::any::Any;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use warpway_core::Result;
use warpway_core::memory::{FABRIC_HANDLE_BYTES, IPC_HANDLE_BYTES, MemoryError, Region};
use warpway_cuda_sys::driver_types::{CUdeviceptr, CUipcMemHandle};

use super::mapping::{Mapping, Physical};
use crate::context::Context;
use crate::in_flight::Lasting;

/// Makes peers' memory reachable as soon as it is opened; the only flag there is.
const LAZY_PEER_ACCESS: u32 = 1;

/// Another process's allocation, mapped for kernels of one device here. Cheap to clone; the last clone unmaps
/// it, after the launches by [`Gpu`](crate::Gpu)s of the process that are under way.
#[derive(Clone)]
pub struct ImportedMemory(Arc<Lasting<Imported>>);

enum Imported {
    Mapped(Mapping),
    Opened { context: Context, address: CUdeviceptr, bytes: u64 },
}

impl ImportedMemory {
    /// Maps the allocation behind an exported descriptor. `bytes` is the size of all of it, as its owner says; the
    /// driver refuses a size that is not the real one.
    ///
    /// # Errors
    /// `gpu.driver`, for something that is no exported allocation, or without peer access.
    pub fn from_descriptor(context: &Context, descriptor: BorrowedFd<'_>, bytes: u64) -> Result<Self> {
        let physical = Physical::import(context, descriptor, bytes)?;
        let mapped = Imported::Mapped(Mapping::new(physical, &[context])?);
        Ok(Self(Arc::new(Lasting::new(context, mapped))))
    }

    /// Maps the allocation behind a fabric handle. `bytes` as for a descriptor.
    ///
    /// # Errors
    /// `gpu.driver`: no such handle in this device's NVLink domain, or no domain.
    pub fn from_fabric_handle(
        context: &Context,
        handle: &[u8; FABRIC_HANDLE_BYTES],
        bytes: u64,
    ) -> Result<Self> {
        let physical = Physical::import_fabric(context, handle, bytes)?;
        let mapped = Imported::Mapped(Mapping::new(physical, &[context])?);
        Ok(Self(Arc::new(Lasting::new(context, mapped))))
    }

    /// Opens a CUDA IPC handle of a whole allocation. One handle can be open once at a time in a process; who imports
    /// ranges of one allocation shares the value.
    ///
    /// # Errors
    /// `gpu.driver`, for a stale handle, one of this process, or one that is open already.
    pub fn from_ipc_handle(context: &Context, handle: &[u8; IPC_HANDLE_BYTES], bytes: u64) -> Result<Self> {
        let _entered = context.enter()?;
        let handle = CUipcMemHandle { reserved: handle.map(|byte| byte as std::ffi::c_char) };
        let mut address: CUdeviceptr = 0;
        // SAFETY: writes one address; the handle is plain bytes, which the driver checks.
        let result = unsafe {
            (context.driver().table().cuIpcOpenMemHandle)(&raw mut address, handle, LAZY_PEER_ACCESS)
        };
        let what = format_args!("opening an IPC handle of {bytes} bytes");
        context.check(what, "cuIpcOpenMemHandle", result)?;
        let imported = Imported::Opened { context: context.clone(), address, bytes };
        let imported = Self(Arc::new(Lasting::new(context, imported)));
        // Nothing of a peer's numbers is believed: the driver says how long the allocation is.
        let (_, real) = super::foreign::address_range(context, address)?;
        if real < bytes {
            return Err(MemoryError::OutOfBounds {
                operation: "import",
                offset: 0,
                size: bytes,
                limit: real,
            }
            .into());
        }
        Ok(imported)
    }

    /// Does not keep the mapping.
    pub(crate) fn downgrade(&self) -> WeakImport {
        WeakImport(Arc::downgrade(self.0.shared()))
    }

    /// First byte here.
    pub fn address(&self) -> u64 {
        match &**self.0 {
            Imported::Mapped(mapping) => mapping.address(),
            Imported::Opened { address, .. } => *address,
        }
    }

    /// Bytes of the whole allocation.
    pub fn bytes(&self) -> u64 {
        match &**self.0 {
            Imported::Mapped(mapping) => mapping.physical().bytes(),
            Imported::Opened { bytes, .. } => *bytes,
        }
    }

    /// The context for whose kernels it is mapped.
    pub fn context(&self) -> &Context {
        self.0.context()
    }

    /// A range of it that keeps the mapping.
    ///
    /// # Errors
    /// `mem.bounds`.
    pub fn region(&self, offset: u64, size: u64) -> Result<Region> {
        let limit = self.bytes();
        let outside = MemoryError::OutOfBounds { operation: "import", offset, size, limit };
        if offset.checked_add(size).is_none_or(|end| end > limit) {
            return Err(outside.into());
        }
        let address = std::ptr::without_provenance_mut((self.address() + offset) as usize);
        let address = NonNull::new(address).ok_or(outside)?;
        let keeper: Arc<dyn Any + Send + Sync> = Arc::new(self.clone());
        // SAFETY: the keeper owns the mapping, inside of which the range lies (checked above).
        let region = unsafe { Region::new(address, size, self.context().device(), None, Some(keeper)) };
        Ok(region?)
    }
}

/// A mapping that may be gone.
pub(crate) struct WeakImport(Weak<Imported>);

impl WeakImport {
    pub(crate) fn is_mapped(&self) -> bool {
        self.0.strong_count() > 0
    }

    pub(crate) fn upgrade(&self) -> Option<ImportedMemory> {
        let imported = self.0.upgrade()?;
        let context = imported.context().clone();
        Some(ImportedMemory(Arc::new(Lasting::sharing(&context, imported))))
    }
}

impl Imported {
    fn context(&self) -> &Context {
        match self {
            Self::Mapped(mapping) => mapping.context(),
            Self::Opened { context, .. } => context,
        }
    }
}

impl Drop for Imported {
    fn drop(&mut self) {
        if let Self::Opened { context, address, .. } = self {
            let _entered = context.enter_to_clean_up();
            // SAFETY: opened by `from_ipc_handle`, and launches that use it have ended (`Lasting`).
            let result = unsafe { (context.driver().table().cuIpcCloseMemHandle)(*address) };
            context.note("closing an IPC handle", "cuIpcCloseMemHandle", result);
        }
    }
}

impl fmt::Debug for ImportedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImportedMemory")
            .field("address", &format_args!("{:#x}", self.address()))
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}
