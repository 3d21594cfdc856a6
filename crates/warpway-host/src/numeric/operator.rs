//! What a fold does with one element.

use std::marker::PhantomData;

use warpway_core::memory::Element;

use super::format::{Format, Number};
use super::ordered::Ordered;

/// What applies to a whole fold besides its sources.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setting {
    /// Number of ranks.
    pub(super) ranks: u32,
    /// The result enters no other fold.
    pub(super) last: bool,
}

/// A fold: elements of the sources enter, are joined in order, and the result leaves, a block at a time.
pub(super) trait Operator {
    /// An element in memory.
    type Bits: Element + Default;
    /// What the sources are joined in.
    type Value: Copy + Default;
    /// A factor of the source.
    type Factor: Copy;

    /// The factor of a source, which is a contribution as the user gave it or the result of another fold.
    fn factor(input: bool, setting: Setting) -> Self::Factor;
    fn enter<const N: usize>(bits: &[Self::Bits; N], factor: Self::Factor) -> [Self::Value; N];
    fn join(a: Self::Value, b: Self::Value) -> Self::Value;
    fn leave<const N: usize>(values: &[Self::Value; N], setting: Setting) -> [Self::Bits; N];
}

/// Sum in the accumulator of the type.
pub(super) struct Sum<F>(PhantomData<F>);

impl<F: Format> Operator for Sum<F> {
    type Bits = F::Bits;
    type Value = F::Accumulator;
    type Factor = ();

    #[inline(always)]
    fn factor(_: bool, _: Setting) {}

    #[inline(always)]
    fn enter<const N: usize>(bits: &[F::Bits; N], (): ()) -> [F::Accumulator; N] {
        F::decode_block(bits)
    }

    #[inline(always)]
    fn join(a: F::Accumulator, b: F::Accumulator) -> F::Accumulator {
        a.add(b)
    }

    #[inline(always)]
    fn leave<const N: usize>(values: &[F::Accumulator; N], _: Setting) -> [F::Bits; N] {
        F::encode_block(values)
    }
}

/// Product in the accumulator of the type.
pub(super) struct Product<F>(PhantomData<F>);

impl<F: Format> Operator for Product<F> {
    type Bits = F::Bits;
    type Value = F::Accumulator;
    type Factor = ();

    #[inline(always)]
    fn factor(_: bool, _: Setting) {}

    #[inline(always)]
    fn enter<const N: usize>(bits: &[F::Bits; N], (): ()) -> [F::Accumulator; N] {
        F::decode_block(bits)
    }

    #[inline(always)]
    fn join(a: F::Accumulator, b: F::Accumulator) -> F::Accumulator {
        a.multiply(b)
    }

    #[inline(always)]
    fn leave<const N: usize>(values: &[F::Accumulator; N], _: Setting) -> [F::Bits; N] {
        F::encode_block(values)
    }
}

/// Sum of inputs that are scaled by 1/n where they enter; for floats.
pub(super) struct Mean<F>(PhantomData<F>);

/// An accumulator that knows the factor of a mean.
pub(super) trait Reciprocal: Number {
    /// 1/n, rounded to nearest even.
    fn reciprocal(ranks: u32) -> Self;
    /// 1, by which every number is multiplied exactly.
    const ONE: Self;
}

impl Reciprocal for f32 {
    const ONE: Self = 1.0;

    fn reciprocal(ranks: u32) -> Self {
        // The first rounding keeps 29 bits more than the second. Up to 2^24 ranks 1/n is never that near
        // to the middle between two `f32`.
        (1.0 / f64::from(ranks)) as f32
    }
}

impl Reciprocal for f64 {
    const ONE: Self = 1.0;

    fn reciprocal(ranks: u32) -> Self {
        1.0 / Self::from(ranks)
    }
}

impl<F: Format<Accumulator: Reciprocal>> Operator for Mean<F> {
    type Bits = F::Bits;
    type Value = F::Accumulator;
    type Factor = F::Accumulator;

    #[inline(always)]
    fn factor(input: bool, setting: Setting) -> F::Accumulator {
        if input { Reciprocal::reciprocal(setting.ranks) } else { Reciprocal::ONE }
    }

    #[inline(always)]
    fn enter<const N: usize>(bits: &[F::Bits; N], factor: F::Accumulator) -> [F::Accumulator; N] {
        F::decode_block(bits).map(|value| value.multiply(factor))
    }

    #[inline(always)]
    fn join(a: F::Accumulator, b: F::Accumulator) -> F::Accumulator {
        a.add(b)
    }

    #[inline(always)]
    fn leave<const N: usize>(values: &[F::Accumulator; N], _: Setting) -> [F::Bits; N] {
        F::encode_block(values)
    }
}

/// Wrapped sum of integers, divided where it leaves the last fold.
pub(super) struct Quotient<T>(PhantomData<T>);

/// An integer that can be divided by a number of ranks.
pub(super) trait Divide: Number + Element {
    /// Truncates toward zero. The divisor may exceed the type.
    fn divide(self, ranks: u32) -> Self;
}

/// By floats, which have vector instructions for it: two to three times as fast. With a of less than as many bits
/// as the float has, the quotient is rounded by less than 1/n, the least distance of a/n from an integer
/// that it does not equal; so truncation never sees the wrong side of one.
macro_rules! divide_by_floats {
    ($($t:ty as $float:ty),*) => { $(
        impl Divide for $t {
            #[inline(always)]
            fn divide(self, ranks: u32) -> Self {
                (<$float>::from(self) / ranks as $float) as Self
            }
        }
    )* };
}

macro_rules! divide {
    ($($t:ty),*) => { $(
        impl Divide for $t {
            #[inline(always)]
            fn divide(self, ranks: u32) -> Self {
                // At least one rank folds; the guard spares a panic that cannot happen.
                self / Self::from(ranks.max(1))
            }
        }
    )* };
}

divide_by_floats!(u8 as f32, i8 as f32, u32 as f64, i32 as f64);
divide!(u64, i64);

impl<T: Divide> Operator for Quotient<T> {
    type Bits = T;
    type Value = T;
    type Factor = ();

    #[inline(always)]
    fn factor(_: bool, _: Setting) {}

    #[inline(always)]
    fn enter<const N: usize>(bits: &[T; N], (): ()) -> [T; N] {
        *bits
    }

    #[inline(always)]
    fn join(a: T, b: T) -> T {
        a.add(b)
    }

    #[inline(always)]
    fn leave<const N: usize>(values: &[T; N], setting: Setting) -> [T; N] {
        if setting.last { values.map(|value| value.divide(setting.ranks)) } else { *values }
    }
}

/// The least number.
pub(super) struct Minimum<T>(PhantomData<T>);

impl<T: Ordered> Operator for Minimum<T> {
    type Bits = T::Bits;
    type Value = T::Key;
    type Factor = ();

    #[inline(always)]
    fn factor(_: bool, _: Setting) {}

    #[inline(always)]
    fn enter<const N: usize>(bits: &[T::Bits; N], (): ()) -> [T::Key; N] {
        bits.map(|bits| T::key(bits, T::TOP))
    }

    #[inline(always)]
    fn join(a: T::Key, b: T::Key) -> T::Key {
        a.min(b)
    }

    #[inline(always)]
    fn leave<const N: usize>(values: &[T::Key; N], _: Setting) -> [T::Bits; N] {
        values.map(T::bits)
    }
}

/// The greatest number.
pub(super) struct Maximum<T>(PhantomData<T>);

impl<T: Ordered> Operator for Maximum<T> {
    type Bits = T::Bits;
    type Value = T::Key;
    type Factor = ();

    #[inline(always)]
    fn factor(_: bool, _: Setting) {}

    #[inline(always)]
    fn enter<const N: usize>(bits: &[T::Bits; N], (): ()) -> [T::Key; N] {
        bits.map(|bits| T::key(bits, T::BOTTOM))
    }

    #[inline(always)]
    fn join(a: T::Key, b: T::Key) -> T::Key {
        a.max(b)
    }

    #[inline(always)]
    fn leave<const N: usize>(values: &[T::Key; N], _: Setting) -> [T::Bits; N] {
        values.map(T::bits)
    }
}
