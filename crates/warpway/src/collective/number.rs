//! Elements that have a data type.

use warpway_core::memory::Element;
use warpway_plan::DataType;

/// A number that collectives know how to fold. Types that Rust has no type for (the 8-bit floats) travel as `u8`, with
/// [`Call::with_data_type`](crate::Call::with_data_type).
pub trait Number: Element {
    /// What folds take it for.
    const DATA_TYPE: DataType;
}

macro_rules! numbers {
    ($($number:ty => $data_type:ident),* $(,)?) => { $(
        impl Number for $number {
            const DATA_TYPE: DataType = DataType::$data_type;
        }
    )* };
}

numbers! {
    u8 => Uint8, i8 => Int8, u32 => Uint32, i32 => Int32, u64 => Uint64, i64 => Int64,
    f32 => Float32, f64 => Float64, half::f16 => Float16, half::bf16 => Bfloat16,
}
