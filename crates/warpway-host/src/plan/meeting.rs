//! Before a plan is set up: whether the other ranks are doing that, too.
//!
//! Ranks that set a plan up wait for each other at the bootstrap, where ranks that launch never come. So a set-up is a
//! step of its own in the control memory, where launches are told of: both sides see what the other does.

use warpway_core::execution::ExecutionError;
use warpway_core::trace::Operation;
use warpway_core::wait::WaitSite;
use warpway_core::{Error, Result};
use warpway_plan::Plan;

use super::control::Peer;
use super::executor::Shared;
use super::identity::Identity;
use super::record::{Label, LaunchRecord, Step};
use super::refusals::Refusal;
use super::waiting::reason_deadline;

/// Tells the other ranks that this one sets up `plan` as step `sequence`, and waits until they do the same. Which plan they set up is not compared here.
///
/// # Errors
/// `plan.difference` naming a rank that launches something, `plan.peer_refused` one that has refused a call; a wait that gave up naming a rank that did not come.
pub(super) fn meet(
    shared: &Shared,
    sequence: u64,
    (plan, name): (&Plan, &str),
    identity: &Identity,
    function: Label,
) -> Result<()> {
    let (rank, n) = (shared.comm.rank(), shared.comm.n_ranks());
    let record = LaunchRecord::without_launch(Step::SetUp, plan.collective, function, identity.plan);
    let others = (0..n).filter(|peer| *peer != rank);
    let (told, apart): (Vec<u32>, Vec<u32>) = others.partition(|peer| shared.control.reaches(*peer));
    shared.control.announce(sequence, &record.to_words(), &told, &[], false)?;
    // Ranks of other hosts with which there was no plan yet.
    shared.refusals.set_up(sequence, &apart);
    let site = |peer| {
        let operation = Operation::Launch;
        move || WaitSite { operation, peer: Some(peer), object: 0, sequence, expected: sequence }
    };
    let (waiter, timeout, refusals) = (shared.comm.waiter(), shared.config.setup_timeout, &shared.refusals);
    let refused = |refusal: Refusal| -> Error {
        let (here, Refusal { rank: peer, step, why }) = (format!("sets plan {name:?} up"), refusal);
        ExecutionError::PeerRefused { sequence: step, rank, here, peer, why }.into()
    };
    for peer in apart {
        let found = waiter.wait(site(peer), timeout, Some(refusals.event()), || {
            match (refusals.sets_up(peer, sequence), refusals.until(sequence)) {
                (true, _) => Ok(None),
                (false, Some(found)) => Ok(Some(found)),
                (false, None) => Err(0),
            }
        })?;
        if let Some(found) = found {
            return Err(refused(found));
        }
    }
    // Whoever is told tells this rank, too.
    for peer in told {
        let event = shared.control.started(peer);
        let found =
            waiter.wait(site(peer), timeout, event, || match shared.control.peer(peer, sequence) {
                Peer::Behind(step) => match refusals.until(sequence) {
                    Some(found) => Ok(Err(found)),
                    None => Err(step),
                },
                other => Ok(Ok(other)),
            })?;
        let there = match found.map_err(refused)? {
            Peer::Here(words) => LaunchRecord::from_words(&words),
            _ => None,
        };
        match there.map(|there| there.step) {
            Some(Step::SetUp) => continue,
            Some(Step::Refused) => {
                let why = refusals.reason(peer, sequence, reason_deadline());
                return Err(refused(Refusal { rank: peer, step: sequence, why }));
            }
            _ => {}
        }
        let elsewhere = || ("step", "set-up of a plan".to_owned(), "a later step".to_owned());
        let (field, here, there) =
            there.and_then(|there| record.difference(&there)).unwrap_or_else(elsewhere);
        shared.control.settle();
        let plan = name.to_owned();
        return Err(ExecutionError::Difference { sequence, plan, field, rank, here, peer, there }.into());
    }
    Ok(())
}
