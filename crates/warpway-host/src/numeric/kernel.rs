//! The loop over the elements of a tile.
//!
//! Sources are memory that other processes may map, so there are no references into it: blocks of elements are
//! copied into registers, and the result is written from there. With `converted.rs` and `environment.rs`,
//! this is all that is `unsafe` in the arithmetic.

use warpway_core::memory::Element;

use super::fold::FoldSource;
use super::operator::{Operator, Setting};

/// Elements that are folded together. Enough for several vector registers of any width, few enough to
/// stay in the first-level cache with their accumulators.
const BLOCK: usize = 64;
/// Elements that are folded together where fewer than a block are left: one instruction of any format. Short messages
/// would pay for a whole block otherwise.
const PART: usize = 8;

/// How far ahead of the loop sources are fetched, in bytes. The hardware alone loses track where more than
/// two sources are read by turns: on Zen 5 eight of `bfloat16` in memory give 19 GB/s without, 27 GB/s with
/// it, and nothing is lost elsewhere.
const AHEAD: usize = 1 << 10;

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

/// Folds as many elements as fit the `bytes` bytes at `out`. What lies beyond whole elements stays as it is,
/// and so does everything if there is no source.
///
/// # Safety
/// `out` must be mapped for `bytes` bytes, and so must each source from `offset` on. `out` may lie exactly
/// where a source lies (its block has been read when it is written); otherwise they must not overlap. The processor must have the level that was given to
/// [`select`].
pub(super) type Kernel = unsafe fn(&Call<'_>, out: *mut u8, bytes: usize);

/// What a kernel may use of the processor. All levels give the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    /// What every processor of the architecture has.
    Baseline,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Level {
    /// Those that this processor has, the fastest last.
    pub(super) fn available() -> impl Iterator<Item = Self> {
        let levels = [
            (Self::Baseline, true),
            #[cfg(target_arch = "x86_64")]
            (
                Self::Avx2,
                std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("f16c"),
            ),
            #[cfg(target_arch = "x86_64")]
            (
                Self::Avx512,
                std::arch::is_x86_feature_detected!("f16c")
                    && std::arch::is_x86_feature_detected!("avx512bw")
                    && std::arch::is_x86_feature_detected!("avx512dq")
                    && std::arch::is_x86_feature_detected!("avx512vl"),
            ),
        ];
        levels.into_iter().filter(|(_, available)| *available).map(|(level, _)| level)
    }

    /// The fastest one.
    pub(super) fn best() -> Self {
        Self::available().last().unwrap_or(Self::Baseline)
    }
}

/// The kernel of an operator.
pub(super) fn select<O: Operator>(level: Level) -> Kernel {
    match level {
        Level::Baseline => baseline::<O>,
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => avx2::<O>,
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => avx512::<O>,
    }
}

/// # Safety
/// As [`Kernel`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "f16c,avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn avx512<O: Operator>(call: &Call<'_>, out: *mut u8, bytes: usize) {
    // SAFETY: the caller's word.
    unsafe { fold::<O>(call, out, bytes) }
}

/// # Safety
/// As [`Kernel`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "f16c,avx2")]
unsafe fn avx2<O: Operator>(call: &Call<'_>, out: *mut u8, bytes: usize) {
    // SAFETY: the caller's word.
    unsafe { fold::<O>(call, out, bytes) }
}

/// # Safety
/// As [`Kernel`].
unsafe fn baseline<O: Operator>(call: &Call<'_>, out: *mut u8, bytes: usize) {
    // SAFETY: the caller's word.
    unsafe { fold::<O>(call, out, bytes) }
}

/// # Safety
/// As [`Kernel`].
#[inline(always)]
unsafe fn fold<O: Operator>(call: &Call<'_>, out: *mut u8, bytes: usize) {
    let size = size_of::<O::Bits>();
    let bytes = bytes / size * size;
    let blocks = bytes - bytes % (BLOCK * size);
    for at in (0..blocks).step_by(BLOCK * size) {
        if at + AHEAD < blocks {
            call.sources.iter().for_each(|source| prefetch::<O::Bits>(source, call.offset + at + AHEAD));
        }
        // SAFETY: a whole block lies within `bytes`, both of `out` and of each source.
        unsafe { fold_at::<O, BLOCK>(call, out, &mut { at }) }
    }
    let parts = bytes - bytes % (PART * size);
    for at in (blocks..parts).step_by(PART * size) {
        // SAFETY: a whole part lies within `bytes`, both of `out` and of each source.
        unsafe { fold_at::<O, PART>(call, out, &mut { at }) }
    }
    // Fewer than a part: its halves, so that nothing is read or written beyond, and no part takes a detour by memory.
    let mut at = parts;
    if bytes - at >= PART / 2 * size {
        // SAFETY: so many bytes are left.
        unsafe { fold_at::<O, { PART / 2 }>(call, out, &mut at) }
    }
    if bytes - at >= PART / 4 * size {
        // SAFETY: as above.
        unsafe { fold_at::<O, { PART / 4 }>(call, out, &mut at) }
    }
    if bytes - at >= size {
        // SAFETY: as above.
        unsafe { fold_at::<O, 1>(call, out, &mut at) }
    }
}

/// Folds `N` elements, `at` bytes into the tile, and moves on.
///
/// # Safety
/// As [`Kernel`], for `N` elements from there on.
#[inline(always)]
unsafe fn fold_at<O: Operator, const N: usize>(call: &Call<'_>, out: *mut u8, at: &mut usize) {
    let Some((first, rest)) = call.sources.split_first() else { return };
    // SAFETY: the caller's word.
    unsafe {
        let from = call.offset + *at;
        let result = fold_block::<O, N>(first, rest, call.setting, |source| load(source, from));
        out.add(*at).cast::<[O::Bits; N]>().write_unaligned(result);
    }
    *at += N * size_of::<O::Bits>();
}

#[inline(always)]
fn fold_block<O: Operator, const N: usize>(
    first: &FoldSource,
    rest: &[FoldSource],
    setting: Setting,
    load: impl Fn(&FoldSource) -> [O::Bits; N],
) -> [O::Bits; N] {
    let mut values = O::enter(&load(first), O::factor(first.input, setting));
    for source in rest {
        let entering = O::enter(&load(source), O::factor(source.input, setting));
        for (value, entering) in values.iter_mut().zip(entering) {
            *value = O::join(*value, entering);
        }
    }
    O::leave(&values, setting)
}

/// # Safety
/// A block must be mapped `offset` bytes into the source.
#[inline(always)]
unsafe fn load<T: Element, const N: usize>(source: &FoldSource, offset: usize) -> [T; N] {
    // SAFETY: mapped by the caller's word; any bytes are valid elements.
    unsafe { source.address.as_ptr().add(offset).cast::<[T; N]>().read_unaligned() }
}

/// Has a block of a source fetched. Any address is allowed: a prefetch never faults.
#[inline(always)]
fn prefetch<T>(source: &FoldSource, offset: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..BLOCK * size_of::<T>()).step_by(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let address = source.address.as_ptr().wrapping_add(offset + line);
        // SAFETY: the instruction is part of the baseline and accesses nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (source, offset);
}
