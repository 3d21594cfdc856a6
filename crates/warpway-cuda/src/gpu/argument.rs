//! Arguments of launches: plain values for the kernel, and what must stay alive until it has ended.

use std::any::Any;
use std::sync::Arc;

use warpway_core::channel::DeviceHandle;

use crate::arguments::{Arguments, for_each_tuple};

/// What a launch holds until the kernel has ended.
pub type Keeper = Arc<dyn Any + Send + Sync>;

/// One argument: a number, a structure ([`Plain`]), a buffer, an object or a handle.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no argument of a kernel",
    note = "numbers and `Plain` structures are given by value, buffers, handles, handle arrays, syncers, semaphores and \
            epochs by reference"
)]
pub trait KernelArgument {
    /// What the kernel gets.
    type Value: Copy;

    /// The value.
    fn value(&self) -> Self::Value;

    /// Adds what the value points to.
    fn keep(&self, kept: &mut Vec<Keeper>) {
        let _ = kept;
    }
}

/// A structure that the kernel takes by value and that the caller keeps valid: `#[repr(C)]`, laid out as in the kernel.
#[derive(Debug, Clone, Copy)]
pub struct Plain<T>(pub T);

impl<T: Copy> KernelArgument for Plain<T> {
    type Value = T;

    fn value(&self) -> T {
        self.0
    }
}

macro_rules! numbers {
    ($($t:ty),*) => { $(
        impl KernelArgument for $t {
            type Value = $t;

            fn value(&self) -> $t {
                *self
            }
        }
    )* };
}

numbers!(u8, u16, u32, u64, i8, i16, i32, i64, f32, f64);

impl<H: Copy, C: Clone + Send + Sync + 'static> KernelArgument for &DeviceHandle<H, C> {
    type Value = H;

    fn value(&self) -> H {
        ***self
    }

    fn keep(&self, kept: &mut Vec<Keeper>) {
        kept.push(Arc::new(self.channel().clone()));
    }
}

/// A tuple of up to twelve arguments, in the order of the kernel's parameters. What does not fit goes into a [`Plain`]
/// structure.
#[diagnostic::on_unimplemented(
    message = "`{Self}` are no arguments of a kernel",
    note = "a tuple of up to twelve, one alone as `(&buffer,)`; numbers and `Plain` structures by value, all else by \
            reference"
)]
pub trait KernelArguments {
    /// What the kernel gets.
    type Values: Arguments;

    /// The values.
    fn values(&self) -> Self::Values;

    /// Adds what the values point to.
    fn keep(&self, kept: &mut Vec<Keeper>);
}

macro_rules! tuples {
    ($(($($name:ident $at:tt),*))*) => { $(
        impl<$($name: KernelArgument),*> KernelArguments for ($($name,)*) {
            type Values = ($($name::Value,)*);

            fn values(&self) -> Self::Values {
                ($(self.$at.value(),)*)
            }

            fn keep(&self, kept: &mut Vec<Keeper>) {
                $(self.$at.keep(kept);)*
            }
        }
    )* };
}

for_each_tuple!(tuples);

impl KernelArguments for () {
    type Values = ();

    fn values(&self) {}

    fn keep(&self, _: &mut Vec<Keeper>) {}
}
