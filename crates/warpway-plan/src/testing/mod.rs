//! Small algorithms as inputs for tests, of this crate and of others (feature `testing`). Each passes the verifier's
//! strict profile: what needs a peer to have begun comes after an opening pair of signal and wait, and what a peer
//! must have before it ends comes before a closing pair.

mod gather;
mod reduce;
mod transfer;

pub use gather::{all_gather_groups, all_gather_put, all_gather_ring, all_gather_v};
pub use reduce::{all_reduce_packets, all_reduce_switch, all_reduce_two_shot, reduce_scatter_ring};
pub use transfer::{
    all_to_all, all_to_all_v, broadcast, send_recv_pipeline, send_recv_port, send_recv_semaphore,
};

use crate::builder::{BuildError, MemoryChannel, PortChannel, Program};
use crate::ir::Plan;

/// All of them for a number of ranks (at least 2), by name.
///
/// # Errors
/// None for numbers of ranks that fit memory.
pub fn all(n_ranks: u32) -> Result<Vec<Plan>, BuildError> {
    Ok(vec![
        all_gather_put(n_ranks)?,
        all_gather_ring(n_ranks)?,
        all_gather_groups(n_ranks, 2)?,
        all_gather_v(n_ranks)?,
        all_reduce_packets(n_ranks)?,
        all_reduce_two_shot(n_ranks)?,
        all_reduce_switch(n_ranks)?,
        reduce_scatter_ring(n_ranks)?,
        all_to_all(n_ranks, 2)?,
        all_to_all_v(n_ranks)?,
        broadcast(n_ranks, 0)?,
        send_recv_pipeline(n_ranks, 4, 64)?,
        send_recv_port(n_ranks)?,
        send_recv_semaphore(n_ranks)?,
    ])
}

/// The other ranks, in ascending order.
fn peers(n_ranks: u32, rank: u32) -> impl Iterator<Item = u32> {
    (0..n_ranks).filter(move |peer| *peer != rank)
}

/// One channel to every peer, in ascending order of peers.
fn memory_mesh(p: &mut Program, rank: u32) -> Result<Vec<(u32, MemoryChannel)>, BuildError> {
    peers(p.n_ranks(), rank).map(|peer| Ok((peer, p.memory_channel(rank, peer)?))).collect()
}

/// A rank's place in a ring, with its channels to both neighbours.
struct Neighbours<C> {
    rank: u32,
    right_rank: u32,
    left: C,
    right: C,
}

/// A ring in rank order, by rank. Both ends of an edge are made together, so that they pair up even where left and
/// right neighbour are the same rank.
fn ring<C: Copy>(
    p: &mut Program,
    connect: impl Fn(&mut Program, u32, u32) -> Result<C, BuildError>,
) -> Result<Vec<Neighbours<C>>, BuildError> {
    let n = p.n_ranks();
    let mut edges = Vec::new();
    for rank in 0..n {
        let right_rank = (rank + 1) % n;
        edges.push((connect(p, rank, right_rank)?, connect(p, right_rank, rank)?));
    }
    Ok((0..n)
        .map(|rank| {
            let before = (rank + n - 1) % n;
            let (right, left) = (edges[rank as usize].0, edges[before as usize].1);
            Neighbours { rank, right_rank: (rank + 1) % n, left, right }
        })
        .collect())
}

fn memory_ring(p: &mut Program) -> Result<Vec<Neighbours<MemoryChannel>>, BuildError> {
    ring(p, |p, owner, peer| p.memory_channel(owner, peer))
}

fn port_ring(p: &mut Program) -> Result<Vec<Neighbours<PortChannel>>, BuildError> {
    ring(p, |p, owner, peer| p.port_channel(owner, peer))
}
