//! How each data type is read into its accumulator and rounded back.
//!
//! Everything here is integer arithmetic and selection without branches, so that loops over it become
//! vector code. Nothing depends on the processor's flags for subnormal numbers, and no vector conversion
//! instruction is used that flushes them (`vcvtneps2bf16` does).

use warpway_core::memory::Element;

/// A data type as folds see it.
pub(super) trait Format {
    /// An element in memory.
    type Bits: Element + Default;
    /// What it is folded in.
    type Accumulator: Number;

    /// The exact value.
    fn decode(bits: Self::Bits) -> Self::Accumulator;

    /// The nearest element, ties to even. NaN gives the canonical NaN of the type.
    fn encode(value: Self::Accumulator) -> Self::Bits;

    /// [`decode`](Self::decode) of several elements, for types with an instruction for it.
    #[inline(always)]
    fn decode_block<const N: usize>(bits: &[Self::Bits; N]) -> [Self::Accumulator; N] {
        bits.map(Self::decode)
    }

    /// [`encode`](Self::encode) of several elements.
    #[inline(always)]
    fn encode_block<const N: usize>(values: &[Self::Accumulator; N]) -> [Self::Bits; N] {
        values.map(Self::encode)
    }
}

/// What accumulators can do. Integers wrap.
pub(super) trait Number: Copy + Default {
    fn add(self, other: Self) -> Self;
    fn multiply(self, other: Self) -> Self;
}

macro_rules! floats {
    ($($t:ty),*) => { $(
        impl Number for $t {
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self + other
            }

            #[inline(always)]
            fn multiply(self, other: Self) -> Self {
                self * other
            }
        }

        impl Format for $t {
            type Bits = $t;
            type Accumulator = $t;

            #[inline(always)]
            fn decode(bits: $t) -> $t {
                bits
            }

            #[inline(always)]
            fn encode(value: $t) -> $t {
                // Sign 0, all other bits 1.
                if value.is_nan() { <$t>::from_bits(!0 >> 1) } else { value }
            }
        }
    )* };
}

macro_rules! integers {
    ($($t:ty),*) => { $(
        impl Number for $t {
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn multiply(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
        }

        impl Format for $t {
            type Bits = $t;
            type Accumulator = $t;

            #[inline(always)]
            fn decode(bits: $t) -> $t {
                bits
            }

            #[inline(always)]
            fn encode(value: $t) -> $t {
                value
            }
        }
    )* };
}

floats!(f32, f64);
integers!(u8, i8, u32, i32, u64, i64);

/// The upper half of an `f32`.
pub(super) enum Bfloat16 {}

impl Format for Bfloat16 {
    type Bits = u16;
    type Accumulator = f32;

    #[inline(always)]
    fn decode(bits: u16) -> f32 {
        f32::from_bits(u32::from(bits) << 16)
    }

    #[inline(always)]
    fn encode(value: f32) -> u16 {
        let bits = value.to_bits();
        // Half a unit of the last place that stays, a tie goes up only from an odd one. A carry runs into
        // the exponent as it should, from the greatest number into infinity.
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
        if value.is_nan() { 0x7fff } else { rounded as u16 }
    }
}

/// A float with a sign, an exponent and a mantissa narrower than those of `f32`, so that every value is a
/// normal `f32`.
pub(super) trait Narrow {
    type Bits: Element + Default;
    /// Bits of the mantissa.
    const MANTISSA: u32;
    /// The exponent field of 1.0.
    const BIAS: u32;
    /// Codes without sign from here on are infinity or NaN, with an exponent of all ones in `f32` too.
    /// Beyond all codes if there are none.
    const SPECIAL: u32;
    /// Greater magnitudes, infinity among them, are rounded as this one. Where the type saturates it is
    /// the greatest finite number.
    const LIMIT: f32;
    /// The code of a negative zero stands for NaN, and no other does.
    const NEGATIVE_ZERO_IS_NAN: bool;
    /// The canonical NaN.
    const NAN: u32;
    /// The sign.
    const SIGN: u32;

    fn widen(bits: Self::Bits) -> u32;
    fn narrow(code: u32) -> Self::Bits;
}

/// 2 to the power of `exponent`, which is that of a normal `f32`.
const fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}

impl<N: Narrow> Format for N {
    type Bits = N::Bits;
    type Accumulator = f32;

    #[inline(always)]
    fn decode(bits: N::Bits) -> f32 {
        let shift = 23 - N::MANTISSA;
        let code = N::widen(bits);
        let magnitude = code & (N::SIGN - 1);
        let normal = (magnitude << shift) + ((127 - N::BIAS) << 23);
        // Fewer bits than an `f32` has: the conversion and the product are exact.
        let unit = power_of_two(1 - N::BIAS as i32 - N::MANTISSA as i32);
        let subnormal = (magnitude as i32 as f32 * unit).to_bits();
        let mut value = if magnitude < 1 << N::MANTISSA { subnormal } else { normal };
        if magnitude >= N::SPECIAL {
            value = f32::INFINITY.to_bits() | magnitude << shift;
        }
        value |= u32::from(code >= N::SIGN) << 31;
        if N::NEGATIVE_ZERO_IS_NAN && code == N::SIGN {
            value = f32::NAN.to_bits();
        }
        f32::from_bits(value)
    }

    #[inline(always)]
    fn encode(value: f32) -> N::Bits {
        let shift = 23 - N::MANTISSA;
        let magnitude = (value.to_bits() & !0 >> 1).min(N::LIMIT.to_bits());
        // As in `Bfloat16`, then the exponent is counted from the other bias.
        let rounded = magnitude + ((1 << (shift - 1)) - 1) + (magnitude >> shift & 1);
        let normal = (rounded >> shift).wrapping_sub((127 - N::BIAS) << N::MANTISSA);
        // The unit of the last place of `anchor` is that of the subnormal numbers: the addition rounds.
        let anchor = power_of_two(24 - N::BIAS as i32 - N::MANTISSA as i32);
        let subnormal = (f32::from_bits(magnitude) + anchor).to_bits().wrapping_sub(anchor.to_bits());
        let least_normal = (128 - N::BIAS) << 23;
        let mut code = if magnitude < least_normal { subnormal } else { normal };
        if !N::NEGATIVE_ZERO_IS_NAN || code != 0 {
            code |= if value.to_bits() >> 31 == 1 { N::SIGN } else { 0 };
        }
        if value.is_nan() {
            code = N::NAN;
        }
        N::narrow(code)
    }
}

macro_rules! narrow {
    ($(
        $(#[$doc:meta])*
        $name:ident: $bits:ty, mantissa $mantissa:literal, bias $bias:literal, special from $special:expr,
        limit $limit:literal, negative zero is NaN: $fnuz:literal, NaN $nan:literal;
    )*) => { $(
        $(#[$doc])*
        pub(super) enum $name {}

        impl Narrow for $name {
            type Bits = $bits;
            const MANTISSA: u32 = $mantissa;
            const BIAS: u32 = $bias;
            const SPECIAL: u32 = $special;
            const LIMIT: f32 = $limit;
            const NEGATIVE_ZERO_IS_NAN: bool = $fnuz;
            const NAN: u32 = $nan;
            const SIGN: u32 = 1 << (<$bits>::BITS - 1);

            #[inline(always)]
            fn widen(bits: $bits) -> u32 {
                u32::from(bits)
            }

            #[inline(always)]
            fn narrow(code: u32) -> $bits {
                code as $bits
            }
        }
    )* };
}

narrow! {
    /// IEEE 754 binary16. What is rounded beyond 65504 is infinite, as if the next number were 65536.
    Float16: u16, mantissa 10, bias 15, special from 0x7c00,
        limit 65536.0, negative zero is NaN: false, NaN 0x7fff;
    /// Saturates: what is rounded beyond 448, infinity among it, gives 448.
    E4m3fn: u8, mantissa 3, bias 7, special from 0x7f,
        limit 448.0, negative zero is NaN: false, NaN 0x7f;
    /// Saturates at 240.
    E4m3fnuz: u8, mantissa 3, bias 8, special from !0,
        limit 240.0, negative zero is NaN: true, NaN 0x80;
    /// Saturates at 57344, like the conversion instructions of GPUs: a sum never gives infinity, not even
    /// from an infinite source.
    E5m2: u8, mantissa 2, bias 15, special from 0x7c,
        limit 57344.0, negative zero is NaN: false, NaN 0x7f;
    /// Saturates at 57344.
    E5m2fnuz: u8, mantissa 2, bias 16, special from !0,
        limit 57344.0, negative zero is NaN: true, NaN 0x80;
}

/// Four bits of exponent with the bias of binary16; every code is a finite number. Its conversion is
/// defined through binary16 and rounds twice.
pub(super) enum E4m3b15 {}

impl Format for E4m3b15 {
    type Bits = u8;
    type Accumulator = f32;

    #[inline(always)]
    fn decode(bits: u8) -> f32 {
        let bits = u16::from(bits);
        Float16::decode((bits & 0x80) << 8 | (bits & 0x7f) << 7)
    }

    /// NaN gives the greatest number: the type has none, and `device.md` encodes it so, with its sign. The
    /// canonical NaN is positive.
    #[inline(always)]
    fn encode(value: f32) -> u8 {
        let half = Float16::encode(value);
        // 1.875 is 0x3f80.
        let magnitude = (half & 0x7fff).min(0x3f80);
        // Here ties go away from zero.
        let code = (magnitude + 0x40) >> 7;
        (half >> 8 & 0x80) as u8 | code as u8
    }
}
