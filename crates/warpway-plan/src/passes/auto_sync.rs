//! Block barriers between conflicting accesses of one block. Hazards between blocks and ranks are the author's
//! concern; the verifier finds them.
//!
//! Two analyses run side by side: the exact one, and MSCCL++'s with its gaps (X5, X7, X9), which sees only the
//! barriers that its own passes would have put. A barrier goes where either asks. So the default never lacks one that
//! MSCCL++ has at the same place, even where an earlier barrier of the exact analysis made it unnecessary.

use super::access::{Access, Model, accesses};
use super::intervals::Intervals;
use super::{Compat, Scope};
use crate::builder::{Step, StepAction};
use crate::ir::BufferKind;

/// The steps with a `nop` before each that conflicts with an earlier one since the last barrier.
pub(crate) fn insert(steps: Vec<Step>, scope: &Scope<'_>) -> Vec<Step> {
    let mut result = Vec::with_capacity(steps.len());
    let (mut exact, mut peer) = (History::default(), History::default());
    let mut touched = Vec::new();
    for (at, mut step) in steps.into_iter().enumerate() {
        match &mut step.action {
            StepAction::Nop { extra } => {
                exact.clear();
                if !*extra {
                    peer.clear();
                }
                result.push(step);
                continue;
            }
            StepAction::Barrier { .. } => {
                exact.clear();
                peer.clear();
                result.push(step);
                continue;
            }
            StepAction::Pipeline(pipeline) => {
                pipeline.body = insert(std::mem::take(&mut pipeline.body), scope);
            }
            StepAction::Sync(_) | StepAction::Data(_) => {}
        }
        touched.clear();
        accesses(&step, scope, Model::Mscclpp, &mut touched);
        let peer_conflict = peer.visit_one_by_one(at, &touched);
        let mut conflict = peer_conflict;
        if scope.compat == Compat::None {
            touched.clear();
            accesses(&step, scope, Model::Exact, &mut touched);
            conflict |= exact.conflicts_with_any(at, &touched);
            if conflict {
                exact.clear();
            }
            touched.iter().for_each(|access| exact.record(at, access));
        }
        if conflict {
            match result.last_mut().map(|last: &mut Step| &mut last.action) {
                // It stands where MSCCL++ now puts one, too.
                Some(StepAction::Nop { extra }) => *extra = false,
                _ => result.push(Step::nop(!peer_conflict, step.location.clone())),
            }
        }
        result.push(step);
    }
    result
}

/// The last access of every chunk since the last barrier.
#[derive(Default)]
struct History {
    buffers: [Intervals<Touch>; 3],
}

#[derive(Clone, Copy, PartialEq)]
struct Touch {
    step: usize,
    write: bool,
}

impl History {
    fn clear(&mut self) {
        self.buffers.iter_mut().for_each(Intervals::clear);
    }

    /// Of overlapping chunks, by another step, not both reads.
    fn conflicts(&self, step: usize, access: &Access) -> bool {
        let touches = self.buffers[slot(access.buffer)].overlapping(access.chunks.clone());
        touches.into_iter().any(|(_, touch)| touch.step != step && (touch.write || access.write))
    }

    /// The same for all accesses of a step at once. They are joined first, so that many accesses to one run of chunks
    /// look at what is known of it once.
    fn conflicts_with_any(&self, step: usize, accesses: &[Access]) -> bool {
        if accesses.len() <= 4 {
            return accesses.iter().any(|access| self.conflicts(step, access));
        }
        for buffer in BufferKind::ALL {
            for write in [false, true] {
                let mut joined = Intervals::default();
                for access in accesses.iter().filter(|a| (a.buffer, a.write) == (buffer, write)) {
                    joined.insert(access.chunks.clone(), ());
                }
                let mut ranges = joined.iter().map(|(chunks, ())| Access { buffer, chunks, write });
                if ranges.any(|access| self.conflicts(step, &access)) {
                    return true;
                }
            }
        }
        false
    }

    fn record(&mut self, step: usize, access: &Access) {
        let touch = Touch { step, write: access.write };
        self.buffers[slot(access.buffer)].insert(access.chunks.clone(), touch);
    }

    /// As MSCCL++ does it: each access is looked up and noted in turn, and a conflict forgets what was noted of
    /// the same step. True if there was one.
    fn visit_one_by_one(&mut self, step: usize, accesses: &[Access]) -> bool {
        let mut found = false;
        for access in accesses {
            if self.conflicts(step, access) {
                found = true;
                self.clear();
            }
            self.record(step, access);
        }
        found
    }
}

fn slot(buffer: BufferKind) -> usize {
    match buffer {
        BufferKind::Input => 0,
        BufferKind::Output => 1,
        BufferKind::Scratch => 2,
    }
}
