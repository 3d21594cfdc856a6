//! From the steps of one rank and the layout of a message to its flat program.

use warpway_core::execution::StepPlace;
use warpway_core::memory::Access;
use warpway_plan::lower::{
    Lowered, LoweredBlock, Step as LoweredStep, StepAction, Transfer as LoweredTransfer,
};
use warpway_plan::{BufferKind, Form, LayoutError, MessageLayout, Piece, Pieces, Plan, RankPlan, Via};

use super::program::{Base, BaseKey, BlockProgram, Operand, PortPut, Program, Step, Transfer, TransferKind};

/// Why a message cannot be run, with the place.
#[derive(Debug, Clone, thiserror::Error)]
#[error("block {block}, operation {operation}{}: {why}", .inner.map(|i| format!(".{i}")).unwrap_or_default())]
pub(super) struct CompileError {
    block: u32,
    operation: u32,
    inner: Option<u32>,
    why: LayoutError,
}

/// The program of a rank for one message.
///
/// # Errors
/// Sizes that the plan does not take.
pub(super) fn compile(
    plan: &Plan,
    lowered: &Lowered,
    layout: &MessageLayout,
) -> Result<Program, CompileError> {
    let base = |key: &BaseKey| Base { key: *key, reach: 0, access: None, mapped: false, by_port: false };
    let program = Program { bases: lowered.bases.iter().map(base).collect(), ..Program::default() };
    let only_writer = only_writer(plan, lowered.rank);
    let mut compiler = Compiler { lowered, layout, only_writer, program, pieces: Pieces::default() };
    for block in &lowered.blocks {
        compiler.block(block)?;
    }
    let mut program = compiler.program;
    program.blocks.retain(|block| !block.steps.is_empty());
    program.blocks.iter_mut().for_each(BlockProgram::finish);
    program.putting.sort_unstable();
    program.putting.dedup();
    Ok(program)
}

/// The one rank that has the scratch of `rank` among its remote buffers.
fn only_writer(plan: &Plan, rank: u32) -> Option<u32> {
    let writes = |other: &RankPlan| {
        other.remote_buffers.iter().any(|b| b.rank == rank && b.buffer == BufferKind::Scratch)
    };
    let mut writers = (0..).zip(&plan.ranks).filter(|(_, rank)| writes(rank)).map(|(rank, _)| rank);
    match (writers.next(), writers.next()) {
        (only, None) => only,
        _ => None,
    }
}

struct Compiler<'p> {
    lowered: &'p Lowered,
    layout: &'p MessageLayout,
    only_writer: Option<u32>,
    program: Program,
    pieces: Pieces,
}

impl Compiler<'_> {
    fn block(&mut self, block: &LoweredBlock) -> Result<(), CompileError> {
        let mut output = BlockProgram { block: block.number, ..BlockProgram::default() };
        block.steps.iter().try_for_each(|step| self.step(step, &mut output))?;
        self.program.blocks.push(output);
        Ok(())
    }

    fn step(&mut self, step: &LoweredStep, output: &mut BlockProgram) -> Result<(), CompileError> {
        let LoweredStep { operation, inner, .. } = *step;
        let block = output.block;
        let misplaced = |why| CompileError { block, operation, inner, why };
        let mut each = |list: &[u32], action: fn(u32) -> Step| {
            list.iter().for_each(|number| push(output, step, action(*number)));
        };
        match &step.action {
            // A host block is one thread.
            StepAction::BlockBarrier => {}
            StepAction::Barrier { id, .. } => push(output, step, Step::Barrier(*id)),
            // On the host, relaxed signals order data like the others.
            StepAction::Signal { via: Via::Memory, channels, .. } => each(channels, Step::Signal),
            StepAction::Signal { via: Via::Port, channels, .. } => each(channels, Step::PortSignal),
            StepAction::Wait { via: Via::Memory, channels, .. } => each(channels, Step::Wait),
            StepAction::Wait { via: Via::Port, channels, .. } => each(channels, Step::PortWait),
            StepAction::Flush { channels } => each(channels, Step::Flush),
            StepAction::Acquire { semaphores } => each(semaphores, Step::Acquire),
            StepAction::Release { semaphores } => each(semaphores, Step::Release),
            StepAction::Move(transfer) => {
                let transfer = self.transfer(transfer, false, output).map_err(misplaced)?;
                if !transfer.pieces.is_empty() {
                    push(output, step, Step::Move(transfer));
                }
            }
            StepAction::Await(transfer) => {
                let transfer = self.transfer(transfer, false, output).map_err(misplaced)?;
                if !transfer.pieces.is_empty() {
                    push(output, step, Step::Await(transfer));
                }
            }
            StepAction::Put { channel, transfer, signals, flushes } => {
                let transfer = self.transfer(transfer, true, output).map_err(misplaced)?;
                // A put of nothing still tells its peer.
                if !transfer.pieces.is_empty() || *signals {
                    self.program.putting.push(*channel);
                    let (channel, signals, flushes) = (*channel, *signals, *flushes);
                    push(output, step, Step::Put(PortPut { channel, transfer, signals, flushes }));
                }
            }
            StepAction::Loop { pipeline, body } => {
                let iterations = self.layout.iterations(pipeline).map_err(misplaced)?;
                let header = output.steps.len();
                push(output, step, Step::Loop { iterations, slice: pipeline.unit_size, steps: 0 });
                body.iter().try_for_each(|step| self.step(step, output))?;
                let inside = output.steps.len() - header - 1;
                if let Some(Step::Loop { steps, .. }) = output.steps.get_mut(header) {
                    *steps = inside;
                }
            }
        }
        Ok(())
    }

    fn transfer(
        &mut self,
        lowered: &LoweredTransfer,
        by_port: bool,
        output: &mut BlockProgram,
    ) -> Result<Transfer, LayoutError> {
        let mut pieces = std::mem::take(&mut self.pieces);
        let placed = lowered.pieces(self.layout, &mut pieces);
        self.pieces = pieces;
        placed?;
        let n_sources = lowered.sources.len();
        let packet_sources = lowered.sources.iter().filter(|source| source.form == Form::Packets).count();
        let mut transfer = Transfer {
            kind: lowered.kind,
            wakes: self.wakes(&lowered.destinations),
            writer: self.only_writer.filter(|_| packet_sources > 0),
            pieces: self.pieces.iter().map(|(piece, _)| piece).collect(),
            offsets: Vec::with_capacity(self.pieces.iter().len() * lowered.width()),
            sources: lowered.sources.clone(),
            destinations: lowered.destinations.clone(),
        };
        let payload = self.layout.packet_payload();
        for (piece, offsets) in self.pieces.iter() {
            for (number, (operand, offset)) in lowered.operands().zip(offsets).enumerate() {
                let written = number >= n_sources;
                let (start, end) =
                    memory(*operand, *offset, piece, (written, payload)).ok_or(LayoutError::Overflow)?;
                transfer.offsets.push(start);
                let access = if written { Access::WRITE } else { Access::READ };
                if let Some(base) = self.program.bases.get_mut(operand.base as usize) {
                    base.touch(end, (access, by_port));
                }
            }
        }
        output.packet_sources = output.packet_sources.max(packet_sources);
        output.folds |= transfer.kind != TransferKind::Copy;
        Ok(transfer)
    }

    /// Owners of the packets that are written.
    fn wakes(&self, destinations: &[Operand]) -> Vec<u32> {
        let packets = destinations.iter().filter(|operand| operand.form == Form::Packets);
        let owner = |operand: &Operand| Some(self.lowered.bases.get(operand.base as usize)?.rank);
        let mut ranks: Vec<u32> = packets.filter_map(owner).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }
}

fn push(block: &mut BlockProgram, step: &LoweredStep, action: Step) {
    let LoweredStep { operation, inner, name, .. } = *step;
    block.places.push(StepPlace { block: block.block, operation, inner, name, iteration: 0 });
    block.steps.push(action);
}

/// First byte, and one past the last one that is touched; `None` beyond 64 bits.
fn memory(
    operand: Operand,
    offset: u64,
    piece: Piece,
    (written, payload): (bool, u64),
) -> Option<(u64, u64)> {
    match (operand.form, written) {
        (Form::Raw, _) => offset.checked_add(piece.bytes).map(|end| (offset, end)),
        (Form::Packets, true) => twice(offset, piece.cover),
        (Form::Packets, false) => twice(offset, piece.bytes.checked_next_multiple_of(payload)?),
    }
}

fn twice(offset: u64, bytes: u64) -> Option<(u64, u64)> {
    let start = offset.checked_mul(2)?;
    Some((start, start.checked_add(bytes.checked_mul(2)?)?))
}
