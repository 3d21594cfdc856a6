//! Flushing of subnormal numbers, as programs around us may have switched it on.

use std::num::NonZeroU32;
use std::ptr::NonNull;

use warpway_plan::{DataType, ReduceOp};

use crate::numeric::environment::{read, write};
use crate::numeric::{FoldKernel, FoldSource};

/// Flush to zero, and subnormal operands are zeros.
#[cfg(target_arch = "x86_64")]
const FLUSHING: u32 = 0x1f80 | 1 << 15 | 1 << 6;
#[cfg(target_arch = "aarch64")]
const FLUSHING: u64 = 1 << 24;

#[test]
fn subnormal_numbers_survive_whatever_the_thread_has_set() {
    let values = [f32::from_bits(3); 70];
    let source = FoldSource { address: NonNull::from(&values).cast(), input: true };
    let kernel = FoldKernel::new(DataType::Float32, ReduceOp::Sum, NonZeroU32::MIN);
    let mut out = [0u8; 280];
    let before = read();
    write(FLUSHING);
    // SAFETY: the source lives and is as long as `out`.
    unsafe { kernel.tile(&[source, source], true, &mut out) };
    let after = read();
    write(before);
    assert_eq!(after & FLUSHING, FLUSHING, "the thread's own setting is restored");
    for bits in out.as_chunks::<4>().0 {
        assert_eq!(u32::from_le_bytes(*bits), 6);
    }
}
