//! Pointers of other libraries: what is behind them, and how it can be made known to peers.

use std::ffi::{c_int, c_void};
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use warpway_core::Result;
use warpway_core::gpu::GpuError;
use warpway_core::memory::{FABRIC_HANDLE_BYTES, IPC_HANDLE_BYTES, MemoryError, Region};
use warpway_core::transport::Transport;
use warpway_cuda_sys::driver_types::{
    CU_MEM_HANDLE_TYPE_FABRIC, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CU_MEMORYTYPE_DEVICE,
    CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, CU_POINTER_ATTRIBUTE_BUFFER_ID,
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
    CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CUDA_ERROR_INVALID_VALUE, CUdeviceptr,
    CUipcMemHandle, CUpointer_attribute_enum,
};

use super::mapping::Physical;
use super::staging::DeviceStaging;
use crate::context::Context;
use crate::driver::Driver;

/// How an allocation can be exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForeignKind {
    /// As a file descriptor: allocated piece by piece with that in mind.
    Descriptor,
    /// By CUDA IPC: a plain allocation.
    Ipc,
    /// As a fabric handle, and in no other way.
    Fabric,
    /// Not at all, and why.
    Neither(&'static str),
}

/// An allocation that somebody else made, found by an address in it.
#[derive(Debug, Clone)]
pub struct Foreign {
    /// First byte of the whole allocation.
    pub base: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Ordinal of its device.
    pub device: i32,
    /// The driver's number of it, never used again in this process.
    pub id: u64,
    /// How it can be exported.
    pub kind: ForeignKind,
    /// It was made for fabric handles, maybe besides.
    pub fabric: bool,
}

impl Foreign {
    /// Looks an address of the context's device up. The range `address..address + size` must lie in one allocation.
    ///
    /// # Errors
    /// `mem.invalid` for an address that is no device memory, or has been freed, and for a range of several mapped
    /// allocations; `gpu.device` for memory of another device; `mem.bounds`.
    pub fn find(context: &Context, address: u64, size: u64) -> Result<Self> {
        let driver = context.driver();
        let invalid = |why| MemoryError::Invalid { address, size, why };
        let memory_type = attribute::<u32>(driver, address, CU_POINTER_ATTRIBUTE_MEMORY_TYPE)?;
        match memory_type {
            Some(CU_MEMORYTYPE_DEVICE) => {}
            Some(_) => return Err(invalid("it is host memory; pass memory of a device").into()),
            None => return Err(invalid("the driver knows no allocation there; has it been freed?").into()),
        }
        if attribute::<u32>(driver, address, CU_POINTER_ATTRIBUTE_IS_MANAGED)?.unwrap_or(0) != 0 {
            return Err(invalid("it is managed memory, which moves; pass plain device memory").into());
        }
        let device = attribute::<c_int>(driver, address, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)?;
        let device = device.ok_or_else(|| invalid("it belongs to no device"))?;
        if device != context.ordinal() {
            return Err(GpuError::Device {
                what: format!("looking up {size} bytes at {address:#x}"),
                device: context.ordinal(),
                why: format!("they are memory of device {device}"),
                hint: Some("each rank registers memory of its own device"),
            }
            .into());
        }
        let (base, bytes) = address_range(context, address)?;
        let handles =
            attribute::<u64>(driver, address, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES)?.unwrap_or(0);
        let fabric = handles & u64::from(CU_MEM_HANDLE_TYPE_FABRIC) != 0;
        let ipc = attribute::<u32>(driver, address, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE)?;
        let kind = if handles & u64::from(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0 {
            ForeignKind::Descriptor
        } else if ipc.unwrap_or(0) != 0 {
            ForeignKind::Ipc
        } else if fabric {
            ForeignKind::Fabric
        } else {
            ForeignKind::Neither(
                "its allocator made it for this process only (a memory pool, or expandable segments); stage it",
            )
        };
        let offset = address - base;
        if offset.checked_add(size).is_none_or(|end| end > bytes) {
            let goes_on = || attribute::<u32>(driver, base + bytes, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
            if kind != ForeignKind::Ipc && goes_on()?.is_some() {
                return Err(invalid(
                    "it lies in several allocations side by side, as expandable segments of PyTorch are made; turn those off",
                )
                .into());
            }
            return Err(
                MemoryError::OutOfBounds { operation: "registration", offset, size, limit: bytes }.into()
            );
        }
        let id = attribute::<u64>(driver, address, CU_POINTER_ATTRIBUTE_BUFFER_ID)?;
        let id = id.ok_or_else(|| invalid("the driver has no number for it"))?;
        Ok(Self { base, bytes, device, id, kind, fabric })
    }

    /// Memory of the context's device that somebody else has allocated, to be registered: `size` bytes at `address`, all
    /// in one allocation.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    ///
    /// # Safety
    /// The memory must stay allocated as long as the region, and what is made of it.
    pub unsafe fn region(context: &Context, address: u64, size: u64) -> Result<Region> {
        Self::find(context, address, size)?;
        let invalid = MemoryError::Invalid { address, size, why: "the address is null" };
        let first = NonNull::new(std::ptr::without_provenance_mut(address as usize)).ok_or(invalid)?;
        // SAFETY: the driver knows the range as device memory (above), of which no Rust reference is ever made; the caller
        // keeps it allocated.
        let region = unsafe { Region::new(first, size, context.device(), None, None)? };
        Ok(region.with_staging(Arc::new(DeviceStaging::new(context))))
    }

    /// A descriptor of the allocation, for other processes.
    ///
    /// # Errors
    /// `gpu.driver`; `mem.export` for another kind.
    pub fn export_descriptor(&self, context: &Context) -> Result<OwnedFd> {
        self.require(ForeignKind::Descriptor)?;
        Physical::behind(context, self.base, self.bytes)?.export()
    }

    /// A fabric handle of the allocation, for the processes of an NVLink domain.
    ///
    /// # Errors
    /// `gpu.driver`, of memory that was not made for it as well.
    pub fn export_fabric(&self, context: &Context) -> Result<[u8; FABRIC_HANDLE_BYTES]> {
        Physical::behind(context, self.base, self.bytes)?.export_fabric()
    }

    /// A CUDA IPC handle of the allocation, for other processes.
    ///
    /// # Errors
    /// `gpu.driver`; `mem.export` for another kind.
    pub fn export_ipc(&self, context: &Context) -> Result<[u8; IPC_HANDLE_BYTES]> {
        self.require(ForeignKind::Ipc)?;
        let _entered = context.enter()?;
        let mut handle = CUipcMemHandle::default();
        // SAFETY: writes 64 bytes; the driver checks the address.
        let result = unsafe { (context.driver().table().cuIpcGetMemHandle)(&raw mut handle, self.base) };
        let what = format_args!("exporting {} bytes", self.bytes);
        context.check(what, "cuIpcGetMemHandle", result)?;
        Ok(handle.reserved.map(|byte| byte as u8))
    }

    fn require(&self, kind: ForeignKind) -> Result<(), MemoryError> {
        if self.kind == kind {
            return Ok(());
        }
        let why = match self.kind {
            ForeignKind::Neither(why) => why,
            ForeignKind::Descriptor => "it is exported as a file descriptor",
            ForeignKind::Ipc => "it is exported by CUDA IPC",
            ForeignKind::Fabric => "it is exported by fabric handle",
        };
        Err(MemoryError::NotExportable {
            address: self.base,
            size: self.bytes,
            transport: Transport::CudaIpc,
            why,
        })
    }
}

/// Base and bytes of the allocation around an address.
pub(super) fn address_range(context: &Context, address: u64) -> Result<(u64, u64), GpuError> {
    let _entered = context.enter()?;
    let (mut base, mut bytes): (CUdeviceptr, usize) = (0, 0);
    // SAFETY: writes two numbers; the driver checks the address.
    let result =
        unsafe { (context.driver().table().cuMemGetAddressRange)(&raw mut base, &raw mut bytes, address) };
    let what = format_args!("looking up {address:#x}");
    context.check(what, "cuMemGetAddressRange", result)?;
    Ok((base, bytes as u64))
}

/// One attribute of an address; `None` for an address that the driver does not know.
fn attribute<T: Default>(
    driver: &Driver,
    address: u64,
    attribute: CUpointer_attribute_enum,
) -> Result<Option<T>, GpuError> {
    let mut value = T::default();
    // SAFETY: each caller gives the type that the driver documents for the attribute.
    let result = unsafe {
        let at = (&raw mut value).cast::<c_void>();
        (driver.table().cuPointerGetAttribute)(at, attribute, address)
    };
    if result == CUDA_ERROR_INVALID_VALUE {
        return Ok(None);
    }
    let what = format_args!("asking what is at {address:#x}");
    driver.check(what, "cuPointerGetAttribute", result).map(|()| Some(value))
}
