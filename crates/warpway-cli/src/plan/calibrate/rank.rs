//! One rank of the measurement.

use std::time::Instant;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use warpway::{Barrier, Bootstrap, Buffer, Communicator, DataType, PlanLaunch, Result};
use warpway_plan::{Plan, Repairs};

use super::super::complain;

/// A batch of launches lasts about this long, so that reading the clock does not count.
const BATCH_SECONDS: f64 = 0.001;
const BATCHES: usize = 16;
/// What is measured is come back to so often: for some hundredths of a second the scheduler may leave two ranks on one
/// core, or another program may hold one.
const VISITS: usize = 3;

pub(super) struct Rank {
    comm: Communicator,
    barrier: Barrier,
    cores: u32,
}

impl Rank {
    pub(super) fn join() -> anyhow::Result<Self> {
        let comm = Communicator::from_env()?;
        let barrier = comm.make_barrier()?;
        // Before this thread keeps to one of them.
        let cores = std::thread::available_parallelism()?.get() as u32;
        pin(comm.rank() as usize, comm.n_ranks() as usize)?;
        Ok(Self { comm, barrier, cores })
    }

    pub(super) fn leave(&self) -> Result<()> {
        self.barrier.wait()
    }

    pub(super) fn comm(&self) -> &Communicator {
        &self.comm
    }

    /// Cores that all ranks may use.
    pub(super) fn cores(&self) -> u32 {
        self.cores
    }

    pub(super) fn is_first(&self) -> bool {
        self.comm.rank() == 0
    }

    /// A line about what is being done, from rank 0.
    pub(super) fn say(&self, what: &str) {
        if self.is_first() {
            complain(&format!("measuring {what}"));
        }
    }

    /// Nanoseconds of one launch of a plan, launches following each other, as rank 0 sees it.
    pub(super) fn launch(&self, plan: &Plan, [input, output]: [u64; 2], data_type: DataType) -> Result<f64> {
        let prepared = self.comm.prepare_unverified(plan, &Repairs::default())?;
        let buffers = [self.touched(input)?, self.touched(output)?];
        let launch = PlanLaunch::new(buffers[0].view_of(0, input), buffers[1].view_of(0, output), data_type);
        self.time(|| prepared.run(&launch))
    }

    /// Memory in use: every page has been written. Zeros are a value of every type.
    pub(super) fn touched(&self, bytes: u64) -> Result<Buffer<u8>> {
        let buffer = self.comm.alloc::<u8>(bytes.max(1))?;
        buffer.fill(0)?;
        Ok(buffer)
    }

    /// Nanoseconds of a call that all ranks make, by rank 0's clock: the lower quartile over batches, of the fastest visit. On
    /// an idle machine that is close to the median; whatever else runs only adds.
    pub(super) fn time(&self, mut call: impl FnMut() -> Result<()>) -> Result<f64> {
        let mut fastest = f64::INFINITY;
        for _ in 0..VISITS {
            fastest = fastest.min(self.visit(&mut call)?);
        }
        let mut agreed = fastest.to_le_bytes();
        self.comm.bootstrap().broadcast(&mut agreed, 0, self.comm.bootstrap_deadline())?;
        Ok(f64::from_le_bytes(agreed))
    }

    fn visit(&self, call: &mut impl FnMut() -> Result<()>) -> Result<f64> {
        let mut calls = 4u64;
        loop {
            let seconds = self.batch(calls, call)?;
            let wanted = (calls as f64 * BATCH_SECONDS / seconds.max(1e-9)) as u64;
            let is_short = seconds < BATCH_SECONDS / 2.0 && calls < 20_000;
            let next = if is_short { wanted.clamp(calls + 1, 20_000).min(16 * calls) } else { 0 };
            let mut next = next.to_le_bytes();
            self.comm.bootstrap().broadcast(&mut next, 0, self.comm.bootstrap_deadline())?;
            match u64::from_le_bytes(next) {
                0 => break,
                more => calls = more,
            }
        }
        let mut samples = [0.0; BATCHES];
        for sample in &mut samples {
            *sample = self.batch(calls, call)? * 1e9 / calls as f64;
        }
        samples.sort_by(f64::total_cmp);
        Ok(samples[BATCHES / 4])
    }

    fn batch(&self, calls: u64, call: &mut impl FnMut() -> Result<()>) -> Result<f64> {
        self.barrier.wait()?;
        let start = Instant::now();
        for _ in 0..calls {
            call()?;
        }
        Ok(start.elapsed().as_secs_f64())
    }
}

/// Keeps this thread on a core of its own, if there is one for every rank: what two ranks on one core take says nothing
/// of primitives.
fn pin(rank: usize, n_ranks: usize) -> anyhow::Result<()> {
    let allowed = sched_getaffinity(None)?;
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
    if let Some(core) = cores.get(rank).filter(|_| n_ranks <= cores.len()) {
        let mut own = CpuSet::new();
        own.set(*core);
        sched_setaffinity(None, &own)?;
    }
    Ok(())
}
