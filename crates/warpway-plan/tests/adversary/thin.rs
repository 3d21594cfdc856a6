//! Random correct plans in which ranks know little of each other: what few pairs exchange through scratch, with no
//! more synchronisation than they need themselves. Most of them may not share their scratch; some that begin with a
//! handshake of all ranks may.

use warpway_plan::{
    Buffer, BuildError, CollectiveShape, DataSync, MemoryChannel, Plan, Program, ProgramOptions, Protocol,
};

use crate::random::Random;

/// How something gets from the input of one rank to the output of another.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// Put into the receiver's scratch, which copies it on.
    Staged,
    /// Left in the sender's scratch. The sender does not wait until it is fetched.
    Fetched,
    /// By packets; the receiver answers.
    Packets,
}

/// Chunks of scratch and of the output.
const CHUNKS: u64 = 2;

/// One plan for that many ranks.
pub(crate) fn thin(n: u32, seed: u64) -> Result<Plan, BuildError> {
    let mut random = Random::new(seed << 8 | u64::from(n));
    let all_first = random.chance(1, 3);
    let double_scratch = random.chance(1, 3);
    let name = format!("thin{}-{n}-{seed}", if all_first { "_after_all" } else { "" });
    let mut p = Program::new(ProgramOptions {
        protocol: Protocol::LowLatency,
        double_scratch,
        ..ProgramOptions::new(name, CollectiveShape::test(n, CHUNKS, CHUNKS))
    })?;
    let scratch = (0..n).map(|rank| p.scratch(rank, CHUNKS)).collect::<Result<Vec<_>, _>>()?;
    if all_first {
        let mut ends = Vec::new();
        for rank in 0..n {
            for peer in (0..n).filter(|peer| *peer != rank) {
                ends.push(p.memory_channel(rank, peer)?);
            }
        }
        ends.iter().try_for_each(|end| p.signal(*end, 0, DataSync::None))?;
        ends.iter().try_for_each(|end| p.wait(*end, 0, DataSync::After))?;
    }
    for chunk in 0..1 + random.below(CHUNKS as usize) as u64 {
        let from = random.below(n as usize) as u32;
        let to = (from + 1 + random.below(n as usize - 1) as u32) % n;
        let way = *random.pick(&[Way::Staged, Way::Fetched, Way::Packets]);
        transfer(&mut p, &scratch, (from, to, chunk), way)?;
    }
    p.finish()
}

/// One rank leaves its input in its scratch for another one to fetch.
pub(crate) fn fetched(n: u32, (from, to): (u32, u32)) -> Result<Plan, BuildError> {
    single(n, (from, to), Way::Fetched)
}

/// One rank puts its input into another one's scratch.
pub(crate) fn staged(n: u32, (from, to): (u32, u32)) -> Result<Plan, BuildError> {
    single(n, (from, to), Way::Staged)
}

fn single(n: u32, (from, to): (u32, u32), way: Way) -> Result<Plan, BuildError> {
    let name = format!("{way:?}_{from}_to_{to}");
    let mut p = Program::new(ProgramOptions::new(name, CollectiveShape::test(n, CHUNKS, CHUNKS)))?;
    let scratch = (0..n).map(|rank| p.scratch(rank, CHUNKS)).collect::<Result<Vec<_>, _>>()?;
    transfer(&mut p, &scratch, (from, to, 0), way)?;
    p.finish()
}

fn transfer(
    p: &mut Program,
    scratch: &[Buffer],
    (from, to, chunk): (u32, u32, u64),
    way: Way,
) -> Result<(), BuildError> {
    let (there, back) = (p.memory_channel(from, to)?, p.memory_channel(to, from)?);
    let at = |buffer: Buffer| buffer.chunk(chunk..=chunk);
    let (input, output) = (at(p.input(from)?)?, at(p.output(to)?)?);
    let tell = |p: &mut Program, by: MemoryChannel, to: MemoryChannel| {
        p.signal(by, 0, DataSync::Before)?;
        p.wait(to, 0, DataSync::After)
    };
    match way {
        Way::Staged => {
            let slot = at(scratch[to as usize])?;
            tell(p, back, there)?;
            p.put(there, slot, input, 0)?;
            tell(p, there, back)?;
            p.copy(output, slot, 0)
        }
        Way::Fetched => {
            let slot = at(scratch[from as usize])?;
            tell(p, back, there)?;
            p.copy(slot, input, 0)?;
            tell(p, there, back)?;
            p.get(back, output, slot, 0)
        }
        Way::Packets => {
            let slot = at(scratch[to as usize])?;
            p.put_packets(there, slot, input, 0)?;
            p.unpack_packets(output, slot, 0)?;
            tell(p, back, there)
        }
    }
}
