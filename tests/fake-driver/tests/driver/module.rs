//! Modules, launches, kernels that do something, and contexts after a failed one.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use warpway_cuda_sys::driver_types::*;

use crate::{allocate, call, enter, function, launch, load, ok, optional, read, start, stream};

const IMAGE: &str = "fake module
arch 90
function fill_u32 parameters=8,4,8 registers=24
function copy_bytes parameters=8,8,8
function add_u64 parameters=8,8
function wait_u64 parameters=8,8,8
function trap
function mine parameters=4,8,24@16 registers=128 threads=512 shared=1024
global errors 100";

#[test]
fn images_are_read_or_refused() {
    let fake = start("devices=1,arch=90");
    let driver = fake.driver();
    let loading = |image: &std::ffi::CStr| {
        call!(driver, cuModuleLoadDataEx(&mut null_mut(), image.as_ptr().cast(), 0, null_mut(), null_mut()))
    };
    assert_eq!(loading(c"fake module\nfunction f"), 0);
    assert_eq!(loading(c"junk"), CUDA_ERROR_INVALID_IMAGE);
    assert_eq!(loading(c"fake module\nfunction f registers=many"), CUDA_ERROR_INVALID_IMAGE);
    assert_eq!(loading(c"fake module\narch 100\nfunction f"), CUDA_ERROR_NO_BINARY_FOR_GPU);
    let module = load(driver, IMAGE);
    let (mut pointer, mut size, mut missing) = (0, 0, null_mut());
    ok!(driver, cuModuleGetGlobal(&raw mut pointer, &raw mut size, module, c"errors".as_ptr()));
    assert_eq!((size, read(driver, pointer, 100)), (100, vec![0; 100]));
    let absent = call!(driver, cuModuleGetFunction(&raw mut missing, module, c"none".as_ptr()));
    assert_eq!(absent, CUDA_ERROR_NOT_FOUND);
    let absent = call!(driver, cuModuleGetGlobal(&raw mut pointer, &raw mut size, module, c"none".as_ptr()));
    assert_eq!(absent, CUDA_ERROR_NOT_FOUND);
    let fill = function(driver, module, "fill_u32");
    ok!(driver, cuModuleUnload(module));
    assert_eq!(call!(driver, cuModuleUnload(module)), CUDA_ERROR_INVALID_HANDLE);
    assert_eq!(launch(driver, fill, null_mut(), &[0; 3]), CUDA_ERROR_INVALID_HANDLE);
    assert_eq!(call!(driver, cuMemsetD8Async(pointer, 0, 1, null_mut())), CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn functions_tell_what_they_need() {
    let fake = start("devices=1");
    let driver = fake.driver();
    let mine = function(driver, load(driver, IMAGE), "mine");
    let ask = |attribute| {
        let mut value = -1;
        ok!(driver, cuFuncGetAttribute(&raw mut value, attribute, mine));
        value
    };
    assert_eq!(ask(CU_FUNC_ATTRIBUTE_NUM_REGS), 128);
    assert_eq!(ask(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 512);
    assert_eq!(ask(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES), 1024);
    assert_eq!(ask(CU_FUNC_ATTRIBUTE_BINARY_VERSION), 90);
    let parameters: [(usize, usize); 3] = [0, 1, 2].map(|index| {
        let (mut offset, mut size) = (99, 99);
        assert_eq!(optional!(driver, cuFuncGetParamInfo(mine, index, &raw mut offset, &raw mut size)), 0);
        assert_eq!(optional!(driver, cuFuncGetParamInfo(mine, index, &raw mut offset, null_mut())), 0);
        (offset, size)
    });
    assert_eq!(parameters, [(0, 4), (8, 8), (16, 24)]);
    let (mut offset, mut size) = (0, 0);
    let behind = optional!(driver, cuFuncGetParamInfo(mine, 3, &raw mut offset, &raw mut size));
    assert_eq!(behind, CUDA_ERROR_INVALID_VALUE);
    let occupancy = |threads: c_int, shared| {
        let mut blocks = -1;
        ok!(driver, cuOccupancyMaxActiveBlocksPerMultiprocessor(&raw mut blocks, mine, threads, shared));
        blocks
    };
    // 65,536 registers: 128 × 512 for one block, four blocks of 128; 228 KiB of shared memory, 1 KiB of each block
    // for the system and 1 KiB static.
    assert_eq!([occupancy(512, 0), occupancy(128, 0), occupancy(1024, 0)], [1, 4, 0]);
    assert_eq!(occupancy(32, 48 << 10), 4);
    assert_eq!(occupancy(32, 100 << 10), 0, "not asked for");
    let set = |bytes| {
        call!(driver, cuFuncSetAttribute(mine, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes))
    };
    assert_eq!(set(227 << 10), CUDA_ERROR_INVALID_VALUE, "the static kilobyte counts");
    assert_eq!(set(226 << 10), 0);
    assert_eq!(occupancy(32, 100 << 10), 2);
}

#[test]
fn launches_are_checked_and_written_down() {
    let fake = start("devices=1,sms=2");
    let (driver, stream) = (fake.driver(), stream(fake.driver()));
    let mine = function(driver, load(driver, IMAGE), "mine");
    let (mut four, mut eight, mut large) = (0x0403_0201u32, u64::MAX, [7u8; 24]);
    let mut pointers: [*mut c_void; 3] =
        [(&raw mut four).cast(), (&raw mut eight).cast(), (&raw mut large).cast()];
    let parameters = pointers.as_mut_ptr();
    let launching = |blocks, threads, shared| {
        call!(
            driver,
            cuLaunchKernel(mine, blocks, 2, 1, threads, 1, 1, shared, stream, parameters, null_mut())
        )
    };
    assert_eq!(launching(0, 32, 0), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(launching(1, 0, 0), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(launching(1, 513, 0), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(launching(1, 32, 49 << 10), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(launching(3, 64, 256), 0);
    let cooperative = |blocks| {
        optional!(driver, cuLaunchCooperativeKernel(mine, blocks, 1, 1, 512, 1, 1, 0, stream, parameters))
    };
    assert_eq!(cooperative(3), CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    assert_eq!(cooperative(2), 0);
    ok!(driver, cuStreamSynchronize(stream));
    // The parameter area: 4 bytes, a gap, 8 bytes, 24 bytes at a multiple of 16.
    let mut area = vec![1, 2, 3, 4, 0, 0, 0, 0];
    area.extend([255; 8]);
    area.extend([7; 24]);
    let seen = fake.launches();
    assert_eq!(seen.len(), 2);
    assert_eq!(
        (&*seen[0].function, seen[0].grid, seen[0].block, seen[0].shared),
        ("mine", [3, 2, 1], [64, 1, 1], 256)
    );
    assert_eq!((&seen[0].arguments, seen[0].cooperative, seen[1].cooperative), (&area, false, true));

    // The other way to pass parameters: names that are small numbers, each with its value.
    let (mut size, name) = (area.len(), std::ptr::without_provenance_mut::<c_void>);
    let mut extra = [name(1), area.as_mut_ptr().cast(), name(2), (&raw mut size).cast(), name(0)];
    ok!(driver, cuLaunchKernel(mine, 1, 1, 1, 1, 1, 1, 0, stream, null_mut(), extra.as_mut_ptr()));
    ok!(driver, cuStreamSynchronize(stream));
    assert_eq!(fake.launches()[0].arguments, area);
}

#[test]
fn kernels_work_on_memory_that_they_reach() {
    let fake = start("devices=2");
    let (driver, near) = (fake.driver(), stream(fake.driver()));
    let module = load(driver, IMAGE);
    let pointer = allocate(driver, 32);
    let run = |name: &str, arguments: &[u64]| {
        assert_eq!(launch(driver, function(driver, module, name), near, arguments), 0);
        call!(driver, cuStreamSynchronize(near))
    };
    assert_eq!(run("fill_u32", &[pointer, 0x0101_0101, 3]), 0);
    assert_eq!(run("copy_bytes", &[pointer + 16, pointer, 8]), 0);
    assert_eq!(run("add_u64", &[pointer + 24, 5]), 0);
    assert_eq!(run("wait_u64", &[pointer + 24, 5, 10_000]), 0);
    let mut expected = vec![1; 12];
    expected.extend([0; 4]);
    expected.extend([1; 8]);
    expected.extend([5, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(read(driver, pointer, 32), expected);
    assert_eq!(fake.launches().len(), 4);

    let peer = enter(driver, 1);
    let far = allocate(driver, 8);
    enter(driver, 0);
    ok!(driver, cuCtxEnablePeerAccess(peer, 0));
    assert_eq!(run("add_u64", &[far, 1]), 0);
    assert_eq!(run("fill_u32", &[pointer + 1, 0, 1]), CUDA_ERROR_MISALIGNED_ADDRESS);
}

#[test]
fn a_failed_kernel_poisons_its_context_alone() {
    for (name, arguments, expected) in
        [("trap", &[][..], CUDA_ERROR_LAUNCH_FAILED), ("fill_u32", &[4096, 1, 1], CUDA_ERROR_ILLEGAL_ADDRESS)]
    {
        let fake = fake_cuda::Fake::open();
        let driver = fake.driver();
        ok!(driver, cuInit(0));
        enter(driver, 0);
        let (stream, module) = (stream(driver), load(driver, IMAGE));
        assert_eq!(launch(driver, function(driver, module, name), stream, arguments), 0);
        assert_eq!(call!(driver, cuCtxSynchronize()), expected);
        assert_eq!(call!(driver, cuMemAlloc(&mut 0, 8)), expected);
        assert_eq!(call!(driver, cuStreamSynchronize(stream)), expected);
        enter(driver, 1);
        allocate(driver, 8);
        // As after a reset: all users of the context give it back.
        ok!(driver, cuDevicePrimaryCtxRelease(0));
        enter(driver, 0);
        allocate(driver, 8);
        ok!(driver, cuDevicePrimaryCtxRelease(0));
    }
}

#[test]
fn memory_of_a_peer_needs_access() {
    let fake = start("devices=2");
    let driver = fake.driver();
    let module = load(driver, IMAGE);
    enter(driver, 1);
    let far = allocate(driver, 8);
    enter(driver, 0);
    assert_eq!(launch(driver, function(driver, module, "add_u64"), null_mut(), &[far, 1]), 0);
    assert_eq!(call!(driver, cuCtxSynchronize()), CUDA_ERROR_ILLEGAL_ADDRESS);
}
