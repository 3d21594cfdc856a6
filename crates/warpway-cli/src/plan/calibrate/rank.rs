//! One rank of the measurement.

use std::time::Instant;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use warpway::{Barrier, Bootstrap, Buffer, Communicator, DataType, PlanLaunch, PreparedPlan};
use warpway_plan::{Plan, Repairs};

use super::super::complain;
use super::placement::{Flight, Moved};
use super::plans;

/// A batch of launches lasts about this long, so that reading the clock does not count.
const BATCH_SECONDS: f64 = 0.001;
const BATCHES: usize = 16;
/// What is measured is come back to so often: for some hundredths of a second another program may hold a core.
const VISITS: usize = 3;
/// Visits at most, if the cores move in between.
const MOST_VISITS: usize = 30;
/// Ways of a signal in a launch of the probe, and its launches.
const PROBE_ROUNDS: u32 = 12;
const PROBES: usize = 5;

pub(super) struct Rank {
    comm: Communicator,
    barrier: Barrier,
    cores: u32,
    /// Of two ranks.
    probe: Option<(PreparedPlan, Buffer<u8>)>,
}

/// What a call takes, and how far the cores were from each other meanwhile.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timing {
    /// Nanoseconds: the median.
    pub(super) median: f64,
    pub(super) flight: Flight,
}

impl Rank {
    pub(super) fn join() -> anyhow::Result<Self> {
        let comm = Communicator::from_env()?;
        let barrier = comm.make_barrier()?;
        // Before this thread keeps to one of them.
        let cores = std::thread::available_parallelism()?.get() as u32;
        pin(comm.rank() as usize, comm.n_ranks() as usize)?;
        let probe = match comm.n_ranks() {
            2 => {
                let plan =
                    comm.prepare_unverified(&plans::ping_pong(PROBE_ROUNDS, 1)?, &Repairs::default())?;
                Some((plan, comm.alloc(32)?))
            }
            _ => None,
        };
        Ok(Self { comm, barrier, cores, probe })
    }

    pub(super) fn leave(&self) -> warpway::Result<()> {
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

    /// Launches of a plan that follow each other, as rank 0 sees them. With `at`, an error if the cores are placed
    /// otherwise.
    pub(super) fn launch(
        &self,
        plan: &Plan,
        [input, output]: [u64; 2],
        data_type: DataType,
        at: Option<Flight>,
    ) -> anyhow::Result<Timing> {
        let prepared = self.comm.prepare_unverified(plan, &Repairs::default())?;
        let buffers = [self.touched(input)?, self.touched(output)?];
        let launch = PlanLaunch::new(buffers[0].view_of(0, input), buffers[1].view_of(0, output), data_type);
        self.time(at, || prepared.run(&launch))
    }

    /// Memory in use: every page has been written. Zeros are a value of every type.
    pub(super) fn touched(&self, bytes: u64) -> warpway::Result<Buffer<u8>> {
        let buffer = self.comm.alloc::<u8>(bytes.max(1))?;
        buffer.fill(0)?;
        Ok(buffer)
    }

    /// A call that all ranks make, by rank 0's clock: the median over the batches of some visits. All visits have the
    /// cores in the same place, before and after; `at` says in which.
    pub(super) fn time(
        &self,
        at: Option<Flight>,
        mut call: impl FnMut() -> warpway::Result<()>,
    ) -> anyhow::Result<Timing> {
        let mut samples = Vec::with_capacity(VISITS * BATCHES);
        let mut place = at;
        for _ in 0..MOST_VISITS {
            let before = self.flight()?;
            let visit = self.visit(&mut call)?;
            let after = self.flight()?;
            if before.is_near(after) && place.is_none_or(|place| place.is_near(before)) {
                place = Some(place.unwrap_or(before));
                samples.extend(visit);
            }
            if samples.len() == VISITS * BATCHES {
                break;
            }
        }
        let Some(flight) = place.filter(|_| !samples.is_empty()) else { return Err(Moved.into()) };
        samples.sort_by(f64::total_cmp);
        let median = self.agree(samples[samples.len() / 2])?;
        Ok(Timing { median, flight })
    }

    /// One way of a signal now, of which all ranks hear the same. Nothing between other numbers of ranks than two.
    pub(super) fn flight(&self) -> anyhow::Result<Flight> {
        let Some((plan, memory)) = &self.probe else { return Ok(Flight(0.0)) };
        let launch = PlanLaunch::new(memory.view_of(0, 16), memory.view_of(16, 16), DataType::Uint8);
        let mut fastest = f64::INFINITY;
        for _ in 0..PROBES {
            let start = Instant::now();
            plan.run(&launch)?;
            // Whatever else runs only adds.
            fastest = fastest.min(start.elapsed().as_secs_f64() * 1e9);
        }
        Ok(Flight(self.agree(fastest / f64::from(2 * PROBE_ROUNDS))?))
    }

    fn visit(&self, call: &mut impl FnMut() -> warpway::Result<()>) -> anyhow::Result<[f64; BATCHES]> {
        let mut calls = 1u64;
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
        Ok(samples)
    }

    fn batch(&self, calls: u64, call: &mut impl FnMut() -> warpway::Result<()>) -> warpway::Result<f64> {
        self.barrier.wait()?;
        let start = Instant::now();
        for _ in 0..calls {
            call()?;
        }
        Ok(start.elapsed().as_secs_f64())
    }

    /// Rank 0's number, for all.
    fn agree(&self, number: f64) -> warpway::Result<f64> {
        let mut agreed = number.to_le_bytes();
        self.comm.bootstrap().broadcast(&mut agreed, 0, self.comm.bootstrap_deadline())?;
        Ok(f64::from_le_bytes(agreed))
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
