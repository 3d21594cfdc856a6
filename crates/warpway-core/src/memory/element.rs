//! What may be stored in memory that peers write.

/// A plain value: any bytes are a valid one, and it has no padding.
///
/// # Safety
/// Every bit pattern must be valid, there must be no padding, and the type must contain no pointers or
/// interior mutability.
pub unsafe trait Element: Copy + Send + Sync + 'static {}

macro_rules! elements {
    ($($t:ty),*) => { $(
        // SAFETY: primitive numbers are valid for every bit pattern and have no padding.
        unsafe impl Element for $t {}
    )* };
}

elements!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, f32, f64);

// SAFETY: `repr(transparent)` over `u16`, of which each pattern is a number or a NaN.
unsafe impl Element for half::f16 {}
// SAFETY: the same.
unsafe impl Element for half::bf16 {}

// SAFETY: arrays of such values have no padding between or after them.
unsafe impl<T: Element, const N: usize> Element for [T; N] {}
