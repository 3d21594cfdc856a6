//! What conversion by instructions gains over conversion by integers.

use warpway_cuda::{Event, Kernel, LaunchShape};

use crate::rig::{Gpu, Source};

#[derive(Clone, Copy)]
#[repr(C)]
struct FoldCall {
    dst: u64,
    sources: u64,
    count: u64,
    n_sources: u32,
    op: u32,
    ranks: u32,
    last: u32,
}

const SOURCES: usize = 4;
/// Of each source; all of them together stay in the second-level cache.
const BYTES: usize = 4 << 20;
const REPEATS: u32 = 20;

/// Microseconds of one fold, a sample per batch.
fn measure(gpu: &Gpu, kernel: &Kernel, parameters: FoldCall) -> Vec<f64> {
    let shape = LaunchShape::new(gpu.context.info().multiprocessors * 4, 512);
    let (begin, end) = (Event::timed(&gpu.context).unwrap(), Event::timed(&gpu.context).unwrap());
    let batch = || {
        begin.record(&gpu.stream).unwrap();
        (0..REPEATS).for_each(|_| gpu.launch(kernel, shape, parameters));
        end.record(&gpu.stream).unwrap();
        gpu.finish();
        begin.until(&end).unwrap().as_secs_f64() * 1e6 / f64::from(REPEATS)
    };
    batch();
    (0..20).map(|_| batch()).collect()
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn sums_of_four() {
    let gpu = Gpu::open();
    let data: Vec<u8> =
        (0..BYTES as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8 & 0x3f).collect();
    let sources: Vec<_> = (0..SOURCES).map(|_| gpu.upload(&data)).collect();
    // Pairs of address and "is an input".
    let table: Vec<u64> = sources.iter().flat_map(|source| [source.address(), 1]).collect();
    let (table, target) = (gpu.upload(&table), gpu.zeros::<u8>(BYTES));
    for (format, size) in [("F16", 2), ("BF16", 2), ("E4M3", 1), ("E5M2", 1)] {
        let mut results = Vec::new();
        for way in ["instructions", "integers"] {
            let program = Source::FOLD.program().define("FORMAT", format);
            let program = match way {
                "integers" => program.define("WARPWAY_INTEGER_CONVERSIONS", 1),
                _ => program,
            };
            let kernel = gpu.kernel_of(&program, "fold_elements");
            let parameters = FoldCall {
                dst: target.address(),
                sources: table.address(),
                count: (BYTES / size) as u64,
                n_sources: SOURCES as u32,
                op: 0,
                ranks: 1,
                last: 1,
            };
            let samples: Vec<String> =
                measure(&gpu, &kernel, parameters).iter().map(|sample| format!("{sample:.3}")).collect();
            println!(
                "\n{{\"benchmark\":\"fold\",\"format\":\"{format}\",\"conversions\":\"{way}\",\"sources\":{SOURCES},\
                 \"bytes\":{BYTES},\"registers\":{},\"unit\":\"us\",\"samples\":[{}]}}",
                kernel.registers().unwrap(),
                samples.join(",")
            );
            results.push(target.read());
        }
        assert!(results[0] == results[1], "{format}: the two ways give different bits");
    }
}
