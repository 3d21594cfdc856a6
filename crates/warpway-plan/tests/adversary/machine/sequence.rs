//! Several plans that take turns on the same ranks, and on the same scratch where they share it (7.4).
//!
//! Each plan keeps its own channels, semaphores and barriers, each of its sizes its own buffers. An area has one
//! epoch, which counts the launches of the plans that use it.

use warpway_plan::Plan;

use super::program::{
    Call, Instruction, Meaningless, Movement, Part, Program, RankLanes, Region, Size, Step, Turn,
};

/// A plan at one size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<'p> {
    pub(crate) plan: &'p Plan,
    pub(crate) size: Size,
    /// Entries of one plan have its channels in common.
    pub(crate) number: u32,
    /// Its raw scratch is the one that all such entries share; its packets are.
    pub(crate) raw: bool,
    pub(crate) packets: bool,
}

/// What a plan's numbers begin with.
#[derive(Debug, Clone, Copy)]
struct Bases {
    number: u32,
    channels: u32,
    ports: u32,
    semaphores: u32,
    barriers: u32,
}

/// Where a part's scratch of one kind lies: by rank the first lane and the lanes of a half.
type Areas = Vec<(u32, u32)>;

/// The program of all entries, and its launches in the order of `launches`, which names entries by position.
pub(crate) fn sequence(
    entries: &[Entry<'_>],
    launches: &[usize],
) -> Result<(Program, Vec<Turn>), Meaningless> {
    let programs: Vec<Program> =
        entries.iter().map(|entry| Program::new(entry.plan, entry.size)).collect::<Result<_, _>>()?;
    let uses: Vec<(bool, bool)> = programs.iter().map(areas_used).collect();
    let turns = turns(entries, &uses, launches);
    let mut all = Program {
        parts: Vec::new(),
        blocks: Vec::new(),
        cells: 0,
        slots: 0,
        channels: Vec::new(),
        ports: Vec::new(),
        first_port: Vec::new(),
        semaphores: Vec::new(),
        barriers: 0,
    };
    let shared = |used: &dyn Fn(usize) -> bool, lanes: fn(&RankLanes) -> (u32, u32), next: &mut u32| {
        let ranks = programs.first().map_or(0, |program| program.ranks().len());
        let sharing = || programs.iter().enumerate().filter(|(at, _)| used(*at));
        let half = |rank: usize| sharing().map(|(_, p)| lanes(&p.ranks()[rank]).1).max().unwrap_or(0);
        place((0..ranks).map(half), next)
    };
    let raw = shared(&|at| entries[at].raw, |lanes| lanes.raw, &mut all.cells);
    let slots = shared(&|at| entries[at].packets, |lanes| lanes.slots, &mut all.slots);
    let mut known: Vec<Bases> = Vec::new();
    for (entry, program) in entries.iter().zip(programs) {
        let own = |lanes: fn(&RankLanes) -> (u32, u32), next: &mut u32| {
            place(program.ranks().iter().map(|rank| lanes(rank).1), next)
        };
        let raw = if entry.raw { raw.clone() } else { own(|lanes| lanes.raw, &mut all.cells) };
        let slots = if entry.packets { slots.clone() } else { own(|lanes| lanes.slots, &mut all.slots) };
        let bases = match known.iter().find(|bases| bases.number == entry.number) {
            Some(bases) => *bases,
            None => {
                let bases = all.bases(entry.number);
                all.adopt(&program, bases);
                known.push(bases);
                bases
            }
        };
        let cells = all.cells;
        all.cells += program.cells;
        let moved = Moved { from: program.ranks(), bases, cells, raw: &raw, slots: &slots };
        let part = all.parts.len() as u32;
        for mut block in program.blocks.clone() {
            block.part = part;
            block.instructions.iter_mut().for_each(|instruction| moved.instruction(instruction));
            all.blocks.push(block);
        }
        let ranks =
            program.ranks().iter().enumerate().map(|(rank, lanes)| moved.lanes(rank, lanes)).collect();
        let of = &program.parts[0];
        let (collective, in_place, reduce_op) = (of.collective, of.in_place, of.reduce_op);
        all.parts.push(Part { collective, in_place, reduce_op, ranks });
    }
    Ok((all, turns))
}

/// True for raw data, for packets, if the plan touches such scratch; `None` for a plan without meaning.
pub(crate) fn uses_scratch(plan: &Plan, size: Size) -> Option<(bool, bool)> {
    Program::new(plan, size).ok().map(|program| areas_used(&program))
}

/// Twice each half, one area after the other.
fn place(halves: impl Iterator<Item = u32>, next: &mut u32) -> Areas {
    let mut areas = Vec::new();
    for half in halves {
        areas.push((*next, half));
        *next += 2 * half;
    }
    areas
}

/// True for raw data, for packets, if the plan touches such scratch anywhere.
fn areas_used(program: &Program) -> (bool, bool) {
    let (mut raw, mut packets) = (false, false);
    for instruction in program.blocks.iter().flat_map(|block| &block.instructions) {
        let movements = match &instruction.step {
            Step::Lanes(movements) => movements,
            Step::Calls { pushed, .. } => pushed,
            Step::Nop | Step::Barrier { .. } => continue,
        };
        for region in movements.iter().flat_map(|movement| movement.reads.iter().chain(&movement.writes)) {
            packets |= region.packets;
            raw |= !region.packets && region.callers.is_none();
        }
    }
    (raw, packets)
}

/// The epochs of each launch: what came before on the same area.
fn turns(entries: &[Entry<'_>], uses: &[(bool, bool)], launches: &[usize]) -> Vec<Turn> {
    let mut turns = Vec::new();
    for (at, launch) in launches.iter().enumerate() {
        let earlier = |same: &dyn Fn(usize) -> bool| {
            launches[..at].iter().filter(|before| same(**before)).count() as u32
        };
        // The area of the entry's plan, if it is not the common one.
        let own = |other: usize| entries[other].number == entries[*launch].number;
        let raw = match entries[*launch].raw {
            true => earlier(&|other| entries[other].raw && uses[other].0),
            false => earlier(&|other| own(other) && uses[other].0),
        };
        let packets = match entries[*launch].packets {
            true => earlier(&|other| entries[other].packets && uses[other].1),
            false => earlier(&|other| own(other) && uses[other].1),
        };
        turns.push(Turn { part: *launch as u32, raw, packets });
    }
    turns
}

impl Program {
    fn bases(&self, number: u32) -> Bases {
        Bases {
            number,
            channels: self.channels.len() as u32,
            ports: self.ports.len() as u32,
            semaphores: self.semaphores.len() as u32,
            barriers: self.barriers,
        }
    }

    /// Takes in the objects of another plan.
    fn adopt(&mut self, other: &Self, bases: Bases) {
        self.channels.extend(&other.channels);
        let heard = |channel: &Option<u32>| channel.map(|channel| channel + bases.channels);
        self.ports.extend(other.ports.iter().map(heard));
        self.semaphores.extend(&other.semaphores);
        self.barriers += other.barriers;
    }
}

/// From the numbers of one program to those of all.
struct Moved<'m> {
    from: &'m [RankLanes],
    bases: Bases,
    /// Added to the lanes of callers' buffers.
    cells: u32,
    raw: &'m Areas,
    slots: &'m Areas,
}

impl Moved<'_> {
    fn lanes(&self, rank: usize, lanes: &RankLanes) -> RankLanes {
        let chunks = |chunks: &[(u32, u32)]| chunks.iter().map(|(at, n)| (at + self.cells, *n)).collect();
        let RankLanes { input, output, .. } = lanes;
        RankLanes {
            input: chunks(input),
            output: chunks(output),
            raw: self.raw[rank],
            slots: self.slots[rank],
        }
    }

    fn instruction(&self, instruction: &mut Instruction) {
        match &mut instruction.step {
            Step::Nop => {}
            Step::Barrier { barrier, .. } => *barrier += self.bases.barriers,
            Step::Lanes(movements) => movements.iter_mut().for_each(|movement| self.movement(movement)),
            Step::Calls { calls, pushed } => {
                calls.iter_mut().for_each(|(_, call)| self.call(call));
                pushed.iter_mut().for_each(|movement| self.movement(movement));
            }
        }
    }

    fn call(&self, call: &mut Call) {
        match call {
            Call::Signal { to, .. } => {
                if let Some(to) = to {
                    *to += self.bases.channels;
                }
            }
            Call::Wait { on, .. } => *on += self.bases.channels,
            Call::Push { port, .. }
            | Call::PushFlag { port }
            | Call::PushSync { port }
            | Call::AwaitSync { port } => *port += self.bases.ports,
            Call::Acquire { semaphore } | Call::Release { semaphore } => {
                *semaphore += self.bases.semaphores;
            }
        }
    }

    fn movement(&self, movement: &mut Movement) {
        let regions = movement.reads.iter_mut().chain(&mut movement.writes);
        regions.for_each(|region| self.region(region));
    }

    fn region(&self, region: &mut Region) {
        if region.callers.is_some() {
            region.start += self.cells;
            return;
        }
        let areas = if region.packets { self.slots } else { self.raw };
        let of = |lanes: &RankLanes| if region.packets { lanes.slots } else { lanes.raw };
        let holds = |lanes: &RankLanes| (of(lanes).0..of(lanes).0 + of(lanes).1).contains(&region.start);
        // Empty regions may lie behind the last scratch.
        let rank = self.from.iter().position(holds).unwrap_or(0);
        let (first, half) = areas[rank];
        let within = region.start - of(&self.from[rank]).0;
        region.start = first + within;
        if region.odd > 0 {
            region.odd = half;
        }
    }
}
