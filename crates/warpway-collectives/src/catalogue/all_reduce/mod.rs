//! All-reduces. S: bytes of the message, n ranks.
//!
//! | algorithm | hops | a rank reads | a rank writes | when |
//! |---|---|---|---|---|
//! | `one_shot_packets` | 1 | n x S | n x S, packets twice that | tiny |
//! | `two_shot_packets` | 2 | 2 x S | 2 x S, packets twice that | small |
//! | `two_shot` | 2 | S | S | large, one host |

mod packets;
mod two_shot;

use crate::algorithm::Algorithm;

pub(super) const ALGORITHMS: &[&[Algorithm]] = &[packets::ALGORITHMS, two_shot::ALGORITHMS];
