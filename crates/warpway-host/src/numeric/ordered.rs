//! Minimum and maximum: on integers that are ordered like the elements.
//!
//! No rounding is involved, so the result is one of the operands, bit for bit. NaN gets the key that loses
//! against every number; if it wins nevertheless, all operands were NaN. Negative zero is below positive
//! zero.

use warpway_core::memory::Element;

use super::format::{Bfloat16, E4m3b15, E4m3fn, E4m3fnuz, E5m2, E5m2fnuz, Float16};

/// A data type whose elements are ordered.
pub(super) trait Ordered {
    /// An element in memory.
    type Bits: Element + Default;
    /// Ordered like the elements.
    type Key: Copy + Default + Ord;
    /// The key of NaN for a minimum: not below that of any number.
    const TOP: Self::Key;
    /// The key of NaN for a maximum: not above that of any number.
    const BOTTOM: Self::Key;

    /// The key of an element; NaN gets the one given.
    fn key(bits: Self::Bits, nan: Self::Key) -> Self::Key;

    /// The element of a key; both keys of NaN give the canonical one.
    fn bits(key: Self::Key) -> Self::Bits;
}

macro_rules! integers {
    ($($t:ty),*) => { $(
        impl Ordered for $t {
            type Bits = $t;
            type Key = $t;
            const TOP: $t = <$t>::MAX;
            const BOTTOM: $t = <$t>::MIN;

            #[inline(always)]
            fn key(bits: $t, _: $t) -> $t {
                bits
            }

            #[inline(always)]
            fn bits(key: $t) -> $t {
                key
            }
        }
    )* };
}

integers!(u8, i8, u32, i32, u64, i64);

/// Sign and magnitude to two's complement (one less where negative, so that -0 has a key of its own), and
/// back: the other bits of negative ones are inverted. The canonical NaN has the greatest key, and the
/// least one is that of a NaN too.
macro_rules! sign_and_magnitude {
    ($($name:ty: $bits:ty as $key:ty, greatest $greatest:literal;)*) => { $(
        impl Ordered for $name {
            type Bits = $bits;
            type Key = $key;
            const TOP: $key = <$key>::MAX;
            const BOTTOM: $key = <$key>::MIN;

            #[inline(always)]
            fn key(bits: $bits, nan: $key) -> $key {
                let bits = bits as $key;
                let key = bits ^ (bits >> (<$key>::BITS - 1) & <$key>::MAX);
                if bits & <$key>::MAX > $greatest { nan } else { key }
            }

            #[inline(always)]
            fn bits(key: $key) -> $bits {
                let key = if key == Self::BOTTOM { Self::TOP } else { key };
                (key ^ (key >> (<$key>::BITS - 1) & <$key>::MAX)) as $bits
            }
        }
    )* };
}

sign_and_magnitude! {
    Float16: u16 as i16, greatest 0x7c00;
    Bfloat16: u16 as i16, greatest 0x7f80;
    E4m3fn: u8 as i8, greatest 0x7e;
    E5m2: u8 as i8, greatest 0x7c;
}

macro_rules! wide_floats {
    ($($t:ty as $key:ty;)*) => { $(
        impl Ordered for $t {
            type Bits = $t;
            type Key = $key;
            const TOP: $key = <$key>::MAX;
            const BOTTOM: $key = <$key>::MIN;

            #[inline(always)]
            fn key(bits: $t, nan: $key) -> $key {
                let raw = bits.to_bits() as $key;
                let key = raw ^ (raw >> (<$key>::BITS - 1) & <$key>::MAX);
                if raw & <$key>::MAX > <$t>::INFINITY.to_bits() as $key { nan } else { key }
            }

            #[inline(always)]
            fn bits(key: $key) -> $t {
                let key = if key == Self::BOTTOM { Self::TOP } else { key };
                <$t>::from_bits((key ^ (key >> (<$key>::BITS - 1) & <$key>::MAX)) as _)
            }
        }
    )* };
}

wide_floats! {
    f32 as i32;
    f64 as i64;
}

/// All codes but one are numbers: NaN needs keys outside those of a byte.
macro_rules! without_negative_zero {
    ($($name:ty),*) => { $(
        impl Ordered for $name {
            type Bits = u8;
            type Key = i16;
            const TOP: i16 = i16::MAX;
            const BOTTOM: i16 = i16::MIN;

            #[inline(always)]
            fn key(bits: u8, nan: i16) -> i16 {
                if bits == 0x80 { nan } else { byte_key(bits).into() }
            }

            #[inline(always)]
            fn bits(key: i16) -> u8 {
                if key == Self::TOP || key == Self::BOTTOM { 0x80 } else { byte_of(key as i8) }
            }
        }
    )* };
}

without_negative_zero!(E4m3fnuz, E5m2fnuz);

/// Every code is a number.
impl Ordered for E4m3b15 {
    type Bits = u8;
    type Key = i8;
    const TOP: i8 = i8::MAX;
    const BOTTOM: i8 = i8::MIN;

    #[inline(always)]
    fn key(bits: u8, _: i8) -> i8 {
        byte_key(bits)
    }

    #[inline(always)]
    fn bits(key: i8) -> u8 {
        byte_of(key)
    }
}

#[inline(always)]
fn byte_key(bits: u8) -> i8 {
    let bits = bits as i8;
    bits ^ (bits >> 7 & i8::MAX)
}

#[inline(always)]
fn byte_of(key: i8) -> u8 {
    (key ^ (key >> 7 & i8::MAX)) as u8
}
