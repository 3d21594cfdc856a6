//! Packets: data that carries its own flag, so that one store both brings and announces it.
//!
//! Correctness rests on the atomicity of aligned 8-byte stores only, each of which holds four bytes of data
//! and the flag. A packet orders nothing but itself, hence every access here is relaxed.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use warpway_core::memory::Element;

/// A packet format: [`Ll16`] or [`Ll8`].
pub trait Packet: sealed::Sealed + Send + Sync + 'static {
    /// The data of one packet.
    type Payload: Element + Default + PartialEq + std::fmt::Debug;
    /// Size and alignment of a packet.
    const BYTES: u64;
    /// Bytes of data in it.
    const PAYLOAD: u64 = size_of::<Self::Payload>() as u64;

    /// # Safety
    /// The packet must be mapped and aligned.
    #[doc(hidden)]
    unsafe fn store(packet: NonNull<u8>, data: Self::Payload, flag: u32);

    /// The payload if it carries `flag`, else a flag that was seen instead.
    ///
    /// # Safety
    /// As `store`.
    #[doc(hidden)]
    unsafe fn load(packet: NonNull<u8>, flag: u32) -> Result<Self::Payload, u32>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Ll16 {}
    impl Sealed for super::Ll8 {}
}

/// 16 bytes: data, flag, data, flag; 8 bytes of payload.
#[derive(Debug, Clone, Copy)]
pub enum Ll16 {}

/// 8 bytes: data, flag; 4 bytes of payload.
#[derive(Debug, Clone, Copy)]
pub enum Ll8 {}

impl Packet for Ll16 {
    type Payload = u64;
    const BYTES: u64 = 16;

    #[inline]
    unsafe fn store(packet: NonNull<u8>, data: u64, flag: u32) {
        // SAFETY: the caller's word covers both halves.
        unsafe {
            half(packet, 0).store(join(data as u32, flag), Ordering::Relaxed);
            half(packet, 1).store(join((data >> 32) as u32, flag), Ordering::Relaxed);
        }
    }

    #[inline]
    unsafe fn load(packet: NonNull<u8>, flag: u32) -> Result<u64, u32> {
        // SAFETY: the caller's word covers both halves. The second one comes first: it is written last,
        // so a packet under way is usually found incomplete by one load.
        let high = split(unsafe { half(packet, 1) }.load(Ordering::Relaxed), flag)?;
        // SAFETY: as above.
        let low = split(unsafe { half(packet, 0) }.load(Ordering::Relaxed), flag)?;
        Ok(u64::from(high) << 32 | u64::from(low))
    }
}

impl Packet for Ll8 {
    type Payload = u32;
    const BYTES: u64 = 8;

    #[inline]
    unsafe fn store(packet: NonNull<u8>, data: u32, flag: u32) {
        // SAFETY: the caller's word.
        unsafe { half(packet, 0) }.store(join(data, flag), Ordering::Relaxed);
    }

    #[inline]
    unsafe fn load(packet: NonNull<u8>, flag: u32) -> Result<u32, u32> {
        // SAFETY: the caller's word.
        split(unsafe { half(packet, 0) }.load(Ordering::Relaxed), flag)
    }
}

/// Data and flag as they lie in memory: data first, both little-endian.
fn join(data: u32, flag: u32) -> u64 {
    (u64::from(flag) << 32 | u64::from(data)).to_le()
}

fn split(word: u64, flag: u32) -> Result<u32, u32> {
    let word = u64::from_le(word);
    let found = (word >> 32) as u32;
    if found == flag { Ok(word as u32) } else { Err(found) }
}

/// # Safety
/// The packet must be mapped for the caller's lifetime `'a` and aligned to 8 bytes.
unsafe fn half<'a>(packet: NonNull<u8>, index: usize) -> &'a AtomicU64 {
    // SAFETY: mapped and aligned by the caller's word; packet memory is accessed by atomics only.
    unsafe { AtomicU64::from_ptr(packet.cast::<u64>().add(index).as_ptr()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(16))]
    struct Slot([u8; 16]);

    #[test]
    fn layouts_are_data_flag_data_flag() {
        let mut slot = Slot([0xee; 16]);
        let at = NonNull::from(&mut slot.0).cast();
        // SAFETY: the slot is live, 16 bytes long and aligned.
        unsafe { Ll16::store(at, 0x8877_6655_4433_2211, 0x0102_0304) };
        assert_eq!(slot.0, [0x11, 0x22, 0x33, 0x44, 4, 3, 2, 1, 0x55, 0x66, 0x77, 0x88, 4, 3, 2, 1]);
        let mut slot = Slot([0xee; 16]);
        let at = NonNull::from(&mut slot.0).cast();
        // SAFETY: as above.
        unsafe { Ll8::store(at, 0x4433_2211, 0x0102_0304) };
        assert_eq!(slot.0[..8], [0x11, 0x22, 0x33, 0x44, 4, 3, 2, 1]);
        assert_eq!(slot.0[8..], [0xee; 8]);
    }

    #[test]
    fn a_packet_counts_only_if_every_flag_fits() {
        let mut slot = Slot([0; 16]);
        let at: NonNull<u8> = NonNull::from(&mut slot.0).cast();
        // SAFETY: the slot is live, 16 bytes long and aligned.
        unsafe {
            assert_eq!(Ll16::load(at, 5), Err(0));
            Ll16::store(at, u64::MAX, 5);
            assert_eq!(Ll16::load(at, 5), Ok(u64::MAX));
            assert_eq!(Ll16::load(at, 6), Err(5));
            // Either half of the next packet alone is not enough.
            Ll8::store(at, 1, 6);
            assert_eq!(Ll16::load(at, 6), Err(5));
            Ll16::store(at, 7, 5);
            Ll8::store(at.add(8), 1, 6);
            assert_eq!(Ll16::load(at, 6), Err(5));
            Ll8::store(at, 2, 6);
            assert_eq!(Ll16::load(at, 6), Ok(1 << 32 | 2));
        }
    }
}
