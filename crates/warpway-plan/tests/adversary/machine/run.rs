//! The scheduler: who takes the next step, when a launch starts and ends, and when nobody can go on.

use warpway_plan::Collective;

use super::blocks::BlockState;
use super::clock::{Clock, Pool, join};
use super::failure::{Failure, Fault, Kind};
use super::goal::{Goal, input};
use super::memory::{Memory, Stamp, Value};
use super::ports::Port;
use super::program::{Chunk, Part, Program, Turn};
use crate::random::Random;

/// Signals that a channel got, and how many of them were taken.
#[derive(Debug, Default)]
pub(super) struct Channel {
    /// What the signaller knew; `None` if the signal was relaxed.
    pub(super) signals: Vec<Option<Clock>>,
    pub(super) waits: usize,
}

#[derive(Debug, Default)]
pub(super) struct RankState {
    pub(super) launch: u32,
    pub(super) running: bool,
    /// Blocks that have not ended.
    pub(super) left: usize,
    clock: Clock,
    /// Whose input the send-receive of each part brings, once known.
    senders: Vec<Option<u32>>,
}

#[derive(Debug, Default)]
pub(super) struct Barrier {
    pub(super) arrived: Vec<usize>,
}

/// Everything that changes during a run.
pub(crate) struct Machine<'p> {
    pub(super) program: &'p Program,
    pub(super) random: Random,
    pub(super) memory: Memory,
    pub(super) pool: Pool,
    pub(super) ranks: Vec<RankState>,
    pub(super) blocks: Vec<BlockState>,
    pub(super) ports: Vec<Port>,
    pub(super) channels: Vec<Channel>,
    /// Tokens: what their releaser knew; `None` from the start.
    pub(super) semaphores: Vec<Vec<Option<Clock>>>,
    pub(super) barriers: Vec<Barrier>,
    /// A signal went to a channel that does not exist.
    pub(super) lost: bool,
    /// Operations of a block one after the other, instead of all of a segment at once.
    pub(super) in_order: bool,
    pub(super) turns: Vec<Turn>,
    seed: u64,
    trace: Option<Vec<String>>,
}

/// The sender of what is no rank's input.
const NOBODY: u32 = u32::MAX;

/// Steps shown of a failed schedule.
const SHOWN: usize = 30;

/// Chunk and lane, and their number among all lanes.
fn lanes_of(chunks: &[Chunk]) -> impl Iterator<Item = ((u32, u32), u32)> + '_ {
    (0..).zip(chunks).flat_map(|(k, (start, lanes))| (0..*lanes).map(move |lane| ((k, lane), start + lane)))
}

impl<'p> Machine<'p> {
    pub(crate) fn new(program: &'p Program) -> Self {
        Self {
            program,
            random: Random::new(0),
            memory: Memory::default(),
            pool: Pool::default(),
            ranks: program.parts[0].ranks.iter().map(|_| RankState::default()).collect(),
            blocks: program.blocks.iter().map(|_| BlockState::default()).collect(),
            ports: program.ports.iter().map(|_| Port::default()).collect(),
            channels: program.channels.iter().map(|_| Channel::default()).collect(),
            semaphores: program.semaphores.iter().map(|_| Vec::new()).collect(),
            barriers: (0..program.barriers).map(|_| Barrier::default()).collect(),
            lost: false,
            in_order: false,
            turns: Vec::new(),
            seed: 0,
            trace: None,
        }
    }

    /// Runs these launches on all ranks. A failure comes with its schedule.
    pub(crate) fn run(&mut self, seed: u64, turns: &[Turn]) -> Result<(), Failure> {
        self.turns = turns.to_vec();
        self.trace = None;
        let Err(_) = self.attempt(seed) else { return Ok(()) };
        self.trace = Some(Vec::new());
        self.attempt(seed)
    }

    fn attempt(&mut self, seed: u64) -> Result<(), Failure> {
        self.reset(seed);
        self.schedule().map_err(|fault| self.explain(fault))
    }

    /// Components of a clock: blocks, then ports.
    pub(super) fn components(&self) -> usize {
        self.program.blocks.len() + self.program.ports.len()
    }

    fn reset(&mut self, seed: u64) {
        let components = self.components();
        (self.seed, self.random) = (seed, Random::new(seed));
        self.lost = false;
        self.in_order = self.random.chance(1, 4);
        self.memory.reset(self.program.cells as usize, self.program.slots as usize);
        let zero = |clock: &mut Clock| {
            clock.clear();
            clock.resize(components, 0);
        };
        for rank in &mut self.ranks {
            (rank.launch, rank.running, rank.left) = (0, false, 0);
            rank.senders.clear();
            rank.senders.resize(self.program.parts.len(), None);
            zero(&mut rank.clock);
        }
        for block in &mut self.blocks {
            block.reset();
            zero(&mut block.clock);
        }
        for port in &mut self.ports {
            port.reset();
            zero(&mut port.clock);
        }
        for channel in &mut self.channels {
            for clock in channel.signals.drain(..).flatten() {
                self.pool.give_back(clock);
            }
            channel.waits = 0;
        }
        for (tokens, (_, init)) in self.semaphores.iter_mut().zip(&self.program.semaphores) {
            tokens.clear();
            tokens.resize((*init).min(1 << 10) as usize, None);
        }
        for barrier in &mut self.barriers {
            barrier.arrived.clear();
        }
    }

    fn schedule(&mut self) -> Result<(), Fault> {
        let actors = self.blocks.len() + self.ports.len() + self.ranks.len();
        let mut starved = vec![false; actors];
        loop {
            // From time to time other actors are held back until nothing else can happen.
            let some = self.random.chance(1, 2);
            starved.iter_mut().for_each(|s| *s = some && self.random.chance(1, 4));
            for _ in 0..1 + self.random.below(64) {
                let first = self.random.below(actors);
                let order = || (0..actors).map(move |k| (first + k) % actors);
                let mut moved = false;
                for actor in order().filter(|a| !starved[*a]).chain(order().filter(|a| starved[*a])) {
                    if self.act(actor)? {
                        moved = true;
                        // Longer runs of one actor let it get far ahead of the others.
                        let burst = 1 << self.random.below(6);
                        for _ in 0..burst {
                            if !self.act(actor)? {
                                break;
                            }
                        }
                        break;
                    }
                }
                if !moved {
                    return self.finish();
                }
            }
        }
    }

    fn act(&mut self, actor: usize) -> Result<bool, Fault> {
        let (blocks, ports) = (self.blocks.len(), self.ports.len());
        if actor < blocks {
            self.step_block(actor)
        } else if actor < blocks + ports {
            self.step_port(actor - blocks)
        } else {
            self.step_rank(actor - blocks - ports)
        }
    }

    /// Starts or ends a launch.
    fn step_rank(&mut self, rank: usize) -> Result<bool, Fault> {
        let state = &mut self.ranks[rank];
        if state.running {
            if state.left > 0 {
                return Ok(false);
            }
            self.end_launch(rank)?;
            return Ok(true);
        }
        if state.launch as usize == self.turns.len() {
            return Ok(false);
        }
        state.running = true;
        let launch = state.launch;
        let part = self.turns[launch as usize].part;
        let lanes = &self.program.parts[part as usize].ranks[rank];
        for (_, at) in lanes_of(&lanes.output) {
            self.memory.fill(at, Value::UNDEFINED);
        }
        for (place, at) in lanes_of(&lanes.input) {
            self.memory.fill(at, input(rank as u32, place, launch));
        }
        state.left = 0;
        for (block, program) in self.blocks.iter_mut().zip(&self.program.blocks) {
            if program.rank as usize == rank && program.part == part {
                state.left += 1;
                block.start(&state.clock);
            }
        }
        self.note(|| format!("rank {rank} starts launch {launch}"));
        Ok(true)
    }

    fn end_launch(&mut self, rank: usize) -> Result<(), Fault> {
        let launch = self.ranks[rank].launch;
        self.note(|| format!("rank {rank} ends launch {launch}"));
        for (block, program) in self.blocks.iter().zip(&self.program.blocks) {
            if program.rank as usize == rank {
                join(&mut self.ranks[rank].clock, &block.clock);
            }
        }
        let part = self.part(launch);
        let goal = Goal::new(part, launch);
        let lanes = &part.ranks[rank];
        let nobody = Stamp { component: u32::MAX, time: rank as u32, task: (launch, 0) };
        for (place, at) in lanes_of(&lanes.output) {
            let found = self.memory.inspect(at, &self.ranks[rank].clock)?;
            let sender = self.sender(rank, place, found);
            if goal.output(rank as u32, place, sender).is_some_and(|promised| promised != found) {
                return Err(Fault::at(Kind::WrongResult, at, nobody));
            }
        }
        // Of these nothing is promised, so that the input stays neither.
        let promises = !matches!(part.collective, Collective::Test | Collective::Custom);
        for (place, at) in lanes_of(&lanes.input) {
            let found = self.memory.inspect(at, &self.ranks[rank].clock)?;
            if promises && !part.in_place && found != input(rank as u32, place, launch) {
                return Err(Fault::at(Kind::InputChanged, at, nobody));
            }
        }
        for (tokens, (owner, init)) in self.semaphores.iter().zip(&self.program.semaphores) {
            if *owner as usize == rank && tokens.len() as u64 != *init {
                return Err(Fault::at(Kind::SemaphoreOff, 0, nobody));
            }
        }
        let state = &mut self.ranks[rank];
        (state.running, state.launch) = (false, launch + 1);
        Ok(())
    }

    /// Whose input it is that a send-receive brought; once found it stays.
    fn sender(&mut self, rank: usize, place: (u32, u32), found: Value) -> u32 {
        let launch = self.ranks[rank].launch;
        if self.part(launch).collective != Collective::SendRecv {
            return 0;
        }
        let part = self.turns[launch as usize].part as usize;
        let taken: Vec<u32> = self.ranks.iter().filter_map(|r| r.senders[part]).collect();
        let ranks = 0..self.ranks.len() as u32;
        *self.ranks[rank].senders[part].get_or_insert_with(|| {
            ranks
                .clone()
                .filter(|q| !taken.contains(q))
                .find(|q| input(*q, place, launch) == found)
                .unwrap_or(NOBODY)
        })
    }

    fn part(&self, launch: u32) -> &'p Part {
        &self.program.parts[self.turns[launch as usize].part as usize]
    }

    /// Nothing can happen any more.
    fn finish(&self) -> Result<(), Fault> {
        let done = self.ranks.iter().all(|r| !r.running && r.launch as usize == self.turns.len());
        let nobody = Stamp { component: u32::MAX, time: 0, task: (0, 0) };
        if !done {
            return Err(Fault::at(Kind::Deadlock, 0, nobody));
        }
        if self.lost || self.channels.iter().any(|c| c.signals.len() != c.waits) {
            return Err(Fault::at(Kind::Unbalanced, 0, nobody));
        }
        Ok(())
    }

    /// Adds a line to the schedule, if it is wanted.
    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(line());
        }
    }

    fn explain(&mut self, fault: Fault) -> Failure {
        let mut schedule = self.trace.take().unwrap_or_default();
        if schedule.len() > SHOWN {
            schedule.drain(..schedule.len() - SHOWN);
        }
        let message = match fault.kind {
            Kind::Deadlock => self.stuck(),
            Kind::Unbalanced => String::from("signals and waits of a channel differ"),
            Kind::SemaphoreOff => String::from("a semaphore is not back at its initial value"),
            _ => {
                let who = |s: Option<Stamp>| s.map_or_else(String::new, |s| self.describe(s));
                format!("at {}: {} {}", self.place(fault.at, fault.kind), who(fault.first), who(fault.second))
            }
        };
        Failure { kind: fault.kind, seed: self.seed, message, schedule }
    }

    fn describe(&self, stamp: Stamp) -> String {
        let blocks = self.program.blocks.len() as u32;
        if stamp.component == u32::MAX {
            return format!("(rank {} launch {})", stamp.time, stamp.task.0);
        }
        if stamp.component >= blocks {
            return format!(
                "(port {} request {} lane {})",
                stamp.component - blocks,
                stamp.time,
                stamp.task.1
            );
        }
        let block = &self.program.blocks[stamp.component as usize];
        let instruction = &block.instructions[stamp.task.0 as usize];
        format!(
            "(rank {} block {} op {:?} {} lane {} segment {})",
            block.rank, block.block, instruction.path, instruction.name, stamp.task.1, stamp.time
        )
    }

    fn place(&self, at: u32, kind: Kind) -> String {
        let packets = matches!(kind, Kind::PacketWrittenTwice | Kind::InvalidPacketForwarded);
        let parts = self.program.parts.iter().flat_map(|part| part.ranks.iter().enumerate());
        for (rank, lanes) in parts {
            let (start, count) = if packets { lanes.slots } else { lanes.raw };
            if (start..start + count).contains(&at) {
                return format!("rank {rank} scratch lane {}", at - start);
            }
            for (name, chunks) in [("input", &lanes.input), ("output", &lanes.output)] {
                if let Some(((chunk, lane), _)) = lanes_of(chunks).find(|l| l.1 == at && !packets) {
                    return format!("rank {rank} {name} chunk {chunk} lane {lane}");
                }
            }
        }
        format!("odd half, {at}")
    }

    /// Who waits for what.
    fn stuck(&self) -> String {
        let mut parts = Vec::new();
        for (state, program) in self.blocks.iter().zip(&self.program.blocks) {
            if state.running {
                let launch = self.ranks[program.rank as usize].launch;
                let at = state.waiting_at().min(program.instructions.len().saturating_sub(1));
                let path = program.instructions.get(at).map(|i| (i.path, i.name));
                parts.push(format!(
                    "rank {} block {} launch {launch} at {path:?}",
                    program.rank, program.block
                ));
            }
        }
        parts.join("; ")
    }
}
