//! What the switch must make of given elements, by the host engine's arithmetic.

use std::num::NonZeroU32;
use std::ptr::NonNull;

use warpway_host::{FoldKernel, FoldSource};
use warpway_plan::{DataType, ReduceOp};

/// In what partial sums are kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Accumulator {
    /// That of the host engine's folds: float for floats. Minima and maxima need none.
    Wide,
    /// Binary16, for 8-bit floats.
    Half,
    /// The type itself.
    InType,
}

/// How the switch folds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct How {
    pub(crate) data_type: DataType,
    pub(crate) op: ReduceOp,
    pub(crate) accumulator: Accumulator,
}

/// Folds `sources` in order.
pub(crate) fn fold(how: How, sources: &[&[u8]]) -> Vec<u8> {
    match how.accumulator {
        Accumulator::Wide => at_once(how.data_type, how.op, sources),
        Accumulator::InType => one_by_one(how.data_type, how.op, sources),
        Accumulator::Half => {
            let decode = |bytes: &&[u8]| -> Vec<u8> {
                bytes.iter().flat_map(|code| half_of(how.data_type, *code).to_le_bytes()).collect()
            };
            let halves: Vec<Vec<u8>> = sources.iter().map(decode).collect();
            let halves: Vec<&[u8]> = halves.iter().map(Vec::as_slice).collect();
            let sums = one_by_one(DataType::Float16, how.op, &halves);
            sums.chunks(2)
                .map(|half| nearest(how.data_type, u16::from_le_bytes([half[0], half[1]])))
                .collect()
        }
    }
}

/// Rounds once.
fn at_once(data_type: DataType, op: ReduceOp, sources: &[&[u8]]) -> Vec<u8> {
    let mut out = vec![0; sources[0].len()];
    let source = |data: &&[u8]| FoldSource { address: NonNull::from(*data).cast(), input: true };
    let sources: Vec<FoldSource> = sources.iter().map(source).collect();
    let kernel = FoldKernel::new(data_type, op, NonZeroU32::MIN);
    // SAFETY: sources and result live, are equally long and distinct.
    unsafe { kernel.fold_into(&sources, out.len() as u64, true, &[NonNull::from(&mut out[..]).cast()]) };
    out
}

/// Rounds every partial result.
fn one_by_one(data_type: DataType, op: ReduceOp, sources: &[&[u8]]) -> Vec<u8> {
    let first = sources[0].to_vec();
    sources[1..].iter().fold(first, |sum, next| at_once(data_type, op, &[&sum, next]))
}

/// The value of an 8-bit float as binary16, which holds all of them.
fn half_of(data_type: DataType, code: u8) -> u16 {
    let sign = u16::from(code >> 7) << 15;
    match data_type {
        // The upper half of a binary16.
        DataType::Float8E5m2 => u16::from(code) << 8,
        DataType::Float8E4m3fn => {
            let (exponent, mantissa) = (u16::from(code >> 3 & 15), u16::from(code & 7));
            match (exponent, mantissa) {
                (15, 7) => 0x7fff,
                (0, 0) => sign,
                // The leading one goes into the exponent.
                (0, _) => {
                    let shift = mantissa.leading_zeros() as u16 - 12;
                    sign | (9 - shift) << 10 | (mantissa << (7 + shift) & 0x3ff)
                }
                _ => sign | (exponent + 8) << 10 | mantissa << 7,
            }
        }
        other => panic!("{other:?} is no 8-bit float of the switch"),
    }
}

/// The finite 8-bit float that is nearest to a half, the even one of two; beyond the greatest one that one. NaN becomes 0x7f.
fn nearest(data_type: DataType, half: u16) -> u8 {
    let value = |half: u16| -> f64 {
        let (exponent, mantissa) = (i32::from(half >> 10 & 31), f64::from(half & 0x3ff));
        let magnitude = match exponent {
            0 => mantissa * 2f64.powi(-24),
            31 if mantissa == 0.0 => f64::INFINITY,
            31 => f64::NAN,
            _ => (1024.0 + mantissa) * 2f64.powi(exponent - 25),
        };
        if half >> 15 == 1 { -magnitude } else { magnitude }
    };
    let wanted = value(half);
    if wanted.is_nan() {
        return 0x7f;
    }
    let codes = match data_type {
        DataType::Float8E5m2 => 0x7c,
        _ => 0x7f,
    };
    let distance = |code: u8| (value(half_of(data_type, code)) - wanted.abs().min(1e6)).abs();
    let closest = (0..codes).min_by(|a, b| distance(*a).total_cmp(&distance(*b)).then((a & 1).cmp(&(b & 1))));
    closest.unwrap() | if half >> 15 == 1 { 0x80 } else { 0 }
}
