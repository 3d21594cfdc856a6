//! Data that tells where it comes from.

/// Byte `at` of what `rank` sends in `round`: differs between ranks, rounds, and places that a stride of a
/// power of two would confuse.
pub fn byte(round: u64, rank: u32, at: u64) -> u8 {
    let mixed = (at ^ (round << 40) ^ (u64::from(rank) << 20)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8
}
