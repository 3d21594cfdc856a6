//! Every code of every narrow type, both ways.

use super::data::Random;
use super::soft::{self, F32, Kind, Spec, Value};
use crate::numeric::format::{Bfloat16, E4m3b15, E4m3fn, E4m3fnuz, E5m2, E5m2fnuz, Float16, Format};

/// Compares a format with its definition.
fn check<F: Format<Accumulator = f32>>(
    spec: &Spec,
    bits: impl Fn(u64) -> F::Bits,
    code: impl Fn(F::Bits) -> u64,
) {
    let encode = |value: f32| code(F::encode(value));
    let expected = |value: f32| spec.encode(F32.decode(value.to_bits().into()));
    let same = |value: f32| {
        for value in [value, -value] {
            assert_eq!(encode(value), expected(value), "{spec:?} from {value:e} {:x}", value.to_bits());
        }
    };
    for c in 0..2 * spec.sign() {
        let value = F::decode(bits(c));
        match spec.decode(c) {
            Value::Nan => assert!(value.is_nan(), "{spec:?} {c:x}"),
            number => {
                // Every number is an `f32`, so the oracle's rounding is none.
                assert_eq!(u64::from(value.to_bits()), F32.encode(number), "{spec:?} {c:x}");
                let back = if matches!(number, Value::Infinite { .. }) { spec.encode(number) } else { c };
                assert_eq!(encode(value), back, "{spec:?} {c:x} and back");
            }
        }
    }
    // Around the middle between neighbours, and at it: ties.
    for c in 0..spec.greatest() {
        let (low, high) = (F::decode(bits(c)), F::decode(bits(c + 1)));
        let middle = (f64::from(low) / 2.0 + f64::from(high) / 2.0) as f32;
        for value in [low.next_up(), middle.next_down(), middle, middle.next_up(), high.next_down()] {
            same(value);
        }
    }
    // Where numbers end.
    let greatest = F::decode(bits(spec.greatest()));
    let unit = greatest - F::decode(bits(spec.greatest() - 1));
    for value in [greatest + unit / 2.0, greatest + unit, greatest + 2.0 * unit, f32::MAX, f32::INFINITY] {
        for value in [value.next_down(), value, value.next_up()] {
            same(value);
        }
    }
    for bits in [0, 1, 2, 0x7f_ffff, 0x80_0000, 0x40_0000, 0x7f80_0001, 0x7fc0_0000, 0x7fff_ffff, 0x7fa5_a5a5]
    {
        let value = f32::from_bits(bits);
        if value.is_nan() {
            for sign in [0, 1 << 31] {
                assert_eq!(encode(f32::from_bits(bits | sign)), expected(value), "{spec:?} {bits:x}");
            }
        } else {
            same(value);
        }
    }
    let mut random = Random::new(3);
    for _ in 0..300_000 {
        let any = f32::from_bits(random.next() as u32);
        if !any.is_nan() {
            same(any);
        }
        // Within the range of the type.
        let near = F::decode(bits(random.next() % spec.greatest()));
        same(f32::from_bits(near.to_bits() ^ (random.next() as u32 & 0x3f_ffff)));
    }
    // No more than one canonical NaN, of sign 0 where the type has signs of NaN.
    let nan = if spec.kind == Kind::B15 { 0x7f } else { spec.canonical_nan() };
    assert_eq!(encode(-f32::NAN), nan);
    assert_eq!(encode(f32::NAN), nan);
}

macro_rules! conversions {
    ($($test:ident: $format:ty as $bits:ty, $spec:ident;)*) => { $(
        #[test]
        fn $test() {
            check::<$format>(&soft::$spec, |code| code as $bits, u64::from);
        }
    )* };
}

conversions! {
    float16: Float16 as u16, F16;
    bfloat16: Bfloat16 as u16, BF16;
    e4m3fn: E4m3fn as u8, E4M3FN;
    e4m3fnuz: E4m3fnuz as u8, E4M3FNUZ;
    e5m2: E5m2 as u8, E5M2;
    e5m2fnuz: E5m2fnuz as u8, E5M2FNUZ;
    e4m3b15: E4m3b15 as u8, E4M3B15;
}

/// Figures that the contract names, typed by hand.
#[test]
fn the_contracts_own_figures() {
    assert_eq!(E4m3fn::decode(0x7e), 448.0);
    assert!(E4m3fn::decode(0x7f).is_nan() && E4m3fn::decode(0xff).is_nan());
    assert_eq!(E4m3fn::encode(1e9), 0x7e);
    assert_eq!(E4m3fnuz::decode(0x7f), 240.0);
    assert!(E4m3fnuz::decode(0x80).is_nan());
    assert_eq!(E4m3fnuz::encode(-0.0), 0);
    assert_eq!(E5m2::decode(0x7b), 57344.0);
    assert_eq!(E5m2::decode(0xfc), f32::NEG_INFINITY);
    assert_eq!(E5m2::encode(f32::NEG_INFINITY), 0xfb);
    assert_eq!(E5m2fnuz::decode(0x7f), 57344.0);
    assert!(E5m2fnuz::decode(0x80).is_nan());
    assert_eq!(E4m3b15::decode(0x7f), 1.875);
    assert_eq!(E4m3b15::decode(1), 1.0 / 131_072.0);
    assert_eq!(E4m3b15::decode(0xff), -1.875);
    assert_eq!(E4m3b15::encode(f32::INFINITY), 0x7f);
    assert_eq!(Float16::encode(65519.996), 0x7bff);
    assert_eq!(Float16::encode(65520.0), 0x7c00);
    assert_eq!(Bfloat16::encode(f32::MAX), 0x7f80);
    assert_eq!([f32::encode(-f32::NAN).to_bits(), 0x7fff_ffff], [0x7fff_ffff; 2]);
    assert_eq!(f64::encode(-f64::NAN).to_bits(), 0x7fff_ffff_ffff_ffff);
}
