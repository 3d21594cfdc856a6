//! A barrier on semaphores.

use warpway_core::semaphore::Semaphore;
use warpway_core::transport::Transport;
use warpway_core::{Result, Timeout};

use crate::communicator::Communicator;
use crate::peer::Peer;

/// Dissemination barrier (Hensgen, Finkel and Manber, 1988): in round k each rank signals rank + 2^k and
/// waits for rank − 2^k; ⌈log₂ n⌉ rounds. Signals of later uses queue in the counters, so it needs no reset.
///
/// One thread of a rank uses it at a time.
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use warpway::{Config, Context, in_process};
///
/// # fn main() -> warpway::Result<()> {
/// let arrived = AtomicU32::new(0);
/// in_process(3, &Context::new(Config::default()), |comm| {
///     let barrier = comm.make_barrier()?;
///     arrived.fetch_add(1, Ordering::SeqCst);
///     barrier.wait()?;
///     assert_eq!(arrived.load(Ordering::SeqCst), 3);
///     comm.barrier()
/// })?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Barrier {
    rounds: Vec<Round>,
    timeout: Timeout,
}

#[derive(Debug)]
struct Round {
    to: Semaphore,
    from: Semaphore,
}

impl Barrier {
    pub(crate) fn new(comm: &Communicator, transport: Option<Transport>) -> Result<Self> {
        let (rank, n) = (u64::from(comm.rank()), u64::from(comm.n_ranks()));
        // Ranks as u64: rank + distance may exceed 32 bits' half otherwise.
        let at = |position: u64| (position % n) as u32;
        let mut rounds = Vec::new();
        let mut distance = 1;
        while distance < n {
            let (next, previous) = (at(rank + distance), at(rank + n - distance));
            // Every rank starts both exchanges before it waits, so no order of ranks can deadlock. With two
            // ranks, or at half the ring, both neighbours are one peer: the first exchange here is "to me"
            // there, so one semaphore pair serves both directions.
            let connect = |peer| comm.core().connect(comm.endpoint(peer, transport)?, peer, Peer::TAG);
            let deadline = comm.setup_deadline();
            let build = |connection, peer| comm.core().build_semaphore(connection, peer, Peer::TAG);
            let round = if next == previous {
                let both = build(&connect(next)?.wait(deadline)?, next)?.wait(deadline)?;
                Round { to: both.clone(), from: both }
            } else {
                let (to, from) = (connect(next)?, connect(previous)?);
                let (to, from) = (to.wait(deadline)?, from.wait(deadline)?);
                let (to, from) = (build(&to, next)?, build(&from, previous)?);
                Round { to: to.wait(deadline)?, from: from.wait(deadline)? }
            };
            rounds.push(round);
            distance *= 2;
        }
        Ok(Self { rounds, timeout: comm.device_timeout() })
    }

    /// Returns once every rank has called it as often as this one.
    ///
    /// # Errors
    /// A wait that gave up, naming the rank that did not signal.
    pub fn wait(&self) -> Result<()> {
        for Round { to, from } in &self.rounds {
            to.signal()?;
            from.wait(self.timeout)?;
        }
        Ok(())
    }
}
