//! Payload copies between memories that other processes may touch: no references, only raw pointers.
//!
//! A payload is written before the atomic that announces it and read after the atomic that showed it;
//! the copies themselves order nothing.

use std::ptr::NonNull;

use warpway_core::memory::{Element, MemoryError};

/// Copies `bytes` bytes. The C library's copy is used on purpose: it picks wide and, above the size of the
/// cache, non-temporal stores, and nothing written by hand beat it here.
///
/// # Safety
/// Both ranges must be mapped for the whole call and must not overlap.
pub(crate) unsafe fn copy(destination: NonNull<u8>, source: NonNull<u8>, bytes: u64) {
    // SAFETY: the caller's obligations are those of the callee; a mapped range fits `usize`.
    unsafe { std::ptr::copy_nonoverlapping(source.as_ptr(), destination.as_ptr(), bytes as usize) }
}

/// True if two ranges of equal length share a byte.
pub(crate) fn overlap(a: NonNull<u8>, b: NonNull<u8>, bytes: u64) -> bool {
    (a.as_ptr() as u64).abs_diff(b.as_ptr() as u64) < bytes
}

/// Bytes of `count` elements.
pub(crate) fn bytes_of<T: Element>(
    operation: &'static str,
    count: u64,
    limit: u64,
) -> Result<u64, MemoryError> {
    let size = size_of::<T>() as u64;
    count.checked_mul(size).ok_or(MemoryError::OutOfBounds { operation, offset: count, size, limit })
}

/// Reads one element at any alignment.
///
/// # Safety
/// The element's bytes must be mapped.
pub(crate) unsafe fn read<T: Element>(address: NonNull<u8>) -> T {
    // SAFETY: mapped by the caller's word, and any bytes are a valid `T` by `Element`'s contract.
    unsafe { address.cast::<T>().as_ptr().read_unaligned() }
}

/// Writes one element at any alignment.
///
/// # Safety
/// The element's bytes must be mapped.
pub(crate) unsafe fn write<T: Element>(address: NonNull<u8>, value: T) {
    // SAFETY: mapped by the caller's word.
    unsafe { address.cast::<T>().as_ptr().write_unaligned(value) }
}

/// Copies a slice into shared memory.
///
/// # Safety
/// As many bytes as the slice has must be mapped at `destination` and be no part of the slice.
pub(crate) unsafe fn copy_in<T: Element>(destination: NonNull<u8>, source: &[T]) {
    // SAFETY: the source is a live slice; the destination is mapped and distinct by the caller's word.
    unsafe { copy(destination, NonNull::from(source).cast(), size_of_val(source) as u64) }
}

/// Copies from shared memory into a slice.
///
/// # Safety
/// As many bytes as the slice has must be mapped at `source` and be no part of the slice.
pub(crate) unsafe fn copy_out<T: Element>(destination: &mut [T], source: NonNull<u8>) {
    let bytes = size_of_val(destination) as u64;
    // SAFETY: the destination is a live slice; any bytes are valid `T`s; the rest is the caller's word.
    unsafe { copy(NonNull::from(destination).cast(), source, bytes) }
}
