//! Memory in one piece, host memory, copies, what is known of addresses.

use std::ffi::c_void;
use std::ptr::null_mut;

use warpway_cuda_sys::Driver;
use warpway_cuda_sys::driver_types::*;

use crate::{allocate, call, enter, ok, optional, read, start, stream, write};

/// An attribute of an address, as a number of 8 bytes.
fn ask(driver: &Driver, attribute: CUpointer_attribute_enum, pointer: CUdeviceptr) -> Result<u64, CUresult> {
    let mut value = 0u64;
    match call!(driver, cuPointerGetAttribute((&raw mut value).cast(), attribute, pointer)) {
        0 => Ok(value),
        error => Err(error),
    }
}

#[test]
fn memory_holds_what_was_written_and_dies_when_freed() {
    let fake = start("devices=1,memory=1048576");
    let driver = fake.driver();
    let (pointer, mut other) = (allocate(driver, 1000), 0);
    write(driver, pointer + 10, b"hello");
    assert_eq!(read(driver, pointer + 10, 5), b"hello");
    ok!(driver, cuMemsetD8Async(pointer, 7, 1000, null_mut()));
    ok!(driver, cuMemsetD32Async(pointer + 4, 0x0403_0201, 2, null_mut()));
    assert_eq!(read(driver, pointer + 3, 10), [7, 1, 2, 3, 4, 1, 2, 3, 4, 7]);
    assert_eq!(call!(driver, cuMemsetD32Async(pointer + 1, 0, 1, null_mut())), CUDA_ERROR_INVALID_VALUE);

    assert_eq!(call!(driver, cuMemsetD8Async(pointer, 0, 1001, null_mut())), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(call!(driver, cuMemAlloc(&raw mut other, 0)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(call!(driver, cuMemAlloc(&raw mut other, 2 << 20)), CUDA_ERROR_OUT_OF_MEMORY);
    assert_eq!(call!(driver, cuMemFree(pointer + 1)), CUDA_ERROR_INVALID_VALUE);
    let (mut free, mut total) = (0, 0);
    ok!(driver, cuMemGetInfo(&raw mut free, &raw mut total));
    assert_eq!((free, total), ((1 << 20) - 4096, 1 << 20));
    ok!(driver, cuMemFree(pointer));
    ok!(driver, cuMemFree(0));
    assert_eq!(call!(driver, cuMemFree(pointer)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(call!(driver, cuMemsetD8Async(pointer, 0, 1, null_mut())), CUDA_ERROR_INVALID_VALUE);
    assert_ne!(allocate(driver, 1000), pointer);
}

#[test]
fn copies_go_between_devices_and_pinned_memory() {
    let fake = start("devices=2,peers=none");
    let (driver, mut pinned) = (fake.driver(), null_mut());
    let near = allocate(driver, 64);
    write(driver, near, &[3; 64]);
    enter(driver, 1);
    let far = allocate(driver, 64);
    let stream = stream(driver);
    ok!(driver, cuMemHostAlloc(&raw mut pinned, 64, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    ok!(driver, cuMemcpyAsync(far, near, 64, stream));
    ok!(driver, cuMemcpyAsync(pinned as u64, far, 64, stream));
    ok!(driver, cuStreamSynchronize(stream));
    // SAFETY: 64 bytes of pinned memory, which nothing writes any more.
    assert_eq!(unsafe { std::slice::from_raw_parts(pinned.cast::<u8>(), 64) }, [3; 64]);
    // Host memory that nobody registered is no address of the driver.
    let byte = 0u8;
    let ordinary = &raw const byte as u64;
    assert_eq!(call!(driver, cuMemcpyAsync(far, ordinary, 1, stream)), CUDA_ERROR_INVALID_VALUE);
    ok!(driver, cuMemFreeHost(pinned));
    assert_eq!(call!(driver, cuMemcpyHtoDAsync(far, pinned, 64, stream)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(call!(driver, cuMemcpyDtoHAsync(pinned, far, 64, stream)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(call!(driver, cuMemFreeHost(pinned)), CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn host_memory_is_registered_once() {
    let fake = start("devices=1");
    let (driver, mut device) = (fake.driver(), 0);
    let mut bytes = vec![1u8; 8192];
    let start = bytes.as_mut_ptr().cast::<c_void>();
    let (within, flags) = (start.wrapping_byte_add(100), CU_MEMHOSTREGISTER_PORTABLE);
    assert_eq!(call!(driver, cuMemHostGetDevicePointer(&raw mut device, start, 0)), CUDA_ERROR_INVALID_VALUE);
    ok!(driver, cuMemHostRegister(start, 8192, flags));
    let again = call!(driver, cuMemHostRegister(within, 8, flags));
    assert_eq!(again, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    ok!(driver, cuMemHostGetDevicePointer(&raw mut device, within, 0));
    assert_eq!(device, within as u64);
    assert_eq!(ask(driver, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device), Ok(u64::from(CU_MEMORYTYPE_HOST)));
    assert_eq!(call!(driver, cuMemHostUnregister(within)), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    assert_eq!(call!(driver, cuMemFreeHost(start)), CUDA_ERROR_INVALID_VALUE);
    ok!(driver, cuMemHostUnregister(start));
    assert_eq!(call!(driver, cuMemHostUnregister(start)), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

#[test]
fn addresses_tell_what_they_are() {
    let fake = start("devices=2");
    let driver = fake.driver();
    let context = enter(driver, 1);
    let pointer = allocate(driver, 1000);
    for (attribute, expected) in [
        (CU_POINTER_ATTRIBUTE_CONTEXT, context as u64),
        (CU_POINTER_ATTRIBUTE_MEMORY_TYPE, u64::from(CU_MEMORYTYPE_DEVICE)),
        (CU_POINTER_ATTRIBUTE_DEVICE_POINTER, pointer + 5),
        (CU_POINTER_ATTRIBUTE_IS_MANAGED, 0),
        (CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 1),
        (CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, 1),
        (CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, pointer),
        (CU_POINTER_ATTRIBUTE_RANGE_SIZE, 1000),
        (CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, 0),
    ] {
        assert_eq!(ask(driver, attribute, pointer + 5), Ok(expected), "attribute {attribute}");
    }
    let (mut start, mut size, on) = (0, 0, 1u32);
    ok!(driver, cuMemGetAddressRange(&raw mut start, &raw mut size, pointer + 999));
    assert_eq!((start, size), (pointer, 1000));
    ok!(driver, cuMemGetAddressRange(null_mut(), &raw mut size, pointer));
    let beyond = call!(driver, cuMemGetAddressRange(&raw mut start, &raw mut size, pointer + 1000));
    assert_eq!(beyond, CUDA_ERROR_NOT_FOUND);
    let set = |pointer| {
        let attribute = CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
        optional!(driver, cuPointerSetAttribute((&raw const on).cast(), attribute, pointer))
    };
    assert_eq!((set(pointer), set(16)), (0, CUDA_ERROR_INVALID_VALUE));

    let id = ask(driver, CU_POINTER_ATTRIBUTE_BUFFER_ID, pointer).unwrap();
    ok!(driver, cuMemFree(pointer));
    assert_eq!(ask(driver, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer), Err(CUDA_ERROR_INVALID_VALUE));
    assert_ne!(ask(driver, CU_POINTER_ATTRIBUTE_BUFFER_ID, allocate(driver, 1000)), Ok(id));
}
