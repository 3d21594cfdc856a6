//! All-gathers.

use super::{memory_mesh, memory_ring};
use crate::builder::{BuildError, CollectiveShape, DataSync, Program, ProgramOptions, ThreadBlockGroup};
use crate::ir::Plan;

/// Every rank puts its input into every output.
///
/// # Errors
/// None for numbers of ranks that fit memory.
pub fn all_gather_put(n_ranks: u32) -> Result<Plan, BuildError> {
    put_to_all("all_gather_put", CollectiveShape::all_gather(n_ranks, 1))
}

/// [`all_gather_put`] with counts that come at launch.
///
/// # Errors
/// As those of [`all_gather_put`].
pub fn all_gather_v(n_ranks: u32) -> Result<Plan, BuildError> {
    put_to_all("all_gather_v", CollectiveShape::all_gather_v(n_ranks, 1))
}

fn put_to_all(name: &str, shape: CollectiveShape) -> Result<Plan, BuildError> {
    let mut p = Program::new(ProgramOptions::new(name, shape))?;
    for me in 0..p.n_ranks() {
        let (place, mine) = (u64::from(me), p.input(me)?.whole());
        let channels = memory_mesh(&mut p, me)?;
        for (_, channel) in &channels {
            p.signal_relaxed(*channel, 0, DataSync::None)?;
        }
        for (_, channel) in &channels {
            p.wait_relaxed(*channel, 0, DataSync::After)?;
        }
        p.copy(p.output(me)?.chunk(place..=place)?, mine, 0)?;
        for (peer, channel) in &channels {
            p.put(*channel, p.output(*peer)?.chunk(place..=place)?, mine, 0)?;
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

/// [`all_gather_put`] whose bytes are shared by a group of blocks; block 0 talks to the peers.
///
/// # Errors
/// If `members` is zero or too large.
pub fn all_gather_groups(n_ranks: u32, members: u32) -> Result<Plan, BuildError> {
    let shape = CollectiveShape::all_gather(n_ranks, 1);
    let mut p = Program::new(ProgramOptions::new("all_gather_groups", shape))?;
    let group = ThreadBlockGroup::new(0..members)?;
    for me in 0..n_ranks {
        let (place, mine) = (u64::from(me), p.input(me)?.whole());
        let channels = memory_mesh(&mut p, me)?;
        for (_, channel) in &channels {
            p.signal_relaxed(*channel, 0, DataSync::None)?;
        }
        for (_, channel) in &channels {
            p.wait_relaxed(*channel, 0, DataSync::After)?;
        }
        p.barrier(me, group.blocks())?;
        p.copy(p.output(me)?.chunk(place..=place)?, mine, &group)?;
        for (peer, channel) in &channels {
            p.put(*channel, p.output(*peer)?.chunk(place..=place)?, mine, &group)?;
        }
        p.barrier(me, group.blocks())?;
        for (_, channel) in &channels {
            p.signal(*channel, 0, DataSync::Before)?;
        }
        for (_, channel) in &channels {
            p.wait(*channel, 0, DataSync::After)?;
        }
    }
    p.finish()
}

/// Every rank hands on to its right what it has got from its left.
///
/// # Errors
/// None for numbers of ranks that fit memory.
pub fn all_gather_ring(n_ranks: u32) -> Result<Plan, BuildError> {
    let shape = CollectiveShape::all_gather(n_ranks, 1);
    let mut p = Program::new(ProgramOptions::new("all_gather_ring", shape))?;
    for at in memory_ring(&mut p)? {
        let (here, next) = (p.output(at.rank)?, p.output(at.right_rank)?);
        let (place, mine) = (u64::from(at.rank), p.input(at.rank)?.whole());
        p.signal_relaxed(at.left, 0, DataSync::None)?;
        p.wait_relaxed(at.right, 0, DataSync::After)?;
        p.copy(here.chunk(place..=place)?, mine, 0)?;
        for step in 0..n_ranks - 1 {
            let block = u64::from((at.rank + n_ranks - step) % n_ranks);
            let source = if step == 0 { mine } else { here.chunk(block..=block)? };
            p.put(at.right, next.chunk(block..=block)?, source, 0)?;
            p.signal(at.right, 0, DataSync::Before)?;
            p.wait(at.left, 0, DataSync::After)?;
        }
    }
    p.finish()
}
