//! Long random sequences of collectives on one communicator, without a pause between them.

use std::time::Duration;

use warpway::collectives::{Function, World, catalogue};
use warpway::{Communicator, DataType, PacketFormat, ReduceOp, Result};

use super::case::{Case, Memory};
use super::mix;
use super::play::{Stage, Verdict};

/// What a process holds: it must not grow while collectives run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// Open descriptors.
    pub descriptors: u64,
    /// Threads.
    pub threads: u64,
    /// Mappings of memory that ranks share.
    pub shared_mappings: u64,
    /// Bytes in memory that it does not share: pages of a mapping that other ranks see come in as calls first touch them, and
    /// are bounded by the mappings.
    pub resident: u64,
}

impl Counted {
    /// Of this process, now.
    pub fn now() -> Self {
        let entries = |folder: &str| std::fs::read_dir(folder).map_or(0, |entries| entries.count() as u64);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        // proc(5): size, resident, shared, each in pages
        let pages: Vec<u64> = statm.split_whitespace().map(|field| field.parse().unwrap()).collect();
        Self {
            descriptors: entries("/proc/self/fd"),
            threads: entries("/proc/self/task"),
            shared_mappings: maps.matches("memfd:warpway").count() as u64,
            resident: (pages[1] - pages[2]) * rustix::param::page_size() as u64,
        }
    }
}

/// What calls of a sequence are made of: a plan each, and the largest message that goes through it.
struct Kinds(Vec<Case>);

impl Kinds {
    /// Every algorithm that fits, each with several types, operators, roots, and in and out of place.
    fn new(world: &World, seed: u64) -> Self {
        let types = [
            DataType::Float32,
            DataType::Bfloat16,
            DataType::Int64,
            DataType::Uint8,
            DataType::Float8E4m3fn,
            DataType::Float64,
        ];
        let mut kinds = Vec::new();
        for (at, algorithm) in (0..).zip(catalogue()) {
            for turn in 0..4 {
                let random = mix(seed, at << 8 | turn);
                let case = Case {
                    data_type: types[(random >> 8) as usize % types.len()],
                    op: [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Avg][(random >> 16) as usize % 3],
                    in_place: turn % 2 == 1,
                    root: (random >> 24) as u32 % world.n_ranks(),
                    packets: [PacketFormat::Ll16, PacketFormat::Ll8][(random >> 32) as usize % 2],
                    blocks: Some(1 + (random >> 40) as u32 % 2),
                    ..Case::new(algorithm.function, 0, 0)
                };
                // Every fourth leaves the choice to the communicator.
                let case = if turn == 3 { Case { blocks: None, ..case } } else { case.by(algorithm) };
                if case.fits(world) {
                    kinds.push(case);
                }
            }
        }
        Self(kinds)
    }

    /// The call of a turn.
    fn case(&self, n: u32, seed: u64, turn: u64) -> Case {
        let random = mix(seed, turn);
        let kind = &self.0[random as usize % self.0.len()];
        // Up to 256 KiB, most of them small.
        let most = match (random >> 20) % 128 {
            0 => 256 << 10,
            1..6 => 16 << 10,
            6..32 => 1 << 10,
            32..40 => 0,
            _ => 64,
        };
        let bytes = if most == 0 { 0 } else { (random >> 32) % (most + 1) };
        self.sized(kind, n, bytes, mix(seed, turn ^ 1 << 62))
    }

    /// With so many bytes of the larger buffer.
    fn sized(&self, kind: &Case, n: u32, bytes: u64, seed: u64) -> Case {
        let is_whole = matches!(kind.function, Function::AllReduce | Function::Broadcast | Function::Reduce);
        // Counts by rank go up to twice what is said here.
        let parts = if is_whole { 1 } else { u64::from(n) * (1 + u64::from(kind.function.is_sized())) };
        let memory = Memory::ALL[(seed >> 8) as usize % 3];
        let displaced = seed & 1 == 1;
        Case { elements: bytes / kind.data_type.bytes() / parts, memory, displaced, seed, ..*kind }
    }
}

/// Plays `turns` random calls, each checked. Ranks are late at random. `count` is asked twice for what is held, when each
/// kind of call has been made with its largest message, and at the end; all ranks wait meanwhile.
///
/// # Errors
/// Those of calls.
pub fn sequence(
    comm: &Communicator,
    world: &World,
    seed: u64,
    turns: u64,
    mut count: impl FnMut(u64),
) -> Result<Verdict> {
    let kinds = Kinds::new(world, seed);
    let (n, mut stage, mut verdict) = (comm.n_ranks(), Stage::new(1 << 20), Verdict::default());
    let mut play = |case: &Case| -> Result<()> {
        verdict.cases += 1;
        if let Some(wrong) = stage.play(comm, case)? {
            verdict.failed += 1;
            if verdict.failures.len() < 5 {
                verdict.failures.push(format!("rank {} of {n}: {case}: {wrong}", comm.rank()));
            }
        }
        Ok(())
    };
    // Largest messages, with larger counts by rank than come later: nothing has to grow then.
    for kind in &kinds.0 {
        let times = if kind.function.is_sized() { 4 } else { 1 };
        for memory in Memory::ALL {
            for turn in 0..times {
                play(&Case { memory, ..kinds.sized(kind, n, times * (256 << 10), seed ^ turn << 9) })?;
            }
        }
    }
    // The communicator chooses by size: each plan that it may choose is set up now.
    for kind in kinds.0.iter().filter(|kind| kind.algorithm.is_none()) {
        for bytes in (6..18).map(|power| 1 << power) {
            play(&kinds.sized(kind, n, bytes, seed ^ bytes << 20))?;
        }
    }
    // Fills what is kept of calls: programs for the last sizes, memories of peers.
    for turn in 0..(turns / 10).max(2000) {
        play(&kinds.case(n, seed ^ 0xff, turn))?;
    }
    comm.barrier()?;
    count(0);
    comm.barrier()?;
    for turn in 0..turns {
        let pause = mix(seed ^ u64::from(comm.rank() + 1) << 56, turn);
        match pause % 64 {
            0 => std::thread::sleep(Duration::from_micros(pause >> 32 & 255)),
            1..4 => std::thread::yield_now(),
            _ => {}
        }
        play(&kinds.case(n, seed, turn))?;
    }
    comm.barrier()?;
    count(turns);
    comm.barrier()?;
    Ok(verdict)
}
