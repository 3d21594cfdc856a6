//! The barrier on semaphores.

use warpway::{Barrier, Result};

use super::Arguments;
use super::report::{Report, Row};
use super::session::Session;

pub(super) fn run(session: &Session, arguments: &Arguments, report: &mut Report) -> Result<()> {
    report.begin("semaphore_barrier", 0);
    let barrier = match arguments.transport.transport() {
        Some(transport) => session.comm().make_barrier_by(transport)?,
        None => session.comm().make_barrier()?,
    };
    let samples = session.time(arguments.batches, || barrier.wait())?;
    // Nobody drops its semaphores while a peer still waits.
    session.barrier().wait()?;
    let mut row = Row::new("semaphore_barrier", 0, &samples);
    row.transport = session.transport_name();
    row.errors = session.sum(early_leavers(session, &barrier)?)?;
    report.push(row);
    Ok(())
}

/// Nobody may leave a barrier before everybody has entered it: every rank raises the others' counters, passes
/// the barrier, and must find all of theirs.
fn early_leavers(session: &Session, barrier: &Barrier) -> Result<u64> {
    const ROUNDS: u64 = 100;
    let entered = session.comm().alloc::<u64>(u64::from(session.n_ranks()))?;
    let mut remotes = Vec::new();
    for peer in session.peers() {
        peer.send_memory(&entered)?;
    }
    for peer in session.peers() {
        remotes.push(peer.recv_memory()?);
    }
    let deadline = || session.comm().config().device_timeout.start();
    let mut wrong = 0;
    for round in 1..=ROUNDS {
        for (peer, remote) in session.peers().iter().zip(&remotes) {
            peer.connection().atomic_add(remote, u64::from(session.rank()) * 8, 1)?;
            peer.connection().flush(deadline())?;
        }
        barrier.wait()?;
        let mut counters = vec![0; session.n_ranks() as usize];
        entered.read(0, &mut counters)?;
        wrong += counters.iter().filter(|counter| **counter < round).count() as u64;
    }
    session.barrier().wait()?;
    Ok(wrong)
}
