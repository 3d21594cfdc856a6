//! What collectives read and write: slices, vectors and arrays of this rank, registered buffers and parts of them.

use warpway_host::BufferView;

use super::number::Number;
use crate::buffer::{Buffer, Part};

/// What a collective reads: `&[T]`, `&Vec<T>`, `&[T; N]`, `&Buffer<T>`, [`Part<T>`](Part).
pub trait SendBuffer<'a> {
    /// Of which it has some.
    type Number: Number;

    /// Its bytes.
    fn input(self) -> BufferView<'a>;
}

/// What a collective writes, or reads and writes: `&mut [T]`, `&mut Vec<T>` and `&mut [T; N]`, whose lengths stay as they are;
/// `&mut Buffer<T>`, `&Buffer<T>` and [`Part<T>`](Part), whose elements are no Rust memory.
pub trait ReceiveBuffer<'a> {
    /// Of which it has some.
    type Number: Number;

    /// Its bytes.
    fn output(self) -> BufferView<'a>;
}

macro_rules! operands {
    ($($from:ty, [$($constant:tt)*], |$buffer:ident| $input:expr;)*) => { $(
        impl<'a, T: Number, $($constant)*> SendBuffer<'a> for $from {
            type Number = T;

            fn input(self) -> BufferView<'a> {
                let $buffer = self;
                $input
            }
        }
    )* };
}

operands! {
    &'a [T], [], |data| data.into();
    &'a Vec<T>, [], |data| data.as_slice().into();
    &'a [T; N], [const N: usize], |data| data.as_slice().into();
    &'a Buffer<T>, [], |data| data.view();
    Part<'a, T>, [], |data| data.into();
}

macro_rules! results {
    ($($from:ty, [$($constant:tt)*], |$buffer:ident| $output:expr;)*) => { $(
        impl<'a, T: Number, $($constant)*> ReceiveBuffer<'a> for $from {
            type Number = T;

            fn output(self) -> BufferView<'a> {
                let $buffer = self;
                $output
            }
        }
    )* };
}

results! {
    &'a mut [T], [], |data| data.into();
    &'a mut Vec<T>, [], |data| data.as_mut_slice().into();
    &'a mut [T; N], [const N: usize], |data| data.as_mut_slice().into();
    &'a mut Buffer<T>, [], |data| data.view();
    &'a Buffer<T>, [], |data| data.view();
    Part<'a, T>, [], |data| data.into();
}
