//! Synchronisation that meets synchronisation: unions, and marks that the neighbour makes needless.

use crate::builder::{DataSync, PipelineStep, Step, StepAction, SyncKind, SyncStep};
use crate::passes::Compat;

/// What became of the next step.
pub(super) enum Meeting {
    /// The current step holds it.
    Joined,
    /// It becomes the current step.
    Apart,
    /// It becomes the current step; if it is a pipeline, its body stays as it is.
    ApartAsIs,
}

/// Two adjacent steps of which at least one moves no data.
pub(super) fn meet(current: &mut Step, next: &mut Step, compat: Compat) -> Meeting {
    use StepAction::{Barrier, Nop, Pipeline, Sync};
    match (&mut current.action, &mut next.action) {
        (Nop { .. }, Nop { .. }) | (Barrier { .. }, Nop { .. }) => Meeting::Joined,
        (Nop { .. }, Barrier { .. }) => replace(current, next),
        (Nop { extra }, Pipeline(pipeline)) => {
            if starts_with_sync(pipeline) || (seems_to_start_with_sync(pipeline) && compat == Compat::Mscclpp)
            {
                return replace(current, next);
            }
            if seems_to_start_with_sync(pipeline) {
                // MSCCL++ would have merged the nop, and then left the body alone (X6).
                *extra = true;
                return Meeting::ApartAsIs;
            }
            Meeting::Apart
        }
        (Nop { .. } | Barrier { .. }, Sync(sync)) => {
            sync.marks = sync.marks & DataSync::After;
            Meeting::Apart
        }
        (Pipeline(pipeline), Nop { .. }) if ends_with_sync(pipeline) => Meeting::Joined,
        (Pipeline(pipeline), Sync(sync)) if ends_with_sync(pipeline) => {
            sync.marks = sync.marks & DataSync::After;
            Meeting::Apart
        }
        (Sync(current), Sync(next)) => {
            if union(current, next) {
                return Meeting::Joined;
            }
            if next.marks.before() {
                current.marks = current.marks & DataSync::Before;
            }
            Meeting::Apart
        }
        (Sync(current), Pipeline(pipeline)) => {
            if starts_with_sync(pipeline) || (seems_to_start_with_sync(pipeline) && compat == Compat::Mscclpp)
            {
                current.marks = current.marks & DataSync::Before;
            } else {
                current.extra_after = seems_to_start_with_sync(pipeline);
            }
            Meeting::Apart
        }
        (Sync(current), Nop { .. } | Barrier { .. }) => {
            current.marks = current.marks & DataSync::Before;
            Meeting::Apart
        }
        _ => Meeting::Apart,
    }
}

fn replace(current: &mut Step, next: &mut Step) -> Meeting {
    std::mem::swap(current, next);
    Meeting::Joined
}

fn starts_with_sync(pipeline: &PipelineStep) -> bool {
    pipeline.body.first().is_some_and(|step| match &step.action {
        StepAction::Nop { .. } | StepAction::Barrier { .. } => true,
        StepAction::Sync(sync) => sync.marks.before(),
        StepAction::Data(_) | StepAction::Pipeline(_) => false,
    })
}

/// MSCCL++ takes a barrier at the end of the body for one at its start (X6).
fn seems_to_start_with_sync(pipeline: &PipelineStep) -> bool {
    let last = pipeline.body.last().map(|step| &step.action);
    starts_with_sync(pipeline) || matches!(last, Some(StepAction::Nop { .. } | StepAction::Barrier { .. }))
}

fn ends_with_sync(pipeline: &PipelineStep) -> bool {
    let last = pipeline.body.last().map(|step| &step.action);
    matches!(last, Some(StepAction::Sync(sync)) if sync.marks.after())
}

/// The next step joins the current one if the two are of one kind. Each thread signals or waits on one channel, so a
/// channel cannot be named twice; semaphores and flushes can.
fn union(current: &mut SyncStep, next: &SyncStep) -> bool {
    if current.kind != next.kind {
        return false;
    }
    match current.kind {
        SyncKind::Acquire | SyncKind::Release => current.ids.extend_from_slice(&next.ids),
        SyncKind::Flush => next.ids.iter().for_each(|id| {
            insert_sorted(&mut current.ids, *id);
        }),
        SyncKind::Signal(_) | SyncKind::RelaxedSignal(_) | SyncKind::Wait(_) | SyncKind::RelaxedWait(_) => {
            if next.ids.iter().any(|id| current.ids.binary_search(id).is_ok()) {
                return false;
            }
            next.ids.iter().for_each(|id| insert_sorted(&mut current.ids, *id));
        }
    }
    current.marks = current.marks | next.marks;
    true
}

/// Positions are given in order of first use, so this is mostly a push.
fn insert_sorted(ids: &mut Vec<u32>, id: u32) {
    if let Err(at) = ids.binary_search(&id) {
        ids.insert(at, id);
    }
}
