//! Joins adjacent operations of a block: from left to right, the current operation takes in the next as long as the
//! two make one; then the next becomes the current one.

mod marks;
mod reduce_send;
mod unions;

use super::Scope;
use crate::builder::{Step, StepAction};
use crate::ir::DataKind;
use marks::Meeting;
use unions::Targets;

/// The fused steps.
pub(crate) fn fuse(steps: Vec<Step>, scope: &mut Scope<'_>) -> Vec<Step> {
    let mut result = Vec::with_capacity(steps.len());
    let mut steps = steps.into_iter();
    let Some(first) = steps.next() else { return result };
    let mut current = Current::fresh(first, scope);
    for mut next in steps {
        match current.take(&mut next, scope) {
            Meeting::Joined => {}
            Meeting::Apart => {
                result.push(current.step);
                current = Current::fresh(next, scope);
            }
            Meeting::ApartAsIs => {
                result.push(current.step);
                current = Current::new(next);
            }
        }
    }
    result.push(current.step);
    result
}

/// The operation that may grow.
struct Current {
    step: Step,
    /// Where it stores to, once it has been compared with another.
    targets: Option<Targets>,
}

impl Current {
    fn new(step: Step) -> Self {
        Self { step, targets: None }
    }

    /// A pipeline's body is fused when the pipeline becomes current.
    fn fresh(mut step: Step, scope: &mut Scope<'_>) -> Self {
        if let StepAction::Pipeline(pipeline) = &mut step.action {
            pipeline.body = fuse(std::mem::take(&mut pipeline.body), scope);
        }
        Self::new(step)
    }

    fn take(&mut self, next: &mut Step, scope: &mut Scope<'_>) -> Meeting {
        let (StepAction::Data(current), StepAction::Data(other)) = (&mut self.step.action, &mut next.action)
        else {
            return marks::meet(&mut self.step, next, scope.compat);
        };
        let (a, b) = (current.operation.kind, other.operation.kind);
        let (mine, others) = (&mut current.operation, &mut other.operation);
        let joined = match (a, b) {
            (DataKind::GroupLoadReduce, DataKind::GroupStore) => {
                reduce_send::load_reduce_store(mine, others, other.source_unused_later, scope)
            }
            _ if a == b && a.is_fold() => match unions::reduces(mine, others, scope.compat) {
                unions::Fold::Joined => true,
                unions::Fold::Apart => false,
                unions::Fold::Overwritten(kind) => {
                    scope.warn(self.step.location.as_ref(), kind);
                    false
                }
            },
            _ if a == b => {
                let targets = self.targets.get_or_insert_with(|| Targets::of(mine));
                match unions::transfers(mine, others, targets, scope.compat) {
                    unions::Transfer::Joined => true,
                    unions::Transfer::Apart => false,
                    unions::Transfer::Overwrites(kind) => {
                        scope.warn(self.step.location.as_ref(), kind);
                        true
                    }
                }
            }
            _ => reduce_send::reduce_then_send(mine, others, scope.compat),
        };
        if joined { Meeting::Joined } else { Meeting::Apart }
    }
}
