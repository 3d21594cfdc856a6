//! Kernel launch: a closure runs once per block, each block on a thread of its own.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use warpway_core::channel::DEVICE_TIMEOUT;
use warpway_core::launch::LaunchError;
use warpway_core::trace::{Operation, Request};
use warpway_core::wait::{EventCount, WaitPolicy, Waiter};
use warpway_core::{Error, ErrorCode, Result, Timeout};

use crate::block::{Block, GridBarrier};
use crate::worker::Workers;

/// Blocks of one launch at most. All of them run at the same time.
pub const MAX_BLOCKS: u32 = 1024;

/// Launches kernels of one communicator. Cheap to clone; owns its threads, the last clone ends them.
///
/// Launches may overlap: several threads may launch at once, and a block may launch. Each launch has as
/// many threads as blocks, so blocks that wait for each other, or for those of another rank, always run.
#[derive(Clone)]
pub struct Launcher {
    workers: Arc<Workers>,
    waiter: Waiter,
    timeout: Timeout,
    ranks: usize,
    cores: usize,
}

impl Launcher {
    /// A launcher without threads yet; `waiter` is the communicator's.
    pub fn new(waiter: Waiter) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self { workers: Arc::default(), waiter, timeout: DEVICE_TIMEOUT, ranks: 1, cores }
    }

    /// The same with another limit for each wait between blocks.
    pub fn with_timeout(mut self, timeout: Timeout) -> Self {
        self.timeout = timeout;
        self
    }

    /// The same on a host that runs so many ranks, all of which launch: decides from how many blocks on
    /// spinning does not pay.
    pub fn with_ranks_on_host(mut self, ranks: u32) -> Self {
        self.ranks = ranks.max(1) as usize;
        self
    }

    /// The back-off that suits waits in a launch of so many blocks, for
    /// [`BlockChannel::with_policy`](crate::BlockChannel::with_policy).
    pub fn policy(&self, blocks: u32) -> WaitPolicy {
        let runnable = self.ranks.saturating_mul(blocks as usize);
        if blocks <= 1 || runnable <= self.cores {
            self.waiter.policy
        } else {
            WaitPolicy::for_load(runnable, self.cores)
        }
    }

    /// Runs `kernel` once per block and returns when all blocks have ended. Block 0 runs on the calling
    /// thread, so a launch of one block wakes nobody.
    ///
    /// # Errors
    /// The first error (or panic) of a block. It also fails the communicator, so that the other blocks,
    /// here and on the peers, leave their waits; waits are bounded, so a launch ends.
    pub fn launch(&self, blocks: u32, kernel: impl Fn(&Block<'_>) -> Result<()> + Sync) -> Result<()> {
        let health = &self.waiter.health;
        health.check_during(Operation::Launch)?;
        if blocks == 0 || blocks > MAX_BLOCKS {
            return Err(LaunchError::Blocks { rank: health.rank(), blocks, limit: MAX_BLOCKS }.into());
        }
        let record = self.waiter.recorder.start(Request {
            operation: Operation::Launch,
            peer: None,
            object: u64::from(blocks),
            bytes: 0,
            offset: 0,
        });
        let result = self.run(blocks, &kernel);
        match &result {
            Ok(()) => self.waiter.recorder.complete(record),
            Err(error) => self.waiter.recorder.fail(record, error),
        }
        result
    }

    fn run(&self, blocks: u32, kernel: &(dyn Fn(&Block<'_>) -> Result<()> + Sync)) -> Result<()> {
        let policy = self.policy(blocks);
        let workers = self.workers.take(blocks as usize - 1, policy)?;
        let launch = Arc::new(Launch {
            blocks,
            waiter: self.waiter.with_policy(policy),
            timeout: self.timeout,
            barrier: GridBarrier::default(),
            returned: AtomicU32::new(0),
            ended: EventCount::new(),
            failure: Mutex::new(None),
        });
        // SAFETY: the lifetime is extended for the tasks only, each of which stops using the kernel before
        // it counts itself in `returned`; `join` below does not return before all have done so, and
        // nothing between here and there unwinds (`run_block` catches panics, `post` only stores).
        let kernel: Kernel =
            unsafe { std::mem::transmute::<&(dyn Fn(&Block<'_>) -> Result<()> + Sync), Kernel>(kernel) };
        for (worker, index) in workers.iter().zip(1..) {
            let launch = Arc::clone(&launch);
            worker.post(Box::new(move || launch.run_block(kernel, index)));
        }
        launch.run_block(kernel, 0);
        launch.join();
        self.workers.put_back(workers);
        match lock(&launch.failure).take() {
            None => Ok(()),
            Some(error) => Err(error),
        }
    }
}

impl std::fmt::Debug for Launcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Launcher").field("rank", &self.waiter.health.rank()).finish_non_exhaustive()
    }
}

/// A kernel whose real lifetime is that of the launch.
type Kernel = &'static (dyn Fn(&Block<'_>) -> Result<()> + Sync);

/// What the blocks of one launch share.
pub(crate) struct Launch {
    pub(crate) blocks: u32,
    pub(crate) waiter: Waiter,
    pub(crate) timeout: Timeout,
    pub(crate) barrier: GridBarrier,
    /// Blocks that have ended and use nothing of the caller any more.
    returned: AtomicU32,
    ended: EventCount,
    failure: Mutex<Option<Error>>,
}

impl Launch {
    /// How many blocks have ended.
    pub(crate) fn returned(&self) -> u32 {
        // Pairs with the increment in `run_block`.
        self.returned.load(Ordering::Acquire)
    }

    fn run_block(&self, kernel: Kernel, index: u32) {
        let block = Block::new(self, index);
        let rank = self.waiter.health.rank();
        if let Err(error) = caught(rank, (index, self.blocks), || kernel(&block)) {
            self.fail(index, error);
        }
        // Release: the caller of `launch` sees all that the block did; pairs with `returned`.
        self.returned.fetch_add(1, Ordering::AcqRel);
        self.ended.notify();
        // Blocks at a grid barrier look whether it can still open.
        self.barrier.notify();
    }

    fn fail(&self, index: u32, error: Error) {
        let mut failure = lock(&self.failure);
        if failure.is_none() {
            *failure = Some(error.clone());
            drop(failure);
            // A mistake in the kernel is this rank's, also if it was made in a call that names another.
            let usage = error.code() == ErrorCode::InvalidUsage;
            let health = &self.waiter.health;
            let culprit = if usage { Some(health.rank()) } else { error.culprit() };
            health.fail_local(format!("kernel, block {index} of {}", self.blocks), culprit, error);
        }
    }

    /// Waits until all blocks have ended. Has no deadline, since the blocks use what the caller owns: it
    /// ends because every wait in a block does.
    fn join(&self) {
        let done = || self.returned() == self.blocks;
        for _ in 0..self.waiter.policy.spins {
            if done() {
                return;
            }
            std::hint::spin_loop();
        }
        for _ in 0..self.waiter.policy.yields {
            if done() {
                return;
            }
            std::thread::yield_now();
        }
        while !done() {
            self.ended.sleep_unless(Duration::from_millis(100), done);
        }
    }
}

/// Runs a block, given with its number and that of all. A panic leaves shared data in a state of the user's making; the error that
/// the launch returns says so.
///
/// # Errors
/// That of the block; `launch.panicked` for a panic.
pub(crate) fn caught(rank: u32, (block, blocks): (u32, u32), run: impl FnOnce() -> Result<()>) -> Result<()> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic: Box<dyn Any + Send>| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let message = text.or_else(|| panic.downcast_ref::<String>().cloned());
        let message = message.unwrap_or_else(|| "(no message)".into());
        Err(LaunchError::Panicked { rank, block, blocks, message }.into())
    })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Also where a block runs on the thread of the caller, without the launcher.
    #[test]
    fn a_panic_becomes_an_error() {
        let empty: [u8; 0] = [];
        let at = std::hint::black_box(0);
        let error = caught(3, (1, 2), || {
            std::hint::black_box(empty[at]);
            Ok(())
        })
        .unwrap_err();
        assert_eq!(error.id(), "launch.panicked");
        let text = error.to_string();
        assert!(text.starts_with("rank 3: block 1 of 2 panicked: index out of bounds"), "{text}");
        let what = "blocks return their errors";
        let error = caught(0, (0, 1), || Err(Error::Internal { place: "test", what })).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
        caught(0, (0, 1), || Ok(())).unwrap();
    }
}
