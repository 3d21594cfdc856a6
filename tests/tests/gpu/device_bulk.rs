//! Bulk copies and reductions (device.md 10), and epochs (device.md 2).

use std::time::Duration;

use warpway_cuda::{EpochsHandle, LaunchShape, Site};

use crate::rig::{Gpu, Source, World, rounds};

#[derive(Clone, Copy)]
#[repr(C)]
struct BulkCopy {
    dst: u64,
    src: u64,
    bytes: u64,
    site: Site,
    status: u64,
}

/// Shared memory of the kernel's stage.
const STAGE: u32 = 24_704;

/// Any number of bytes at any alignment; what has one alignment modulo 16 goes through the engine.
#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn copies() {
    let gpu = Gpu::open();
    let world = World::new(&gpu, 0, Duration::from_secs(2));
    let kernel = gpu.kernel(Source::BULK, "bulk_copy_parts");
    kernel.allow_shared(STAGE).unwrap();
    let data: Vec<u8> = (0..1 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let source = gpu.upload(&data);
    let sizes = [0, 1, 15, 16, 17, 31, 48, 8191, 8192, 8193, 16_384, 24_576, 24_592, 40_000, 100_007];
    for (to, from) in [(0, 0), (1, 1), (15, 31), (16, 0), (8, 0), (4, 1), (0, 3)] {
        for bytes in sizes {
            for (blocks, threads) in [(1, 32), (3, 128)] {
                // Odd sizes shift the parts of later blocks against 16 bytes.
                let filler = vec![0xc5; to + blocks as usize * bytes + 7];
                let (target, status) = (gpu.upload(&filler), gpu.upload(&vec![99u32; blocks as usize]));
                let parameters = BulkCopy {
                    dst: target.at(to),
                    src: source.at(from),
                    bytes: bytes as u64,
                    site: world.site(0, 0),
                    status: status.address(),
                };
                let shape = LaunchShape { blocks, threads, shared_bytes: STAGE };
                gpu.run(&kernel, shape, parameters);
                let mut expected = filler;
                let all = blocks as usize * bytes;
                expected[to..to + all].copy_from_slice(&data[from..from + all]);
                assert!(target.read() == expected, "to {to}, from {from}, {bytes} bytes, {blocks} blocks");
                assert_eq!(status.read(), vec![0; blocks as usize]);
            }
        }
    }
    world.check();
}

#[derive(Clone, Copy)]
#[repr(C)]
struct BulkAdd {
    dst: u64,
    src: u64,
    bytes: u64,
    data_type: u32,
    reserved: u32,
    status: u64,
}

/// A load, a wait, a reduction; then a store that is refused since it is misaligned. Gives what is in `dst` afterwards.
fn add<T: Copy>(data_type: u32, dst: &[T], src: &[T]) -> Vec<T> {
    let gpu = Gpu::open();
    let kernel = gpu.kernel(Source::BULK, "bulk_add");
    let (target, source, status) = (gpu.upload(dst), gpu.upload(src), gpu.upload(&[99u32; 4]));
    let bytes = size_of_val(src) as u64;
    let (dst, src) = (target.address(), source.address());
    let parameters = BulkAdd { dst, src, bytes, data_type, reserved: 0, status: status.address() };
    gpu.run(&kernel, LaunchShape::new(1, 96), parameters);
    // Ok three times, then aborted.
    assert_eq!(status.read(), [0, 0, 0, 2]);
    target.read()
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn sums_of_uint32_wrap() {
    for count in [4u32, 100, 4096] {
        let a: Vec<u32> = (0..count).map(|i| i.wrapping_mul(2_654_435_761)).collect();
        let b: Vec<u32> = (0..count).map(|i| i.wrapping_mul(2_246_822_519) ^ 0x5555).collect();
        let expected: Vec<u32> = a.iter().zip(&b).map(|(a, b)| a.wrapping_add(b.wrapping_mul(2))).collect();
        assert_eq!(add(1, &a, &b), expected);
    }
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn sums_of_float32() {
    let a: Vec<f32> = (0..4096).map(|i| i as f32 * 0.37 - 700.0).collect();
    let b: Vec<f32> = (0..4096).map(|i| (i * i) as f32 * 1.3e-3 + 1.0).collect();
    let expected: Vec<u32> = a.iter().zip(&b).map(|(a, b)| (a + b).to_bits()).collect();
    let found: Vec<u32> = add(3, &a, &b).iter().map(|sum| sum.to_bits()).collect();
    assert_eq!(found, expected);
}

/// Integers up to 256, exact in bfloat16.
#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn sums_of_bfloat16() {
    let code = |value: i32| ((value as f32).to_bits() >> 16) as u16;
    let a: Vec<i32> = (0..8192).map(|i| i % 128).collect();
    let b: Vec<i32> = (0..8192).map(|i| i / 64 - 63).collect();
    let codes = |values: &[i32]| values.iter().map(|value| code(*value)).collect::<Vec<u16>>();
    let expected: Vec<u16> = a.iter().zip(&b).map(|(a, b)| code(a + b)).collect();
    assert_eq!(add(4, &codes(&a), &codes(&b)), expected);
}

#[derive(Clone, Copy)]
#[repr(C)]
struct EpochTrace {
    epochs: EpochsHandle,
    seen: u64,
    torn: u64,
}

/// Every block of every launch reads the epochs that the launch began with, eager or replayed.
#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn epochs_advance_once_per_launch() {
    let gpu = Gpu::open();
    let kernel = gpu.kernel(Source::EPOCH, "epoch_trace");
    let start = [0u64, 0xffff_fff0, u64::MAX - 50];
    let counters = gpu.upload(&start);
    let areas = gpu.upload(&[counters.at(0), counters.at(1), counters.at(2)]);
    let (arrivals, torn) = (gpu.zeros::<u64>(1), gpu.zeros::<u64>(1));
    let blocks = 61;
    let seen = gpu.zeros::<u64>(3 * blocks);
    let epochs = EpochsHandle { areas: areas.address(), arrivals: arrivals.address(), n_areas: 3 };
    let parameters = EpochTrace { epochs, seen: seen.address(), torn: torn.address() };
    let shape = LaunchShape::new(blocks as u32, 64);
    let graph = gpu.capture(|| (0..3).for_each(|_| gpu.launch(&kernel, shape, parameters)));
    let (mut launches, steps) = (0u64, rounds(400));
    for step in 0..steps {
        if step % 4 == 0 {
            gpu.launch(&kernel, shape, parameters);
            launches += 1;
        } else {
            graph.launch(&gpu.stream).unwrap();
            launches += 3;
        }
    }
    gpu.finish();
    assert_eq!((torn.read()[0], arrivals.read()[0]), (0, 0));
    assert_eq!(counters.read(), start.map(|epoch| epoch.wrapping_add(launches)));
    let sums = start.map(|epoch| (0..launches).fold(0u64, |sum, n| sum.wrapping_add(epoch.wrapping_add(n))));
    assert_eq!(seen.read(), sums.repeat(blocks));
}
