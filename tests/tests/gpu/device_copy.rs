//! Copies are exact: every misalignment of source and destination, every number of bytes (device.md 9).

use warpway_cuda::LaunchShape;

use crate::rig::{Gpu, Source};

#[derive(Clone, Copy)]
#[repr(C)]
struct CopyMatrix {
    scratch: u64,
    failures: u64,
}

/// Bytes 0 to 257, misalignments 0 to 31 of both sides, checked byte by byte on the device with guards on both sides.
#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn matrix() {
    let gpu = Gpu::open();
    let kernel = gpu.kernel(Source::COPY, "copy_matrix");
    for threads in [32, 96, 256] {
        let (scratch, failures) = (gpu.zeros::<u8>(1024 * 1024), gpu.zeros::<u64>(3));
        let parameters = CopyMatrix { scratch: scratch.address(), failures: failures.address() };
        gpu.run(&kernel, LaunchShape::new(1024, threads), parameters);
        let found = failures.read();
        assert_eq!(
            found[0], 0,
            "{threads} threads: wrong bytes, e.g. in block {} at {} bytes",
            found[1], found[2]
        );
        // The last size of the last block, by the host: the kernel's own check has run.
        let (to, from) = (64 + 31, 64 + 31);
        let block = &scratch.read()[1023 * 1024..];
        let sample = |i: usize| (i * 7 + i / 251 + 1) as u8;
        assert_eq!(block[to..to + 257], (from..from + 257).map(sample).collect::<Vec<u8>>());
        assert_eq!((block[to - 1], block[to + 257]), (0xc5, 0xc5));
    }
}

#[derive(Clone, Copy)]
#[repr(C)]
struct CopyBytes {
    dst: u64,
    src: u64,
    bytes: u64,
}

/// Large copies by a whole grid, at distances of every common alignment; the guards of the buffers catch the rest.
#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn grids_copy_large_ranges() {
    let gpu = Gpu::open();
    let kernel = gpu.kernel(Source::COPY, "copy_bytes");
    let data: Vec<u8> = (0..3 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let source = gpu.upload(&data);
    for (to, from, left) in
        [(0, 0, 0), (1, 1, 0), (8, 0, 5), (4, 0, 3), (2, 0, 1), (1, 0, 0), (15, 31, 7), (0, 16, 0)]
    {
        let bytes = data.len() - to.max(from) - left;
        let filler = vec![0xc5; data.len()];
        let target = gpu.upload(&filler);
        let parameters = CopyBytes { dst: target.at(to), src: source.at(from), bytes: bytes as u64 };
        gpu.run(&kernel, LaunchShape::new(37, 416), parameters);
        let mut expected = filler;
        expected[to..to + bytes].copy_from_slice(&data[from..from + bytes]);
        let found = target.read();
        let wrong = (0..data.len()).find(|i| found[*i] != expected[*i]);
        assert_eq!(wrong, None, "to {to}, from {from}, {bytes} bytes: the first wrong byte");
    }
    assert!(source.read() == data);
}
