//! Test data: each element depends on round, rank and place, so that anything that lands wrongly shows.

/// A byte by a multiplicative hash.
pub(super) fn byte(round: u64, rank: u32, at: u64) -> u8 {
    (mixed(round, rank, at) >> 56) as u8
}

/// Integers from −2048 to 2047: sums over up to 4096 ranks are exact in f32, in any order.
pub(super) fn value(round: u64, rank: u32, at: u64) -> f32 {
    (mixed(round, rank, at) >> 52) as f32 - 2048.0
}

fn mixed(round: u64, rank: u32, at: u64) -> u64 {
    (round << 48 ^ u64::from(rank) << 40 ^ at).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
