//! Copies of the whole program side by side: everything that has a number gets n of them, and each copy handles
//! its share of every chunk.

use std::collections::HashMap;

use super::{Compat, PassResult};
use crate::builder::{BuildError, BuildProblem, Site, Step, StepAction};
use crate::ir::{DataKind, Reference};

/// One copy: number and count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shift {
    pub(crate) instance: u32,
    pub(crate) instances: u32,
}

impl Shift {
    /// The number of this copy of something.
    pub(crate) fn number(self, number: u32) -> PassResult<u32> {
        let replicated = u64::from(number) * u64::from(self.instances) + u64::from(self.instance);
        u32::try_from(replicated).map_err(|_| too_large("a number of a channel, barrier or block"))
    }

    /// This copy's share of a run of chunks.
    fn index(self, index: u64, size: u64) -> PassResult<u64> {
        let base = index.checked_mul(u64::from(self.instances));
        let share = size.checked_mul(u64::from(self.instance));
        let shifted = base.zip(share).and_then(|(base, share)| base.checked_add(share));
        shifted.ok_or_else(|| too_large("a chunk index"))
    }

    fn reference(self, reference: &mut Reference) -> PassResult {
        let shifted = self.index(reference.index(), reference.size())?;
        match reference {
            Reference::Local { index, .. }
            | Reference::Remote { index, .. }
            | Reference::Switch { index, .. } => *index = shifted,
        }
        Ok(())
    }
}

/// `n` copies of everything in a list, those of one element side by side.
pub(crate) fn replicated<T: Clone>(list: &[T], instances: u32) -> Vec<T> {
    list.iter().flat_map(|element| std::iter::repeat_n(element.clone(), instances as usize)).collect()
}

/// The steps of one copy of a block.
pub(crate) fn replicate(steps: &[Step], shift: Shift, compat: Compat) -> PassResult<Vec<Step>> {
    let mut uses = HashMap::new();
    if compat == Compat::Mscclpp {
        count_switch_chunks(steps, &mut uses);
    }
    let mut copy = steps.to_vec();
    shift_steps(&mut copy, shift, compat, &uses)?;
    Ok(copy)
}

/// A chunk as an object of the program: what its program calls it, or its value.
type SwitchChunk = (u64, Option<Reference>);

fn switch_chunk(step: &StepAction) -> Option<SwitchChunk> {
    match step {
        StepAction::Data(data)
            if matches!(data.operation.kind, DataKind::GroupStore | DataKind::GroupStorePackets) =>
        {
            let value = if data.identity == 0 { data.operation.sources.first().copied() } else { None };
            Some((data.identity, value))
        }
        _ => None,
    }
}

fn count_switch_chunks(steps: &[Step], uses: &mut HashMap<SwitchChunk, u32>) {
    for step in crate::builder::flat(steps) {
        if let Some(chunk) = switch_chunk(&step.action) {
            *uses.entry(chunk).or_default() += 1;
        }
    }
}

fn shift_steps(
    steps: &mut [Step],
    shift: Shift,
    compat: Compat,
    uses: &HashMap<SwitchChunk, u32>,
) -> PassResult {
    for step in steps {
        // MSCCL++ shifts a chunk once for every switch operation that uses it (X19).
        let times = switch_chunk(&step.action).and_then(|chunk| uses.get(&chunk).copied()).unwrap_or(1);
        match &mut step.action {
            StepAction::Barrier { id, .. } => *id = shift.number(*id)?,
            StepAction::Sync(sync) => {
                if matches!(sync.kind, crate::builder::SyncKind::Acquire | crate::builder::SyncKind::Release)
                {
                    for semaphore in &mut sync.ids {
                        *semaphore = shift.number(*semaphore)?;
                    }
                }
            }
            StepAction::Data(data) => {
                for source in &mut data.operation.sources {
                    for _ in 0..times {
                        shift.reference(source)?;
                    }
                }
                // It forgets the packet copy of a fold (X18).
                let copies = matches!(
                    data.operation.kind,
                    DataKind::ReduceCopyPackets | DataKind::ReduceCopySendPackets
                );
                let forgotten = (compat == Compat::Mscclpp && copies).then_some(1);
                for (at, destination) in data.operation.destinations.iter_mut().enumerate() {
                    if Some(at) != forgotten {
                        shift.reference(destination)?;
                    }
                }
            }
            StepAction::Pipeline(pipeline) => shift_steps(&mut pipeline.body, shift, compat, uses)?,
            StepAction::Nop { .. } => {}
        }
    }
    Ok(())
}

fn too_large(what: &'static str) -> BuildError {
    let site = Site { operation: "instances", rank: None, block: None, location: None };
    BuildError::new(site, BuildProblem::TooLarge { what })
}
