//! Operations as the passes see them: those of a plan, and which of them need the block's threads to meet.
//!
//! Positions in the tables of a block are given when an operation is called, so they are final here; two references
//! of one block mean the same place exactly if they are equal.

use std::sync::Arc;

use super::handles::DataSync;
use super::tables::BlockTables;
use crate::ir::{DataOperation, Location, Via};

/// One operation of a block.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) action: StepAction,
    pub(crate) location: Option<Arc<Location>>,
}

#[derive(Debug, Clone)]
pub(crate) enum StepAction {
    /// `extra`: MSCCL++'s passes would not have put it here.
    Nop {
        extra: bool,
    },
    Barrier {
        id: u32,
        blocks: u32,
    },
    Sync(SyncStep),
    Data(Box<DataStep>),
    Pipeline(Box<PipelineStep>),
}

/// An operation that orders the block with others.
#[derive(Debug, Clone)]
pub(crate) struct SyncStep {
    pub(crate) kind: SyncKind,
    /// Positions of channels in the block's table, or semaphores.
    pub(crate) ids: Vec<u32>,
    pub(crate) marks: DataSync,
    /// MSCCL++'s passes would have taken away the mark behind it.
    pub(crate) extra_after: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SyncKind {
    Signal(Via),
    RelaxedSignal(Via),
    Wait(Via),
    RelaxedWait(Via),
    Flush,
    Acquire,
    Release,
}

/// An operation that touches data.
#[derive(Debug, Clone)]
pub(crate) struct DataStep {
    pub(crate) operation: DataOperation,
    /// Of the local chunk of a switch operation, as its program marked it.
    pub(crate) identity: u64,
    /// For a multicast store: nothing reads its local source afterwards.
    pub(crate) source_unused_later: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct PipelineStep {
    pub(crate) unit_size: u64,
    pub(crate) num_chunks: u64,
    pub(crate) size_id: Option<u64>,
    pub(crate) body: Vec<Step>,
}

/// One block of a rank.
#[derive(Debug, Clone, Default)]
pub(crate) struct Block {
    pub(crate) steps: Vec<Step>,
    pub(crate) tables: BlockTables,
}

impl Step {
    pub(crate) fn nop(extra: bool, location: Option<Arc<Location>>) -> Self {
        Self { action: StepAction::Nop { extra }, location }
    }
}

/// All steps, each pipeline followed by those of its body.
pub(crate) fn flat(steps: &[Step]) -> impl Iterator<Item = &Step> {
    steps.iter().flat_map(|step| {
        let body = match &step.action {
            StepAction::Pipeline(pipeline) => pipeline.body.as_slice(),
            _ => &[],
        };
        std::iter::once(step).chain(body)
    })
}
