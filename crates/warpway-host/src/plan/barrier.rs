//! A barrier of some blocks of a rank.

use std::sync::atomic::{AtomicU64, Ordering};

use warpway_core::trace::Operation;
use warpway_core::wait::{EventCount, WaitSite};

use super::waiting::Waiting;

/// Phase p is complete when `blocks * p` blocks have arrived; the counter only grows, so launches follow each other
/// without a reset.
#[derive(Debug)]
pub(super) struct BlockBarrier {
    id: u32,
    blocks: u64,
    arrivals: AtomicU64,
    event: EventCount,
}

impl BlockBarrier {
    /// Of `blocks` blocks, at least one.
    pub(super) fn new(id: u32, blocks: u32) -> Self {
        Self { id, blocks: u64::from(blocks.max(1)), arrivals: AtomicU64::new(0), event: EventCount::new() }
    }

    /// Returns once all blocks have come as often as this one; what they did before is visible then.
    pub(super) fn pass(&self, waiting: &Waiting<'_>) -> warpway_core::Result<()> {
        // SeqCst: releases this block's work, and is the fence that `notify_after_rmw` needs.
        let ticket = self.arrivals.fetch_add(1, Ordering::SeqCst);
        let phase = ticket / self.blocks + 1;
        let target = phase * self.blocks;
        if ticket + 1 == target {
            // Acquires the others' work through the read-modify-write above.
            self.event.notify_after_rmw();
            return Ok(());
        }
        let site = || WaitSite {
            operation: Operation::GridBarrier,
            peer: None,
            object: u64::from(self.id),
            sequence: phase,
            expected: target,
        };
        waiting.until(site, Some(&self.event), || {
            // Acquire: pairs with the others' arrivals.
            let arrivals = self.arrivals.load(Ordering::Acquire);
            if arrivals >= target { Ok(()) } else { Err(arrivals) }
        })
    }
}
