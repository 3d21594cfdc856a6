//! What channels and collectives must do, whatever the ranks are and whatever connects them. All ranks call
//! these functions alike; what is wrong is an error of the rank that finds it.

mod channels;
mod collectives;
mod groups;
mod link;
mod messages;
pub mod plans;

use std::time::{Duration, Instant};

use warpway::{Bootstrap, Communicator, Error, Failure, Result, Transport};

pub use channels::channels;
pub use collectives::{all_gather, all_reduce};
pub use groups::{publications, splits};
pub use messages::{MESSAGE_SIZES, messages, pairs_only, random_messages};

/// Sizes in bytes that powers of two, cache lines and pages do not fit.
pub const SIZES: [u64; 6] = [0, 1, 3, 17, 4095, 1_000_003];

/// All of the suite.
pub fn everything(comm: &Communicator, transport: Transport) -> Result<()> {
    channels(comm, transport)?;
    all_gather(comm, transport, &SIZES)?;
    all_reduce(comm, transport, &SIZES)?;
    splits(comm, transport)?;
    publications(comm, transport)?;
    comm.barrier()
}

/// All-gathers of small buffers, at least one, for about `time`.
pub fn work(comm: &Communicator, transport: Transport, time: Duration) -> Result<()> {
    let start = Instant::now();
    loop {
        all_gather(comm, transport, &[1, 4095])?;
        // Rank 0's clock decides.
        let mut more = [u8::from(start.elapsed() < time)];
        let deadline = comm.config().bootstrap_timeout.start();
        if comm.context().config().world_size.is_some_and(|size| size != comm.n_ranks()) {
            // A part of the job: its own barrier keeps the ranks in step, and one turn is enough.
            return comm.barrier();
        }
        comm.bootstrap().broadcast(&mut more, 0, deadline)?;
        if more == [0] {
            return Ok(());
        }
    }
}

/// An error for data that is not what it should be.
fn wrong(comm: &Communicator, what: &str, found: String) -> Error {
    let reason = format!("wrong data: {what}: {found}");
    let cause = warpway::core::Cause::Aborted { reason };
    Failure { rank: comm.rank(), culprit: Some(comm.rank()), phase: "suite".into(), cause }.into()
}

/// Compares, and says where the first difference is.
fn compare<T: PartialEq + std::fmt::Debug>(
    comm: &Communicator,
    what: &str,
    found: &[T],
    expected: impl Fn(u64) -> T,
) -> Result<()> {
    match (0..).zip(found).find(|(at, found)| **found != expected(*at)) {
        None => Ok(()),
        Some((at, found)) => Err(wrong(comm, what, format!("{found:?} at {at}, not {:?}", expected(at)))),
    }
}
