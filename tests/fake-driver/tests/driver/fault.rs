//! Injected failures, the log, and the count of what lives.

use std::ffi::CStr;
use std::ptr::null;

use fake_cuda::{Fake, Live};
use warpway_cuda_sys::driver_types::*;

use crate::{allocate, call, event, ok, start, stream};

#[test]
fn the_chosen_call_fails_without_effect() {
    let fake = start("devices=1");
    let driver = fake.driver();
    fake.calls();
    fake.fail("cuMemAlloc", 2, CUDA_ERROR_OUT_OF_MEMORY);
    fake.fail("*", 4, CUDA_ERROR_LAUNCH_FAILED);
    let mut pointer = 0;
    let mut allocating = || call!(driver, cuMemAlloc(&raw mut pointer, 8));
    assert_eq!([allocating(), allocating(), allocating()], [0, CUDA_ERROR_OUT_OF_MEMORY, 0]);
    assert_eq!(fake.live().allocations, 2);
    assert_eq!(call!(driver, cuCtxSynchronize()), CUDA_ERROR_LAUNCH_FAILED);
    ok!(driver, cuCtxSynchronize());
    fake.fail("cuMemAlloc", 1, CUDA_ERROR_OUT_OF_MEMORY);
    fake.forget_failures();
    allocate(driver, 8);
    let expected = [
        "cuMemAlloc 0",
        "cuMemAlloc 2",
        "cuMemAlloc 0",
        "cuCtxSynchronize 719",
        "cuCtxSynchronize 0",
        "cuMemAlloc 0",
    ];
    assert_eq!(fake.calls(), expected);
    assert_eq!(fake.calls(), [""; 0]);
}

#[test]
fn everything_is_counted_until_it_is_given_back() {
    let fake = Fake::open();
    assert_eq!(fake.live(), Live::default());
    let fake = start("devices=1");
    let driver = fake.driver();
    let (pointer, stream, event) = (allocate(driver, 8), stream(driver), event(driver));
    let expected = Live { contexts: 1, allocations: 1, streams: 1, events: 1, ..Live::default() };
    assert_eq!((fake.live(), fake.live().total()), (expected, 4));
    ok!(driver, cuMemFree(pointer));
    ok!(driver, cuStreamDestroy(stream));
    ok!(driver, cuEventDestroy(event));
    ok!(driver, cuDevicePrimaryCtxRelease(0));
    assert_eq!(fake.live(), Live::default());
}

#[test]
fn codes_have_names() {
    let fake = start("devices=1");
    let driver = fake.driver();
    let (mut name, mut text) = (null(), null());
    ok!(driver, cuGetErrorName(CUDA_ERROR_NO_DEVICE, &raw mut name));
    ok!(driver, cuGetErrorString(CUDA_ERROR_NO_DEVICE, &raw mut text));
    // SAFETY: constants of the library that end with a zero.
    let words = unsafe { (CStr::from_ptr(name), CStr::from_ptr(text)) };
    assert_eq!(words, (c"CUDA_ERROR_NO_DEVICE", c"no CUDA-capable device is detected"));
    assert_eq!(call!(driver, cuGetErrorName(12_345, &raw mut name)), CUDA_ERROR_INVALID_VALUE);
    assert!(name.is_null());
}

#[test]
fn device_memory_is_seen_through_the_fake_only() {
    let fake = start("devices=1");
    let driver = fake.driver();
    let pointer = allocate(driver, 8);
    ok!(driver, cuMemsetD8Async(pointer, 6, 8, std::ptr::null_mut()));
    ok!(driver, cuCtxSynchronize());
    let bytes = fake.host_address(pointer).unwrap();
    // SAFETY: eight bytes that are alive and that nothing writes.
    assert_eq!(unsafe { std::slice::from_raw_parts(bytes, 8) }, [6; 8]);
    ok!(driver, cuMemFree(pointer));
    assert_eq!(fake.host_address(pointer), None);
}
