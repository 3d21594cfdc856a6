//! Ranks as threads of one process.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use warpway_core::bootstrap::{NameFilter, UniqueIdRoot};
use warpway_core::config::Config;
use warpway_core::health::Cause;
use warpway_core::{Error, Failure, Result};

use crate::communicator::Communicator;
use crate::context::Context;

/// Runs `rank_main` on `n_ranks` threads, each with a communicator of its own, and returns their results by
/// rank. A rank that returns an error or panics aborts the others.
///
/// ```
/// use warpway::{Config, Context, in_process};
///
/// # fn main() -> warpway::Result<()> {
/// let squares = in_process(3, &Context::new(Config::default()), |comm| {
///     comm.barrier()?;
///     Ok(comm.rank() * comm.rank())
/// })?;
/// assert_eq!(squares, [0, 1, 4]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// That of the rank that failed first; what the others then saw of it is not reported.
pub fn in_process<T: Send>(
    n_ranks: u32,
    context: &Context,
    rank_main: impl Fn(&Communicator) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    in_process_with(&vec![context.clone(); n_ranks as usize], rank_main)
}

/// The same with a context per rank. Contexts whose [`host_id`](crate::Config::host_id) differs play different hosts: their
/// ranks share no memory, and reach each other by TCP.
///
/// # Errors
/// As [`in_process`]; `bootstrap.*` without any context.
pub fn in_process_with<T: Send>(
    contexts: &[Context],
    rank_main: impl Fn(&Communicator) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let n_ranks = contexts.len() as u32;
    let mut loopback = contexts.first().map_or_else(Config::default, |context| context.config().clone());
    loopback.socket_ifname = NameFilter::Exact(vec!["lo".into()]);
    let root = UniqueIdRoot::create(&loopback)?;
    // A rank notes its failure before it aborts the others, so theirs come later.
    let first_failure = OnceLock::new();
    let run = |(rank, context): (u32, &Context)| {
        let joined = context.join_id(root.id(), rank, n_ranks);
        let comm = joined.inspect_err(|error| drop(first_failure.set(error.clone())))?;
        catch_unwind(AssertUnwindSafe(|| rank_main(&comm)))
            .unwrap_or_else(|panic| Err(panicked(rank, &*panic)))
            .inspect_err(|error| {
                drop(first_failure.set(error.clone()));
                comm.abort(error.to_string());
            })
    };
    let results: Vec<Result<T>> = std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..).zip(contexts).map(|rank| scope.spawn(move || run(rank))).collect();
        (0..)
            .zip(threads)
            .map(|(rank, thread)| thread.join().unwrap_or_else(|panic| Err(panicked(rank, &*panic))))
            .collect()
    });
    match first_failure.into_inner() {
        Some(error) => Err(error),
        None => results.into_iter().collect(),
    }
}

fn panicked(rank: u32, panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
    let reason = format!("the rank's thread panicked: {}", text.unwrap_or("(no text)"));
    Failure { rank, culprit: Some(rank), phase: "rank".into(), cause: Cause::Aborted { reason } }.into()
}
