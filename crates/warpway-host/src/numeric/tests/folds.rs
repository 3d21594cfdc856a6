//! Folds of every type and operator, element by element.

use std::num::NonZeroU32;
use std::ptr::NonNull;

use warpway_plan::{DataType, ReduceOp};

use super::data::{Random, element, spec, to_bytes};
use super::soft::{F32, F64, Spec, Value, add, below, multiply, reciprocal};
use crate::numeric::kernel::Level;
use crate::numeric::{FoldKernel, FoldSource};

/// Whether each source is an input, and whether the fold is the last.
#[derive(Debug, Clone, Copy)]
struct Place {
    ranks: u32,
    inputs: u32,
    last: bool,
}

impl Place {
    fn is_input(self, source: usize) -> bool {
        self.inputs >> source & 1 == 1
    }
}

/// One element by the definition.
fn expected(data_type: DataType, op: ReduceOp, operands: &[u64], place: Place) -> u64 {
    match spec(data_type) {
        Some(spec) if matches!(op, ReduceOp::Min | ReduceOp::Max) => extreme(&spec, op, operands),
        Some(spec) => rounded(&spec, op, operands, place),
        None => integer(data_type, op, operands, place),
    }
}

fn rounded(spec: &Spec, op: ReduceOp, operands: &[u64], place: Place) -> u64 {
    let accumulator = if spec.width == 64 { F64 } else { F32 };
    let round = |value| accumulator.decode(accumulator.encode(value));
    let entering = |(at, code): (usize, &u64)| match op {
        ReduceOp::Avg if place.is_input(at) => {
            round(multiply(spec.decode(*code), round(reciprocal(place.ranks))))
        }
        _ => spec.decode(*code),
    };
    let joined = operands.iter().enumerate().map(entering).reduce(|a, b| match op {
        ReduceOp::Prod => round(multiply(a, b)),
        _ => round(add(a, b)),
    });
    spec.encode(joined.unwrap())
}

fn extreme(spec: &Spec, op: ReduceOp, operands: &[u64]) -> u64 {
    let numbers = operands.iter().copied().filter(|code| spec.decode(*code) != Value::Nan);
    let least = |a: u64, b: u64| if below(spec.decode(b), spec.decode(a)) { b } else { a };
    let greatest = |a: u64, b: u64| if below(spec.decode(a), spec.decode(b)) { b } else { a };
    let found = if op == ReduceOp::Min { numbers.reduce(least) } else { numbers.reduce(greatest) };
    found.unwrap_or(spec.canonical_nan())
}

fn integer(data_type: DataType, op: ReduceOp, operands: &[u64], place: Place) -> u64 {
    let width = data_type.bytes() * 8;
    let signed = matches!(data_type, DataType::Int8 | DataType::Int32 | DataType::Int64);
    let modulus = 1i128 << width;
    let wrapped = |value: i128| {
        let value = value.rem_euclid(modulus);
        if signed && value >= modulus / 2 { value - modulus } else { value }
    };
    let values = operands.iter().map(|code| wrapped(i128::from(*code)));
    let result = match op {
        ReduceOp::Min => values.min(),
        ReduceOp::Max => values.max(),
        ReduceOp::Prod => values.reduce(|a, b| wrapped(a.wrapping_mul(b))),
        ReduceOp::Sum => values.reduce(|a, b| wrapped(a + b)),
        ReduceOp::Avg if place.last => {
            values.reduce(|a, b| wrapped(a + b)).map(|sum| sum / i128::from(place.ranks))
        }
        ReduceOp::Avg => values.reduce(|a, b| wrapped(a + b)),
    };
    result.unwrap().rem_euclid(modulus) as u64
}

const SIZES: [usize; 9] = [0, 1, 3, 17, 63, 64, 65, 130, 4095];

/// All operators, sizes and numbers of sources; sources at odd addresses, guards around the result.
fn check(data_type: DataType) {
    let size = data_type.bytes() as usize;
    let mut random = Random::new(data_type.number().into());
    for count in 1..=8usize {
        let most = SIZES[SIZES.len() - 1];
        let codes: Vec<Vec<u64>> =
            (0..count).map(|_| (0..most).map(|_| element(data_type, &mut random)).collect()).collect();
        let sources: Vec<Vec<u8>> =
            codes.iter().map(|codes| [vec![0; 1], to_bytes(data_type, codes)].concat()).collect();
        let ranks = [1, 2, 3, 7, 8, 300][random.below(6)];
        let place = Place { ranks, inputs: random.next() as u32, last: count % 2 == 0 };
        let list: Vec<FoldSource> = (0..count)
            .map(|at| FoldSource {
                address: NonNull::from(&sources[at][1..]).cast(),
                input: place.is_input(at),
            })
            .collect();
        for (op, _) in ReduceOp::NAMED {
            let element = |i: usize| {
                let operands: Vec<u64> = codes.iter().map(|codes| codes[i]).collect();
                expected(data_type, *op, &operands, place)
            };
            let expected = to_bytes(data_type, &(0..most).map(element).collect::<Vec<u64>>());
            for level in Level::available() {
                let kernel = FoldKernel::at_level(level, data_type, *op, NonZeroU32::new(ranks).unwrap());
                for elements in SIZES {
                    let bytes = elements * size;
                    let mut out = vec![0xa5; bytes + 2];
                    // SAFETY: sources have the bytes of 4095 elements; `out` is a vector of its own.
                    unsafe { kernel.tile(&list, place.last, &mut out[1..=bytes]) };
                    let what = || format!("{data_type} {op} {level:?} {count} sources {place:?}");
                    assert_same(&out[1..=bytes], &expected[..bytes], size, what);
                    assert_eq!((out[0], out[bytes + 1]), (0xa5, 0xa5), "{}: strayed", what());
                }
            }
        }
    }
}

fn assert_same(found: &[u8], expected: &[u8], size: usize, what: impl Fn() -> String) {
    assert_eq!(found.len(), expected.len());
    if let Some(at) = (0..found.len()).find(|i| found[*i] != expected[*i]) {
        let element = at / size * size..at / size * size + size;
        let (found, expected) = (&found[element.clone()], &expected[element]);
        panic!("{}: element {} is {found:x?} instead of {expected:x?}", what(), at / size);
    }
}

macro_rules! folds {
    ($($test:ident: $data_type:ident;)*) => { $(
        #[test]
        fn $test() {
            check(DataType::$data_type);
        }
    )* };
}

folds! {
    int32: Int32;
    uint32: Uint32;
    float16: Float16;
    float32: Float32;
    bfloat16: Bfloat16;
    e4m3fn: Float8E4m3fn;
    e4m3fnuz: Float8E4m3fnuz;
    e5m2: Float8E5m2;
    e5m2fnuz: Float8E5m2fnuz;
    uint8: Uint8;
    e4m3b15: Float8E4m3b15;
    int8: Int8;
    int64: Int64;
    uint64: Uint64;
    float64: Float64;
}

/// Many tiles, in place, to three destinations, one of which is the first source and one the last.
#[test]
fn long_folds_in_place_and_to_several_destinations() {
    const ELEMENTS: usize = 1_000_003;
    for (data_type, op) in [
        (DataType::Float32, ReduceOp::Sum),
        (DataType::Bfloat16, ReduceOp::Avg),
        (DataType::Uint8, ReduceOp::Avg),
        (DataType::Float64, ReduceOp::Max),
    ] {
        let size = data_type.bytes() as usize;
        let mut random = Random::new(77);
        let codes: Vec<Vec<u64>> =
            (0..3).map(|_| (0..ELEMENTS).map(|_| element(data_type, &mut random)).collect()).collect();
        let mut memory: Vec<Vec<u8>> = codes.iter().map(|codes| to_bytes(data_type, codes)).collect();
        memory.push(vec![0; ELEMENTS * size]);
        let at: Vec<NonNull<u8>> = memory.iter_mut().map(|m| NonNull::from(&mut m[..]).cast()).collect();
        let place = Place { ranks: 3, inputs: 0b101, last: true };
        let sources: Vec<FoldSource> =
            (0..3).map(|k| FoldSource { address: at[k], input: place.is_input(k) }).collect();
        let kernel = FoldKernel::new(data_type, op, NonZeroU32::new(3).unwrap());
        // SAFETY: all memories live and have as many bytes; those of destinations that are sources coincide.
        unsafe { kernel.fold_into(&sources, (ELEMENTS * size) as u64, true, &[at[0], at[3], at[2]]) };
        let element = |i: usize| expected(data_type, op, &[codes[0][i], codes[1][i], codes[2][i]], place);
        let expected = to_bytes(data_type, &(0..ELEMENTS).map(element).collect::<Vec<u64>>());
        for written in [0, 2, 3] {
            assert_same(&memory[written], &expected, size, || format!("{data_type} {op} to {written}"));
        }
        assert!(memory[1] == to_bytes(data_type, &codes[1]), "a source that is no destination stays");
    }
}

#[test]
fn tiles_come_in_order_and_an_error_ends_them() {
    let source = vec![1u8; 3 * FoldKernel::TILE + 5];
    let list = [FoldSource { address: NonNull::from(&source[..]).cast(), input: true }];
    let kernel = FoldKernel::new(DataType::Float32, ReduceOp::Sum, NonZeroU32::MIN);
    let mut seen = Vec::new();
    // SAFETY: the source has that many bytes.
    let result = unsafe {
        kernel.fold(&list, source.len() as u64, true, |offset, tile| {
            seen.push((offset, tile.len()));
            if offset == 2 * FoldKernel::TILE as u64 { Err("enough") } else { Ok(()) }
        })
    };
    assert_eq!(result, Err("enough"));
    let tile = FoldKernel::TILE;
    assert_eq!(seen, [(0, tile), (tile as u64, tile), (2 * tile as u64, tile)]);
    seen.clear();
    // SAFETY: as above.
    let result = unsafe {
        kernel.fold(&list, source.len() as u64, true, |offset, tile| {
            seen.push((offset, tile.len()));
            Ok::<(), ()>(())
        })
    };
    assert_eq!(result, Ok(()));
    assert_eq!(seen.last(), Some(&(3 * tile as u64, 4)), "whole elements only");
    // SAFETY: there is no source.
    unsafe { kernel.fold(&[], 100, true, |_, _| Err("nothing to fold")) }.unwrap();
}

/// Division of integers by floats, where it could go wrong: around multiples.
#[test]
fn means_of_integers_truncate_exactly() {
    let mut random = Random::new(5);
    for ranks in
        [1, 2, 3, 5, 7, 8, 48, 49, 255, 256, 257, 1023, 65_537, (1 << 24) - 1, (1 << 24) + 1, u32::MAX]
    {
        let place = Place { ranks, inputs: 0, last: true };
        for data_type in [DataType::Int32, DataType::Uint32, DataType::Int64, DataType::Uint64] {
            let multiple = |random: &mut Random| random.next() / u64::from(ranks) * u64::from(ranks);
            let mask = !0 >> (64 - data_type.bytes() * 8);
            let mut codes: Vec<u64> = (0..3000)
                .map(|i| (multiple(&mut random) & mask) / u64::from(ranks) * u64::from(ranks) + i % 3)
                .map(|code| code.wrapping_sub(1) & mask)
                .collect();
            codes.extend([0, 1, mask, mask - 1, mask / 2, mask / 2 + 1]);
            check_mean(data_type, &codes, place);
        }
        let bytes: Vec<u64> = (0..256).collect();
        check_mean(DataType::Int8, &bytes, place);
        check_mean(DataType::Uint8, &bytes, place);
    }
}

fn check_mean(data_type: DataType, codes: &[u64], place: Place) {
    let source = to_bytes(data_type, codes);
    let expected: Vec<u64> =
        codes.iter().map(|code| expected(data_type, ReduceOp::Avg, &[*code], place)).collect();
    let list = [FoldSource { address: NonNull::from(&source[..]).cast(), input: true }];
    for level in Level::available() {
        let ranks = NonZeroU32::new(place.ranks).unwrap();
        let kernel = FoldKernel::at_level(level, data_type, ReduceOp::Avg, ranks);
        let mut out = vec![0; source.len()];
        // SAFETY: the source has as many bytes as `out`, and is another vector.
        unsafe { kernel.tile(&list, true, &mut out) };
        let what = || format!("{data_type} {level:?} {place:?}");
        assert_same(&out, &to_bytes(data_type, &expected), data_type.bytes() as usize, what);
    }
}
