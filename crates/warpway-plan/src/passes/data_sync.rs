//! Block barriers around synchronisation, where its marks ask for them.

use crate::builder::{Step, StepAction};

/// A `nop` in front of each operation marked so, and one behind. Fusion has already taken away the marks that are
/// not needed.
pub(crate) fn insert(steps: Vec<Step>) -> Vec<Step> {
    let mut result = Vec::with_capacity(steps.len());
    for mut step in steps {
        match &mut step.action {
            StepAction::Sync(sync) => {
                let (marks, extra_after) = (sync.marks, sync.extra_after);
                let location = step.location.clone();
                if marks.before() {
                    result.push(Step::nop(false, location.clone()));
                }
                result.push(step);
                if marks.after() {
                    result.push(Step::nop(extra_after, location));
                }
            }
            StepAction::Pipeline(pipeline) => {
                pipeline.body = insert(std::mem::take(&mut pipeline.body));
                result.push(step);
            }
            _ => result.push(step),
        }
    }
    result
}
