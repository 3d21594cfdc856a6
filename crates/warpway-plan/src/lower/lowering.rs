//! From operations to steps.

use std::collections::BTreeMap;

use super::{Base, Lowered, LoweredBlock, LoweringError, Operand, Step, StepAction, Transfer, TransferKind};
use crate::BufferKind;
use crate::ir::{
    Action, ChannelType, DataKind, DataOperation, Form, Item, Operation, Pipeline, ReduceOp, Reference,
    ThreadBlock, Via,
};
use crate::layout::Placement;
use crate::repairs::OperationPlace;
use crate::topology::Topology;
use crate::verify::FoldRoles;

type Why = &'static str;

pub(super) fn lower(topology: &Topology<'_>, rank: u32, roles: &FoldRoles) -> Result<Lowered, LoweringError> {
    let error = |block, path: (u32, Option<u32>), why| LoweringError {
        rank,
        block,
        operation: path.0,
        inner: path.1,
        why,
    };
    let plan = topology.plan().ranks.get(rank as usize).ok_or_else(|| error(0, (0, None), "no such rank"))?;
    let mut lowering = Lowering { topology, rank, roles, bases: Vec::new(), known: BTreeMap::new() };
    let mut blocks = Vec::new();
    for (number, block) in (0..).zip(&plan.blocks) {
        let mut steps = Vec::new();
        for (position, operation) in (0..).zip(&block.operations) {
            let at = At { number, block, path: (position, None), slice: None };
            lowering.operation(operation, at, &mut steps).map_err(|(path, why)| error(number, path, why))?;
        }
        if !steps.is_empty() {
            blocks.push(LoweredBlock { number, steps });
        }
    }
    Ok(Lowered { rank, bases: lowering.bases, blocks })
}

struct Lowering<'p> {
    topology: &'p Topology<'p>,
    rank: u32,
    roles: &'p FoldRoles,
    bases: Vec<Base>,
    known: BTreeMap<Base, u32>,
}

#[derive(Clone, Copy)]
struct At<'p> {
    number: u32,
    block: &'p ThreadBlock,
    path: (u32, Option<u32>),
    slice: Option<u64>,
}

impl At<'_> {
    fn step(&self, name: &'static str, action: StepAction) -> Step {
        Step { operation: self.path.0, inner: self.path.1, name, action }
    }
}

impl Lowering<'_> {
    fn operation(
        &mut self,
        operation: &Operation,
        at: At<'_>,
        steps: &mut Vec<Step>,
    ) -> Result<(), ((u32, Option<u32>), Why)> {
        if let Action::Pipeline(pipeline) = &operation.action {
            if at.path.1.is_some() {
                return Err((at.path, "a pipeline in a pipeline"));
            }
            let mut body = Vec::new();
            for (inner, operation) in (0..).zip(&pipeline.body) {
                let within = At { path: (at.path.0, Some(inner)), slice: Some(pipeline.unit_size), ..at };
                self.operation(operation, within, &mut body)?;
            }
            let pipeline = Pipeline { body: Vec::new(), ..(**pipeline).clone() };
            steps.push(at.step("pipeline", StepAction::Loop { pipeline, body }));
            return Ok(());
        }
        self.simple(&operation.action, at, steps).map_err(|why| (at.path, why))
    }

    fn simple(&mut self, action: &Action, at: At<'_>, steps: &mut Vec<Step>) -> Result<(), Why> {
        let lowered = match action {
            Action::Nop => StepAction::BlockBarrier,
            Action::Barrier { id, blocks } => StepAction::Barrier { id: *id, blocks: *blocks },
            Action::Signal { via, relaxed, channels } => StepAction::Signal {
                via: *via,
                relaxed: *relaxed,
                channels: self.channels(at, *via, channels)?,
            },
            Action::Wait { via, relaxed, channels } => StepAction::Wait {
                via: *via,
                relaxed: *relaxed,
                channels: self.channels(at, *via, channels)?,
            },
            Action::Flush { channels } => {
                StepAction::Flush { channels: self.channels(at, Via::Port, channels)? }
            }
            Action::Acquire { semaphores } => {
                StepAction::Acquire { semaphores: self.semaphores(semaphores)? }
            }
            Action::Release { semaphores } => {
                StepAction::Release { semaphores: self.semaphores(semaphores)? }
            }
            Action::Data(data) => return self.data(data, at, steps),
            Action::Pipeline(_) => return Err("a pipeline in a pipeline"),
        };
        steps.push(at.step(action.name(), lowered));
        Ok(())
    }

    fn channels(&self, at: At<'_>, via: Via, positions: &[u32]) -> Result<Vec<u32>, Why> {
        positions.iter().map(|position| self.channel(at, via, *position)).collect()
    }

    fn channel(&self, at: At<'_>, via: Via, position: u32) -> Result<u32, Why> {
        let channel_type = match via {
            Via::Memory => ChannelType::Memory,
            Via::Port => ChannelType::Port,
        };
        let channel = self
            .topology
            .channel_at(at.block, channel_type, position)
            .ok_or("a channel position that names nothing")?;
        self.topology.link(self.rank, via, channel).ok_or("a channel that is none")?;
        Ok(channel)
    }

    fn semaphores(&self, list: &[u32]) -> Result<Vec<u32>, Why> {
        let plan = self.topology.plan().ranks.get(self.rank as usize);
        let count = plan.map_or(0, |rank| rank.semaphores.len());
        match list.iter().all(|semaphore| (*semaphore as usize) < count) {
            true => Ok(list.to_vec()),
            false => Err("a semaphore that is none"),
        }
    }

    fn data(&mut self, data: &DataOperation, at: At<'_>, steps: &mut Vec<Step>) -> Result<(), Why> {
        let name = data.kind.name();
        if data.channel_type == Some(ChannelType::Port) {
            return self.port_data(data, at, steps);
        }
        for item in data.items() {
            let transfer = self.transfer(data, at, &item)?;
            steps.push(at.step(name, StepAction::Move(transfer)));
        }
        if data.kind.signals() {
            let channels = self.channels(at, Via::Memory, &data.channels)?;
            // All threads have put their share before one of them signals.
            steps.push(at.step(name, StepAction::BlockBarrier));
            steps.push(at.step(name, StepAction::Signal { via: Via::Memory, relaxed: false, channels }));
        }
        Ok(())
    }

    fn port_data(&mut self, data: &DataOperation, at: At<'_>, steps: &mut Vec<Step>) -> Result<(), Why> {
        let name = data.kind.name();
        if data.kind == DataKind::ReadPutPackets {
            // All packets are awaited before the first is sent on.
            let sources = data.sources.get(..1).ok_or("no source")?;
            let item = Item { first: (0, 0), sources, destinations: &data.destinations };
            let transfer = self.transfer(data, at, &item)?;
            steps.push(at.step(name, StepAction::Await(transfer)));
        }
        for (number, destination) in data.destinations.iter().enumerate() {
            let source = if data.kind.joins() { 0 } else { number };
            let sources = data.sources.get(source..=source).ok_or("fewer sources than destinations")?;
            let position = *data.channels.get(number).ok_or("fewer channels than items")?;
            let item =
                Item { first: (source, number), sources, destinations: std::slice::from_ref(destination) };
            let transfer = self.transfer(data, at, &item)?;
            // Packets are stored by the block: a proxy's copy promises nothing about single words.
            steps.push(at.step(
                name,
                match data.kind.uses_packets() {
                    true => StepAction::Move(transfer),
                    false => StepAction::Put {
                        channel: self.channel(at, Via::Port, position)?,
                        transfer,
                        signals: data.kind.signals(),
                        flushes: data.kind == DataKind::PutWithSignalAndFlush,
                    },
                },
            ));
        }
        Ok(())
    }

    fn transfer(&mut self, data: &DataOperation, at: At<'_>, item: &Item<'_>) -> Result<Transfer, Why> {
        let order: Vec<usize> = match data.kind.is_fold() {
            true => permutation(data)?,
            false => (0..item.sources.len()).collect(),
        };
        let mut placements = Vec::with_capacity(item.sources.len() + item.destinations.len());
        for &position in &order {
            let reference = item.sources.get(position).ok_or("`order` is no permutation of the sources")?;
            self.resolve(data, at, reference, data.source_form(item.first.0 + position), &mut placements)?;
        }
        let n_sources = placements.len();
        for (position, reference) in item.destinations.iter().enumerate() {
            let form = data.destination_form(item.first.1 + position);
            self.resolve(data, at, reference, form, &mut placements)?;
        }
        if n_sources == 0 || n_sources == placements.len() {
            return Err("an operation without sources or destinations");
        }
        let (kind, inputs) = self.kind(data, at, &order, n_sources)?;
        let operands: Vec<Operand> = placements
            .iter()
            .enumerate()
            .map(|(number, place)| Operand {
                base: self.base(Base { rank: place.rank, buffer: place.buffer, form: place.form }),
                form: place.form,
                input: inputs.get(number).copied().unwrap_or(false),
            })
            .collect();
        let (sources, destinations) = operands.split_at(n_sources);
        Ok(Transfer {
            kind,
            sources: sources.to_vec(),
            destinations: destinations.to_vec(),
            placements,
            group: data.group,
            slice: at.slice,
        })
    }

    fn base(&mut self, base: Base) -> u32 {
        let bases = &mut self.bases;
        *self.known.entry(base).or_insert_with(|| {
            bases.push(base);
            bases.len() as u32 - 1
        })
    }

    /// What is done with the sources, and which of them an average scales.
    fn kind(
        &self,
        data: &DataOperation,
        at: At<'_>,
        order: &[usize],
        members: usize,
    ) -> Result<(TransferKind, Vec<bool>), Why> {
        if !data.kind.is_fold() && !data.kind.is_switch_fold() {
            return Ok((TransferKind::Copy, Vec::new()));
        }
        let op = data.fold.as_ref().ok_or("a fold without an operator")?.op;
        if op != ReduceOp::Avg {
            return Ok((TransferKind::Fold { op, last: true }, Vec::new()));
        }
        let place = OperationPlace { rank: self.rank, block: at.number, path: at.path };
        let role = self.roles.get(&place).ok_or("an average, of which nobody knows what enters where")?;
        let input = |position: usize| role.inputs.get(position).copied().unwrap_or(false);
        let inputs = match data.kind.is_switch_fold() {
            // The members of a group take part alike.
            true => (0..members).map(input).collect(),
            false => order.iter().map(|position| input(*position)).collect(),
        };
        Ok((TransferKind::Fold { op, last: role.last }, inputs))
    }

    /// Where a reference lies; a multicast reference lies at every member, in the order of ranks.
    fn resolve(
        &self,
        data: &DataOperation,
        at: At<'_>,
        reference: &Reference,
        form: Form,
        placements: &mut Vec<Placement>,
    ) -> Result<(), Why> {
        let (index, size) = (reference.index(), reference.size());
        let place = |rank, buffer| Placement { rank, buffer, index, size, form };
        match *reference {
            Reference::Local { buffer, .. } => placements.push(place(self.rank, buffer)),
            Reference::Remote { position, .. } => {
                let access = data.channel_type.ok_or("a remote reference without a channel type")?;
                let target = self.topology.remote_at(self.rank, at.block, access, position);
                let target = target.ok_or("a remote buffer that names nothing")?;
                placements.push(place(target.rank, target.buffer));
            }
            Reference::Switch { position, .. } => {
                let channel = self.topology.switch_at(self.rank, at.block, position);
                let channel = channel.ok_or("a switch channel that names nothing")?;
                let mut ranks = channel.group.ranks.clone();
                ranks.sort_unstable();
                if ranks.iter().any(|rank| *rank >= self.topology.plan().n_ranks()) {
                    return Err("a member of a switch channel that is no rank");
                }
                placements.extend(ranks.into_iter().map(|rank| place(rank, channel.buffer)));
            }
        }
        if form == Form::Packets && placements.last().is_some_and(|p| p.buffer != BufferKind::Scratch) {
            return Err("packets outside the scratch");
        }
        Ok(())
    }
}

/// Source positions in the order in which they enter.
fn permutation(data: &DataOperation) -> Result<Vec<usize>, Why> {
    let order: Vec<usize> = data.fold_order().collect();
    let mut seen = vec![false; order.len()];
    for position in &order {
        match seen.get_mut(*position) {
            Some(seen) if !*seen => *seen = true,
            _ => return Err("`order` is no permutation of the sources"),
        }
    }
    Ok(order)
}
