//! Devices, contexts, peers.

use std::ffi::{CStr, c_char, c_int};
use std::ptr::null_mut;

use fake_cuda::Fake;
use warpway_cuda_sys::Driver;
use warpway_cuda_sys::driver_types::*;

use crate::{call, enter, ok, start};

fn attribute(driver: &Driver, attribute: CUdevice_attribute_enum, device: CUdevice) -> c_int {
    let mut value = -1;
    ok!(driver, cuDeviceGetAttribute(&raw mut value, attribute, device));
    value
}

#[test]
fn nothing_works_before_initialisation() {
    let fake = Fake::open();
    let (driver, mut count) = (fake.driver(), 0);
    assert_eq!(call!(driver, cuDeviceGetCount(&raw mut count)), CUDA_ERROR_NOT_INITIALIZED);
    ok!(driver, cuDriverGetVersion(&raw mut count));
    assert_eq!(count, 13_000);
    assert_eq!(call!(driver, cuInit(1)), CUDA_ERROR_INVALID_VALUE);
    ok!(driver, cuInit(0));
    ok!(driver, cuDeviceGetCount(&raw mut count));
    assert_eq!(count, 2);
}

#[test]
fn a_machine_without_devices_does_not_start() {
    let fake = Fake::open();
    fake.set("devices=0");
    assert_eq!(call!(fake.driver(), cuInit(0)), CUDA_ERROR_NO_DEVICE);
}

#[test]
fn devices_are_as_configured() {
    let fake = start("visible=3+1,arch=100,memory=4194304,sms=7,descriptors=no,fabric=claimed");
    let (driver, mut bytes, mut uuid) = (fake.driver(), 0, CUuuid::default());
    assert_eq!(attribute(driver, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 1), 10);
    assert_eq!(attribute(driver, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0), 7);
    assert_eq!(attribute(driver, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 0), 0);
    assert_eq!(attribute(driver, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 0), 1);
    ok!(driver, cuDeviceTotalMem(&raw mut bytes, 0));
    assert_eq!(bytes, 4 << 20);
    // The machine's number, not the process's.
    ok!(driver, cuDeviceGetUuid(&raw mut uuid, 0));
    assert_eq!(uuid.bytes[15], 3);
    let mut name = [1 as c_char; 13];
    ok!(driver, cuDeviceGetPCIBusId(name.as_mut_ptr(), 13, 1));
    // SAFETY: ends with a zero, as the call has succeeded.
    assert_eq!(unsafe { CStr::from_ptr(name.as_ptr()) }, c"0000:11:00.0");
    ok!(driver, cuDeviceGetName(name.as_mut_ptr(), 5, 1));
    // SAFETY: as above.
    assert_eq!(unsafe { CStr::from_ptr(name.as_ptr()) }, c"Fake");

    let mut device = -1;
    ok!(driver, cuDeviceGet(&raw mut device, 1));
    assert_eq!(device, 1);
    assert_eq!(call!(driver, cuDeviceGet(&raw mut device, 2)), CUDA_ERROR_INVALID_DEVICE);
    assert_eq!(call!(driver, cuDeviceGetAttribute(&raw mut device, 999, 0)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(call!(driver, cuDeviceGetAttribute(&raw mut device, 1, 2)), CUDA_ERROR_INVALID_DEVICE);
}

#[test]
fn peers_are_as_configured() {
    let fake = start("devices=3,peers=0-2");
    let (driver, mut answer) = (fake.driver(), -1);
    for (from, to, expected) in [(0, 1, 0), (0, 2, 1), (2, 0, 1), (1, 2, 0), (0, 0, 0)] {
        ok!(driver, cuDeviceCanAccessPeer(&raw mut answer, from, to));
        assert_eq!(answer, expected, "{from} to {to}");
    }
    let ask = CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED;
    ok!(driver, cuDeviceGetP2PAttribute(&raw mut answer, ask, 0, 2));
    assert_eq!(answer, 1);
    assert_eq!(call!(driver, cuDeviceGetP2PAttribute(&raw mut answer, ask, 1, 1)), CUDA_ERROR_INVALID_DEVICE);

    let (one, two) = (enter(driver, 1), enter(driver, 2));
    let zero = enter(driver, 0);
    assert_eq!(call!(driver, cuCtxEnablePeerAccess(one, 0)), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    assert_eq!(call!(driver, cuCtxEnablePeerAccess(two, 1)), CUDA_ERROR_INVALID_VALUE);
    ok!(driver, cuCtxEnablePeerAccess(two, 0));
    assert_eq!(call!(driver, cuCtxEnablePeerAccess(two, 0)), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    assert_eq!(call!(driver, cuCtxEnablePeerAccess(zero, 0)), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
}

#[test]
fn each_thread_has_its_own_stack_of_contexts() {
    let fake = start("devices=2");
    let driver = fake.driver();
    let one = enter(driver, 1);
    let (mut context, mut device) = (null_mut(), -1);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let (mut context, mut pointer) = (null_mut(), 0);
            ok!(driver, cuCtxGetCurrent(&raw mut context));
            assert!(context.is_null());
            assert_eq!(call!(driver, cuMemAlloc(&raw mut pointer, 8)), CUDA_ERROR_INVALID_CONTEXT);
            assert_eq!(call!(driver, cuCtxSynchronize()), CUDA_ERROR_INVALID_CONTEXT);
            assert_eq!(call!(driver, cuCtxPopCurrent(&raw mut context)), CUDA_ERROR_INVALID_CONTEXT);
        });
    });
    ok!(driver, cuCtxGetDevice(&raw mut device));
    assert_eq!(device, 1);
    ok!(driver, cuCtxPushCurrent(one));
    ok!(driver, cuCtxSetCurrent(null_mut()));
    ok!(driver, cuCtxPopCurrent(&raw mut context));
    assert_eq!(context, one);
    assert_eq!(call!(driver, cuCtxGetDevice(&raw mut device)), CUDA_ERROR_INVALID_CONTEXT);
    assert_eq!(call!(driver, cuCtxPushCurrent(8 as CUcontext)), CUDA_ERROR_INVALID_CONTEXT);
}

#[test]
fn the_last_release_ends_a_context_and_counts_what_was_left() {
    let fake = start("devices=1");
    let driver = fake.driver();
    enter(driver, 0);
    crate::allocate(driver, 8);
    ok!(driver, cuDevicePrimaryCtxRelease(0));
    assert_eq!((fake.live().contexts, fake.live().allocations), (1, 1));
    ok!(driver, cuDevicePrimaryCtxRelease(0));
    assert_eq!((fake.live().contexts, fake.live().allocations, fake.live().abandoned), (0, 0, 1));
    assert_eq!(call!(driver, cuDevicePrimaryCtxRelease(0)), CUDA_ERROR_INVALID_CONTEXT);
    assert_eq!(call!(driver, cuCtxSynchronize()), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    enter(driver, 0);
    ok!(driver, cuCtxSynchronize());
}
