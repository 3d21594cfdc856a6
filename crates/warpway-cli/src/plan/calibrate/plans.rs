//! Plans of one primitive each, for two ranks. They compute nothing and are run without a proof.

use warpway_plan::{
    BuildError, Channel, CollectiveShape, DataSync, MemoryChannel, Plan, Program, ProgramOptions, Protocol,
    Reduction, ThreadBlockGroup,
};

type Built = Result<Plan, BuildError>;

fn program(chunks: [u64; 2]) -> Result<Program, BuildError> {
    let shape = CollectiveShape::test(2, chunks[0], chunks[1]);
    Program::new(ProgramOptions {
        fusion: false,
        double_scratch: true,
        protocol: Protocol::LowLatency,
        ..ProgramOptions::new("primitive", shape)
    })
}

/// The first `ranks` ranks copy their input chunk by chunk.
pub(super) fn copies(ranks: u32, chunks: u64) -> Built {
    let mut p = program([chunks, chunks])?;
    for rank in 0..ranks {
        for chunk in 0..chunks {
            p.copy(p.output(rank)?.chunk(chunk..=chunk)?, p.input(rank)?.chunk(chunk..=chunk)?, 0)?;
        }
    }
    p.finish()
}

/// Both ranks copy their input, each by two blocks.
pub(super) fn copies_by_two_blocks() -> Built {
    let mut p = program([2, 2])?;
    let group = ThreadBlockGroup::new(0..2)?;
    for rank in 0..2 {
        p.copy(p.output(rank)?.whole(), p.input(rank)?.whole(), &group)?;
    }
    p.finish()
}

/// The first `ranks` ranks fold one half of their input into the other, to the output.
pub(super) fn fold(ranks: u32) -> Built {
    let mut p = program([2, 1])?;
    for rank in 0..ranks {
        let (a, b) = (p.input(rank)?.chunk(0..=0)?, p.input(rank)?.chunk(1..=1)?);
        p.reduce(Reduction::of(a, &[b]).into(p.output(rank)?.whole()), 0)?;
    }
    p.finish()
}

/// A signal there and one back, so many times, between each of `blocks` blocks and its partner.
pub(super) fn ping_pong(rounds: u32, blocks: u32) -> Built {
    let mut p = program([1, 1])?;
    for block in 0..blocks {
        let ends = [p.memory_channel(0, 1)?.into(), p.memory_channel(1, 0)?.into()];
        bounce(&mut p, ends, block, rounds)?;
    }
    p.finish()
}

/// So many signals in one direction, and one back.
pub(super) fn signals(count: u32) -> Built {
    let mut p = program([1, 1])?;
    let ends = [p.memory_channel(0, 1)?.into(), p.memory_channel(1, 0)?.into()];
    volley(&mut p, ends, count)?;
    p.finish()
}

/// [`ping_pong`] of one block through proxies.
pub(super) fn port_ping_pong(rounds: u32) -> Built {
    let mut p = program([1, 1])?;
    let ends = [p.port_channel(0, 1)?.into(), p.port_channel(1, 0)?.into()];
    bounce(&mut p, ends, 0, rounds)?;
    p.finish()
}

/// So many requests to the proxy, and a signal back.
pub(super) fn port_signals(count: u32) -> Built {
    let mut p = program([1, 1])?;
    let ends = [p.port_channel(0, 1)?.into(), p.port_channel(1, 0)?.into()];
    volley(&mut p, ends, count)?;
    p.finish()
}

fn bounce(p: &mut Program, [there, back]: [Channel; 2], block: u32, rounds: u32) -> Result<(), BuildError> {
    for _ in 0..rounds {
        p.signal(there, block, DataSync::None)?;
        p.wait(back, block, DataSync::None)?;
        p.signal(back, block, DataSync::None)?;
        p.wait(there, block, DataSync::None)?;
    }
    Ok(())
}

fn volley(p: &mut Program, [there, back]: [Channel; 2], count: u32) -> Result<(), BuildError> {
    for _ in 0..count {
        p.signal(there, 0, DataSync::None)?;
    }
    for _ in 0..count {
        p.wait(back, 0, DataSync::None)?;
    }
    p.signal(back, 0, DataSync::None)?;
    p.wait(there, 0, DataSync::None)
}

/// Each rank touches the other's output, so both tell where it is.
pub(super) fn handshake() -> Built {
    let mut p = program([1, 2])?;
    for (me, peer) in [(0, 1), (1, 0)] {
        let channel = p.memory_channel(me, peer)?;
        p.put(channel, p.output(peer)?.chunk(1..=1)?, p.input(me)?.whole(), 0)?;
    }
    p.finish()
}

/// Packets there and back, so many times, each time to slots of their own.
pub(super) fn packet_ping_pong(rounds: u64) -> Built {
    let mut p = program([1, 1])?;
    let slots = [p.scratch(0, rounds)?, p.scratch(1, rounds)?];
    let channels = [p.memory_channel(0, 1)?, p.memory_channel(1, 0)?];
    for round in 0..rounds {
        for (me, peer) in [(0u32, 1u32), (1, 0)] {
            let slot = slots[peer as usize].chunk(round..=round)?;
            p.put_packets(channels[me as usize], slot, p.input(me)?.whole(), 0)?;
            p.unpack_packets(p.output(peer)?.whole(), slot, 0)?;
        }
    }
    p.finish()
}

/// Packets in both directions at once.
pub(super) fn packet_exchange() -> Built {
    let mut p = program([1, 1])?;
    let slots = [p.scratch(0, 1)?.whole(), p.scratch(1, 1)?.whole()];
    let channels = [p.memory_channel(0, 1)?, p.memory_channel(1, 0)?];
    for (me, peer) in [(0, 1), (1, 0)] {
        p.put_packets(channels[me], slots[peer], p.input(me as u32)?.whole(), 0)?;
    }
    for me in [0, 1] {
        p.unpack_packets(p.output(me as u32)?.whole(), slots[me], 0)?;
    }
    p.finish()
}

/// Rank 0 writes to rank 1, which reads it and answers: each launch moves the bytes from one cache to the other and
/// back.
pub(super) fn migrate() -> Built {
    let mut p = program([1, 1])?;
    let (there, back) = (p.memory_channel(0, 1)?, p.memory_channel(1, 0)?);
    let shared = p.scratch(1, 1)?.whole();
    p.put(there, shared, p.input(0)?.whole(), 0)?;
    turn(&mut p, there, back)?;
    p.copy(p.output(1)?.whole(), shared, 0)?;
    turn(&mut p, back, there)?;
    p.finish()
}

/// The same with copies from and to what is each rank's own.
pub(super) fn stay() -> Built {
    let mut p = program([1, 1])?;
    let (there, back) = (p.memory_channel(0, 1)?, p.memory_channel(1, 0)?);
    let own = [p.scratch(0, 1)?.whole(), p.scratch(1, 1)?.whole()];
    p.copy(own[0], p.input(0)?.whole(), 0)?;
    turn(&mut p, there, back)?;
    p.copy(p.output(1)?.whole(), own[1], 0)?;
    turn(&mut p, back, there)?;
    p.finish()
}

/// A signal over one channel, for which the other end waits.
fn turn(p: &mut Program, gives: MemoryChannel, waits: MemoryChannel) -> Result<(), BuildError> {
    p.signal(gives, 0, DataSync::Before)?;
    p.wait(waits, 0, DataSync::After)
}

/// A barrier of two blocks of each rank, so many times.
pub(super) fn barriers(count: u32) -> Built {
    let mut p = program([1, 1])?;
    for rank in 0..2 {
        for _ in 0..count {
            p.barrier(rank, &[0, 1])?;
        }
    }
    p.finish()
}

/// Rank 0 writes to rank 1, which folds it with its own input and answers.
pub(super) fn fold_what_comes() -> Built {
    let mut p = program([1, 1])?;
    let (there, back) = (p.memory_channel(0, 1)?, p.memory_channel(1, 0)?);
    let shared = [p.scratch(1, 1)?.whole()];
    p.put(there, shared[0], p.input(0)?.whole(), 0)?;
    turn(&mut p, there, back)?;
    p.reduce(Reduction::of(p.input(1)?.whole(), &shared).into(p.output(1)?.whole()), 0)?;
    turn(&mut p, back, there)?;
    p.finish()
}

/// Rank 0 folds into its scratch, which rank 1 then copies and answers.
pub(super) fn fold_for_a_reader() -> Built {
    let mut p = program([2, 1])?;
    let (there, back) = (p.memory_channel(0, 1)?, p.memory_channel(1, 0)?);
    let shared = p.scratch(0, 1)?.whole();
    let (a, b) = (p.input(0)?.chunk(0..=0)?, p.input(0)?.chunk(1..=1)?);
    p.reduce(Reduction::of(a, &[b]).into(shared), 0)?;
    turn(&mut p, there, back)?;
    p.get(back, p.output(1)?.whole(), shared, 0)?;
    turn(&mut p, back, there)?;
    p.finish()
}

/// Rank 0 writes so many packets' slots, of which rank 1 reads each when all of it is written.
pub(super) fn packet_pipeline(slots: u64) -> Built {
    let mut p = program([slots, slots])?;
    let (there, back) = (p.memory_channel(0, 1)?, p.memory_channel(1, 0)?);
    let places = p.scratch(1, slots)?;
    for slot in 0..slots {
        let place = places.chunk(slot..=slot)?;
        p.put_packets(there, place, p.input(0)?.chunk(slot..=slot)?, 0)?;
        turn(&mut p, there, back)?;
        p.unpack_packets(p.output(1)?.chunk(slot..=slot)?, place, 0)?;
    }
    turn(&mut p, back, there)?;
    p.finish()
}
