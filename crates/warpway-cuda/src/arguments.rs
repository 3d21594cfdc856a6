//! Arguments of kernels.

use std::ffi::c_void;

/// The most arguments of a launch.
const MOST: usize = 12;

/// A tuple of plain values, in the order of the kernel's parameters. Warpway's own kernels take one structure.
#[diagnostic::on_unimplemented(
    message = "`{Self}` are no plain values of a kernel",
    note = "a tuple of up to twelve"
)]
pub trait Arguments {
    /// The types of the values.
    const TYPES: &'static ArgumentTypes;

    /// Where each value lies, for as long as `self` is borrowed; null behind the last.
    fn addresses(&self) -> [*mut c_void; MOST];
}

/// The types of a tuple, for the comparison with what a kernel takes.
#[derive(Debug)]
pub struct ArgumentTypes(&'static [ArgumentType]);

#[derive(Debug)]
pub(crate) struct ArgumentType {
    pub(crate) bytes: u64,
    pub(crate) alignment: u64,
    pub(crate) name: fn() -> &'static str,
}

impl ArgumentType {
    const fn of<T>() -> Self {
        Self {
            bytes: size_of::<T>() as u64,
            alignment: align_of::<T>() as u64,
            name: std::any::type_name::<T>,
        }
    }
}

impl ArgumentTypes {
    pub(crate) fn list(&self) -> &'static [ArgumentType] {
        self.0
    }
}

/// Passes the tuples that kernels take to a macro: a name and a place for each value.
macro_rules! for_each_tuple {
    ($tuples:ident) => {
        $tuples! {
            (A 0)
            (A 0, B 1)
            (A 0, B 1, C 2)
            (A 0, B 1, C 2, D 3)
            (A 0, B 1, C 2, D 3, E 4)
            (A 0, B 1, C 2, D 3, E 4, F 5)
            (A 0, B 1, C 2, D 3, E 4, F 5, G 6)
            (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7)
            (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8)
            (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9)
            (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10)
            (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11)
        }
    };
}
pub(crate) use for_each_tuple;

macro_rules! tuples {
    ($(($($name:ident $at:tt),*))*) => { $(
        impl<$($name: Copy),*> Arguments for ($($name,)*) {
            const TYPES: &'static ArgumentTypes = &ArgumentTypes(&[$(ArgumentType::of::<$name>()),*]);

            fn addresses(&self) -> [*mut c_void; MOST] {
                let mut all = [std::ptr::null_mut(); MOST];
                $(
                    all[$at] = std::ptr::from_ref(&self.$at).cast_mut().cast();
                )*
                all
            }
        }
    )* };
}

for_each_tuple!(tuples);

impl Arguments for () {
    const TYPES: &'static ArgumentTypes = &ArgumentTypes(&[]);

    fn addresses(&self) -> [*mut c_void; MOST] {
        [std::ptr::null_mut(); MOST]
    }
}
