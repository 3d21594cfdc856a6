//! Ranks as threads of one process.

use warpway_core::bootstrap::{NameFilter, UniqueIdRoot};
use warpway_core::health::Cause;
use warpway_core::{Error, Failure, Result};

use crate::communicator::Communicator;
use crate::context::Context;

/// Runs `rank_main` on `n_ranks` threads, each with a communicator of its own, and returns their results by
/// rank. A rank that returns an error or panics aborts the others.
///
/// # Errors
/// The error of the lowest rank that failed by itself.
pub fn in_process<T: Send>(
    n_ranks: u32,
    context: &Context,
    rank_main: impl Fn(&Communicator) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let mut loopback = context.config().clone();
    loopback.socket_ifname = NameFilter::Exact(vec!["lo".into()]);
    let root = UniqueIdRoot::create(&loopback)?;
    let run = |rank| {
        let comm = context.join_id(root.id(), rank, n_ranks)?;
        rank_main(&comm).inspect_err(|error| comm.abort(error.to_string()))
    };
    let results: Vec<Result<T>> = std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..n_ranks).map(|rank| scope.spawn(move || run(rank))).collect();
        (0..)
            .zip(threads)
            .map(|(rank, thread)| thread.join().unwrap_or_else(|_| Err(panicked(rank))))
            .collect()
    });
    let secondary = |error: &Error| matches!(error, Error::Failed(f) if !matches!(f.cause, Cause::Local(_)));
    match results.iter().position(|r| r.as_ref().is_err_and(|e| !secondary(e))) {
        Some(first) => results.into_iter().nth(first).map_or(Ok(Vec::new()), |r| r.map(|_| Vec::new())),
        None => results.into_iter().collect(),
    }
}

fn panicked(rank: u32) -> Error {
    let reason = "the rank's thread panicked".to_owned();
    Failure { rank, culprit: Some(rank), phase: "rank".into(), cause: Cause::Aborted { reason } }.into()
}
