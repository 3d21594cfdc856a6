//! All-reduces. S: bytes of the message, n ranks.
//!
//! | algorithm | hops | a rank reads | a rank writes | when |
//! |---|---|---|---|---|
//! | `one_shot_packets` | 1 | 2n x S | n x S, most of it packets | tiny |
//! | `recursive_doubling_packets` | log2 n | 2 log2 n x S | 2 log2 n x S, half of it packets | tiny, many ranks |
//! | `two_shot_packets` | 2 | 3 x S | 3 x S, most of it packets | small |
//! | `eager` | 1 | 2n x S | n x S | small |
//! | `two_shot` | 2 | S | S | large, one host |
//! | `reduce_scatter_all_gather` | 2 | 2 x S | S | large, one host, where reading is faster than writing |
//! | `ring` | 2 (n - 1) | 3 x S | 3 x S | large, where links are slow |
//! | `recursive_doubling` | log2 n | 2 log2 n x S | 2 log2 n x S | small, any world |
//!
//! Packets take twice their data. The exact numbers are in `tests/bytes.rs`. Algorithms of several hosts are in `hierarchical/`.

mod doubling;
mod eager;
mod packets;
mod ring;
mod two_shot;

use crate::algorithm::Algorithm;

pub(super) const ALGORITHMS: &[&[Algorithm]] =
    &[doubling::ALGORITHMS, eager::ALGORITHMS, packets::ALGORITHMS, ring::ALGORITHMS, two_shot::ALGORITHMS];
