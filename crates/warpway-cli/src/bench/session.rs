//! One rank of a benchmark run.

use std::time::Instant;

use warpway::core::bootstrap::{Rendezvous, ThisHost};
use warpway::core::config::ConfigError;
use warpway::{Barrier, Bootstrap, Communicator, Config, Environment, Error, Peer, Transport};

use super::statistics::Samples;

/// A batch lasts about this long, so that reading the clock does not count.
const BATCH_SECONDS: f64 = 0.002;
/// Calls of one batch at most; keeps batches of the fastest calls short as well.
const BATCH_CALLS: u64 = 20_000;

/// True if a launcher has given this process a rank.
pub(crate) fn is_launched() -> anyhow::Result<bool> {
    let environment = Environment::of_process()?;
    let config = Config::read(&environment)?.config;
    match Rendezvous::find(&environment, &config, &ThisHost::new(&config)) {
        Ok(_) => Ok(true),
        Err(Error::Config(ConfigError::NoLauncher { .. })) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The communicator, its peers and a fast barrier.
pub(super) struct Session {
    comm: Communicator,
    peers: Vec<Peer>,
    barrier: Barrier,
}

impl Session {
    pub(super) fn join(transport: Option<Transport>) -> anyhow::Result<Self> {
        let comm = Communicator::from_env()?;
        let peers = comm.connect_all(transport)?;
        let barrier = comm.make_barrier()?;
        Ok(Self { comm, peers, barrier })
    }

    pub(super) fn comm(&self) -> &Communicator {
        &self.comm
    }

    pub(super) fn rank(&self) -> u32 {
        self.comm.rank()
    }

    pub(super) fn n_ranks(&self) -> u32 {
        self.comm.n_ranks()
    }

    /// Indexed by rank, this one included.
    pub(super) fn peers(&self) -> &[Peer] {
        &self.peers
    }

    /// What joins this rank with the others, as the report calls it.
    pub(super) fn transport_name(&self) -> &'static str {
        let own = self.rank() as usize;
        let others = self.peers.iter().enumerate().filter(|(rank, _)| *rank != own);
        let mut transports = others.map(|(_, peer)| peer.connection().transport());
        if self.n_ranks() == 1 {
            return "none";
        }
        if transports.all(|transport| transport == Transport::SharedMemory) { "shared" } else { "tcp" }
    }

    pub(super) fn barrier(&self) -> &Barrier {
        &self.barrier
    }

    /// Times `call` in batches. All ranks call it with calls that match; rank 0's clock decides how long a
    /// batch is, the samples are each rank's own.
    pub(super) fn time(
        &self,
        batches: u32,
        mut call: impl FnMut() -> warpway::Result<()>,
    ) -> warpway::Result<Samples> {
        let mut calls = 1u64;
        loop {
            let seconds = self.batch(calls, &mut call)?;
            let mut next = [0u8; 8];
            if seconds < BATCH_SECONDS / 2.0 && calls < BATCH_CALLS {
                let wanted = (calls as f64 * BATCH_SECONDS / seconds.max(1e-9)) as u64;
                next = wanted.clamp(calls + 1, calls.saturating_mul(16).min(BATCH_CALLS)).to_le_bytes();
            }
            // Zero: the batch is long enough.
            self.comm.bootstrap().broadcast(&mut next, 0, self.comm.config().bootstrap_timeout.start())?;
            match u64::from_le_bytes(next) {
                0 => break,
                more => calls = more,
            }
        }
        let mut microseconds = Vec::with_capacity(batches as usize);
        for _ in 0..batches {
            microseconds.push(self.batch(calls, &mut call)? * 1e6 / calls as f64);
        }
        Ok(Samples::new(microseconds))
    }

    fn batch(&self, calls: u64, call: &mut impl FnMut() -> warpway::Result<()>) -> warpway::Result<f64> {
        self.barrier.wait()?;
        let start = Instant::now();
        for _ in 0..calls {
            call()?;
        }
        Ok(start.elapsed().as_secs_f64())
    }

    /// Sum of a number over all ranks.
    pub(super) fn sum(&self, value: u64) -> warpway::Result<u64> {
        Ok(self.gather(value)?.into_iter().fold(0, u64::wrapping_add))
    }

    /// The greatest of a number over all ranks.
    pub(super) fn greatest(&self, value: f64) -> warpway::Result<f64> {
        Ok(self.gather(value.to_bits())?.into_iter().map(f64::from_bits).fold(value, f64::max))
    }

    /// Everybody's number, by rank.
    fn gather(&self, value: u64) -> warpway::Result<Vec<u64>> {
        let mut slots = vec![0u8; 8 * self.n_ranks() as usize];
        let own = 8 * self.rank() as usize;
        slots[own..own + 8].copy_from_slice(&value.to_le_bytes());
        self.comm.bootstrap().all_gather(&mut slots, 8, self.comm.config().bootstrap_timeout.start())?;
        let (numbers, _) = slots.as_chunks::<8>();
        Ok(numbers.iter().map(|n| u64::from_le_bytes(*n)).collect())
    }
}
