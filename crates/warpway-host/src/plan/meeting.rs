//! Before a plan is set up: whether the other ranks are doing that, too.
//!
//! Ranks that set a plan up wait for each other at the bootstrap, where ranks that launch never come. So a set-up is a
//! step of its own in the control memory, where launches are told of: both sides see what the other does.

use warpway_core::Result;
use warpway_core::execution::ExecutionError;
use warpway_core::trace::Operation;
use warpway_core::wait::WaitSite;
use warpway_plan::{DataType, Plan};

use super::control::Peer;
use super::executor::Shared;
use super::identity::Identity;
use super::record::{BufferRecord, LaunchRecord, Step};

/// Tells the other ranks that this one sets up `plan` as step `sequence`, and waits until they do the same. Which plan they set up is not compared here.
///
/// # Errors
/// `plan.difference` naming a rank that launches something; a wait that gave up naming a rank that did not come.
pub(super) fn meet(shared: &Shared, sequence: u64, plan: &Plan, identity: &Identity) -> Result<()> {
    let (rank, n) = (shared.comm.rank(), shared.comm.n_ranks());
    let record = LaunchRecord {
        step: Step::SetUp,
        collective: plan.collective,
        identity: identity.plan,
        chunk_bytes: 0,
        block_bytes: 0,
        data_type: DataType::Uint8,
        reduce_op: None,
        root: None,
        packet_payload: 0,
        areas: 0,
        input: BufferRecord::default(),
        output: BufferRecord::default(),
        rows: None,
        extents: 0,
    };
    let told: Vec<u32> = (0..n).filter(|peer| *peer != rank && shared.control.reaches(*peer)).collect();
    shared.control.announce(sequence, &record.to_words(), &told, &[], false)?;
    // Whoever is told tells this rank, too. Ranks of other hosts with which there was no plan yet come to the bootstrap.
    for peer in told {
        let operation = Operation::Launch;
        let site = || WaitSite { operation, peer: Some(peer), object: 0, sequence, expected: sequence };
        let event = shared.control.started(peer);
        let found = shared.comm.waiter().wait(site, shared.config.setup_timeout, event, || {
            match shared.control.peer(peer, sequence) {
                Peer::Behind(step) => Err(step),
                other => Ok(other),
            }
        })?;
        let there = match found {
            Peer::Here(words) => LaunchRecord::from_words(&words),
            _ => None,
        };
        if there.is_some_and(|there| there.step == Step::SetUp) {
            continue;
        }
        let elsewhere = || ("step", "set-up of a plan".to_owned(), "a later step".to_owned());
        let (field, here, there) =
            there.and_then(|there| record.difference(&there)).unwrap_or_else(elsewhere);
        shared.control.settle();
        let plan = plan.name.clone();
        return Err(ExecutionError::Difference { sequence, plan, field, rank, here, peer, there }.into());
    }
    Ok(())
}
