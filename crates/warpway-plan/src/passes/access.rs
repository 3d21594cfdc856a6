//! Which local chunks an operation reads and writes.

use std::ops::Range;

use super::Scope;
use crate::builder::{DataStep, Step, StepAction};
use crate::ir::{BufferKind, DataKind, DataOperation, Reference};

/// A touch of local chunks.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    pub(crate) buffer: BufferKind,
    pub(crate) chunks: Range<u64>,
    pub(crate) write: bool,
}

/// Whose idea of an operation's accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Model {
    /// All of them, under the one name of each place.
    Exact,
    /// Those that MSCCL++'s passes look at (X5, X7, X9).
    Mscclpp,
}

/// The local accesses of a step, reads of an operation before its writes. Packets are protected by their flags and
/// left out, except as sources of a fold.
pub(crate) fn accesses(step: &Step, scope: &Scope<'_>, model: Model, into: &mut Vec<Access>) {
    match &step.action {
        StepAction::Data(data) => data_accesses(data, scope, model, into),
        StepAction::Pipeline(pipeline) => {
            pipeline.body.iter().for_each(|step| accesses(step, scope, model, into));
        }
        StepAction::Nop { .. } | StepAction::Barrier { .. } | StepAction::Sync(_) => {}
    }
}

fn data_accesses(step: &DataStep, scope: &Scope<'_>, model: Model, into: &mut Vec<Access>) {
    use DataKind::*;
    let operation = &step.operation;
    let DataOperation { sources, destinations, .. } = operation;
    let exact = model == Model::Exact;
    let mut add = |references: &[Reference], write: bool| {
        for reference in references {
            let (buffer, index, size) = match *reference {
                Reference::Local { buffer, index, size } => (buffer, index, size),
                Reference::Switch { position, index, size } if exact => {
                    let Some(buffer) = scope.switch_buffers.get(position as usize) else { continue };
                    (*buffer, index, size)
                }
                _ => continue,
            };
            let (buffer, index) = if exact { scope.alias.resolve(buffer, index) } else { (buffer, index) };
            if size > 0 {
                into.push(Access { buffer, chunks: index..index.saturating_add(size), write });
            }
        }
    };
    match operation.kind {
        Copy | Get => {
            add(sources, false);
            add(destinations, true);
        }
        CopyPackets | Put | PutPackets | PutWithSignal | PutWithSignalAndFlush => add(sources, false),
        UnpackPackets => add(destinations, true),
        ReadPutPackets | GroupStorePackets => {}
        Reduce | ReduceSend | ReadReduce | ReadReduceSend => {
            add(sources, false);
            add(&destinations[..destinations.len().min(1)], true);
        }
        ReducePackets | ReduceSendPackets | ReduceCopyPackets | ReduceCopySendPackets => {
            let tracked = |r: &&Reference| exact || buffer_of(r) == Some(BufferKind::Scratch);
            sources.iter().filter(tracked).for_each(|r| add(std::slice::from_ref(r), false));
            add(&destinations[..destinations.len().min(1)], true);
        }
        GroupStore | GroupLoadReduceStore | GroupLoadReduce if exact => {
            add(sources, false);
            add(destinations, true);
        }
        GroupStore | GroupLoadReduceStore | GroupLoadReduce => {}
    }
}

fn buffer_of(reference: &Reference) -> Option<BufferKind> {
    match reference {
        Reference::Local { buffer, .. } => Some(*buffer),
        _ => None,
    }
}
