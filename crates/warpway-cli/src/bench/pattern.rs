//! Test data: each element depends on round, rank and place, so that anything that lands wrongly shows.

/// A byte by a multiplicative hash.
pub(super) fn byte(round: u64, rank: u32, at: u64) -> u8 {
    (mixed(round, rank, at) >> 56) as u8
}

fn mixed(round: u64, rank: u32, at: u64) -> u64 {
    (round << 48 ^ u64::from(rank) << 40 ^ at).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
