//! Split communicators with traffic in the children, and one-sided publication.

use warpway::core::wire::SlotId;
use warpway::{Bootstrap, Communicator, Result, Transport};

use super::{all_gather, compare, wrong};
use crate::pattern::byte;

/// Every way to divide: all together in reverse, even and odd, halves, everybody alone, some without any,
/// and children of children.
pub fn splits(comm: &Communicator, transport: Transport) -> Result<()> {
    let (rank, n) = (comm.rank() as i32, comm.n_ranks() as i32);
    type Rule = fn(i32, i32) -> (i32, i32);
    let rules: [Rule; 5] = [
        |rank, _| (0, -rank),
        |rank, _| (rank % 2, 0),
        |rank, n| (i32::from(rank >= n / 2), n - rank),
        |rank, _| (rank, 7),
        |rank, _| (if rank % 3 == 2 { -1 } else { 40 }, rank / 2),
    ];
    for rule in rules {
        let (color, key) = rule(rank, n);
        let mut expected: Vec<i32> = (0..n).filter(|r| rule(*r, n).0 == color).collect();
        expected.sort_by_key(|r| (rule(*r, n).1, *r));
        let child = comm.split(color, key)?;
        let Some(child) = child else {
            if color != -1 {
                return Err(wrong(comm, "split", format!("no child for colour {color}")));
            }
            continue;
        };
        let found = (child.rank(), child.n_ranks());
        let position = expected.iter().position(|r| *r == rank).map(|p| p as u32);
        if color == -1 || position != Some(found.0) || found.1 as usize != expected.len() {
            return Err(wrong(comm, "split", format!("{found:?}, not {position:?} of {expected:?}")));
        }
        all_gather(&child, transport, &[1, 4095])?;
        if let Some(grandchild) = child.split((child.rank() % 2) as i32, 0)? {
            all_gather(&grandchild, transport, &[17])?;
        }
        child.barrier()?;
    }
    // Parent and child at the same time.
    if let Some(child) = comm.split(0, 0)? {
        all_gather(comm, transport, &[3])?;
        all_gather(&child, transport, &[3])?;
    }
    Ok(())
}

/// Every rank publishes a buffer; all others write into it without its doing anything.
pub fn publications(comm: &Communicator, transport: Transport) -> Result<()> {
    const PART: u64 = 1003;
    let (own, n) = (u64::from(comm.rank()), u64::from(comm.n_ranks()));
    let deadline = || comm.config().setup_timeout.start();
    let peers = comm.connect_all(Some(transport))?;
    let source = comm.alloc::<u8>(PART)?;
    for round in 20..22 {
        let data = comm.alloc::<u8>(PART * n)?;
        let publication = comm.core().publish(data.memory())?;
        let mut slots = vec![0u8; 16 * n as usize];
        let SlotId { slot, generation } = publication.slot();
        let at = 16 * own as usize;
        slots[at..at + 8].copy_from_slice(&slot.to_le_bytes());
        slots[at + 8..at + 16].copy_from_slice(&generation.to_le_bytes());
        comm.bootstrap().all_gather(&mut slots, 16, deadline())?;
        source.write(0, &(0..PART).map(|at| byte(round, comm.rank(), at)).collect::<Vec<_>>())?;
        let (words, _) = slots.as_chunks::<8>();
        let (pairs, _) = words.as_chunks::<2>();
        for (peer, [slot, generation]) in peers.iter().zip(pairs) {
            let slot =
                SlotId { slot: u64::from_le_bytes(*slot), generation: u64::from_le_bytes(*generation) };
            if peer.rank() == comm.rank() {
                peer.connection().write(data.memory(), own * PART, source.memory(), 0, PART)?;
            } else {
                let remote = comm.core().published(peer.rank(), slot, deadline())?;
                peer.connection().write(&remote, own * PART, source.memory(), 0, PART)?;
            }
        }
        for peer in &peers {
            peer.connection().flush(deadline())?;
        }
        publication.wait_acknowledged(deadline())?;
        comm.barrier()?;
        let expected = |at: u64| byte(round, (at / PART) as u32, at % PART);
        compare(comm, "publication", &data.to_vec()?, expected)?;
        comm.barrier()?;
        publication.withdraw(deadline())?;
    }
    Ok(())
}
