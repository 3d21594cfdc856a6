//! The loop over the elements of a tile.
//!
//! Sources are memory that other processes may map, so there are no references into it: blocks of elements are
//! copied into registers and the result goes to a tile of the caller's own. All `unsafe` of the arithmetic
//! is here.

use warpway_core::memory::Element;

use super::fold::FoldSource;
use super::operator::{Operator, Setting};

/// Elements that are folded together. Enough for several vector registers of any width, few enough to
/// stay in the first-level cache with their accumulators.
const BLOCK: usize = 64;

/// The arguments of a kernel.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    /// In the order in which they enter.
    pub(super) sources: &'a [FoldSource],
    /// Bytes into each source at which the tile starts.
    pub(super) offset: usize,
    /// Of the whole fold.
    pub(super) setting: Setting,
}

/// Folds as many elements as fit `out`; bytes beyond whole elements, and all if there is no source, stay as
/// they are.
///
/// # Safety
/// Each source must be mapped from `offset` for the length of `out`, and no source may share a byte with
/// `out`. The processor must have what [`select`] asked it for.
pub(super) type Kernel = unsafe fn(&Call<'_>, &mut [u8]);

/// The fastest kernel of this processor for an operator.
pub(super) fn select<O: Operator>() -> Kernel {
    #[cfg(target_arch = "x86_64")]
    {
        if std::arch::is_x86_feature_detected!("avx512bw")
            && std::arch::is_x86_feature_detected!("avx512dq")
            && std::arch::is_x86_feature_detected!("avx512vl")
        {
            return avx512::<O>;
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            return avx2::<O>;
        }
    }
    baseline::<O>
}

/// # Safety
/// As [`Kernel`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn avx512<O: Operator>(call: &Call<'_>, out: &mut [u8]) {
    // SAFETY: the caller's word.
    unsafe { fold::<O>(call, out) }
}

/// # Safety
/// As [`Kernel`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn avx2<O: Operator>(call: &Call<'_>, out: &mut [u8]) {
    // SAFETY: the caller's word.
    unsafe { fold::<O>(call, out) }
}

/// # Safety
/// As [`Kernel`].
unsafe fn baseline<O: Operator>(call: &Call<'_>, out: &mut [u8]) {
    // SAFETY: the caller's word.
    unsafe { fold::<O>(call, out) }
}

/// # Safety
/// As [`Kernel`].
#[inline(always)]
unsafe fn fold<O: Operator>(call: &Call<'_>, out: &mut [u8]) {
    let size = size_of::<O::Bits>();
    let Some((first, rest)) = call.sources.split_first() else { return };
    let mut blocks = out.chunks_exact_mut(BLOCK * size);
    let mut at = call.offset;
    for block in &mut blocks {
        // SAFETY: a whole block lies within the length of `out`, hence within each source; `block` has as
        // many bytes as the result.
        unsafe {
            let result = fold_block::<O>(first, rest, call.setting, |source| load(source, at));
            store(block, &result);
        }
        at += BLOCK * size;
    }
    let rest_of_out = blocks.into_remainder();
    let bytes = rest_of_out.len() / size * size;
    if bytes > 0 {
        // SAFETY: only the bytes that are left are read, and as many are written; they are fewer than a
        // block has.
        unsafe {
            let result = fold_block::<O>(first, rest, call.setting, |source| load_part(source, at, bytes));
            store_part(rest_of_out, &result, bytes);
        }
    }
}

#[inline(always)]
fn fold_block<O: Operator>(
    first: &FoldSource,
    rest: &[FoldSource],
    setting: Setting,
    load: impl Fn(&FoldSource) -> [O::Bits; BLOCK],
) -> [O::Bits; BLOCK] {
    let mut values = [O::Value::default(); BLOCK];
    let bits = load(first);
    let factor = O::factor(first.input, setting);
    for (value, bits) in values.iter_mut().zip(bits) {
        *value = O::enter(bits, factor);
    }
    for source in rest {
        let bits = load(source);
        let factor = O::factor(source.input, setting);
        for (value, bits) in values.iter_mut().zip(bits) {
            *value = O::join(*value, O::enter(bits, factor));
        }
    }
    let mut result = [O::Bits::default(); BLOCK];
    for (bits, value) in result.iter_mut().zip(values) {
        *bits = O::leave(value, setting);
    }
    result
}

/// # Safety
/// A block must be mapped `offset` bytes into the source.
#[inline(always)]
unsafe fn load<T: Element>(source: &FoldSource, offset: usize) -> [T; BLOCK] {
    // SAFETY: mapped by the caller's word; any bytes are valid elements.
    unsafe { source.address.as_ptr().add(offset).cast::<[T; BLOCK]>().read_unaligned() }
}

/// # Safety
/// `bytes` bytes must be mapped `offset` bytes into the source; they may not exceed a block.
#[inline(always)]
unsafe fn load_part<T: Element + Default>(source: &FoldSource, offset: usize, bytes: usize) -> [T; BLOCK] {
    let mut block = [T::default(); BLOCK];
    // SAFETY: mapped by the caller's word; the block has room; any bytes are valid elements.
    unsafe {
        let from = source.address.as_ptr().add(offset);
        std::ptr::copy_nonoverlapping(from, block.as_mut_ptr().cast::<u8>(), bytes);
    }
    block
}

/// # Safety
/// `out` must have the bytes of a block.
#[inline(always)]
unsafe fn store<T: Element>(out: &mut [u8], block: &[T; BLOCK]) {
    // SAFETY: room by the caller's word; elements have no padding.
    unsafe { out.as_mut_ptr().cast::<[T; BLOCK]>().write_unaligned(*block) }
}

/// # Safety
/// `bytes` must exceed neither `out` nor a block.
#[inline(always)]
unsafe fn store_part<T: Element>(out: &mut [u8], block: &[T; BLOCK], bytes: usize) {
    // SAFETY: the lengths are the caller's word; the block is a local of the caller, so there is no overlap.
    unsafe { std::ptr::copy_nonoverlapping(block.as_ptr().cast::<u8>(), out.as_mut_ptr(), bytes) }
}
