//! Collectives that only move data.

use super::{memory_ring, peers, port_ring};
use crate::builder::{BuildError, CollectiveShape, DataSync, Program, ProgramOptions};
use crate::ir::Plan;

/// Every rank puts one chunk to each peer; the peers are dealt out to `blocks` blocks.
///
/// # Errors
/// If `blocks` is too large.
pub fn all_to_all(n_ranks: u32, blocks: u32) -> Result<Plan, BuildError> {
    exchange("all_to_all", CollectiveShape::all_to_all(n_ranks, 1), blocks)
}

/// [`all_to_all`] in one block, with counts that come at launch.
///
/// # Errors
/// None for numbers of ranks that fit memory.
pub fn all_to_all_v(n_ranks: u32) -> Result<Plan, BuildError> {
    exchange("all_to_all_v", CollectiveShape::all_to_all_v(n_ranks, 1), 1)
}

fn exchange(name: &str, shape: CollectiveShape, blocks: u32) -> Result<Plan, BuildError> {
    let mut p = Program::new(ProgramOptions::new(name, shape))?;
    let (n, blocks) = (p.n_ranks(), blocks.max(1));
    for me in 0..n {
        let (input, place) = (p.input(me)?, u64::from(me));
        p.copy(p.output(me)?.chunk(place..=place)?, input.chunk(place..=place)?, 0)?;
        for block in 0..blocks {
            let mut channels = Vec::new();
            for peer in peers(n, me).skip(block as usize).step_by(blocks as usize) {
                channels.push((peer, p.memory_channel(me, peer)?));
            }
            for (_, channel) in &channels {
                p.signal_relaxed(*channel, block, DataSync::None)?;
            }
            for (_, channel) in &channels {
                p.wait_relaxed(*channel, block, DataSync::After)?;
            }
            for (peer, channel) in &channels {
                let at = u64::from(*peer);
                p.put(*channel, p.output(*peer)?.chunk(place..=place)?, input.chunk(at..=at)?, block)?;
            }
            for (_, channel) in &channels {
                p.signal(*channel, block, DataSync::Before)?;
            }
            for (_, channel) in &channels {
                p.wait(*channel, block, DataSync::After)?;
            }
        }
    }
    p.finish()
}

/// The root puts its input into every output.
///
/// # Errors
/// If `root` does not exist.
pub fn broadcast(n_ranks: u32, root: u32) -> Result<Plan, BuildError> {
    let shape = CollectiveShape::broadcast(n_ranks, 1);
    let mut p = Program::new(ProgramOptions::new("broadcast", shape))?;
    let source = p.input(root)?.whole();
    let mut channels = Vec::new();
    for peer in peers(n_ranks, root) {
        channels.push((peer, p.memory_channel(root, peer)?));
        let channel = p.memory_channel(peer, root)?;
        p.signal_relaxed(channel, 0, DataSync::None)?;
        p.wait(channel, 0, DataSync::After)?;
    }
    for (_, channel) in &channels {
        p.wait_relaxed(*channel, 0, DataSync::After)?;
    }
    p.copy(p.output(root)?.whole(), source, 0)?;
    for (peer, channel) in &channels {
        p.put(*channel, p.output(*peer)?.whole(), source, 0)?;
    }
    for (_, channel) in &channels {
        p.signal(*channel, 0, DataSync::Before)?;
    }
    p.finish()
}

/// Every rank sends its input to the right, slice by slice.
///
/// # Errors
/// If `unit_size`, in bytes, is zero.
pub fn send_recv_pipeline(n_ranks: u32, chunks: u64, unit_size: u64) -> Result<Plan, BuildError> {
    let shape = CollectiveShape::send_recv(n_ranks, chunks);
    let mut p = Program::new(ProgramOptions::new("send_recv_pipeline", shape))?;
    let ring = memory_ring(&mut p)?;
    for at in &ring {
        p.signal_relaxed(at.left, 0, DataSync::None)?;
        p.wait_relaxed(at.right, 0, DataSync::After)?;
    }
    p.pipeline(unit_size, chunks, |p| {
        for at in &ring {
            p.put(at.right, p.output(at.right_rank)?.whole(), p.input(at.rank)?.whole(), 0)?;
            p.signal(at.right, 0, DataSync::Before)?;
            p.wait(at.left, 0, DataSync::After)?;
        }
        Ok(())
    })?;
    p.finish()
}

/// Every rank sends its input to the right through its proxy.
///
/// # Errors
/// None for numbers of ranks that fit memory.
pub fn send_recv_port(n_ranks: u32) -> Result<Plan, BuildError> {
    let shape = CollectiveShape::send_recv(n_ranks, 1);
    let mut p = Program::new(ProgramOptions::new("send_recv_port", shape))?;
    for at in port_ring(&mut p)? {
        p.signal(at.left, 0, DataSync::None)?;
        p.wait(at.right, 0, DataSync::After)?;
        let (to, from) = (p.output(at.right_rank)?.whole(), p.input(at.rank)?.whole());
        p.put_with_signal_and_flush(at.right, to, from, 0)?;
        p.wait(at.left, 0, DataSync::After)?;
    }
    p.finish()
}

/// Every rank sends its input to the right: block 0 stages it, block 1 sends it on.
///
/// # Errors
/// None for numbers of ranks that fit memory.
pub fn send_recv_semaphore(n_ranks: u32) -> Result<Plan, BuildError> {
    let shape = CollectiveShape::send_recv(n_ranks, 1);
    let mut p = Program::new(ProgramOptions::new("send_recv_semaphore", shape))?;
    for at in memory_ring(&mut p)? {
        let stage = p.scratch(at.rank, 1)?.whole();
        let staged = p.semaphore(at.rank, 0)?;
        p.copy(stage, p.input(at.rank)?.whole(), 0)?;
        p.release(staged, 0, DataSync::Before)?;
        p.signal_relaxed(at.left, 1, DataSync::None)?;
        p.wait_relaxed(at.right, 1, DataSync::None)?;
        p.acquire(staged, 1, DataSync::After)?;
        p.put(at.right, p.output(at.right_rank)?.whole(), stage, 1)?;
        p.signal(at.right, 1, DataSync::Before)?;
        p.wait(at.left, 1, DataSync::After)?;
    }
    p.finish()
}
