//! Virtual memory management.

use std::ffi::c_void;
use std::ptr::null_mut;

use warpway_cuda_sys::Driver;
use warpway_cuda_sys::driver_types::*;

use crate::{call, enter, ok, optional, read, start, write};

/// The granularity.
pub(crate) const PAGE: usize = 2 << 20;

pub(crate) fn properties(device: i32, kinds: CUmemAllocationHandleType_enum) -> CUmemAllocationProp {
    CUmemAllocationProp {
        type_: CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: kinds,
        location: CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: device },
        ..CUmemAllocationProp::default()
    }
}

pub(crate) fn create(
    driver: &Driver,
    device: i32,
    size: usize,
) -> Result<CUmemGenericAllocationHandle, CUresult> {
    create_as(driver, &properties(device, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR), size)
}

fn create_as(
    driver: &Driver,
    properties: &CUmemAllocationProp,
    size: usize,
) -> Result<CUmemGenericAllocationHandle, CUresult> {
    let mut handle = 0;
    match optional!(driver, cuMemCreate(&raw mut handle, size, properties, 0)) {
        0 => Ok(handle),
        error => Err(error),
    }
}

pub(crate) fn reserve(driver: &Driver, size: usize) -> CUdeviceptr {
    let mut pointer = 0;
    assert_eq!(optional!(driver, cuMemAddressReserve(&raw mut pointer, size, 0, 0, 0)), 0);
    pointer
}

pub(crate) fn map(driver: &Driver, pointer: CUdeviceptr, size: usize, handle: u64) -> CUresult {
    optional!(driver, cuMemMap(pointer, size, 0, handle, 0))
}

pub(crate) fn open(driver: &Driver, pointer: CUdeviceptr, size: usize, device: i32) -> CUresult {
    let description = CUmemAccessDesc {
        location: CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: device },
        flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    optional!(driver, cuMemSetAccess(pointer, size, &raw const description, 1))
}

#[test]
fn memory_is_made_as_asked() {
    let fake = start("devices=1,memory=8388608");
    let (driver, mut granularity) = (fake.driver(), 0);
    let asked = properties(0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    let least = CU_MEM_ALLOC_GRANULARITY_MINIMUM;
    assert_eq!(
        optional!(driver, cuMemGetAllocationGranularity(&raw mut granularity, &raw const asked, least)),
        0
    );
    assert_eq!(granularity, PAGE);
    assert_eq!(create(driver, 0, PAGE - 1), Err(CUDA_ERROR_INVALID_VALUE));
    assert_eq!(create(driver, 1, PAGE), Err(CUDA_ERROR_INVALID_DEVICE));
    assert_eq!(create(driver, 0, 5 * PAGE), Err(CUDA_ERROR_OUT_OF_MEMORY));
    let fabric = properties(0, CU_MEM_HANDLE_TYPE_FABRIC);
    assert_eq!(create_as(driver, &fabric, PAGE), Err(CUDA_ERROR_NOT_SUPPORTED));

    let handle = create(driver, 0, 4 * PAGE).unwrap();
    let mut found = CUmemAllocationProp::default();
    assert_eq!(optional!(driver, cuMemGetAllocationPropertiesFromHandle(&raw mut found, handle)), 0);
    assert_eq!((found.requestedHandleTypes, found.location.id), (asked.requestedHandleTypes, 0));
    assert_eq!(create(driver, 0, PAGE), Err(CUDA_ERROR_OUT_OF_MEMORY));
    assert_eq!(optional!(driver, cuMemRelease(handle)), 0);
    assert_eq!(optional!(driver, cuMemRelease(handle)), CUDA_ERROR_INVALID_VALUE);
    create(driver, 0, PAGE).unwrap();
}

#[test]
fn settings_decide_what_can_be_exported() {
    let fake = start("devices=1,descriptors=no,fabric=claimed");
    assert_eq!(create(fake.driver(), 0, PAGE), Err(CUDA_ERROR_NOT_SUPPORTED));
    let fabric = properties(0, CU_MEM_HANDLE_TYPE_FABRIC);
    assert_eq!(create_as(fake.driver(), &fabric, PAGE), Err(CUDA_ERROR_NOT_PERMITTED));
    let both = properties(0, CU_MEM_HANDLE_TYPE_FABRIC | CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    assert_eq!(create_as(fake.driver(), &both, PAGE), Err(CUDA_ERROR_NOT_SUPPORTED));
}

#[test]
fn fabric_handles_are_bytes_that_name_memory_while_it_lives() {
    let fake = start("devices=1,fabric=works");
    let driver = fake.driver();
    let both = properties(0, CU_MEM_HANDLE_TYPE_FABRIC | CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    let memory = create_as(driver, &both, 2 * PAGE).unwrap();
    let other = create(driver, 0, PAGE).unwrap();
    let export = |memory| {
        let mut fabric = CUmemFabricHandle::default();
        let at = (&raw mut fabric).cast();
        let kind = CU_MEM_HANDLE_TYPE_FABRIC;
        let code = optional!(driver, cuMemExportToShareableHandle(at, memory, kind, 0));
        if code == 0 { Ok(fabric) } else { Err(code) }
    };
    let import = |mut fabric: CUmemFabricHandle| {
        let (mut handle, at) = (0, (&raw mut fabric).cast());
        let kind = CU_MEM_HANDLE_TYPE_FABRIC;
        let code = optional!(driver, cuMemImportFromShareableHandle(&raw mut handle, at, kind));
        if code == 0 { Ok(handle) } else { Err(code) }
    };
    assert_eq!(export(other).map(|_| ()), Err(CUDA_ERROR_INVALID_VALUE), "not made for it");
    let fabric = export(memory).unwrap();
    assert_eq!(export(memory).unwrap().data, fabric.data);
    let again = import(fabric).unwrap();
    let base = reserve(driver, 4 * PAGE);
    let second = base + 2 * PAGE as u64;
    assert_eq!(map(driver, base, 2 * PAGE, memory) + map(driver, second, 2 * PAGE, again), 0);
    assert_eq!(open(driver, base, 4 * PAGE, 0), 0);
    write(driver, base, &[1, 2, 3]);
    assert_eq!(read(driver, second, 3), [1, 2, 3]);
    assert_eq!(import(CUmemFabricHandle { data: [7; 64] }), Err(CUDA_ERROR_INVALID_VALUE));
    for handle in [memory, again] {
        assert_eq!(optional!(driver, cuMemRelease(handle)), 0);
    }
    assert_eq!(optional!(driver, cuMemUnmap(base, 4 * PAGE)), 0);
    assert_eq!(import(fabric), Err(CUDA_ERROR_INVALID_HANDLE), "gone");
}

#[test]
fn mappings_follow_each_other_and_need_access() {
    let fake = start("devices=2,peers=all");
    let driver = fake.driver();
    let (one, two) = (create(driver, 0, PAGE).unwrap(), create(driver, 1, PAGE).unwrap());
    let base = reserve(driver, 4 * PAGE);
    let at = |pages: usize| base + (pages * PAGE) as u64;
    assert_eq!(map(driver, at(0), PAGE, one), 0);
    assert_eq!(map(driver, at(0), PAGE, two), CUDA_ERROR_INVALID_VALUE, "mapped already");
    assert_eq!(map(driver, at(1) + 4096, PAGE, two), CUDA_ERROR_INVALID_VALUE, "not aligned");
    assert_eq!(map(driver, at(1), 2 * PAGE, two), CUDA_ERROR_NOT_SUPPORTED, "larger than the memory");
    assert_eq!(map(driver, at(4), PAGE, two), CUDA_ERROR_INVALID_VALUE, "not reserved");
    assert_eq!(map(driver, at(1), PAGE, 7), CUDA_ERROR_INVALID_VALUE, "no handle");
    assert_eq!(map(driver, at(1), PAGE, two), 0);

    let fill = |pointer, bytes| call!(driver, cuMemsetD8Async(pointer, 5, bytes, null_mut()));
    assert_eq!(fill(at(0), 1), CUDA_ERROR_INVALID_VALUE, "no access yet");
    assert_eq!(open(driver, at(0), 3 * PAGE, 0), CUDA_ERROR_INVALID_VALUE, "not all mapped");
    assert_eq!(open(driver, at(0), PAGE / 2, 0), CUDA_ERROR_INVALID_VALUE, "half a mapping");
    assert_eq!(open(driver, at(0), 2 * PAGE, 9), CUDA_ERROR_INVALID_DEVICE);
    assert_eq!(open(driver, at(0), 2 * PAGE, 0), 0);
    assert_eq!(fill(at(1) - 2, 4), 0, "across mappings");
    assert_eq!(read(driver, at(1) - 3, 6), [0, 5, 5, 5, 5, 0]);
    assert_eq!(fill(at(2) - 2, 4), CUDA_ERROR_INVALID_VALUE, "beyond the last mapping");
    enter(driver, 1);
    assert_eq!(fill(at(0), 1), CUDA_ERROR_INVALID_VALUE, "access is per device");

    // Memory outlives its handle while it is mapped.
    assert_eq!(optional!(driver, cuMemRelease(one)), 0);
    enter(driver, 0);
    write(driver, at(0), b"still");
    let (mut again, mut start, mut size) = (0, 0, 0);
    assert_eq!(optional!(driver, cuMemRetainAllocationHandle(&raw mut again, at(0) as *mut c_void)), 0);
    assert_eq!(optional!(driver, cuMemRelease(again)), 0);
    ok!(driver, cuMemGetAddressRange(&raw mut start, &raw mut size, at(1) + 9));
    assert_eq!((start, size), (at(1), PAGE));

    let unmap = |pointer, size| optional!(driver, cuMemUnmap(pointer, size));
    assert_eq!(unmap(at(0), PAGE / 2), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(
        optional!(driver, cuMemAddressFree(at(0), 4 * PAGE)),
        CUDA_ERROR_INVALID_VALUE,
        "still mapped"
    );
    assert_eq!(unmap(at(0), 2 * PAGE), 0);
    assert_eq!(unmap(at(0), PAGE), 0, "what is reserved may be unmapped again");
    assert_eq!(unmap(at(4), PAGE), CUDA_ERROR_INVALID_VALUE, "not reserved");
    assert_eq!(fill(at(0), 1), CUDA_ERROR_INVALID_VALUE, "unmapped");
    assert_eq!(optional!(driver, cuMemAddressFree(at(0), PAGE)), CUDA_ERROR_INVALID_VALUE, "a part");
    assert_eq!(optional!(driver, cuMemAddressFree(at(0), 4 * PAGE)), 0);
    assert_eq!(optional!(driver, cuMemRelease(two)), 0);
    let live = fake.live();
    assert_eq!((live.handles, live.mappings, live.reservations), (0, 0, 0));
}

#[test]
fn the_two_kinds_of_memory_do_not_mix() {
    let fake = start("devices=2,peers=none");
    let (driver, mut ipc, mut handle) = (fake.driver(), CUipcMemHandle::default(), 0);
    let memory = create(driver, 1, PAGE).unwrap();
    let base = reserve(driver, PAGE);
    assert_eq!(map(driver, base, PAGE, memory), 0);
    assert_eq!(open(driver, base, PAGE, 0), CUDA_ERROR_INVALID_DEVICE, "no peer access");
    assert_eq!(open(driver, base, PAGE, 1), 0);
    assert_eq!(call!(driver, cuMemFree(base)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(call!(driver, cuIpcGetMemHandle(&raw mut ipc, base)), CUDA_ERROR_INVALID_VALUE);
    let allocation = crate::allocate(driver, 8) as *mut c_void;
    assert_eq!(
        optional!(driver, cuMemRetainAllocationHandle(&raw mut handle, allocation)),
        CUDA_ERROR_INVALID_VALUE
    );
    let ask = |attribute| {
        let mut value = 0u64;
        ok!(driver, cuPointerGetAttribute((&raw mut value).cast(), attribute, base));
        value
    };
    assert_eq!(ask(CU_POINTER_ATTRIBUTE_CONTEXT), 0);
    assert_eq!(ask(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL), 1);
    assert_eq!(ask(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE), 0);
    assert_eq!(ask(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES), 1);
}
