//! What a kernel knows of its block, and how blocks of one launch wait for each other.

use std::sync::atomic::{AtomicU64, Ordering};

use warpway_core::launch::LaunchError;
use warpway_core::trace::Operation;
use warpway_core::wait::{EventCount, WaitSite, Waiter};
use warpway_core::{Result, Timeout};

use crate::launcher::Launch;
use crate::share::Share;

/// One block of a launch.
pub struct Block<'a> {
    launch: &'a Launch,
    index: u32,
}

impl<'a> Block<'a> {
    pub(crate) fn new(launch: &'a Launch, index: u32) -> Self {
        Self { launch, index }
    }

    /// This block's number, from 0.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// How many blocks the launch has.
    pub fn blocks(&self) -> u32 {
        self.launch.blocks
    }

    /// This block's part of a call that all blocks of the launch make together.
    pub fn share(&self) -> Share {
        Share::new(self.index, self.launch.blocks)
    }

    /// Returns once every block of the launch has called it as often as this one; what any block did
    /// before is visible to all after it.
    ///
    /// # Errors
    /// `launch.barrier` if a block has returned without it;
    /// [`WaitError`](warpway_core::wait::WaitError) on timeout, abort or failure.
    pub fn barrier(&self) -> Result<()> {
        self.waiter().health.check_during(Operation::GridBarrier)?;
        self.launch.barrier.pass(self)
    }

    /// Health, recorder and back-off of this launch.
    pub fn waiter(&self) -> &Waiter {
        &self.launch.waiter
    }
}

fn site(block: u32, operation: Operation, sequence: u64, expected: u64) -> WaitSite {
    WaitSite { operation, peer: None, object: u64::from(block), sequence, expected }
}

/// A barrier of all blocks of a launch. One monotonic counter: phase p is complete when it reaches
/// `p × blocks`, so it needs no reset.
#[derive(Default)]
pub(crate) struct GridBarrier {
    arrivals: AtomicU64,
    event: EventCount,
}

impl GridBarrier {
    pub(crate) fn notify(&self) {
        self.event.notify();
    }

    fn pass(&self, block: &Block<'_>) -> Result<()> {
        let blocks = u64::from(block.blocks());
        // SeqCst: releases this block's work, and is the fence that `notify_after_rmw` needs.
        let ticket = self.arrivals.fetch_add(1, Ordering::SeqCst);
        let phase = ticket / blocks + 1;
        let target = phase * blocks;
        if ticket + 1 == target {
            // Acquire, through the read-modify-write above: the last to come sees all others' work.
            self.event.notify_after_rmw();
            return Ok(());
        }
        let arrived = || {
            // A block that has returned had arrived wherever it was going to, so `returned` is read first:
            // if the phase is still incomplete then, it will never be complete.
            let returned = block.launch.returned();
            // Acquire: pairs with the others' arrivals.
            match self.arrivals.load(Ordering::Acquire) {
                arrivals if arrivals >= target => Ok(Ok(())),
                _ if returned > 0 && !block.waiter().health.is_failed() => Ok(Err(returned)),
                arrivals => Err(arrivals),
            }
        };
        let site = || site(block.index, Operation::GridBarrier, phase, target);
        block.waiter().wait(site, block.launch.timeout, Some(&self.event), arrived)?.map_err(|finished| {
            LaunchError::BarrierLeft {
                rank: block.waiter().health.rank(),
                block: block.index,
                blocks: block.launch.blocks,
                finished,
            }
            .into()
        })
    }
}

/// A counting semaphore between blocks of one process. First come, first served.
///
/// An acquire that gives up (timeout, abort, failure) has spent its turn: the communicator is broken then.
#[derive(Debug, Default)]
pub struct DeviceSemaphore {
    /// Turns handed out.
    tickets: AtomicU64,
    /// Turns that may go: the initial value and all releases.
    granted: AtomicU64,
    event: EventCount,
}

impl DeviceSemaphore {
    /// With `units` free units.
    pub fn new(units: u64) -> Self {
        Self { granted: AtomicU64::new(units), ..Self::default() }
    }

    /// Takes one unit, waiting for it if there is none. What its last holder did before the release is
    /// visible.
    ///
    /// # Errors
    /// [`WaitError`](warpway_core::wait::WaitError) on timeout, abort or failure.
    pub fn acquire(&self, block: &Block<'_>) -> Result<()> {
        self.acquire_by(block.waiter(), block.launch.timeout, block.index)
    }

    /// The same for a block that is known by its number only.
    pub(crate) fn acquire_by(&self, waiter: &Waiter, timeout: Timeout, block: u32) -> Result<()> {
        waiter.health.check_during("acquire")?;
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        let granted = || {
            // Acquire: pairs with `release`.
            let granted = self.granted.load(Ordering::Acquire);
            if granted > ticket { Ok(()) } else { Err(granted) }
        };
        let site = || site(block, Operation::Wait, ticket, ticket + 1);
        Ok(waiter.wait(site, timeout, Some(&self.event), granted)?)
    }

    /// Returns one unit.
    pub fn release(&self) {
        // SeqCst: releases the holder's work, and is the fence that `notify_after_rmw` needs.
        self.granted.fetch_add(1, Ordering::SeqCst);
        self.event.notify_after_rmw();
    }

    /// Free units now; negative: how many wait.
    pub fn free(&self) -> i64 {
        let tickets = self.tickets.load(Ordering::Acquire);
        self.granted.load(Ordering::Acquire).wrapping_sub(tickets) as i64
    }
}
