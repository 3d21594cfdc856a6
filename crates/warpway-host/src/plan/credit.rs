//! How far a rank may run ahead of those whose scratch it writes to, in plans that leave this to the executor.
//!
//! A rank that only sends, such as the root of a broadcast, need not wait for its receivers: each launch writes to the
//! next of [`AHEAD`] slots. A slot is free when its owner has ended the launch that used it last. The control memory tells
//! which step a rank has begun, and it has ended all before. So a launch may write if the owners have begun one that is
//! less than [`AHEAD`] steps back, whatever the launches between were.
//!
//! The counters of the owners lie in lines that those write to at each launch. To look at one costs both sides a
//! transfer, so this rank looks only when what it has seen is not enough any more.

use std::cell::Cell;

use warpway_core::Result;
use warpway_core::trace::Operation;
use warpway_core::wait::WaitSite;

use super::slots::RING;
use super::waiting::{Launched, Waiting};

/// Slots of the scratch of such plans, and steps from the last one that an owner is known to have begun to the first that
/// must wait.
pub(super) const AHEAD: u64 = 8;
/// Whoever has run out of credit waits until an owner is no more than so many steps behind, so that the next looks are rare.
const REST: u64 = AHEAD / 2;

// Ranks that wait for the record of one that runs ahead must find it.
const _: () = assert!(2 * AHEAD <= RING);

/// What one rank knows of the owners of the scratch that it writes to.
#[derive(Debug)]
pub(super) struct Credits {
    /// And the last step that each is known to have begun.
    owners: Vec<(u32, Cell<u64>)>,
    /// Refusals heard of so far.
    refusals: Cell<u64>,
}

impl Credits {
    /// Of a launch that the owners have begun.
    pub(super) fn new(owners: &[u32], launched: &Launched<'_>) -> Self {
        let owners = owners.iter().map(|owner| (*owner, Cell::new(launched.sequence))).collect();
        Self { owners, refusals: Cell::new(launched.refusals.count()) }
    }

    /// True if this rank finds out by itself when others launch something else.
    pub(super) fn compares(&self) -> bool {
        !self.owners.is_empty()
    }

    /// Returns when the launch may write to its slot.
    ///
    /// # Errors
    /// As [`Waiting::until`], naming the owner that has not come; `plan.difference` and `plan.peer_refused` for owners that
    /// have launched something else in this step or in an earlier one.
    #[inline]
    pub(super) fn spend(&self, waiting: &Waiting<'_>) -> Result<()> {
        let launched = waiting.launched;
        if launched.refusals.count() != self.refusals.get() {
            self.refusals.set(launched.refusals.count());
            if let Some(difference) = launched.difference() {
                return Err(difference.into());
            }
        }
        for (owner, begun) in &self.owners {
            if begun.get() + AHEAD <= launched.sequence {
                begun.set(earn(waiting, *owner)?);
            }
        }
        Ok(())
    }
}

/// The last step that an owner has begun, once that is late enough.
#[inline(never)]
fn earn(waiting: &Waiting<'_>, owner: u32) -> Result<u64> {
    let Launched { control, sequence, .. } = *waiting.launched;
    let begun = |least: u64| match control.begun(owner) {
        begun if begun >= least => Ok(begun),
        begun => Err(begun),
    };
    let site = || {
        let (operation, peer) = (Operation::Launch, Some(owner));
        WaitSite { operation, peer, object: 0, sequence, expected: sequence - REST }
    };
    let begun = match begun(sequence + 1 - AHEAD) {
        Ok(begun) => begun,
        Err(_) => waiting.until(site, control.started(owner), || begun(sequence - REST))?,
    };
    match waiting.launched.difference_at(owner, begun.min(sequence)) {
        Some(difference) => Err(difference.into()),
        None => Ok(begun),
    }
}
