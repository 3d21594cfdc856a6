//! From a plan and the layout of a message to the flat program of one rank.

use std::collections::BTreeMap;

use warpway_core::execution::StepPlace;
use warpway_core::memory::Access;
use warpway_plan::verify::FoldRoles;
use warpway_plan::{
    Action, BufferKind, ChannelType, DataKind, DataOperation, Form, Item, LayoutError, MessageLayout,
    Operation, OperationPlace, Piece, Pieces, Placement, Plan, ReduceOp, Reference, ThreadBlock, Topology,
    Via,
};

use super::program::{Base, BaseKey, BlockProgram, Operand, PortPut, Program, Step, Transfer, TransferKind};

/// Why a plan, or a message for it, cannot be run. Verified plans give none of these but sizes.
#[derive(Debug, Clone, thiserror::Error)]
#[error("block {block}, operation {operation}{}: {why}", .inner.map(|i| format!(".{i}")).unwrap_or_default())]
pub(super) struct CompileError {
    block: u32,
    operation: u32,
    inner: Option<u32>,
    why: Why,
}

#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum Why {
    #[error("{0} names nothing (verify the plan)")]
    Dangling(&'static str),
    #[error("{0} (verify the plan)")]
    Malformed(&'static str),
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

/// The program of `rank` for one message.
pub(super) fn compile(
    topology: &Topology<'_>,
    rank: u32,
    layout: &MessageLayout,
    roles: &FoldRoles,
) -> Result<Program, CompileError> {
    let compiler = Compiler { topology, plan: topology.plan(), rank, layout, roles };
    let mut output = Output::default();
    let blocks = compiler.plan.ranks.get(rank as usize).map_or(&[][..], |plan| &plan.blocks);
    for (number, block) in (0..).zip(blocks) {
        output.program.blocks.push(BlockProgram { block: number, ..BlockProgram::default() });
        for (position, operation) in (0..).zip(&block.operations) {
            let at = At { block: number, operation: position, inner: None, slice: None };
            compiler.operation(block, operation, at, &mut output).map_err(|why| at.error(why))?;
        }
    }
    output.program.blocks.retain(|block| !block.steps.is_empty());
    output.program.blocks.iter_mut().for_each(BlockProgram::finish);
    output.program.putting.sort_unstable();
    output.program.putting.dedup();
    Ok(output.program)
}

struct Compiler<'p> {
    topology: &'p Topology<'p>,
    plan: &'p Plan,
    rank: u32,
    layout: &'p MessageLayout,
    /// What averages need to know.
    roles: &'p FoldRoles,
}

#[derive(Default)]
struct Output {
    program: Program,
    bases: BTreeMap<BaseKey, u32>,
    pieces: Pieces,
}

#[derive(Clone, Copy)]
struct At {
    block: u32,
    operation: u32,
    inner: Option<u32>,
    /// Bytes of a slice of the pipeline that it is in.
    slice: Option<u64>,
}

impl At {
    fn error(self, why: Why) -> CompileError {
        CompileError { block: self.block, operation: self.operation, inner: self.inner, why }
    }
}

impl Output {
    fn push(&mut self, at: At, name: &'static str, step: Step) {
        if let Some(block) = self.program.blocks.last_mut() {
            let At { block: number, operation, inner, .. } = at;
            block.places.push(StepPlace { block: number, operation, inner, name, iteration: 0 });
            block.steps.push(step);
        }
    }

    fn base(&mut self, key: BaseKey) -> u32 {
        let bases = &mut self.program.bases;
        *self.bases.entry(key).or_insert_with(|| {
            bases.push(Base { key, reach: 0, access: None, mapped: false, by_port: false });
            bases.len() as u32 - 1
        })
    }

    fn touch(&mut self, base: u32, end: u64, (access, by_port): (Access, bool)) {
        if let Some(base) = self.program.bases.get_mut(base as usize) {
            base.access = Some(base.access.map_or(access, |before| before | access));
            base.reach = base.reach.max(end);
            base.mapped |= !by_port;
            base.by_port |= by_port;
        }
    }
}

/// Compiles one operation.
impl Compiler<'_> {
    fn operation(
        &self,
        block: &ThreadBlock,
        operation: &Operation,
        at: At,
        output: &mut Output,
    ) -> Result<(), Why> {
        let mut all = |list: &[u32], channel_type, name, step: fn(u32) -> Step| -> Result<(), Why> {
            for position in list {
                let channel = self.channel(block, channel_type, *position)?;
                output.push(at, name, step(channel));
            }
            Ok(())
        };
        match &operation.action {
            // A host block is one thread.
            Action::Nop => Ok(()),
            Action::Barrier { id, .. } => {
                output.push(at, "barrier", Step::Barrier(*id));
                Ok(())
            }
            // On the host, relaxed signals order data like the others.
            Action::Signal { via: Via::Memory, channels, relaxed } => {
                let name = if *relaxed { "rlxsignal" } else { "signal" };
                all(channels, ChannelType::Memory, name, Step::Signal)
            }
            Action::Signal { via: Via::Port, channels, .. } => {
                all(channels, ChannelType::Port, "signal", Step::PortSignal)
            }
            Action::Wait { via: Via::Memory, channels, relaxed } => {
                let name = if *relaxed { "rlxwait" } else { "wait" };
                all(channels, ChannelType::Memory, name, Step::Wait)
            }
            Action::Wait { via: Via::Port, channels, .. } => {
                all(channels, ChannelType::Port, "wait", Step::PortWait)
            }
            Action::Flush { channels } => all(channels, ChannelType::Port, "flush", Step::Flush),
            Action::Acquire { semaphores } => {
                let step = |semaphore| output.push(at, "sem_acquire", Step::Acquire(semaphore));
                self.semaphores(semaphores)?.iter().copied().for_each(step);
                Ok(())
            }
            Action::Release { semaphores } => {
                let step = |semaphore| output.push(at, "sem_release", Step::Release(semaphore));
                self.semaphores(semaphores)?.iter().copied().for_each(step);
                Ok(())
            }
            Action::Data(data) => self.data(block, data, at, output),
            Action::Pipeline(pipeline) => {
                if at.inner.is_some() {
                    return Err(Why::Malformed("a pipeline in a pipeline"));
                }
                let iterations = self.layout.iterations(pipeline)?;
                let header = output.program.blocks.last().map_or(0, |block| block.steps.len());
                output.push(at, "pipeline", Step::Loop { iterations, slice: pipeline.unit_size, steps: 0 });
                for (inner, operation) in (0..).zip(&pipeline.body) {
                    let at = At { inner: Some(inner), slice: Some(pipeline.unit_size), ..at };
                    self.operation(block, operation, at, output)?;
                }
                if let Some(block) = output.program.blocks.last_mut() {
                    let body = block.steps.len() - header - 1;
                    if let Some(Step::Loop { steps, .. }) = block.steps.get_mut(header) {
                        *steps = body;
                    }
                }
                Ok(())
            }
        }
    }

    fn channel(&self, block: &ThreadBlock, channel_type: ChannelType, position: u32) -> Result<u32, Why> {
        let channel = self.topology.channel_at(block, channel_type, position);
        let channel = channel.ok_or(Why::Dangling("a channel position"))?;
        let channels = self.topology.rank(self.rank).ok_or(Why::Dangling("the rank"))?;
        let count = match channel_type {
            ChannelType::Memory => channels.memory.len(),
            ChannelType::Port => channels.port.len(),
            ChannelType::Switch => channels.switch.len(),
        };
        if (channel as usize) < count { Ok(channel) } else { Err(Why::Dangling("a channel index")) }
    }

    fn semaphores<'l>(&self, list: &'l [u32]) -> Result<&'l [u32], Why> {
        let count = self.plan.ranks.get(self.rank as usize).map_or(0, |rank| rank.semaphores.len());
        match list.iter().all(|semaphore| (*semaphore as usize) < count) {
            true => Ok(list),
            false => Err(Why::Dangling("a semaphore")),
        }
    }

    fn data(
        &self,
        block: &ThreadBlock,
        data: &DataOperation,
        at: At,
        output: &mut Output,
    ) -> Result<(), Why> {
        let by_port = data.channel_type == Some(ChannelType::Port);
        let name = data.kind.name();
        let transfer = |item: &Item<'_>, output: &mut Output, by_port| {
            self.transfer(&Work { block, data, at, by_port }, item, output)
        };
        if !by_port {
            for item in data.items() {
                if let Some(transfer) = transfer(&item, output, false)? {
                    output.push(at, name, Step::Move(transfer));
                }
            }
            if data.kind.signals() {
                for position in &data.channels {
                    let channel = self.channel(block, ChannelType::Memory, *position)?;
                    output.push(at, name, Step::Signal(channel));
                }
            }
            return Ok(());
        }
        let signals = data.kind.signals();
        let flushes = data.kind == DataKind::PutWithSignalAndFlush;
        if data.kind == DataKind::ReadPutPackets {
            // All packets are awaited before the first is sent on.
            let source = data.sources.first().ok_or(Why::Malformed("no source"))?;
            let item = Item {
                first: (0, 0),
                sources: std::slice::from_ref(source),
                destinations: &data.destinations,
            };
            if let Some(transfer) = transfer(&item, output, false)? {
                output.push(at, name, Step::Await(transfer));
            }
        }
        for (number, destination) in data.destinations.iter().enumerate() {
            let source = if data.kind.joins() { data.sources.first() } else { data.sources.get(number) };
            let source = source.ok_or(Why::Malformed("fewer sources than destinations"))?;
            let position = *data.channels.get(number).ok_or(Why::Malformed("fewer channels than items"))?;
            let channel = self.channel(block, ChannelType::Port, position)?;
            let item = Item {
                first: (if data.kind.joins() { 0 } else { number }, number),
                sources: std::slice::from_ref(source),
                destinations: std::slice::from_ref(destination),
            };
            // Packets are stored by the block: a proxy's copy promises nothing about single words.
            if data.kind.uses_packets() {
                if let Some(transfer) = transfer(&item, output, false)? {
                    output.push(at, name, Step::Move(transfer));
                }
                continue;
            }
            if let Some(transfer) = transfer(&item, output, true)? {
                output.program.putting.push(channel);
                output.push(at, name, Step::Put(PortPut { channel, transfer, signals, flushes }));
            }
        }
        Ok(())
    }

    /// One item; `None` if there is nothing to move and nobody to tell.
    fn transfer(
        &self,
        work: &Work<'_>,
        item: &Item<'_>,
        output: &mut Output,
    ) -> Result<Option<Transfer>, Why> {
        let Work { data, at, by_port, .. } = *work;
        let mut placements = Vec::with_capacity(item.sources.len() + item.destinations.len());
        let order: Vec<usize> = match data.kind.is_fold() {
            true => permutation(data)?,
            false => (0..item.sources.len()).collect(),
        };
        let first = item.first;
        for &position in &order {
            let reference =
                item.sources.get(position).ok_or(Why::Malformed("no permutation of the sources"))?;
            self.resolve(work, reference, data.source_form(first.0 + position), &mut placements)?;
        }
        let n_sources = placements.len();
        for (position, reference) in item.destinations.iter().enumerate() {
            self.resolve(work, reference, data.destination_form(first.1 + position), &mut placements)?;
        }
        if n_sources == 0 || n_sources == placements.len() {
            return Err(Why::Malformed("an operation without sources or destinations"));
        }
        self.layout.place(&placements, data.group, at.slice, &mut output.pieces)?;
        let (kind, inputs) = self.kind(work, &order, n_sources)?;
        let operands: Vec<Operand> = placements
            .iter()
            .enumerate()
            .map(|(number, place)| {
                let key = BaseKey { rank: place.rank, buffer: place.buffer, form: place.form };
                let input = inputs.get(number).copied().unwrap_or(false);
                Operand { base: output.base(key), form: place.form, input }
            })
            .collect();
        let pieces = std::mem::take(&mut output.pieces);
        let mut transfer = Transfer {
            kind,
            wakes: self.wakes(&placements[n_sources..]),
            writer: self.writer(&placements[..n_sources]),
            pieces: pieces.iter().map(|(piece, _)| piece).collect(),
            offsets: Vec::with_capacity(pieces.iter().len() * operands.len()),
            sources: operands[..n_sources].to_vec(),
            destinations: operands[n_sources..].to_vec(),
        };
        for (piece, offsets) in pieces.iter() {
            for (number, (operand, offset)) in operands.iter().zip(offsets).enumerate() {
                let written = number >= n_sources;
                let (start, end) = self.memory(*operand, *offset, piece, written)?;
                transfer.offsets.push(start);
                let access = if written { Access::WRITE } else { Access::READ };
                output.touch(operand.base, end, (access, by_port));
            }
        }
        output.pieces = pieces;
        if let Some(block) = output.program.blocks.last_mut() {
            let packets = transfer.sources.iter().filter(|source| source.form == Form::Packets).count();
            block.packet_sources = block.packet_sources.max(packets);
            block.folds |= transfer.kind != TransferKind::Copy;
        }
        let silent = transfer.pieces.is_empty() && !(by_port && data.kind.signals());
        Ok((!silent).then_some(transfer))
    }

    /// First byte, and one past the last one that is touched.
    fn memory(&self, operand: Operand, offset: u64, piece: Piece, written: bool) -> Result<(u64, u64), Why> {
        let overflow = || Why::Layout(LayoutError::Overflow);
        let payload = self.layout.packet_payload();
        let range = match (operand.form, written) {
            (Form::Raw, _) => offset.checked_add(piece.bytes).map(|end| (offset, end)),
            (Form::Packets, true) => twice(offset, piece.cover),
            (Form::Packets, false) => {
                piece.bytes.checked_next_multiple_of(payload).and_then(|bytes| twice(offset, bytes))
            }
        };
        range.ok_or_else(overflow)
    }

    /// What is done with the sources, and which of them an average scales: by their order among the operands.
    fn kind(
        &self,
        work: &Work<'_>,
        order: &[usize],
        members: usize,
    ) -> Result<(TransferKind, Vec<bool>), Why> {
        let data = work.data;
        if !data.kind.is_fold() && !data.kind.is_switch_fold() {
            return Ok((TransferKind::Copy, Vec::new()));
        }
        let fold = data.fold.as_ref().ok_or(Why::Malformed("a fold without an operator"))?;
        if fold.op != ReduceOp::Avg {
            return Ok((TransferKind::Fold { op: fold.op, last: true }, Vec::new()));
        }
        let At { block, operation, inner, .. } = work.at;
        let place = OperationPlace { rank: self.rank, block, path: (operation, inner) };
        let unknown = Why::Malformed("an average, of which only the verifier knows what enters where");
        let role = self.roles.get(&place).ok_or(unknown)?;
        let input = |position: usize| role.inputs.get(position).copied().unwrap_or(false);
        let inputs = match data.kind.is_switch_fold() {
            // The members of a group take part alike.
            true => (0..members).map(input).collect(),
            false => order.iter().map(|position| input(*position)).collect(),
        };
        Ok((TransferKind::Fold { op: fold.op, last: role.last }, inputs))
    }

    /// Where a reference lies; a multicast reference lies at every member, in the order of ranks.
    fn resolve(
        &self,
        work: &Work<'_>,
        reference: &Reference,
        form: Form,
        placements: &mut Vec<Placement>,
    ) -> Result<(), Why> {
        let (index, size) = (reference.index(), reference.size());
        let place = |rank, buffer| Placement { rank, buffer, index, size, form };
        match *reference {
            Reference::Local { buffer, .. } => placements.push(place(self.rank, buffer)),
            Reference::Remote { position, .. } => {
                let access = work
                    .data
                    .channel_type
                    .ok_or(Why::Malformed("a remote reference without a channel type"))?;
                let target = self.topology.remote_at(self.rank, work.block, access, position);
                let target = target.ok_or(Why::Dangling("a remote buffer position"))?;
                placements.push(place(target.rank, target.buffer));
            }
            Reference::Switch { position, .. } => {
                let channel = self.topology.switch_at(self.rank, work.block, position);
                let channel = channel.ok_or(Why::Dangling("a switch channel position"))?;
                let mut ranks = channel.group.ranks.clone();
                ranks.sort_unstable();
                if ranks.iter().any(|rank| *rank >= self.plan.n_ranks()) {
                    return Err(Why::Dangling("a member of a switch channel"));
                }
                placements.extend(ranks.into_iter().map(|rank| place(rank, channel.buffer)));
            }
        }
        if form == Form::Packets && placements.last().is_some_and(|p| p.buffer != BufferKind::Scratch) {
            return Err(Why::Malformed("packets outside the scratch"));
        }
        Ok(())
    }

    fn wakes(&self, destinations: &[Placement]) -> Vec<u32> {
        let packets = destinations.iter().filter(|place| place.form == Form::Packets);
        let mut ranks: Vec<u32> = packets.map(|place| place.rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }

    /// The one rank that has this rank's scratch among its remote buffers.
    fn writer(&self, sources: &[Placement]) -> Option<u32> {
        if sources.iter().all(|place| place.form == Form::Raw) {
            return None;
        }
        let writes = |rank: &warpway_plan::RankPlan| {
            rank.remote_buffers.iter().any(|b| b.rank == self.rank && b.buffer == BufferKind::Scratch)
        };
        let mut writers = (0..).zip(&self.plan.ranks).filter(|(_, rank)| writes(rank)).map(|(rank, _)| rank);
        match (writers.next(), writers.next()) {
            (only, None) => only,
            _ => None,
        }
    }
}

/// What the items of one operation have in common.
#[derive(Clone, Copy)]
struct Work<'o> {
    block: &'o ThreadBlock,
    data: &'o DataOperation,
    at: At,
    by_port: bool,
}

fn twice(offset: u64, bytes: u64) -> Option<(u64, u64)> {
    let start = offset.checked_mul(2)?;
    Some((start, start.checked_add(bytes.checked_mul(2)?)?))
}

/// Source positions in the order in which they enter.
fn permutation(data: &DataOperation) -> Result<Vec<usize>, Why> {
    let order: Vec<usize> = data.fold_order().collect();
    let mut seen = vec![false; order.len()];
    for position in &order {
        match seen.get_mut(*position) {
            Some(seen) if !*seen => *seen = true,
            _ => return Err(Why::Malformed("`order` is no permutation of the sources")),
        }
    }
    Ok(order)
}
