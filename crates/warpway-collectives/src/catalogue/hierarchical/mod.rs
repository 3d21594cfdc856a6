//! Collectives of several hosts: memory within a host, the wire between hosts, every byte over the wire as seldom as possible.
//!
//! S: bytes of the message, B: bytes of a rank's share, n ranks, H hosts of L ranks.
//!
//! | function | hops over the wire | bytes that leave a host | that is the minimum |
//! |---|---|---|---|
//! | all_reduce | 2 | 2 x S x (H - 1) / H | for every host |
//! | all_gather | 1 | L x B x (H - 1) | for every host |
//! | reduce_scatter | 1 | (n - L) x B | for every host |
//! | broadcast | H - 1 | S, the last host nothing | for every host |
//! | reduce | H - 1 | S, the root's host nothing | for every host |
//!
//! All-to-alls, gathers and scatters have nothing to gain from hosts: their `push` puts each byte over the wire once.
//!
//! Each has two forms: `hierarchical` in one piece, for small messages; `hierarchical_pipelined` in many, so that wire and
//! memory work at the same time. All-reduce has a third, `hierarchical_fine`, in more pieces.

mod all_gather;
mod all_reduce;
mod broadcast;
mod lanes;
mod reduce;
mod reduce_scatter;

use crate::algorithm::{Algorithm, Traits};

/// Pieces in the pipelined forms. What is not overlapped is about one of them.
const PIECES: u32 = 16;

const TRAITS: Traits = Traits { packets: false, zero_copy: true, hierarchical: true };

pub(super) const ALGORITHMS: &[&[Algorithm]] = &[
    all_gather::ALGORITHMS,
    all_reduce::ALGORITHMS,
    broadcast::ALGORITHMS,
    reduce::ALGORITHMS,
    reduce_scatter::ALGORITHMS,
];
