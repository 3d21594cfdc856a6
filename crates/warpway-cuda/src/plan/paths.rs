//! Blocks that do the same steps on different places, so that one piece of code serves all of them.

use std::collections::BTreeMap;

use warpway_plan::lower::{Lowered, LoweredBlock, Step, StepAction, Transfer, TransferKind};
use warpway_plan::{Form, Pipeline, Via};

use super::kernel::PlanProblem;

/// Blocks of one shape. Their place in the grid: the paths follow each other, and so do the blocks in a path.
#[derive(Debug)]
pub(super) struct Path<'l> {
    /// Number in the grid of its first block.
    pub(super) first_block: u32,
    /// The blocks, as positions in [`Lowered::blocks`].
    pub(super) members: Vec<&'l LoweredBlock>,
}

/// What blocks of a path have in common: everything but numbers of buffers, channels, barriers, semaphores and chunks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Shape {
    BlockBarrier,
    Barrier,
    Signal { relaxed: bool, channels: usize },
    Wait { relaxed: bool, channels: usize },
    Acquire(usize),
    Release(usize),
    Move(Moved),
    Loop { unit: u64, chunks: u64, size_id: Option<u64>, body: Vec<Self> },
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Moved {
    /// Operator and whether it is the last; none for a copy.
    fold: Option<(u32, bool)>,
    /// Packets, input.
    sources: Vec<(bool, bool)>,
    destinations: Vec<bool>,
    /// Only waited for.
    awaited: bool,
}

/// The paths of a rank, in the order of their first blocks.
pub(super) fn paths(lowered: &Lowered) -> Result<Vec<Path<'_>>, PlanProblem> {
    let mut known: BTreeMap<Vec<Shape>, usize> = BTreeMap::new();
    let mut paths: Vec<Path<'_>> = Vec::new();
    for block in &lowered.blocks {
        let shape: Vec<Shape> =
            block.steps.iter().map(|step| shape(block, step)).collect::<Result<_, _>>()?;
        let at = *known.entry(shape).or_insert_with(|| {
            paths.push(Path { first_block: 0, members: Vec::new() });
            paths.len() - 1
        });
        if let Some(path) = paths.get_mut(at) {
            path.members.push(block);
        }
    }
    let mut first = 0;
    for path in &mut paths {
        path.first_block = first;
        first += path.members.len() as u32;
    }
    Ok(paths)
}

fn shape(block: &LoweredBlock, step: &Step) -> Result<Shape, PlanProblem> {
    let refused = |what| PlanProblem::Unsupported {
        block: block.number,
        operation: step.operation,
        name: step.name,
        what,
    };
    Ok(match &step.action {
        StepAction::BlockBarrier => Shape::BlockBarrier,
        StepAction::Barrier { .. } => Shape::Barrier,
        StepAction::Signal { via, .. } | StepAction::Wait { via, .. } if *via == Via::Port => {
            return Err(refused("port channels"));
        }
        StepAction::Signal { relaxed, channels, .. } => {
            Shape::Signal { relaxed: *relaxed, channels: channels.len() }
        }
        StepAction::Wait { relaxed, channels, .. } => {
            Shape::Wait { relaxed: *relaxed, channels: channels.len() }
        }
        StepAction::Flush { .. } | StepAction::Put { .. } => return Err(refused("port channels")),
        StepAction::Acquire { semaphores } => Shape::Acquire(semaphores.len()),
        StepAction::Release { semaphores } => Shape::Release(semaphores.len()),
        StepAction::Move(_) if matches!(step.name, "glre" | "glres" | "gstore" | "gstorepkt") => {
            return Err(refused("multicast"));
        }
        StepAction::Move(transfer) => Shape::Move(moved(transfer, false)),
        StepAction::Await(transfer) => Shape::Move(moved(transfer, true)),
        StepAction::Loop { pipeline: Pipeline { unit_size, num_chunks, size_id, .. }, body } => Shape::Loop {
            unit: *unit_size,
            chunks: *num_chunks,
            size_id: *size_id,
            body: body.iter().map(|step| shape(block, step)).collect::<Result<_, _>>()?,
        },
    })
}

fn moved(transfer: &Transfer, awaited: bool) -> Moved {
    let packets = |form| form == Form::Packets;
    Moved {
        fold: match transfer.kind {
            TransferKind::Copy => None,
            TransferKind::Fold { op, last } => Some((op as u32, last)),
        },
        sources: transfer.sources.iter().map(|source| (packets(source.form), source.input)).collect(),
        destinations: transfer.destinations.iter().map(|destination| packets(destination.form)).collect(),
        awaited,
    }
}
