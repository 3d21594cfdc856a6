//! Packets: data that carries its own flag, so that one store both brings and announces it.
//!
//! Correctness rests on the atomicity of aligned 8-byte stores only, each of which holds four bytes of data
//! and the flag. A packet orders nothing but itself.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use warpway_core::memory::Element;

use crate::copy::{copy, read, write};

/// What the words of packets carry besides data.
///
/// The first flag is what makes a word new: it never comes back while older words may be there. The second one may say
/// anything else that both sides must know alike; whoever sends packets of 8 bytes of them has it equal to the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub struct Flags {
    /// Of words with an even number.
    pub(crate) first: u32,
    /// Of the others.
    pub(crate) second: u32,
}

impl Flags {
    pub(crate) fn same(flag: u32) -> Self {
        Self { first: flag, second: flag }
    }
}

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
    unsafe fn store(packet: NonNull<u8>, data: Self::Payload, flags: Flags);

    /// The payload if it carries the flags, else a flag that was seen instead.
    ///
    /// # Safety
    /// As `store`.
    #[doc(hidden)]
    unsafe fn load(packet: NonNull<u8>, flags: Flags) -> Result<Self::Payload, u32>;
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
    unsafe fn store(packet: NonNull<u8>, data: u64, flags: Flags) {
        // SAFETY: the caller's word covers both halves.
        unsafe {
            half(packet, 1).store(join((data >> 32) as u32, flags.second), Ordering::Relaxed);
            // Release: whoever sees that this half is new finds the other one new; its flag alone may not tell.
            half(packet, 0).store(join(data as u32, flags.first), Ordering::Release);
        }
    }

    #[inline]
    unsafe fn load(packet: NonNull<u8>, flags: Flags) -> Result<u64, u32> {
        // SAFETY: the caller's word covers both halves. Acquire: pairs with the store of this half, which comes last.
        let low = split(unsafe { half(packet, 0) }.load(Ordering::Acquire), flags.first)?;
        // SAFETY: as above.
        let high = split(unsafe { half(packet, 1) }.load(Ordering::Relaxed), flags.second)?;
        Ok(u64::from(high) << 32 | u64::from(low))
    }
}

impl Packet for Ll8 {
    type Payload = u32;
    const BYTES: u64 = 8;

    #[inline]
    unsafe fn store(packet: NonNull<u8>, data: u32, flags: Flags) {
        // SAFETY: the caller's word.
        unsafe { half(packet, 0) }.store(join(data, flags.first), Ordering::Relaxed);
    }

    #[inline]
    unsafe fn load(packet: NonNull<u8>, flags: Flags) -> Result<u32, u32> {
        // SAFETY: the caller's word.
        split(unsafe { half(packet, 0) }.load(Ordering::Relaxed), flags.first)
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

/// Bytes of data that are packed and unpacked at a time: a cache line of packets.
const GROUP: u64 = 32;

/// Writes whole groups of data as packets of either format, which lie in memory alike; how many bytes that were. None
/// where packets do not lie at multiples of 16 bytes, or the processor does not store as many at once.
///
/// # Safety
/// The data must be mapped for `bytes` bytes, the packets for twice as many. They must not overlap.
#[inline]
pub(crate) unsafe fn pack_groups(packets: NonNull<u8>, data: NonNull<u8>, bytes: u64, flags: Flags) -> u64 {
    if bytes < GROUP || !wide::is_possible(packets) {
        return 0;
    }
    let whole = bytes - bytes % GROUP;
    for at in (0..whole as usize).step_by(GROUP as usize) {
        // SAFETY: the group lies within the caller's ranges.
        unsafe { wide::store(packets.add(2 * at), data.add(at), flags) };
    }
    whole
}

/// Reads packets that carry the flags, group by group, up to the first group with one that does not; how many bytes of
/// data that were.
///
/// # Safety
/// As [`pack_groups`].
#[inline]
pub(crate) unsafe fn unpack_groups(packets: NonNull<u8>, data: NonNull<u8>, bytes: u64, flags: Flags) -> u64 {
    if bytes < GROUP || !wide::is_possible(packets) {
        return 0;
    }
    let mut at = 0;
    while at + GROUP <= bytes {
        // SAFETY: the group lies within the caller's ranges.
        let here = unsafe { wide::load(packets.add(2 * at as usize), data.add(at as usize), flags) };
        if !here {
            break;
        }
        at += GROUP;
    }
    at
}

/// Groups in registers of 16 bytes. A processor with AVX stores and loads aligned ones as a whole (Intel's manual volume 3,
/// 9.1.1; AMD's volume 2, 7.3.2), hence each word of 8 bytes in them. The accesses are assembly, because other processes
/// use the packets meanwhile.
#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::asm;
    use std::arch::x86_64::{
        __m128i, _mm_and_si128, _mm_castps_si128, _mm_castsi128_ps, _mm_cmpeq_epi32, _mm_loadu_si128,
        _mm_movemask_ps, _mm_setr_epi32, _mm_shuffle_ps, _mm_storeu_si128, _mm_unpackhi_epi32,
        _mm_unpacklo_epi32,
    };
    use std::ptr::NonNull;

    use super::Flags;

    #[inline]
    pub(super) fn is_possible(packets: NonNull<u8>) -> bool {
        std::arch::is_x86_feature_detected!("avx") && packets.addr().get().is_multiple_of(16)
    }

    /// # Safety
    /// 32 bytes of data and 64 of packets must be mapped, these at a multiple of 16, by a processor with AVX.
    #[inline]
    pub(super) unsafe fn store(packets: NonNull<u8>, data: NonNull<u8>, flags: Flags) {
        // SAFETY: the caller's word; the shuffles are part of the baseline.
        unsafe {
            let (first, second) = (flags.first as i32, flags.second as i32);
            let flags = _mm_setr_epi32(first, second, first, second);
            let from = data.cast::<__m128i>().as_ptr();
            let (low, high) = (_mm_loadu_si128(from), _mm_loadu_si128(from.add(1)));
            asm!(
                "movdqa [{to}], {a}",
                "movdqa [{to} + 16], {b}",
                "movdqa [{to} + 32], {c}",
                "movdqa [{to} + 48], {d}",
                to = in(reg) packets.as_ptr(),
                a = in(xmm_reg) _mm_unpacklo_epi32(low, flags),
                b = in(xmm_reg) _mm_unpackhi_epi32(low, flags),
                c = in(xmm_reg) _mm_unpacklo_epi32(high, flags),
                d = in(xmm_reg) _mm_unpackhi_epi32(high, flags),
                options(nostack, preserves_flags),
            );
        }
    }

    /// True if all eight words carry their flags; else nothing is stored.
    ///
    /// # Safety
    /// As `store`.
    #[inline]
    pub(super) unsafe fn load(packets: NonNull<u8>, data: NonNull<u8>, flags: Flags) -> bool {
        let (a, b, c, d): (__m128i, __m128i, __m128i, __m128i);
        // SAFETY: the caller's word. The last words come first: they are written last, so a group under way is mostly
        // found incomplete.
        unsafe {
            asm!(
                "movdqa {d}, [{from} + 48]",
                "movdqa {c}, [{from} + 32]",
                "movdqa {b}, [{from} + 16]",
                "movdqa {a}, [{from}]",
                from = in(reg) packets.as_ptr(),
                a = out(xmm_reg) a,
                b = out(xmm_reg) b,
                c = out(xmm_reg) c,
                d = out(xmm_reg) d,
                options(nostack, preserves_flags),
            );
        }
        // SAFETY: the shuffles are part of the baseline; 32 bytes of data are mapped by the caller's word.
        unsafe {
            let flags = _mm_setr_epi32(0, flags.first as i32, 0, flags.second as i32);
            let fits = |words| _mm_cmpeq_epi32(words, flags);
            let all = _mm_and_si128(_mm_and_si128(fits(a), fits(b)), _mm_and_si128(fits(c), fits(d)));
            // Of each word the upper half is the flag.
            if _mm_movemask_ps(_mm_castsi128_ps(all)) & 0b1010 != 0b1010 {
                return false;
            }
            let join = |low, high| {
                _mm_castps_si128(_mm_shuffle_ps::<0b10_00_10_00>(
                    _mm_castsi128_ps(low),
                    _mm_castsi128_ps(high),
                ))
            };
            let to = data.cast::<__m128i>().as_ptr();
            _mm_storeu_si128(to, join(a, b));
            _mm_storeu_si128(to.add(1), join(c, d));
        }
        true
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod wide {
    use std::ptr::NonNull;

    use super::Flags;

    pub(super) fn is_possible(_: NonNull<u8>) -> bool {
        false
    }

    /// # Safety
    /// None: it does nothing, and nobody calls it.
    pub(super) unsafe fn store(_: NonNull<u8>, _: NonNull<u8>, _: Flags) {}

    /// # Safety
    /// As `store`.
    pub(super) unsafe fn load(_: NonNull<u8>, _: NonNull<u8>, _: Flags) -> bool {
        false
    }
}

/// Writes `bytes` bytes as packets. The last one is padded with zeros.
///
/// # Safety
/// The data must be mapped, and so must the packets that hold it, aligned to their size. They must not overlap.
pub(crate) unsafe fn pack<P: Packet>(packets: NonNull<u8>, data: NonNull<u8>, bytes: u64, flags: Flags) {
    let whole = bytes / P::PAYLOAD;
    // SAFETY: the caller's word.
    let done = unsafe { pack_groups(packets, data, bytes, flags) } / P::PAYLOAD;
    for i in done..whole {
        // SAFETY: packet and payload `i` are mapped by the caller's word.
        unsafe {
            let payload: P::Payload = read(data.add((i * P::PAYLOAD) as usize));
            P::store(packets.add((i * P::BYTES) as usize), payload, flags);
        }
    }
    let tail = bytes - whole * P::PAYLOAD;
    if tail > 0 {
        let mut payload = P::Payload::default();
        // SAFETY: as above; only the `tail` valid bytes are read, fewer than a payload has.
        unsafe {
            copy(NonNull::from(&mut payload).cast(), data.add((whole * P::PAYLOAD) as usize), tail);
            P::store(packets.add((whole * P::BYTES) as usize), payload, flags);
        }
    }
}

/// Writes packets of zeros: what fills a chunk up whose data ends earlier.
///
/// # Safety
/// `count` packets must be mapped and aligned to their size.
#[allow(dead_code, reason = "the plan executor fills chunks up")]
pub(crate) unsafe fn pack_zeros<P: Packet>(packets: NonNull<u8>, count: u64, flags: Flags) {
    for i in 0..count {
        // SAFETY: packet `i` is mapped by the caller's word.
        unsafe { P::store(packets.add((i * P::BYTES) as usize), P::Payload::default(), flags) };
    }
}

/// A packet that does not carry the flag yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unwritten {
    /// Its number; all earlier ones have been read.
    pub(crate) index: u64,
    /// A flag that it carries instead.
    pub(crate) found: u32,
}

/// Reads packets from number `first` on into the `bytes` bytes that belong to packet 0 and its successors.
/// Only valid bytes are stored. The caller waits for a packet that is missing, and goes on with its number.
///
/// # Safety
/// As [`pack`].
pub(crate) unsafe fn unpack<P: Packet>(
    packets: NonNull<u8>,
    data: NonNull<u8>,
    bytes: u64,
    first: u64,
    flags: Flags,
) -> Result<(), Unwritten> {
    let mut first = first;
    let start = first * P::PAYLOAD;
    if start < bytes {
        // SAFETY: packet `first` and its successors are mapped by the caller's word.
        let done = unsafe {
            let (packets, data) = (packets.add((first * P::BYTES) as usize), data.add(start as usize));
            unpack_groups(packets, data, bytes - start, flags)
        };
        first += done / P::PAYLOAD;
    }
    for index in first..bytes.div_ceil(P::PAYLOAD) {
        let offset = index * P::PAYLOAD;
        // SAFETY: packet `index` is mapped by the caller's word. `offset < bytes` since the packet exists,
        // and at most `bytes - offset` bytes are written.
        unsafe {
            let packet = packets.add((index * P::BYTES) as usize);
            let mut payload = P::load(packet, flags).map_err(|found| Unwritten { index, found })?;
            let to = data.add(offset as usize);
            if bytes - offset >= P::PAYLOAD {
                write(to, payload);
            } else {
                copy(to, NonNull::from(&mut payload).cast(), bytes - offset);
            }
        }
    }
    Ok(())
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
        unsafe { Ll16::store(at, 0x8877_6655_4433_2211, Flags::same(0x0102_0304)) };
        assert_eq!(slot.0, [0x11, 0x22, 0x33, 0x44, 4, 3, 2, 1, 0x55, 0x66, 0x77, 0x88, 4, 3, 2, 1]);
        let mut slot = Slot([0xee; 16]);
        let at = NonNull::from(&mut slot.0).cast();
        // SAFETY: as above.
        unsafe { Ll8::store(at, 0x4433_2211, Flags::same(0x0102_0304)) };
        assert_eq!(slot.0[..8], [0x11, 0x22, 0x33, 0x44, 4, 3, 2, 1]);
        assert_eq!(slot.0[8..], [0xee; 8]);
    }

    #[test]
    fn a_packet_counts_only_if_every_flag_fits() {
        let mut slot = Slot([0; 16]);
        let at: NonNull<u8> = NonNull::from(&mut slot.0).cast();
        // SAFETY: the slot is live, 16 bytes long and aligned.
        unsafe {
            assert_eq!(Ll16::load(at, Flags::same(5)), Err(0));
            Ll16::store(at, u64::MAX, Flags::same(5));
            assert_eq!(Ll16::load(at, Flags::same(5)), Ok(u64::MAX));
            assert_eq!(Ll16::load(at, Flags::same(6)), Err(5));
            // Either half of the next packet alone is not enough.
            Ll8::store(at, 1, Flags::same(6));
            assert_eq!(Ll16::load(at, Flags::same(6)), Err(5));
            Ll16::store(at, 7, Flags::same(5));
            Ll8::store(at.add(8), 1, Flags::same(6));
            assert_eq!(Ll16::load(at, Flags::same(6)), Err(5));
            Ll8::store(at, 2, Flags::same(6));
            assert_eq!(Ll16::load(at, Flags::same(6)), Ok(1 << 32 | 2));
        }
    }

    /// Sixteen-byte aligned room for packets, with guards.
    fn room(bytes: usize) -> Vec<u128> {
        vec![u128::from_ne_bytes([0xa5; 16]); bytes.div_ceil(16) + 2]
    }

    fn round_trip<P: Packet>(bytes: usize) {
        let data: Vec<u8> = (0..bytes).map(|i| (i * 7 + 1) as u8).collect();
        let count = (bytes as u64).div_ceil(P::PAYLOAD);
        let mut packets = room((count * P::BYTES) as usize + 64);
        let at = NonNull::from(&mut packets[1]).cast::<u8>();
        let mut result = vec![0xeeu8; bytes + 1];
        let to = NonNull::from(&mut result[..]).cast::<u8>();
        // SAFETY: all three live, are long enough and distinct; packets are aligned.
        unsafe {
            pack::<P>(at, NonNull::from(&data[..]).cast(), bytes as u64, Flags::same(9));
            assert_eq!(unpack::<P>(at, to, bytes as u64, 0, Flags::same(9)), Ok(()));
            // A whole payload more than the data: the padding, then what was never written.
            let mut whole = vec![0xeeu8; ((count + 1) * P::PAYLOAD) as usize];
            let to = NonNull::from(&mut whole[..]).cast();
            let missing = Unwritten { index: count, found: 0xa5a5_a5a5 };
            assert_eq!(unpack::<P>(at, to, whole.len() as u64, 0, Flags::same(9)), Err(missing));
            assert_eq!(whole[..bytes], data);
            assert!(whole[bytes..(count * P::PAYLOAD) as usize].iter().all(|b| *b == 0), "padding");
            // It goes on where it stopped.
            whole.fill(0xdd);
            pack_zeros::<P>(at.add((count * P::BYTES) as usize), 1, Flags::same(9));
            assert_eq!(unpack::<P>(at, to, whole.len() as u64, count, Flags::same(9)), Ok(()));
            let (before, after) = whole.split_at((count * P::PAYLOAD) as usize);
            assert!(before.iter().all(|b| *b == 0xdd) && after.iter().all(|b| *b == 0));
        }
        assert_eq!(result[..bytes], data);
        assert_eq!(result[bytes], 0xee, "strayed");
        assert_eq!(packets[0].to_ne_bytes(), [0xa5; 16], "strayed");
    }

    /// A group counts only if every word in it carries the flag, whichever is missing.
    #[test]
    fn groups_are_taken_only_when_they_are_whole() {
        let data: Vec<u8> = (1..=64).collect();
        for missing in 0..16 {
            let mut packets = room(128);
            let at = NonNull::from(&mut packets[1]).cast::<u8>();
            let mut found = [0xeeu8; 64];
            let to = NonNull::from(&mut found[..]).cast::<u8>();
            // SAFETY: all three live, are long enough and distinct; packets are aligned.
            let (stored, taken) = unsafe {
                let stored = pack_groups(at, NonNull::from(&data[..]).cast(), 64, Flags::same(9));
                Ll8::store(at.add(8 * missing), 0, Flags::same(8));
                (stored, unpack_groups(at, to, 64, Flags::same(9)))
            };
            if stored == 0 {
                // No processor for it.
                return;
            }
            let whole = if missing < 8 { 0 } else { 32 };
            assert_eq!((stored, taken as usize), (64, whole), "word {missing}");
            assert_eq!(found[..whole], data[..whole]);
            assert!(found[whole..].iter().all(|byte| *byte == 0xee), "word {missing}");
        }
    }

    /// Whatever stores the packets, and whatever loads them.
    #[test]
    fn each_word_carries_its_own_flag() {
        let flags = Flags { first: 9, second: 0xdead_beef };
        let data: Vec<u8> = (1..=80).collect();
        for bytes in [8u64, 32, 40, 80] {
            let mut packets = room(160);
            let at = NonNull::from(&mut packets[1]).cast::<u8>();
            let mut found = [0xeeu8; 80];
            let to = NonNull::from(&mut found[..]).cast::<u8>();
            // SAFETY: all three live, are long enough and distinct; packets are aligned.
            unsafe {
                pack::<Ll16>(at, NonNull::from(&data[..]).cast(), bytes, flags);
                for (number, packet) in packets[1..].iter().enumerate().take(bytes as usize / 8) {
                    let words = packet.to_le_bytes();
                    assert_eq!(words[4..8], 9u32.to_le_bytes(), "packet {number} of {bytes} bytes");
                    assert_eq!(
                        words[12..],
                        0xdead_beef_u32.to_le_bytes(),
                        "packet {number} of {bytes} bytes"
                    );
                }
                let other = Flags { second: 9, ..flags };
                assert_eq!(
                    unpack::<Ll16>(at, to, bytes, 0, other),
                    Err(Unwritten { index: 0, found: 0xdead_beef })
                );
                let other = Flags { first: 8, ..flags };
                assert_eq!(unpack::<Ll16>(at, to, bytes, 0, other), Err(Unwritten { index: 0, found: 9 }));
                assert_eq!(found, [0xee; 80]);
                assert_eq!(unpack::<Ll16>(at, to, bytes, 0, flags), Ok(()));
            }
            assert_eq!(found[..bytes as usize], data[..bytes as usize]);
        }
    }

    #[test]
    fn any_number_of_bytes_packs_and_unpacks_exactly() {
        for bytes in 0..=65 {
            round_trip::<Ll16>(bytes);
            round_trip::<Ll8>(bytes);
        }
    }
}
