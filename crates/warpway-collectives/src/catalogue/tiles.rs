//! Algorithms for devices, where a rank has as many blocks as a GPU runs at once: each block does its own share from beginning to
//! end, tile by tile, and talks with the blocks of the same number of its peers alone.
//!
//! | algorithm | hops | a rank puts | a rank folds | when |
//! |---|---|---|---|---|
//! | all_reduce `push_tiles` | 1 | (n - 1) x B | n x B | large, few ranks: with two nothing moves less |
//! | reduce_scatter `push_tiles` | 1 | (n - 1) / n x B | B | large |
//!
//! A slot is written again two launches later, when its reader is known to have gone on, because it has sent something in the
//! launch between. In place, a block folds a tile after it has sent it.

use warpway_plan::{BuildError, Chunk, CollectiveShape, DataSync, MemoryChannel, Plan, Program, Reduction};

use super::draft::Draft;
use super::fits;
use super::fold::own_at;
use super::slots::Slots;
use crate::algorithm::{Algorithm, Traits};
use crate::task::{Function, Task};

/// Bytes of a tile: long enough for a block to wait for one flag per tile, short enough for the last ones to overlap.
const TILE: u64 = 64 << 10;

const TRAITS: Traits = Traits { packets: false, zero_copy: false, hierarchical: false };

pub(super) const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "push_tiles",
        function: Function::AllReduce,
        summary: "every block puts its share of the input into scratch of all, tile by tile, and folds the tiles that it gets",
        traits: TRAITS,
        fits: fits::one_host,
        build: all_reduce,
    },
    Algorithm {
        name: "push_tiles",
        function: Function::ReduceScatter,
        summary: "every block puts its share of part r into scratch of rank r, tile by tile, and folds the tiles that it gets",
        traits: TRAITS,
        fits: fits::one_host,
        build: reduce_scatter,
    },
];

fn all_reduce(task: &Task) -> Result<Plan, BuildError> {
    let blocks = u64::from(task.n_blocks);
    let shape = CollectiveShape::all_reduce_of(task.world.n_ranks(), blocks);
    let mut d = Draft::alternating(task, "all_reduce_push_tiles", shape)?;
    let slots = Slots::new(&mut d, blocks)?;
    for me in 0..d.n() {
        for block in 0..task.n_blocks {
            let own = u64::from(block)..u64::from(block) + 1;
            let (input, result) = (d.p.input(me)?.chunk(own.clone())?, d.p.output(me)?.chunk(own)?);
            exchange(&mut d, &slots, (me, block), |_| Ok(input), (input, result))?;
        }
    }
    d.finish()
}

fn reduce_scatter(task: &Task) -> Result<Plan, BuildError> {
    let blocks = u64::from(task.n_blocks);
    let shape = CollectiveShape::reduce_scatter(task.world.n_ranks(), blocks);
    let mut d = Draft::alternating(task, "reduce_scatter_push_tiles", shape)?;
    let slots = Slots::new(&mut d, blocks)?;
    for me in 0..d.n() {
        let input = d.p.input(me)?;
        for block in 0..task.n_blocks {
            let part = |rank: u32| {
                let at = u64::from(rank) * blocks + u64::from(block);
                input.chunk(at..at + 1)
            };
            let (mine, own) = (part(me)?, u64::from(block)..u64::from(block) + 1);
            let result = d.p.output(me)?.chunk(own)?;
            exchange(&mut d, &slots, (me, block), part, (mine, result))?;
        }
    }
    d.finish()
}

/// One block of a rank: what `part` gives goes to each peer, what comes is folded with `mine`.
fn exchange(
    d: &mut Draft<'_>,
    slots: &Slots,
    (me, block): (u32, u32),
    part: impl Fn(u32) -> Result<Chunk, BuildError>,
    (mine, result): (Chunk, Chunk),
) -> Result<(), BuildError> {
    let peers = d.peers(me);
    if peers.is_empty() {
        return if d.task.in_place { Ok(()) } else { d.p.copy(result, mine, block) };
    }
    let mut sends: Vec<(MemoryChannel, Chunk, Chunk)> = Vec::with_capacity(peers.len());
    let mut arrived = Vec::with_capacity(peers.len());
    for peer in &peers {
        let channel = d.block_link(me, *peer, block)?;
        sends.push((channel, slots.chunk_at(*peer, me, block.into())?, part(*peer)?));
        arrived.push(slots.chunk_at(me, *peer, block.into())?);
    }
    let order = own_at(me as usize, arrived.len());
    let op = d.task.reduce_op;
    d.p.pipeline(TILE, 1, |p: &mut Program| {
        for (channel, to, from) in &sends {
            p.put(*channel, *to, *from, block)?;
        }
        for (channel, ..) in &sends {
            p.signal(*channel, block, DataSync::Before)?;
        }
        for (channel, ..) in &sends {
            p.wait(*channel, block, DataSync::After)?;
        }
        p.reduce(Reduction::of(mine, &arrived).into(result).ordered(&order).with(op), block)
    })
}
