//! One block's operations as instructions: references resolved, groups split, pipelines unrolled.

mod pieces;

use warpway_plan::{
    Action, ChannelType, DataKind, DataOperation, Operation, Reference, ThreadBlock, Topology, Via,
};

use super::program::{BARRIERS_PER_RANK, Call, Instruction, Meaningless, Movement, Program, Size, Step};

/// Iterations of one pipeline beyond which a size is not worth running.
const MOST_ITERATIONS: u64 = 64;

/// The slice of every operation that is run: its first lane and their number.
type Window = Option<(u32, u32)>;

pub(super) struct Lowering<'a> {
    program: &'a Program,
    topology: &'a Topology<'a>,
    size: Size,
    rank: u32,
    block: &'a ThreadBlock,
    place: String,
    path: (u32, Option<u32>),
    name: &'static str,
    out: Vec<Instruction>,
}

type Result<T> = std::result::Result<T, Meaningless>;

impl<'a> Lowering<'a> {
    pub(super) fn new(
        program: &'a Program,
        topology: &'a Topology<'a>,
        size: Size,
        (rank, number): (u32, u32),
        block: &'a ThreadBlock,
    ) -> Self {
        let place = format!("rank {rank} block {number}");
        Self { program, topology, size, rank, block, place, path: (0, None), name: "", out: Vec::new() }
    }

    pub(super) fn run(mut self) -> Result<Vec<Instruction>> {
        for (at, operation) in (0u32..).zip(&self.block.operations) {
            self.path = (at, None);
            match &operation.action {
                Action::Pipeline(pipeline) => {
                    let chunk = pipeline.size_id.map_or(self.size.lanes, |id| self.size.extent(id));
                    let chunk = u64::from(chunk) * self.size.lane_bytes;
                    let bytes = pipeline.num_chunks.checked_mul(chunk);
                    let bytes = bytes.ok_or_else(|| self.wrong("pipeline of too many chunks"))?;
                    if pipeline.unit_size == 0 || !pipeline.unit_size.is_multiple_of(self.size.lane_bytes) {
                        return Err(self.wrong("pipeline unit of no whole lanes"));
                    }
                    let iterations = bytes.div_ceil(pipeline.unit_size);
                    if iterations > MOST_ITERATIONS {
                        return Err(self.wrong("pipeline of too many iterations"));
                    }
                    let unit = (pipeline.unit_size / self.size.lane_bytes).min(1 << 20) as u32;
                    for iteration in 0..iterations as u32 {
                        for (inner, operation) in (0u32..).zip(&pipeline.body) {
                            self.path = (at, Some(inner));
                            self.operation(operation, Some((iteration * unit, unit)))?;
                        }
                    }
                }
                _ => self.operation(operation, None)?,
            }
        }
        Ok(self.out)
    }

    fn wrong(&self, what: &str) -> Meaningless {
        Meaningless(format!("{} op {:?} {}: {what}", self.place, self.path, self.name))
    }

    fn emit(&mut self, step: Step) {
        self.out.push(Instruction { step, path: self.path, name: self.name });
    }

    fn operation(&mut self, operation: &Operation, window: Window) -> Result<()> {
        self.name = operation.action.name();
        let calls = match &operation.action {
            Action::Nop => {
                self.emit(Step::Nop);
                return Ok(());
            }
            Action::Barrier { id, blocks } => {
                if *id >= BARRIERS_PER_RANK || *blocks == 0 {
                    return Err(self.wrong("barrier out of range"));
                }
                let barrier = self.rank * BARRIERS_PER_RANK + id;
                self.emit(Step::Barrier { barrier, blocks: *blocks });
                return Ok(());
            }
            Action::Data(data) => return self.data(data, window),
            Action::Pipeline(_) => return Err(self.wrong("nested")),
            Action::Signal { via, relaxed, channels } => self.calls(channels, |s, position| {
                let relaxed = *relaxed && *via == Via::Memory;
                match via {
                    Via::Port => Ok(vec![Call::PushFlag { port: s.port(position)? }]),
                    Via::Memory => Ok(vec![Call::Signal { to: s.hearer(position)?, relaxed }]),
                }
            })?,
            Action::Wait { via, relaxed, channels } => self.calls(channels, |s, position| {
                let index = s.channel(*via, position)?;
                let on = s.program.channel_number((s.rank, *via, index));
                let on = on.ok_or_else(|| s.wrong("no such channel"))?;
                Ok(vec![Call::Wait { on, relaxed: *relaxed }])
            })?,
            Action::Flush { channels } => self.calls(channels, |s, position| {
                let port = s.port(position)?;
                Ok(vec![Call::PushSync { port }, Call::AwaitSync { port }])
            })?,
            Action::Acquire { semaphores } => {
                self.calls(semaphores, |s, id| Ok(vec![Call::Acquire { semaphore: s.semaphore(id)? }]))?
            }
            Action::Release { semaphores } => {
                self.calls(semaphores, |s, id| Ok(vec![Call::Release { semaphore: s.semaphore(id)? }]))?
            }
        };
        self.emit(Step::Calls { calls, pushed: Vec::new() });
        Ok(())
    }

    fn calls(&self, ids: &[u32], of: impl Fn(&Self, u32) -> Result<Vec<Call>>) -> Result<Vec<(u32, Call)>> {
        let mut calls = Vec::new();
        for (thread, id) in (0u32..).zip(ids) {
            calls.extend(of(self, *id)?.into_iter().map(|call| (thread, call)));
        }
        Ok(calls)
    }

    fn channel(&self, via: Via, position: u32) -> Result<u32> {
        let channel_type = match via {
            Via::Memory => ChannelType::Memory,
            Via::Port => ChannelType::Port,
        };
        let index = self.topology.channel_at(self.block, channel_type, position);
        let index = index.ok_or_else(|| self.wrong("no such channel position"))?;
        let peer = self.topology.link(self.rank, via, index).map(|l| l.peer);
        match peer {
            Some(peer) if (peer as usize) < self.program.ranks().len() && peer != self.rank => Ok(index),
            _ => Err(self.wrong("channel to nowhere")),
        }
    }

    fn hearer(&self, position: u32) -> Result<Option<u32>> {
        let index = self.channel(Via::Memory, position)?;
        Ok(self.program.other_end(self.topology, (self.rank, Via::Memory, index)))
    }

    fn port(&self, position: u32) -> Result<u32> {
        Ok(self.program.first_port[self.rank as usize] + self.channel(Via::Port, position)?)
    }

    fn semaphore(&self, id: u32) -> Result<u32> {
        let of = |s: &(u32, u64)| s.0 == self.rank;
        let first = self.program.semaphores.iter().position(of);
        let count = self.program.semaphores.iter().filter(|s| of(s)).count() as u32;
        match first {
            Some(first) if id < count => Ok(first as u32 + id),
            _ => Err(self.wrong("no such semaphore")),
        }
    }

    fn data(&mut self, data: &DataOperation, window: Window) -> Result<()> {
        if !data.kind.joins() && data.sources.len() != data.destinations.len() {
            return Err(self.wrong("lists of different length"));
        }
        if data.sources.is_empty() || data.destinations.is_empty() {
            return Err(self.wrong("nothing to move"));
        }
        let movements = self.movements(data, window)?;
        if data.channel_type == Some(ChannelType::Port) {
            return self.port_data(data, movements);
        }
        let movements = movements.into_iter().map(|(_, movement)| movement).collect();
        self.emit(Step::Lanes(movements));
        if data.kind.signals() {
            if data.channels.is_empty() {
                return Err(self.wrong("no channel to signal"));
            }
            self.emit(Step::Nop);
            let calls = self.calls(&data.channels, |s, position| {
                Ok(vec![Call::Signal { to: s.hearer(position)?, relaxed: false }])
            })?;
            self.emit(Step::Calls { calls, pushed: Vec::new() });
        }
        Ok(())
    }

    /// Thread `j` pushes item `j`.
    fn port_data(&mut self, data: &DataOperation, movements: Vec<(u32, Movement)>) -> Result<()> {
        let mut movements = movements;
        if data.kind == DataKind::ReadPutPackets {
            // All threads wait for the packets before they are pushed, to each destination.
            let one = |w: usize, m: &Movement| Movement { writes: vec![m.writes[w]], ..m.clone() };
            let waits = movements.iter().map(|(_, m)| Movement { writes: Vec::new(), ..m.clone() });
            self.emit(Step::Lanes(waits.collect()));
            self.emit(Step::Nop);
            let destinations = 0..data.destinations.len();
            let pushes = destinations.flat_map(|w| movements.iter().map(move |(_, m)| (w as u32, one(w, m))));
            movements = pushes.collect();
        }
        let items = if data.kind.joins() { data.destinations.len() } else { data.items().count() };
        let mut calls = Vec::new();
        for j in 0..items {
            let position = data.channels.get(j).ok_or_else(|| self.wrong("an item without channel"))?;
            let port = self.port(*position)?;
            let index = self.channel(Via::Port, *position)?;
            let peer = self.topology.link(self.rank, Via::Port, index).map(|l| l.peer);
            if self.owner(data, j)? != peer {
                return Err(self.wrong("a port to another rank than the destination's owner"));
            }
            let thread = j as u32;
            for (movement, _) in (0u32..).zip(&movements).filter(|(_, (item, _))| *item == thread) {
                calls.push((thread, Call::Push { port, movement }));
            }
            if data.kind.signals() {
                calls.push((thread, Call::PushFlag { port }));
            }
            if data.kind == DataKind::PutWithSignalAndFlush {
                calls.push((thread, Call::PushSync { port }));
                calls.push((thread, Call::AwaitSync { port }));
            }
        }
        let pushed = movements.into_iter().map(|(_, movement)| movement).collect();
        self.emit(Step::Calls { calls, pushed });
        Ok(())
    }

    /// The owner of destination `j`.
    fn owner(&self, data: &DataOperation, j: usize) -> Result<Option<u32>> {
        match data.destinations.get(j) {
            Some(Reference::Remote { position, .. }) => {
                let target = self.topology.remote_at(self.rank, self.block, ChannelType::Port, *position);
                Ok(target.map(|t| t.rank))
            }
            _ => Err(self.wrong("a port destination that is not remote")),
        }
    }
}
