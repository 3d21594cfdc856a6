//! Random correct plans, put together from pieces that are correct: per block an opening handshake, the work, a
//! closing handshake, in many ways each. What a seed gives stays the same.

use warpway_plan::{BufferKind, ChannelType, Collective, DataKind, Plan, Via};

use crate::random::Random;
use crate::sketch::{At, Sketch, Spot, everywhere, here, there};

mod folds;

const I: BufferKind = BufferKind::Input;
const O: BufferKind = BufferKind::Output;
const S: BufferKind = BufferKind::Scratch;
const MEMORY: Option<ChannelType> = Some(ChannelType::Memory);
const PORT: Option<ChannelType> = Some(ChannelType::Port);
const SWITCH: Option<ChannelType> = Some(ChannelType::Switch);

/// One correct plan.
pub(crate) fn generate(seed: u64) -> Plan {
    let mut random = Random::new(seed);
    let plan = if random.chance(1, 2) { transfers(&mut random) } else { folds::folds(&mut random) };
    Plan { name: format!("{}-{seed}", plan.name), ..plan }
}

/// From an input chunk of one rank to an output chunk of another, or of the same.
#[derive(Debug, Clone, Copy)]
struct Move {
    from: (u32, u64),
    to: (u32, u64),
}

/// How data gets from one rank to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Put,
    PutWithSignal,
    Get,
    /// Put into the peer's scratch, which copies it on.
    Staged,
    /// Copied by another block first, told by a semaphore.
    Prepared,
    Port,
    PortWithSignal,
    PortFlushed,
    Packets,
    /// Packed locally, sent on once it is there.
    PackedFirst,
    /// The same through a port: packets as they are behind a nop, or awaited.
    PortPackets,
    PortForward,
    Pipeline,
}

const WAYS: [Way; 13] = [
    Way::Put,
    Way::PutWithSignal,
    Way::Get,
    Way::Staged,
    Way::Prepared,
    Way::Port,
    Way::PortWithSignal,
    Way::PortFlushed,
    Way::Packets,
    Way::PackedFirst,
    Way::PortPackets,
    Way::PortForward,
    Way::Pipeline,
];

/// The moves of a collective without folds.
fn moves(collective: Collective, n: u32, each: u64) -> Vec<Move> {
    let mut moves = Vec::new();
    let mut add = |p: u32, i: u64, q: u32, o: u64| {
        moves.extend((0..each).map(|c| Move { from: (p, i * each + c), to: (q, o * each + c) }));
    };
    for p in 0..n {
        let (p64, next) = (u64::from(p), (p + 1) % n);
        match collective {
            Collective::AllGather => (0..n).for_each(|q| add(p, 0, q, p64)),
            Collective::AllToAll => (0..n).for_each(|q| add(p, q.into(), q, p64)),
            Collective::Gather => add(p, 0, 0, p64),
            Collective::Broadcast => add(0, 0, p, 0),
            Collective::Scatter => add(0, p64, p, 0),
            _ => add(p, 0, next, 0),
        }
    }
    moves
}

fn transfers(random: &mut Random) -> Plan {
    let collective = *random.pick(&[
        Collective::AllGather,
        Collective::AllToAll,
        Collective::Gather,
        Collective::Broadcast,
        Collective::Scatter,
        Collective::SendRecv,
    ]);
    let n = 2 + random.below(3) as u32;
    let each = 1 + random.below(2) as u64;
    let wide = each * u64::from(n);
    let chunks = match collective {
        Collective::AllGather | Collective::Gather => (each, wide),
        Collective::AllToAll => (wide, wide),
        Collective::Scatter => (wide, each),
        _ => (each, each),
    };
    let moves = moves(collective, n, each);
    // One scratch chunk for each chunk that arrives, one for each that leaves.
    let scratch = 2 * moves.len() as u64;
    let mut sketch = Sketch::new("transfers", collective, n, (chunks.0, chunks.1, scratch));
    sketch.plan.double_scratch = random.chance(1, 2);
    sketch.plan.threads_per_block = *random.pick(&[32, 256, 1024]);
    let blocks = 1 + random.below(3) as u32;
    let usable = if random.chance(1, 3) { vec![*random.pick(&WAYS)] } else { WAYS.to_vec() };
    sketch.plan.in_place = collective == Collective::AllGather && random.chance(1, 3);
    let mut work = Vec::new();
    let mut spread = Vec::new();
    let to_all = matches!(collective, Collective::AllGather | Collective::Broadcast);
    for (number, m) in (0u64..).zip(moves) {
        let own = m.from.0 == m.to.0;
        let block = random.below(blocks as usize) as u32;
        if own && to_all && random.chance(1, 3) {
            spread.push((m, block, number, random.below(3)));
        }
        if !(own && sketch.plan.in_place) {
            work.push((m, *random.pick(&usable), block, number));
        }
    }
    work.retain(|(m, ..)| !spread.iter().any(|(all, ..)| all.from == m.from));
    let shape = Shape { n, blocks, relaxed: random.chance(1, 2) && !work.iter().any(|w| w.1 == Way::Staged) };
    for rank in 0..n {
        for block in 0..blocks {
            let mut spot = sketch.at(rank, block);
            shape.open(&mut spot, rank, block);
        }
    }
    for (m, way, block, number) in &work {
        transfer(&mut sketch, (*m, *way), (*block, blocks), *number, scratch / 2);
    }
    for (m, block, number, how) in &spread {
        to_everybody(&mut sketch, *m, (*block, blocks), *number, *how);
    }
    for rank in 0..n {
        for block in 0..blocks {
            shape.close(&mut sketch.at(rank, block), rank, block);
        }
    }
    // What was put into a peer's scratch is copied on once it is there.
    for (m, way, block, number) in &work {
        if *way == Way::Staged && m.from.0 != m.to.0 {
            let mut spot = sketch.at(m.to.0, *block);
            spot.data(DataKind::Copy, None, &[here(S, *number)], &[here(O, m.to.1)]);
        }
    }
    sketch.finish()
}

/// How blocks begin and end.
struct Shape {
    n: u32,
    blocks: u32,
    relaxed: bool,
}

impl Shape {
    fn peers(&self, rank: u32) -> Vec<u32> {
        (0..self.n).filter(|p| *p != rank).collect()
    }

    /// Everybody learns that everybody has begun.
    fn open(&self, spot: &mut Spot<'_>, rank: u32, _block: u32) {
        let peers = self.peers(rank);
        spot.signal(Via::Memory, self.relaxed, &peers).wait(Via::Memory, self.relaxed, &peers).nop();
    }

    /// Everybody learns that everybody is done.
    fn close(&self, spot: &mut Spot<'_>, rank: u32, block: u32) {
        let peers = self.peers(rank);
        spot.nop();
        // All blocks together, or each by itself: the channels are those of the block.
        if self.blocks > 1 && self.n.is_multiple_of(2) {
            spot.barrier(0, self.blocks);
        }
        let _ = block;
        spot.signal(Via::Memory, false, &peers).wait(Via::Memory, false, &peers).nop();
    }
}

/// One move, in the blocks of that number of both ranks.
fn transfer(
    sketch: &mut Sketch,
    (m, way): (Move, Way),
    (block, blocks): (u32, u32),
    number: u64,
    arrivals: u64,
) {
    let ((p, i), (q, o)) = (m.from, m.to);
    if p == q {
        // Sometimes all blocks together.
        let members = if number.is_multiple_of(2) { blocks } else { 1 };
        for member in 0..members {
            let at = if members == 1 { block } else { member };
            let mut spot = sketch.at(p, at).member(member, members);
            spot.data(DataKind::Copy, None, &[here(I, i)], &[here(O, o)]);
        }
        return;
    }
    let (source, target, stage) = (here(I, i), there(q, O, o), number);
    let leaving = here(S, arrivals + number);
    match way {
        Way::Put => {
            // Every block puts its share, and closes with its own channel.
            for member in 0..blocks {
                let mut spot = sketch.at(p, member).member(member, blocks);
                spot.data(DataKind::Put, MEMORY, &[source], &[target]);
            }
        }
        Way::PutWithSignal => {
            sketch.at(p, block).put_with_signal(source, target, q);
            sketch.at(q, block).wait(Via::Memory, false, &[p]).nop();
        }
        Way::Get => {
            sketch.at(q, block).data(DataKind::Get, MEMORY, &[there(p, I, i)], &[here(O, o)]);
        }
        Way::Staged => {
            sketch.at(p, block).data(DataKind::Put, MEMORY, &[source], &[there(q, S, stage)]);
        }
        Way::Prepared => {
            let semaphores = &mut sketch.plan.ranks[p as usize].semaphores;
            let semaphore = semaphores.len() as u32;
            semaphores.push(number % 2);
            let other = (block + 1) % blocks;
            let mut spot = sketch.at(p, other);
            if number % 2 == 1 {
                spot.acquire(semaphore).nop();
            }
            spot.data(DataKind::Copy, None, &[source], &[leaving]).nop();
            if number.is_multiple_of(2) {
                spot.release(semaphore);
                sketch.at(p, block).acquire(semaphore).nop();
            } else if blocks > 1 {
                // The semaphore was a lock around the copy; a barrier of all blocks tells that it is over.
                spot.release(semaphore);
                for b in 0..blocks {
                    sketch.at(p, b).barrier(1, blocks);
                }
            } else {
                spot.release(semaphore);
            }
            sketch.at(p, block).data(DataKind::Put, MEMORY, &[leaving], &[target]);
        }
        Way::Port | Way::PortWithSignal | Way::PortFlushed => {
            let mut spot = sketch.at(p, block);
            match way {
                Way::Port => {
                    spot.data(DataKind::Put, PORT, &[source], &[target]);
                    spot.signal(Via::Port, number.is_multiple_of(2), &[q]).flush(&[q]);
                }
                Way::PortWithSignal => {
                    spot.data(DataKind::PutWithSignal, PORT, &[source], &[target]).flush(&[q]);
                }
                _ => {
                    spot.data(DataKind::PutWithSignalAndFlush, PORT, &[source], &[target]);
                }
            }
            sketch.at(q, block).wait(Via::Port, false, &[p]).nop();
        }
        Way::Packets => {
            sketch.at(p, block).data(DataKind::PutPackets, MEMORY, &[source], &[there(q, S, stage)]);
            sketch.at(q, block).data(DataKind::UnpackPackets, None, &[here(S, stage)], &[here(O, o)]);
        }
        Way::PackedFirst => {
            let mut spot = sketch.at(p, block);
            spot.data(DataKind::CopyPackets, None, &[source], &[leaving]);
            spot.data(DataKind::ReadPutPackets, MEMORY, &[leaving], &[there(q, S, stage)]);
            let last = (block + 1) % blocks;
            sketch.at(q, last).data(DataKind::UnpackPackets, None, &[here(S, stage)], &[here(O, o)]);
        }
        Way::PortPackets | Way::PortForward => {
            let mut spot = sketch.at(p, block);
            spot.data(DataKind::CopyPackets, None, &[source], &[leaving]);
            let kind = match way {
                Way::PortPackets => {
                    spot.nop();
                    DataKind::PutPackets
                }
                _ => DataKind::ReadPutPackets,
            };
            spot.data(kind, PORT, &[leaving], &[there(q, S, stage)]).flush(&[q]);
            sketch.at(q, block).data(DataKind::UnpackPackets, None, &[here(S, stage)], &[here(O, o)]);
        }
        Way::Pipeline => {
            let unit = 32 << (number % 2);
            sketch.at(p, block).pipeline(unit, 1, |spot| {
                spot.data(DataKind::Put, MEMORY, &[source], &[target]).nop();
                spot.signal(Via::Memory, false, &[q]);
            });
            sketch.at(q, block).pipeline(unit, 1, |spot| {
                spot.wait(Via::Memory, false, &[p]).nop();
            });
        }
    }
}

/// One chunk to the same place of every rank, itself included.
fn to_everybody(sketch: &mut Sketch, m: Move, (block, blocks): (u32, u32), number: u64, how: usize) {
    let ((p, i), (_, o)) = (m.from, m.to);
    let n = sketch.plan.ranks.len() as u32;
    let in_place = sketch.plan.in_place;
    let mut spot = sketch.at(p, block);
    match how {
        0 => {
            spot.data(DataKind::GroupStore, SWITCH, &[here(I, i)], &[everywhere(O, o)]);
        }
        1 => {
            let others = of_others(n, p, |q| there(q, O, o));
            spot.data(DataKind::Put, MEMORY, &vec![here(I, i); others.len()], &others);
            if !in_place {
                spot.data(DataKind::Copy, None, &[here(I, i)], &[here(O, o)]);
            }
        }
        _ => {
            // The slot behind those of arrivals holds what is stored.
            let arrivals = sketch.plan.ranks[0].scratch_chunks / 2;
            let mut spot = sketch.at(p, block);
            spot.data(DataKind::CopyPackets, None, &[here(I, i)], &[here(S, arrivals + number)]);
            let (from, to) = ([here(S, arrivals + number)], [everywhere(S, number)]);
            spot.data(DataKind::GroupStorePackets, SWITCH, &from, &to);
            for q in 0..n {
                let mut spot = sketch.at(q, (block + 1) % blocks);
                if q != p || !in_place {
                    spot.data(DataKind::UnpackPackets, None, &[here(S, number)], &[here(O, o)]);
                }
            }
        }
    }
}

/// A shorthand of the pieces: the chunk `index` of every rank but `rank`.
fn of_others(n: u32, rank: u32, at: impl Fn(u32) -> At) -> Vec<At> {
    (0..n).filter(|q| *q != rank).map(at).collect()
}
