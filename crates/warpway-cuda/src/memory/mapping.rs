//! Physical memory and where it lies: the driver's virtual memory management.

use std::ffi::c_int;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use warpway_core::gpu::GpuError;
use warpway_core::memory::FABRIC_HANDLE_BYTES;
use warpway_core::{Error, Result};
use warpway_cuda_sys::driver_types::{
    CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED, CU_MEM_ALLOCATION_TYPE_PINNED,
    CU_MEM_HANDLE_TYPE_FABRIC, CU_MEM_HANDLE_TYPE_NONE, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
    CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_ALREADY_MAPPED, CUDA_ERROR_INVALID_VALUE,
    CUDA_ERROR_NOT_PERMITTED, CUDA_ERROR_NOT_SUPPORTED, CUdeviceptr, CUmemAccessDesc,
    CUmemAllocationHandleType_enum, CUmemAllocationProp, CUmemFabricHandle_st, CUmemGenericAllocationHandle,
    CUmemLocation,
};

use crate::context::Context;
use crate::driver::missing;

/// Physical memory of one device, maybe of another process.
#[derive(Debug)]
pub(super) struct Physical {
    context: Context,
    handle: CUmemGenericAllocationHandle,
    bytes: u64,
}

/// Physical memory at an address of this process.
#[derive(Debug)]
pub(super) struct Mapping {
    physical: Physical,
    address: CUdeviceptr,
    /// Reserved; mapped once the memory is there.
    mapped: bool,
}

macro_rules! optional {
    ($context:expr, $function:ident) => {
        $context.driver().table().$function.ok_or_else(|| missing(stringify!($function)))
    };
}

impl Physical {
    /// At least `bytes` on the context's device, exportable as a file descriptor, and as a fabric handle where that works.
    pub(super) fn allocate(context: &Context, bytes: u64) -> Result<Self> {
        let handle_types = match context.info().exports_descriptors {
            true => CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
            false => CU_MEM_HANDLE_TYPE_NONE,
        };
        if context.fabric().works() {
            match Self::create(context, bytes, handle_types | CU_MEM_HANDLE_TYPE_FABRIC) {
                // The device could, but the system does not let it: no service for the domain (IMEX), or no permission.
                Err(Error::Gpu(error)) if is_refusal(&error) => context.fabric().give_up(&error),
                made => return made,
            }
        }
        Self::create(context, bytes, handle_types)
    }

    /// The same, exportable as a fabric handle only.
    pub(super) fn allocate_for_fabric(context: &Context, bytes: u64) -> Result<Self> {
        Self::create(context, bytes, CU_MEM_HANDLE_TYPE_FABRIC)
    }

    fn create(context: &Context, bytes: u64, handle_types: CUmemAllocationHandleType_enum) -> Result<Self> {
        let properties = CUmemAllocationProp {
            type_: CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: handle_types,
            location: location(context),
            ..CUmemAllocationProp::default()
        };
        let granularity = optional!(context, cuMemGetAllocationGranularity)?;
        let create = optional!(context, cuMemCreate)?;
        let what = format_args!("allocating {bytes} bytes");
        let mut unit = 0usize;
        // SAFETY: reads the properties, writes one number.
        let result = unsafe {
            granularity(&raw mut unit, &raw const properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
        };
        context.check(what, "cuMemGetAllocationGranularity", result)?;
        let whole = bytes.max(1).checked_next_multiple_of(unit.max(1) as u64);
        let whole = whole.ok_or_else(|| too_large(context, bytes))?;
        let mut handle = 0;
        // SAFETY: writes one handle, reads the properties; flags must be 0.
        let result = unsafe { create(&raw mut handle, whole as usize, &raw const properties, 0) };
        context.check(what, "cuMemCreate", result)?;
        Ok(Self { context: context.clone(), handle, bytes: whole })
    }

    /// The memory behind a descriptor that another process has exported.
    pub(super) fn import(context: &Context, descriptor: BorrowedFd<'_>, bytes: u64) -> Result<Self> {
        let import = optional!(context, cuMemImportFromShareableHandle)?;
        let _entered = context.enter()?;
        let mut handle = 0;
        // The driver takes the number itself in place of a pointer, and duplicates what it names.
        let number = std::ptr::without_provenance_mut(descriptor.as_raw_fd() as usize);
        // SAFETY: writes one handle; the descriptor is open.
        let result = unsafe { import(&raw mut handle, number, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) };
        let what = format_args!("importing {bytes} bytes");
        context.check(what, "cuMemImportFromShareableHandle", result)?;
        Ok(Self { context: context.clone(), handle, bytes })
    }

    /// The memory behind a fabric handle of another process, maybe on another host.
    pub(super) fn import_fabric(
        context: &Context,
        handle: &[u8; FABRIC_HANDLE_BYTES],
        bytes: u64,
    ) -> Result<Self> {
        let import = optional!(context, cuMemImportFromShareableHandle)?;
        let _entered = context.enter()?;
        let mut shared = CUmemFabricHandle_st { data: *handle };
        let mut handle = 0;
        let at = (&raw mut shared).cast();
        // SAFETY: writes one handle, reads 64 bytes, which the driver checks.
        let result = unsafe { import(&raw mut handle, at, CU_MEM_HANDLE_TYPE_FABRIC) };
        let what = format_args!("importing {bytes} bytes from the fabric");
        context.check(what, "cuMemImportFromShareableHandle", result)?;
        Ok(Self { context: context.clone(), handle, bytes })
    }

    /// The memory at an address of this process, whoever mapped it there.
    pub(super) fn behind(context: &Context, address: u64, bytes: u64) -> Result<Self> {
        let retain = optional!(context, cuMemRetainAllocationHandle)?;
        let mut handle = 0;
        let at = std::ptr::without_provenance_mut(address as usize);
        // SAFETY: writes one handle; the driver only looks the address up.
        let result = unsafe { retain(&raw mut handle, at) };
        let what = format_args!("looking up the allocation at {address:#x}");
        context.check(what, "cuMemRetainAllocationHandle", result)?;
        Ok(Self { context: context.clone(), handle, bytes })
    }

    /// Whole units of the driver.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A descriptor that other processes can import.
    pub(super) fn export(&self) -> Result<OwnedFd> {
        let export = optional!(self.context, cuMemExportToShareableHandle)?;
        let mut number: c_int = -1;
        // SAFETY: writes one descriptor; flags must be 0.
        let result = unsafe {
            let at = (&raw mut number).cast();
            export(at, self.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0)
        };
        let what = format_args!("exporting {} bytes", self.bytes);
        self.context.check(what, "cuMemExportToShareableHandle", result)?;
        // SAFETY: the driver has made the descriptor for us.
        let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
        // Not for programs that this one starts.
        let flags = rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::CLOEXEC);
        flags.map_err(|errno| warpway_core::SystemError::new("fcntl of an exported descriptor", errno))?;
        Ok(descriptor)
    }

    /// A handle that hosts of one NVLink domain can import: plain bytes that hold nothing open.
    pub(super) fn export_fabric(&self) -> Result<[u8; FABRIC_HANDLE_BYTES]> {
        let export = optional!(self.context, cuMemExportToShareableHandle)?;
        let mut exported = CUmemFabricHandle_st::default();
        // SAFETY: writes 64 bytes; flags must be 0.
        let result = unsafe { export((&raw mut exported).cast(), self.handle, CU_MEM_HANDLE_TYPE_FABRIC, 0) };
        let what = format_args!("exporting {} bytes to the fabric", self.bytes);
        self.context.check(what, "cuMemExportToShareableHandle", result)?;
        Ok(exported.data)
    }
}

impl Drop for Physical {
    fn drop(&mut self) {
        if let Some(release) = self.context.driver().table().cuMemRelease {
            let _entered = self.context.enter_to_clean_up();
            // SAFETY: the handle is ours; mappings and exports keep the memory itself.
            let result = unsafe { release(self.handle) };
            self.context.note("releasing memory", "cuMemRelease", result);
        }
    }
}

impl Mapping {
    /// Puts memory at an address, where `accessors` and the context's own device may read and write it.
    pub(super) fn new(physical: Physical, accessors: &[&Context]) -> Result<Self> {
        let context = physical.context.clone();
        let (reserve, map) = (optional!(context, cuMemAddressReserve)?, optional!(context, cuMemMap)?);
        let set_access = optional!(context, cuMemSetAccess)?;
        let bytes = physical.bytes as usize;
        let what = format_args!("mapping {bytes} bytes");
        let mut address: CUdeviceptr = 0;
        // SAFETY: writes one address; alignment, hint and flags of 0 leave them to the driver.
        let result = unsafe { reserve(&raw mut address, bytes, 0, 0, 0) };
        context.check(what, "cuMemAddressReserve", result)?;
        let mut mapping = Self { physical, address, mapped: false };
        // SAFETY: the range has just been reserved and holds nothing; offset and flags must be 0.
        let result = unsafe { map(address, bytes, 0, mapping.physical.handle, 0) };
        context.check(what, "cuMemMap", result)?;
        mapping.mapped = true;
        let access = |context: &Context| CUmemAccessDesc {
            location: location(context),
            flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        let others = accessors.iter().filter(|other| ***other != context);
        let all: Vec<CUmemAccessDesc> =
            std::iter::once(access(&context)).chain(others.map(|other| access(other))).collect();
        // SAFETY: the whole range is mapped; reads the list.
        let result = unsafe { set_access(address, bytes, all.as_ptr(), all.len()) };
        context.check(what, "cuMemSetAccess", result)?;
        Ok(mapping)
    }

    pub(super) fn address(&self) -> u64 {
        self.address
    }

    pub(super) fn physical(&self) -> &Physical {
        &self.physical
    }

    pub(super) fn context(&self) -> &Context {
        &self.physical.context
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let (context, bytes) = (&self.physical.context, self.physical.bytes as usize);
        let table = context.driver().table();
        let _entered = context.enter_to_clean_up();
        if let (true, Some(unmap)) = (self.mapped, table.cuMemUnmap) {
            // SAFETY: mapped by `new`. The driver does not wait for work that uses the range: launches have ended
            // (`Lasting`), copies keep the memory.
            let result = unsafe { unmap(self.address, bytes) };
            context.note("unmapping memory", "cuMemUnmap", result);
        }
        if let Some(free) = table.cuMemAddressFree {
            // SAFETY: reserved by `new`, unmapped above.
            let result = unsafe { free(self.address, bytes) };
            context.note("giving addresses back", "cuMemAddressFree", result);
        }
    }
}

/// Lets kernels of `accessor` touch memory that is mapped at an address of this process, whoever mapped it there. It may
/// be allowed to already, as where another rank of this process is on the same device.
pub(crate) fn open_to(accessor: &Context, address: u64, bytes: u64) -> Result<()> {
    let set_access = optional!(accessor, cuMemSetAccess)?;
    let access = CUmemAccessDesc { location: location(accessor), flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    // SAFETY: reads one description; the driver checks the range.
    let result = unsafe { set_access(address, bytes as usize, &raw const access, 1) };
    if result == CUDA_ERROR_ALREADY_MAPPED {
        // The answer of driver 580 where the permission is there, seen with two ranks of a process on one device.
        return Ok(());
    }
    let what = format_args!("reaching {bytes} bytes at {address:#x}");
    Ok(accessor.check(what, "cuMemSetAccess", result)?)
}

fn is_refusal(error: &GpuError) -> bool {
    let refusals = [CUDA_ERROR_NOT_PERMITTED, CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_INVALID_VALUE];
    matches!(error, GpuError::Driver { code, .. } if refusals.contains(code))
}

fn location(context: &Context) -> CUmemLocation {
    CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: context.ordinal() }
}

fn too_large(context: &Context, bytes: u64) -> GpuError {
    GpuError::Device {
        what: format!("allocating {bytes} bytes"),
        device: context.ordinal(),
        why: "no address space is that large".into(),
        hint: None,
    }
}
