//! Ranks that stop, abort, leave, panic or die while others work with them.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use warpway::{Bootstrap, Communicator, Error, Semaphore, Transport};
use warpway_tests::{Fault, Line, suite};

use super::{join, others};

/// Semaphores with all others, by rank; `None` in this rank's own place.
struct Ring {
    comm: Communicator,
    semaphores: Vec<Option<Semaphore>>,
}

impl Ring {
    fn new(comm: Communicator, transport: Transport) -> anyhow::Result<Self> {
        let peers = comm.connect_all(Some(transport))?;
        let mut semaphores = vec![None; peers.len()];
        for rank in others(&comm) {
            semaphores[rank as usize] = Some(peers[rank as usize].semaphore()?);
        }
        Ok(Self { comm, semaphores })
    }

    fn with(&self, rank: u32) -> anyhow::Result<&Semaphore> {
        self.semaphores.get(rank as usize).and_then(Option::as_ref).context("a semaphore with that rank")
    }

    fn wait_for(&self, rank: u32) -> anyhow::Result<()> {
        Ok(self.with(rank)?.wait(self.comm.config().device_timeout)?)
    }

    fn last(&self) -> u32 {
        self.comm.n_ranks() - 1
    }

    /// Waits for a signal that nobody sends, in a kernel, of a rank that is not the last.
    fn wait_in_kernel(&self) -> anyhow::Result<()> {
        let semaphore = self.with((self.comm.rank() + 1) % self.last())?;
        Ok(self.comm.launch(1, |_| semaphore.wait(self.comm.config().device_timeout))?)
    }
}

/// Rank 0 says "ready" and is stopped by the test; the others wait for it in different calls.
pub(super) fn sleep(transport: Transport) -> anyhow::Result<()> {
    let ring = Ring::new(join()?, transport)?;
    Line::mark("ready");
    match ring.comm.rank() {
        0 => loop {
            std::thread::sleep(Duration::from_millis(1));
        },
        1 => {
            // Time for the test to stop rank 0.
            std::thread::sleep(Duration::from_millis(300));
            ring.wait_for(0)
        }
        2 => {
            std::thread::sleep(Duration::from_millis(300));
            let deadline = ring.comm.config().bootstrap_timeout.start();
            Ok(ring.comm.bootstrap().recv_vec(0, 3, deadline).map(drop)?)
        }
        _ => {
            std::thread::sleep(Duration::from_millis(300));
            ring.comm.connect_by(0, transport)?;
            Ok(())
        }
    }
}

pub(super) fn abort(transport: Transport) -> anyhow::Result<()> {
    let ring = Ring::new(join()?, transport)?;
    if ring.comm.rank() < ring.last() {
        return ring.wait_in_kernel();
    }
    std::thread::sleep(Duration::from_millis(50));
    ring.comm.abort("enough of it");
    ring.wait_for(0)
}

pub(super) fn leave(transport: Transport) -> anyhow::Result<()> {
    let ring = Ring::new(join()?, transport)?;
    // What was sent before leaving arrives.
    if ring.comm.rank() < ring.last() {
        ring.comm.barrier()?;
        ring.wait_for(ring.last())?;
        Line::mark("signalled");
        return ring.wait_for(ring.last());
    }
    for rank in others(&ring.comm) {
        ring.with(rank)?.signal()?;
    }
    // Not before the others have built their halves of the semaphores.
    Ok(ring.comm.barrier()?)
}

pub(super) fn panic(transport: Transport) -> anyhow::Result<()> {
    let ring = Ring::new(join()?, transport)?;
    if ring.comm.rank() < ring.last() {
        return ring.wait_in_kernel();
    }
    std::thread::sleep(Duration::from_millis(50));
    // The other block waits for the one that panics.
    let result = ring.comm.launch(2, |block| {
        if block.index() == 1 {
            // What a mistake in a kernel does: an index out of bounds.
            let numbers = [1, 2, 3];
            let index = block.index() as usize + numbers.len();
            std::hint::black_box(numbers[std::hint::black_box(index)]);
        }
        block.barrier()
    });
    Ok(result?)
}

pub(super) fn kernel_error(transport: Transport) -> anyhow::Result<()> {
    let ring = Ring::new(join()?, transport)?;
    if ring.comm.rank() < ring.last() {
        return ring.wait_in_kernel();
    }
    std::thread::sleep(Duration::from_millis(50));
    let refused = |_: &warpway::Block<'_>| {
        Err(Error::Internal { place: "scenario", what: "a kernel may return errors" })
    };
    Ok(ring.comm.launch(2, refused)?)
}

/// Rank 3 is killed once all are "ready". Ranks 0 and 1 share a half without it.
pub(super) fn halves(transport: Transport) -> anyhow::Result<()> {
    let world = join()?;
    let half = world.split((world.rank() / 2) as i32, 0)?.context("every rank has a half")?;
    let second = world.split(0, -(world.rank() as i32))?.context("every rank is in the second")?;
    let ring = Ring::new(half, transport)?;
    Line::mark("ready");
    if world.rank() >= 2 {
        let error = ring.wait_for(1 - ring.comm.rank()).err().context("a signal that nobody sent")?;
        Line::Met(Fault::of_scenario(&error)).say();
        return Err(ring_of_all(&second));
    }
    // Both failures are found in the background, each with the number that the dead rank has there.
    for comm in [&world, &second] {
        Line::Met(Fault::new(&failure_of(comm)?)).say();
    }
    // Then work in the half goes on as if nothing had happened; new connections, too.
    let work = suite::work(&ring.comm, transport, Duration::from_millis(200));
    work.map_err(|error| anyhow::anyhow!("the half without the dead rank: {error}"))?;
    let partner = 1 - ring.comm.rank();
    ring.with(partner)?.signal()?;
    ring.wait_for(partner)?;
    ensure!(ring.comm.async_error().is_none(), "the half has failed: {:?}", ring.comm.async_error());
    Line::mark("half works");
    ring.comm.barrier()?;
    match world.barrier() {
        Ok(()) => bail!("a barrier with a dead rank"),
        Err(error) => Err(error.into()),
    }
}

fn failure_of(comm: &Communicator) -> anyhow::Result<Error> {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(8) {
        if let Some(error) = comm.async_error() {
            return Ok(error);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    bail!("the communicator has not failed")
}

/// The error of a call on a communicator that has failed.
fn ring_of_all(comm: &Communicator) -> anyhow::Error {
    match comm.connect(0) {
        Ok(_) => anyhow::anyhow!("a connection in a failed communicator"),
        Err(error) => error.into(),
    }
}
