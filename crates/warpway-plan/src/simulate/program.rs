//! The plan for one message, flat: what each block does, with all bytes worked out.

use super::SimulateError;
use crate::ir::{
    Action, BufferKind, ChannelType, DataKind, DataOperation, Form, GroupMember, Item, Operation, Plan,
    Reference, ThreadBlock, Via,
};
use crate::layout::{MessageLayout, Piece, Pieces, Placement};
use crate::topology::Topology;
use crate::verify::OpPath;

/// One end of a memory or port channel, or of what ranks tell each other at a launch: the number of signals that
/// arrive there is counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChannelEnd {
    pub(super) owner: u32,
    pub(super) peer: u32,
    /// Where its signals arrive.
    pub(super) partner: u32,
}

#[derive(Debug)]
pub(super) struct Program {
    pub(super) ends: Vec<ChannelEnd>,
    /// Rank after rank.
    pub(super) blocks: Vec<BlockProgram>,
}

#[derive(Debug)]
pub(super) struct BlockProgram {
    pub(super) rank: u32,
    pub(super) block: u32,
    pub(super) steps: Vec<Step>,
}

#[derive(Debug)]
pub(super) struct Step {
    pub(super) path: OpPath,
    pub(super) name: &'static str,
    pub(super) kind: Kind,
}

/// What a block does next. Numbers of channels are those of [`Program::ends`].
#[derive(Debug)]
pub(super) enum Kind {
    /// Number of the barrier, and of blocks that take part.
    Barrier(u32, u32),
    Signal(u32),
    Wait(u32),
    PortSignal(u32),
    Flush(u32),
    Acquire(u32),
    Release(u32),
    Move(Move),
    Put {
        channel: u32,
        signals: bool,
        flushes: bool,
        work: Move,
    },
    /// The next `steps` steps, `iterations` times, on slices of `slice` bytes.
    Loop {
        iterations: u64,
        slice: u64,
        steps: usize,
    },
    /// What a rank does around its blocks: see `run.rs`.
    Delay(f64),
    Announce(u32),
    Hear(u32),
    Blocks,
}

impl Kind {
    /// The bytes that it touches.
    pub(super) fn work(&self) -> Option<&Move> {
        match self {
            Self::Move(work) | Self::Put { work, .. } => Some(work),
            _ => None,
        }
    }
}

/// From some places to others.
#[derive(Debug, Clone)]
pub(super) struct Move {
    pub(super) folds: bool,
    /// Sources, then destinations.
    pub(super) operands: Vec<Operand>,
    pub(super) n_sources: usize,
    pub(super) pieces: Vec<Piece>,
    /// By piece, then by operand; in bytes of data.
    pub(super) offsets: Vec<u64>,
    /// Waits for its packets and moves nothing.
    pub(super) awaits: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Operand {
    pub(super) rank: u32,
    pub(super) buffer: BufferKind,
    pub(super) form: Form,
}

/// A part of a move that lies in one run in every operand.
pub(super) struct Stretch<'m> {
    pub(super) bytes: u64,
    /// Data that written packets cover.
    pub(super) cover: u64,
    skipped: u64,
    offsets: &'m [u64],
}

impl Stretch<'_> {
    /// First byte of data in an operand.
    pub(super) fn offset(&self, operand: usize) -> u64 {
        self.offsets.get(operand).map_or(0, |offset| offset + self.skipped)
    }
}

impl Move {
    /// The stretches within a slice of a pipeline, or all.
    pub(super) fn stretches(&self, slice: Option<(u64, u64)>) -> impl Iterator<Item = Stretch<'_>> {
        let (start, bytes) = slice.unwrap_or((0, u64::MAX));
        let width = self.operands.len().max(1);
        self.pieces.iter().zip(self.offsets.chunks_exact(width)).filter_map(move |(piece, offsets)| {
            let (skipped, piece) = piece.slice(start, bytes)?;
            Some(Stretch { bytes: piece.bytes, cover: piece.cover, skipped, offsets })
        })
    }

    pub(super) fn sources(&self) -> &[Operand] {
        &self.operands[..self.n_sources]
    }

    pub(super) fn destinations(&self) -> &[Operand] {
        &self.operands[self.n_sources..]
    }
}

/// Compiles a plan whose references are valid.
pub(super) fn compile(plan: &Plan, layout: &MessageLayout) -> Result<Program, SimulateError> {
    let topology = Topology::new(plan);
    let (ends, first) = number_ends(&topology);
    let mut compiler = Compiler { topology: &topology, layout, first: &first, pieces: Pieces::default() };
    let mut blocks = Vec::new();
    for (rank, of_rank) in (0..).zip(&plan.ranks) {
        for (number, block) in (0..).zip(&of_rank.blocks) {
            let mut steps = Vec::new();
            for (index, operation) in (0..).zip(&block.operations) {
                let at = At { rank, block, path: OpPath { index, inner: None }, slice: None };
                compiler.operation(at, operation, &mut steps).map_err(|why| SimulateError::Operation {
                    rank,
                    block: number,
                    path: OpPath { index, inner: None },
                    why,
                })?;
            }
            blocks.push(BlockProgram { rank, block: number, steps });
        }
    }
    Ok(Program { ends, blocks })
}

fn number_ends(topology: &Topology<'_>) -> (Vec<ChannelEnd>, Vec<[u32; 2]>) {
    let n_ranks = topology.plan().n_ranks();
    let links = |rank, via| topology.rank(rank).map_or(&[][..], |channels| channels.links(via));
    let mut first = Vec::new();
    let mut count = 0;
    for rank in 0..n_ranks {
        let port = count + links(rank, Via::Memory).len() as u32;
        first.push([count, port]);
        count = port + links(rank, Via::Port).len() as u32;
    }
    let mut ends = Vec::with_capacity(count as usize);
    for owner in 0..n_ranks {
        for via in [Via::Memory, Via::Port] {
            for (index, link) in (0..).zip(links(owner, via)) {
                let partner = topology.partner(owner, via, index);
                let partner = partner.map_or(u32::MAX, |at| first[link.peer as usize][via as usize] + at);
                ends.push(ChannelEnd { owner, peer: link.peer, partner });
            }
        }
    }
    (ends, first)
}

struct Compiler<'p> {
    topology: &'p Topology<'p>,
    layout: &'p MessageLayout,
    first: &'p [[u32; 2]],
    pieces: Pieces,
}

#[derive(Clone, Copy)]
struct At<'p> {
    rank: u32,
    block: &'p ThreadBlock,
    path: OpPath,
    slice: Option<u64>,
}

/// Of a plan that nobody has verified.
const DANGLING: &str = "it names something that is not there (verify the plan)";

impl Compiler<'_> {
    fn operation(&mut self, at: At<'_>, operation: &Operation, steps: &mut Vec<Step>) -> Result<(), String> {
        let name = operation.action.name();
        let mut push = |kind| steps.push(Step { path: at.path, name, kind });
        match &operation.action {
            Action::Nop => {}
            Action::Barrier { id, blocks } => push(Kind::Barrier(*id, *blocks)),
            Action::Signal { via: Via::Memory, channels, .. } => {
                self.ends(at, Via::Memory, channels)?.for_each(|end| push(Kind::Signal(end)));
            }
            Action::Signal { via: Via::Port, channels, .. } => {
                self.ends(at, Via::Port, channels)?.for_each(|end| push(Kind::PortSignal(end)));
            }
            Action::Wait { via, channels, .. } => {
                self.ends(at, *via, channels)?.for_each(|end| push(Kind::Wait(end)));
            }
            Action::Flush { channels } => {
                self.ends(at, Via::Port, channels)?.for_each(|end| push(Kind::Flush(end)));
            }
            Action::Acquire { semaphores } => semaphores.iter().for_each(|id| push(Kind::Acquire(*id))),
            Action::Release { semaphores } => semaphores.iter().for_each(|id| push(Kind::Release(*id))),
            Action::Data(data) => self.data(at, data, steps)?,
            Action::Pipeline(pipeline) => {
                let iterations = self.layout.iterations(pipeline).map_err(|error| error.to_string())?;
                push(Kind::Loop { iterations, slice: pipeline.unit_size, steps: 0 });
                let header = steps.len() - 1;
                for (inner, operation) in (0..).zip(&pipeline.body) {
                    let path = OpPath { inner: Some(inner), ..at.path };
                    self.operation(At { path, slice: Some(pipeline.unit_size), ..at }, operation, steps)?;
                }
                let body = steps.len() - header - 1;
                if let Some(Kind::Loop { steps, .. }) = steps.get_mut(header).map(|step| &mut step.kind) {
                    *steps = body;
                }
            }
        }
        Ok(())
    }

    fn ends<'l>(
        &self,
        at: At<'_>,
        via: Via,
        positions: &'l [u32],
    ) -> Result<impl Iterator<Item = u32> + use<'l>, String> {
        let channel_type = if via == Via::Port { ChannelType::Port } else { ChannelType::Memory };
        let find = |position: &u32| {
            let index = self.topology.channel_at(at.block, channel_type, *position).ok_or(DANGLING)?;
            self.topology.link(at.rank, via, index).ok_or(DANGLING)?;
            Ok::<u32, &str>(self.first[at.rank as usize][via as usize] + index)
        };
        Ok(positions.iter().map(find).collect::<Result<Vec<_>, _>>()?.into_iter())
    }

    fn data(&mut self, at: At<'_>, data: &DataOperation, steps: &mut Vec<Step>) -> Result<(), String> {
        let name = data.kind.name();
        let mut push = |kind| steps.push(Step { path: at.path, name, kind });
        if data.channel_type != Some(ChannelType::Port) {
            for item in data.items() {
                push(Kind::Move(self.item(at, data, &item)?));
            }
            if data.kind.signals() {
                self.ends(at, Via::Memory, &data.channels)?.for_each(|end| push(Kind::Signal(end)));
            }
            return Ok(());
        }
        if data.kind == DataKind::ReadPutPackets {
            // All packets are awaited before the first is sent on.
            if let Some(item) = data.items().next() {
                push(Kind::Move(Move { awaits: true, ..self.item(at, data, &item)? }));
            }
        }
        let ends: Vec<u32> = self.ends(at, Via::Port, &data.channels)?.collect();
        for (number, destination) in data.destinations.iter().enumerate() {
            let source = if data.kind.joins() { data.sources.first() } else { data.sources.get(number) };
            let (source, channel) = source.zip(ends.get(number)).ok_or(DANGLING)?;
            let first = (if data.kind.joins() { 0 } else { number }, number);
            let item = Item {
                first,
                sources: std::slice::from_ref(source),
                destinations: std::slice::from_ref(destination),
            };
            let work = self.item(at, data, &item)?;
            let signals = data.kind.signals();
            let flushes = data.kind == DataKind::PutWithSignalAndFlush;
            push(Kind::Put { channel: *channel, signals, flushes, work });
        }
        Ok(())
    }

    fn item(&mut self, at: At<'_>, data: &DataOperation, item: &Item<'_>) -> Result<Move, String> {
        let mut placements = Vec::with_capacity(item.sources.len() + item.destinations.len());
        for (position, reference) in (item.first.0..).zip(item.sources) {
            self.resolve(at, data, reference, data.source_form(position), &mut placements)?;
        }
        let n_sources = placements.len();
        for (position, reference) in (item.first.1..).zip(item.destinations) {
            self.resolve(at, data, reference, data.destination_form(position), &mut placements)?;
        }
        let group: Option<GroupMember> = data.group;
        self.layout
            .place(&placements, group, at.slice, &mut self.pieces)
            .map_err(|error| error.to_string())?;
        let homes: Vec<(Operand, i64)> = placements.iter().map(|place| self.home(place)).collect();
        let mut work = Move {
            folds: data.kind.is_fold() || data.kind.is_switch_fold(),
            operands: homes.iter().map(|(operand, _)| *operand).collect(),
            n_sources,
            pieces: Vec::new(),
            offsets: Vec::new(),
            awaits: false,
        };
        for (piece, offsets) in self.pieces.iter() {
            work.pieces.push(piece);
            let moved = offsets.iter().zip(&homes).map(|(offset, (_, by))| offset.saturating_add_signed(*by));
            work.offsets.extend(moved);
        }
        Ok(work)
    }

    /// The memory of a place, and by how much its bytes lie further on there: in place, input and output are one.
    fn home(&self, &Placement { rank, buffer, form, .. }: &Placement) -> (Operand, i64) {
        let alias = self.layout.alias(rank).filter(|_| buffer != BufferKind::Scratch);
        let (buffer, by) = match alias {
            // The output lies in the input.
            Some(alias) if alias.input > 0 && buffer == BufferKind::Output => {
                (BufferKind::Input, alias.input)
            }
            Some(alias) if alias.input == 0 && buffer == BufferKind::Input => {
                (BufferKind::Output, alias.output)
            }
            _ => (buffer, 0),
        };
        (Operand { rank, buffer, form }, i64::try_from(by).unwrap_or(i64::MAX))
    }

    /// Where a reference lies; a multicast reference lies at every member.
    fn resolve(
        &self,
        at: At<'_>,
        data: &DataOperation,
        reference: &Reference,
        form: Form,
        placements: &mut Vec<Placement>,
    ) -> Result<(), String> {
        let (index, size) = (reference.index(), reference.size());
        let place = |rank, buffer| Placement { rank, buffer, index, size, form };
        match *reference {
            Reference::Local { buffer, .. } => placements.push(place(at.rank, buffer)),
            Reference::Remote { position, .. } => {
                let access = data.channel_type.unwrap_or(ChannelType::Memory);
                let target = self.topology.remote_at(at.rank, at.block, access, position).ok_or(DANGLING)?;
                placements.push(place(target.rank, target.buffer));
            }
            Reference::Switch { position, .. } => {
                let channel = self.topology.switch_at(at.rank, at.block, position).ok_or(DANGLING)?;
                placements.extend(channel.group.ranks.iter().map(|rank| place(*rank, channel.buffer)));
            }
        }
        Ok(())
    }
}
