//! Payload copies between memories that other processes may touch: no references, only raw pointers.
//!
//! A payload is written before the atomic that announces it and read after the atomic that showed it;
//! the copies themselves order nothing.

use std::ptr::NonNull;

use warpway_core::memory::{Element, MemoryError};

/// From this size on [`string_copy`] is used. Measured on Zen 5: above its L2 the C library uses plain wide
/// stores up to several times the L3, which read each line before they write it (17 GB/s for 64 MiB); the
/// string instruction does not (26 GB/s) and is no slower in between. Non-temporal stores also give
/// 26 GB/s, but are slower than either wherever the data fits the L3.
const STRING_COPY: usize = 1 << 20;

/// Copies `bytes` bytes.
///
/// # Safety
/// Both ranges must be mapped for the whole call and must not overlap.
pub(crate) unsafe fn copy(destination: NonNull<u8>, source: NonNull<u8>, bytes: u64) {
    let (destination, source, bytes) = (destination.as_ptr(), source.as_ptr(), bytes as usize);
    if bytes >= STRING_COPY && has_fast_strings() {
        // To whole cache lines of the destination first; the string instruction is slow elsewhere.
        let head = destination.align_offset(64).min(bytes);
        // SAFETY: the caller's obligations cover both parts.
        unsafe {
            std::ptr::copy_nonoverlapping(source, destination, head);
            string_copy(destination.add(head), source.add(head), bytes - head);
        }
        return;
    }
    // SAFETY: the caller's obligations are those of the callee; a mapped range fits `usize`.
    unsafe { std::ptr::copy_nonoverlapping(source, destination, bytes) }
}

#[cfg(target_arch = "x86_64")]
fn has_fast_strings() -> bool {
    std::arch::is_x86_feature_detected!("ermsb")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_fast_strings() -> bool {
    false
}

/// # Safety
/// As [`copy`].
#[cfg(target_arch = "x86_64")]
unsafe fn string_copy(destination: *mut u8, source: *const u8, bytes: usize) {
    // SAFETY: reads and writes exactly the caller's ranges; the ABI keeps the direction flag clear. Its
    // stores may become visible in any order among themselves, but before any later store: that is what
    // the atomic that announces the payload relies on.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") bytes => _,
            inout("rdi") destination => _,
            inout("rsi") source => _,
            options(nostack, preserves_flags),
        );
    }
}

/// # Safety
/// As [`copy`].
#[cfg(not(target_arch = "x86_64"))]
unsafe fn string_copy(destination: *mut u8, source: *const u8, bytes: usize) {
    // SAFETY: the caller's word.
    unsafe { std::ptr::copy_nonoverlapping(source, destination, bytes) }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes around the switch to the string instruction, at all kinds of alignment, between canaries.
    #[test]
    fn copies_are_exact_on_both_paths() {
        let room = STRING_COPY + 512;
        let source: Vec<u8> = (0..room).map(|i| (i * 31 + i / 251) as u8).collect();
        for bytes in [0, 1, 17, 4095, STRING_COPY - 1, STRING_COPY, STRING_COPY + 1, STRING_COPY + 191] {
            for (to, from) in [(0, 0), (1, 0), (0, 1), (63, 3), (64, 64), (17, 130)] {
                let mut target = vec![0xc5u8; room];
                // SAFETY: both vectors are longer than offset and size together, and distinct.
                unsafe {
                    let at = NonNull::from(&mut target[..]).cast::<u8>().add(to);
                    copy(at, NonNull::from(&source[..]).cast::<u8>().add(from), bytes as u64);
                }
                assert!(target[to..to + bytes] == source[from..from + bytes], "{bytes} bytes, {to}, {from}");
                let outside = target[..to].iter().chain(&target[to + bytes..]);
                assert!(outside.into_iter().all(|b| *b == 0xc5), "{bytes} bytes, {to}, {from}: strayed");
            }
        }
    }

    #[test]
    fn overlap_means_a_shared_byte() {
        let at = |address| NonNull::new(std::ptr::without_provenance_mut::<u8>(address)).unwrap();
        assert!(
            overlap(at(100), at(100), 1) && overlap(at(100), at(109), 10) && overlap(at(109), at(100), 10)
        );
        assert!(
            !overlap(at(100), at(110), 10) && !overlap(at(110), at(100), 10) && !overlap(at(1), at(1), 0)
        );
    }
}
