//! Conversions and folds have the bits of the contract (device.md 12): conversions against exact arithmetic by integers,
//! folds against the host engine, both for every data type.

#[path = "../../../crates/warpway-host/src/numeric/tests/data.rs"]
#[allow(dead_code, reason = "the host engine's tests use the rest")]
mod data;
#[path = "../../../crates/warpway-host/src/numeric/tests/soft.rs"]
#[allow(dead_code, reason = "as above")]
mod soft;

use std::num::NonZeroU32;
use std::ptr::NonNull;

use warpway_cuda::LaunchShape;
use warpway_cuda::jit::Program;
use warpway_host::FoldKernel;
use warpway_plan::{DataType, ReduceOp};

use crate::rig::{Gpu, Source};
use data::{Random, element, spec, to_bytes};
use soft::{F32, F64, Value};

#[derive(Clone, Copy)]
#[repr(C)]
struct Codes {
    out: u64,
    input: u64,
    count: u64,
}

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

#[derive(Clone, Copy)]
#[repr(C)]
struct FoldSource {
    address: u64,
    input: u64,
}

const SHAPE: LaunchShape = LaunchShape { blocks: 23, threads: 160, shared_bytes: 0 };

/// A data type, and what the device calls it.
#[derive(Debug, Clone, Copy)]
struct Format {
    data_type: DataType,
    name: &'static str,
    /// Conversions by integers instead of instructions.
    by_integers: bool,
}

impl Format {
    fn program(self) -> Program {
        let program = Source::FOLD.program().define("FORMAT", self.name);
        if self.by_integers { program.define("WARPWAY_INTEGER_CONVERSIONS", 1) } else { program }
    }

    fn bytes(self) -> usize {
        self.data_type.bytes() as usize
    }

    /// Bytes of the value that elements are folded in.
    fn value_bytes(self) -> usize {
        self.bytes().max(4)
    }

    /// That of the value.
    fn value_spec(self) -> soft::Spec {
        if self.value_bytes() == 8 { F64 } else { F32 }
    }
}

/// Little-endian numbers of `size` bytes.
fn numbers(bytes: &[u8], size: usize) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(size).map(|chunk| {
        let mut wide = [0; 8];
        wide[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(wide)
    })
}

/// Runs `decode` or `encode`.
fn convert(gpu: &Gpu, format: Format, kernel: &str, input: &[u64], sizes: [usize; 2]) -> Vec<u64> {
    let bytes: Vec<u8> =
        input.iter().flat_map(|number| number.to_le_bytes().into_iter().take(sizes[0])).collect();
    let (source, target) = (gpu.upload(&bytes), gpu.zeros::<u8>(input.len() * sizes[1]));
    let kernel = gpu.kernel_of(&format.program(), kernel);
    let parameters = Codes { out: target.address(), input: source.address(), count: input.len() as u64 };
    gpu.run(&kernel, SHAPE, parameters);
    numbers(&target.read(), sizes[1]).collect()
}

/// Every code of narrow formats; special and random ones of wide formats.
fn codes(format: Format) -> Vec<u64> {
    if format.bytes() <= 2 {
        return (0..1 << (8 * format.bytes())).collect();
    }
    let mut random = Random::new(5);
    (0..200_000).map(|_| element(format.data_type, &mut random)).collect()
}

/// Values near and at the middle between neighbours, where numbers end, NaN of several payloads, and random ones.
fn values(format: Format) -> Vec<u64> {
    let wide = format.value_spec();
    let spec = spec(format.data_type).unwrap();
    let bits = |code| wide.encode(spec.decode(code));
    let mut all = vec![0, 1, 2, (1 << wide.mantissa) - 1, 1 << wide.mantissa];
    let infinity = wide.greatest() + 1;
    // Infinity, and NaN quiet and signalling.
    all.extend([infinity - 1, infinity, infinity + 1, infinity | 1 << (wide.mantissa - 1), wide.sign() - 1]);
    all.push(infinity | 0x0025_a5a5 & ((1 << wide.mantissa) - 1));
    let mut random = Random::new(7);
    let pairs: Vec<u64> = if format.bytes() <= 2 {
        (0..spec.greatest()).collect()
    } else {
        (0..50_000).map(|_| random.next() % spec.greatest()).collect()
    };
    for code in pairs {
        // Bits of floats of one sign are in the order of the numbers.
        let (low, high) = (bits(code), bits(code + 1));
        let middle = low / 2 + high / 2 + (low & high & 1);
        all.extend([low, low + 1, middle.saturating_sub(1), middle, middle + 1, high - 1]);
    }
    if format.bytes() < format.value_bytes() {
        // Half of the smallest number: a tie with zero.
        let smallest = bits(1);
        // Subnormal where the exponents are those of the value.
        let tie = if smallest > 1 << wide.mantissa { smallest - (1 << wide.mantissa) } else { smallest / 2 };
        all.extend([tie - 1, tie, tie + 1]);
    }
    let (last, greatest) = (bits(spec.greatest() - 1), bits(spec.greatest()));
    for half_units in 1..6 {
        let beyond = greatest + (greatest - last) / 2 * half_units;
        all.extend([beyond - 1, beyond, beyond + 1].map(|bits| bits.min(wide.sign() - 1)));
    }
    all.extend((0..100_000).map(|_| random.next() & (wide.sign() - 1)));
    let negative: Vec<u64> = all.iter().map(|bits| bits | wide.sign()).collect();
    all.extend(negative);
    all
}

fn conversions(format: Format) {
    let gpu = Gpu::open();
    let (spec, wide) = (spec(format.data_type).unwrap(), format.value_spec());
    let codes = codes(format);
    let decoded = convert(&gpu, format, "decode", &codes, [format.bytes(), format.value_bytes()]);
    for (code, found) in codes.iter().zip(decoded) {
        match spec.decode(*code) {
            Value::Nan => {
                assert_eq!(wide.decode(found), Value::Nan, "{format:?}: {code:#x} gives {found:#x}")
            }
            number => assert_eq!(found, wide.encode(number), "{format:?}: {code:#x}"),
        }
    }
    let values = values(format);
    let encoded = convert(&gpu, format, "encode", &values, [format.value_bytes(), format.bytes()]);
    for (value, found) in values.iter().zip(encoded) {
        let expected = spec.encode(wide.decode(*value));
        assert_eq!(found, expected, "{format:?}: from {value:#x}: {found:#x} instead of {expected:#x}");
    }
}

/// By NCCL's numbers, which the device uses.
const OPERATORS: [ReduceOp; 5] = [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min, ReduceOp::Avg];
const ELEMENTS: usize = 1 << 16;

/// Elements of a source: of narrow types all codes in the first one and all pairs in the first two.
fn operands(data_type: DataType, source: usize, random: &mut Random) -> Vec<u8> {
    let bits = 8 * data_type.bytes() as u32;
    let code = |i: usize| match (bits, source) {
        (8 | 16, 0) => i as u64,
        (8, 1) => i as u64 >> 8,
        _ => element(data_type, random),
    };
    to_bytes(data_type, &(0..ELEMENTS).map(code).collect::<Vec<_>>())
}

fn folds(format: Format) {
    let gpu = Gpu::open();
    let kernel = gpu.kernel_of(&format.program(), "fold_elements");
    let size = format.bytes();
    let mut random = Random::new(9);
    let data: Vec<Vec<u8>> = (0..4).map(|source| operands(format.data_type, source, &mut random)).collect();
    let buffers: Vec<_> = data.iter().map(|data| gpu.upload(data)).collect();
    let filler = vec![0xc5; ELEMENTS * size];
    let target = gpu.upload(&filler);
    for n in 1..=4 {
        for (number, op) in (0..).zip(OPERATORS) {
            // The last one begins at the second element and leaves some out: no sixteen bytes at a time.
            for (ranks, last, skip) in [(1, true, 0), (3, true, 0), (7, false, 0), (5, true, 1)] {
                let count = ELEMENTS - 3 * skip;
                let range = skip * size..(skip + count) * size;
                let table: Vec<FoldSource> = (0..n)
                    .map(|i| FoldSource { address: buffers[i].at(range.start), input: (i % 2 == 0).into() })
                    .collect();
                let table = gpu.upload(&table);
                target.write(&filler);
                let parameters = FoldCall {
                    dst: target.at(range.start),
                    sources: table.address(),
                    count: count as u64,
                    n_sources: n as u32,
                    op: number,
                    ranks,
                    last: last.into(),
                };
                gpu.run(&kernel, SHAPE, parameters);

                let sources: Vec<warpway_host::FoldSource> = (0..n)
                    .map(|i| warpway_host::FoldSource {
                        address: NonNull::from(&data[i][range.clone()]).cast(),
                        input: i % 2 == 0,
                    })
                    .collect();
                let mut expected = filler.clone();
                let ranks = NonZeroU32::new(ranks).unwrap();
                let out = NonNull::from(&mut expected[range.clone()]).cast();
                let host = FoldKernel::new(format.data_type, op, ranks);
                // SAFETY: sources and result live, have as many bytes as given, and are distinct.
                unsafe { host.fold_into(&sources, range.len() as u64, last, &[out]) };
                let found = target.read();
                if let Some(at) = (0..found.len()).find(|at| found[*at] != expected[*at]) {
                    let element = at / size * size..at / size * size + size;
                    let entered: Vec<_> = data[..n].iter().map(|data| &data[element.clone()]).collect();
                    panic!(
                        "{format:?} {op:?} of {entered:x?}, {ranks} ranks, last {last}: {:x?} instead of {:x?}",
                        &found[element.clone()],
                        &expected[element.clone()]
                    );
                }
            }
        }
    }
}

macro_rules! formats {
    ($check:ident: $($test:ident = $data_type:ident as $name:literal $(by $integers:literal)?;)*) => { $(
        #[test]
        #[ignore = "needs a GPU: cargo xtask gpu-bundle"]
        fn $test() {
            let by_integers = false $(|| $integers == "integers")?;
            $check(Format { data_type: DataType::$data_type, name: $name, by_integers });
        }
    )* };
}

mod converting {
    use super::*;

    formats! { conversions:
        float16 = Float16 as "F16";
        float16_by_integers = Float16 as "F16" by "integers";
        bfloat16 = Bfloat16 as "BF16";
        bfloat16_by_integers = Bfloat16 as "BF16" by "integers";
        float32 = Float32 as "F32";
        float64 = Float64 as "F64";
        e4m3fn = Float8E4m3fn as "E4M3";
        e4m3fn_by_integers = Float8E4m3fn as "E4M3" by "integers";
        e4m3fnuz = Float8E4m3fnuz as "E4M3FNUZ";
        e5m2 = Float8E5m2 as "E5M2";
        e5m2_by_integers = Float8E5m2 as "E5M2" by "integers";
        e5m2fnuz = Float8E5m2fnuz as "E5M2FNUZ";
        e4m3b15 = Float8E4m3b15 as "E4M3B15";
        e4m3b15_by_integers = Float8E4m3b15 as "E4M3B15" by "integers";
    }
}

mod folding {
    use super::*;

    formats! { folds:
        int8 = Int8 as "I8";
        uint8 = Uint8 as "U8";
        int32 = Int32 as "I32";
        uint32 = Uint32 as "U32";
        int64 = Int64 as "I64";
        uint64 = Uint64 as "U64";
        float16 = Float16 as "F16";
        bfloat16 = Bfloat16 as "BF16";
        float32 = Float32 as "F32";
        float64 = Float64 as "F64";
        e4m3fn = Float8E4m3fn as "E4M3";
        e4m3fnuz = Float8E4m3fnuz as "E4M3FNUZ";
        e5m2 = Float8E5m2 as "E5M2";
        e5m2fnuz = Float8E5m2fnuz as "E5M2FNUZ";
        e4m3b15 = Float8E4m3b15 as "E4M3B15";
    }
}
