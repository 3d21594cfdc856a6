//! All-reduces and reduce-scatters.

use super::{memory_mesh, memory_ring};
use crate::builder::{BuildError, Chunk, CollectiveShape, DataSync, Program, ProgramOptions, Reduction};
use crate::ir::{BufferKind, Plan, Protocol, ReduceOp};

/// One hop: every rank sends its whole input as packets to all, and folds what it gets in rank order. The halves
/// of the scratch alternate, so a slot is written again only after its reader has answered.
///
/// # Errors
/// None for numbers of ranks that fit memory.
pub fn all_reduce_packets(n_ranks: u32) -> Result<Plan, BuildError> {
    let shape = CollectiveShape::all_reduce(n_ranks, 1);
    let mut p = Program::new(ProgramOptions {
        protocol: Protocol::LowLatency,
        double_scratch: true,
        ..ProgramOptions::new("all_reduce_packets", shape)
    })?;
    let chunks = u64::from(n_ranks);
    let mut slots = Vec::new();
    for rank in 0..n_ranks {
        let scratch = p.scratch(rank, chunks * chunks)?;
        let slot = |from: u64| scratch.chunk(from * chunks..(from + 1) * chunks);
        slots.push((0..chunks).map(slot).collect::<Result<Vec<Chunk>, _>>()?);
    }
    for me in 0..n_ranks {
        let mine = p.input(me)?.whole();
        let channels = memory_mesh(&mut p, me)?;
        for (peer, channel) in &channels {
            p.put_packets(*channel, slots[*peer as usize][me as usize], mine, 0)?;
        }
        let others: Vec<Chunk> =
            channels.iter().map(|(peer, _)| slots[me as usize][*peer as usize]).collect();
        // Position 0 is the own input, q + 1 that of the q-th peer.
        let order: Vec<u32> = (1..=me).chain([0]).chain(me + 1..n_ranks).collect();
        let reduction = Reduction::of(mine, &others).into(p.output(me)?.whole()).ordered(&order);
        p.reduce_packets(reduction, 0)?;
    }
    p.finish()
}

/// Two hops, in place: rank `r` reads chunk `r` of all, and stores the sum to all.
///
/// # Errors
/// None for numbers of ranks that fit memory.
pub fn all_reduce_two_shot(n_ranks: u32) -> Result<Plan, BuildError> {
    let shape = CollectiveShape::all_reduce(n_ranks, 1).in_place();
    let mut p = Program::new(ProgramOptions::new("all_reduce_two_shot", shape))?;
    for me in 0..n_ranks {
        let part = u64::from(me)..u64::from(me) + 1;
        let mine = p.input(me)?.chunk(part.clone())?;
        let channels = memory_mesh(&mut p, me)?;
        for (_, channel) in &channels {
            p.signal_relaxed(*channel, 0, DataSync::None)?;
        }
        for (_, channel) in &channels {
            p.wait_relaxed(*channel, 0, DataSync::After)?;
        }
        for (peer, channel) in &channels {
            p.read_reduce(*channel, Reduction::of(mine, &[p.input(*peer)?.chunk(part.clone())?]), 0)?;
        }
        for (peer, channel) in &channels {
            p.put(*channel, p.input(*peer)?.chunk(part.clone())?, mine, 0)?;
        }
        for (_, channel) in &channels {
            p.signal(*channel, 0, DataSync::Before)?;
        }
        for (_, channel) in &channels {
            p.wait(*channel, 0, DataSync::After)?;
        }
    }
    p.finish()
}

/// [`all_reduce_two_shot`] by multicast.
///
/// # Errors
/// None for numbers of ranks that fit memory.
pub fn all_reduce_switch(n_ranks: u32) -> Result<Plan, BuildError> {
    let shape = CollectiveShape::all_reduce(n_ranks, 1).in_place();
    let mut p = Program::new(ProgramOptions::new("all_reduce_switch", shape))?;
    let ranks: Vec<u32> = (0..n_ranks).collect();
    let switch = p.switch_channel(&ranks, BufferKind::Input)?;
    for me in 0..n_ranks {
        let channels = memory_mesh(&mut p, me)?;
        for (_, channel) in &channels {
            p.signal(*channel, 0, DataSync::Before)?;
        }
        for (_, channel) in &channels {
            p.wait(*channel, 0, DataSync::After)?;
        }
        let place = u64::from(me);
        let (region, mine) = (switch.region(me, place, 1), p.input(me)?.chunk(place..=place)?);
        p.switch_reduce(region, mine, 0, ReduceOp::Sum)?;
        p.switch_broadcast(region, mine, 0)?;
        for (_, channel) in &channels {
            p.signal(*channel, 0, DataSync::Before)?;
        }
        for (_, channel) in &channels {
            p.wait(*channel, 0, DataSync::After)?;
        }
    }
    p.finish()
}

/// Partial sums travel to the right, one slot of scratch for each hop. The opening pair is an ordered one: it lets
/// the left neighbour write slots that this rank has read in the launch before.
///
/// # Errors
/// None for numbers of ranks that fit memory.
pub fn reduce_scatter_ring(n_ranks: u32) -> Result<Plan, BuildError> {
    let shape = CollectiveShape::reduce_scatter(n_ranks, 1);
    let mut p = Program::new(ProgramOptions::new("reduce_scatter_ring", shape))?;
    let hops = n_ranks - 1;
    let slots =
        (0..n_ranks).map(|rank| p.scratch(rank, u64::from(hops))).collect::<Result<Vec<_>, BuildError>>()?;
    for at in memory_ring(&mut p)? {
        let (here, next) = (slots[at.rank as usize], slots[at.right_rank as usize]);
        let input = p.input(at.rank)?;
        p.signal(at.left, 0, DataSync::Before)?;
        p.wait(at.right, 0, DataSync::After)?;
        for hop in 0..hops {
            let block = u64::from((at.rank + n_ranks - 1 - hop) % n_ranks);
            let mut partial = input.chunk(block..=block)?;
            if hop > 0 {
                let slot = u64::from(hop) - 1;
                let received = here.chunk(slot..=slot)?;
                p.reduce(Reduction::of(received, &[partial]), 0)?;
                partial = received;
            }
            let slot = u64::from(hop);
            p.put(at.right, next.chunk(slot..=slot)?, partial, 0)?;
            p.signal(at.right, 0, DataSync::Before)?;
            p.wait(at.left, 0, DataSync::After)?;
        }
        let (place, last) = (u64::from(at.rank), u64::from(hops).saturating_sub(1));
        let mine = input.chunk(place..=place)?;
        let output = p.output(at.rank)?.whole();
        p.reduce(Reduction::of(here.chunk(last..=last)?, &[mine]).into(output), 0)?;
    }
    p.finish()
}
