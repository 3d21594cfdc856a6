//! Sizes that come at launch: a rank's rows, as its peers read them.
//!
//! The rows lie in a memory of their own, published like a user's buffer. They are written before the launch is
//! announced, and written again only at the next launch, when the ranks that touch this rank's buffers have ended
//! this one. Ranks of other hosts have inboxes, into which the owner puts them, before the launch's record goes the
//! same way.

use std::collections::BTreeMap;

use warpway_core::communicator::Publication;
use warpway_core::connection::{Connection, Position};
use warpway_core::memory::{Access, RegisteredMemory};
use warpway_core::transport::Transport;
use warpway_core::wire::SlotId;
use warpway_core::{Deadline, Result};
use warpway_plan::{Plan, RankPlan, SizeRows};

use super::executor::Shared;
use super::far::unless_gone;
use super::roles::Roles;
use super::{NO_REGION, TAG};
use crate::buffer::SharedBuffer;
use crate::copy::copy_out;

/// The memory of this rank's rows.
#[derive(Debug)]
pub(super) struct RowMemory {
    buffer: SharedBuffer,
    memory: RegisteredMemory,
    /// For users on this host, if there are any.
    publication: Option<Publication>,
    /// Of the last puts to inboxes, in their order.
    sent: Vec<Position>,
}

/// Rows that come from, and go to, ranks of other hosts. Empty for plans whose sizes do not come at launch.
#[derive(Debug, Default)]
pub(super) struct RowInboxes {
    /// Here, by owner of the rows.
    here: Vec<(u32, RegisteredMemory)>,
    /// At the ranks that touch this rank's buffers.
    there: Vec<(Connection, RegisteredMemory)>,
}

impl RowInboxes {
    /// Collective, and the ranks are connected.
    pub(super) fn exchange(shared: &Shared, plan: &Plan, roles: &Roles, deadline: Deadline) -> Result<Self> {
        let mut inboxes = Self::default();
        let far = |ranks: &[u32]| -> Vec<u32> {
            ranks.iter().copied().filter(|rank| shared.hosts.is_far(*rank)).collect()
        };
        for owner in far(&roles.owners) {
            let Some(entry) = plan.ranks.get(owner as usize).filter(|entry| entry.size_ids.is_some()) else {
                continue;
            };
            let region =
                SharedBuffer::allocate(8 * words(entry) as u64)?.region().cloned().ok_or(NO_REGION)?;
            let memory = shared.comm.register_memory(
                region,
                Transport::Ethernet.into(),
                Access::READ | Access::WRITE,
            )?;
            shared.comm.send_memory(&memory, owner, TAG)?;
            inboxes.here.push((owner, memory));
        }
        let own = plan.ranks.get(shared.comm.rank() as usize);
        if own.is_some_and(|own| own.size_ids.is_some()) {
            let connections = shared.connections(&far(&roles.users), deadline)?;
            let pending = connections
                .into_iter()
                .map(|(user, connection)| Ok((connection, shared.comm.recv_memory(user, TAG)?)));
            for (connection, exchange) in pending.collect::<Result<Vec<_>>>()? {
                inboxes.there.push((connection, exchange.wait(deadline)?));
            }
        }
        Ok(inboxes)
    }

    /// Where the rows of a rank of another host are.
    pub(super) fn of_owner(&self, owner: u32) -> Option<&RegisteredMemory> {
        self.here.iter().find(|(rank, _)| *rank == owner).map(|(_, memory)| memory)
    }
}

/// Size ids of a rank, ascending, each once.
fn ids(plan: &RankPlan) -> Vec<u64> {
    let lists = plan.size_ids.iter().flat_map(|ids| [&ids.input, &ids.output, &ids.scratch]);
    let mut all: Vec<u64> = lists.flatten().copied().collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// By rank: size ids that it and `rank` use.
pub(super) fn common_ids(plan: &Plan, rank: u32) -> Vec<Vec<u64>> {
    let own = plan.ranks.get(rank as usize).map(ids).unwrap_or_default();
    let common = |peer| ids(peer).into_iter().filter(|id| own.binary_search(id).is_ok()).collect();
    plan.ranks.iter().map(common).collect()
}

/// One number for the extents of some ids: unequal extents give unequal numbers but for rare accidents.
pub(super) fn digest(ids: &[u64], rows: &SizeRows) -> u64 {
    // FNV-1a, by words.
    ids.iter().fold(0xcbf2_9ce4_8422_2325, |digest: u64, id| {
        let extent = rows.extents.get(id).copied().unwrap_or(0);
        (digest ^ extent).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23)
    })
}

/// Displacements of a rank: of inputs, of outputs. The lists in the file are as long.
fn chunks(plan: &RankPlan) -> (usize, usize) {
    plan.size_ids.as_ref().map_or((0, 0), |ids| (ids.input.len(), ids.output.len()))
}

/// The sequence number, an extent per id, the displacements.
fn words(plan: &RankPlan) -> usize {
    let (input, output) = chunks(plan);
    1 + ids(plan).len() + input + output
}

impl RowMemory {
    /// For the rows of `plan`, known to the `users` on this host.
    pub(super) fn new(shared: &Shared, plan: &RankPlan, users: &[u32]) -> Result<Self> {
        let buffer = SharedBuffer::allocate(8 * words(plan) as u64)?;
        let region = buffer.region().cloned().ok_or(NO_REGION)?;
        let memory = shared.comm.register_memory(region, Transport::SharedMemory.into(), Access::READ)?;
        let near: Vec<u32> = users.iter().copied().filter(|user| !shared.hosts.is_far(*user)).collect();
        let publication = match near[..] {
            [] => None,
            _ => Some(shared.comm.publish_to(&memory, &near)?),
        };
        Ok(Self { buffer, memory, publication, sent: Vec::new() })
    }

    /// Rows that fit the plan (a [`ChunkTable`](warpway_plan::ChunkTable) has been made of them).
    pub(super) fn write(
        &mut self,
        (plan, rows): (&RankPlan, &SizeRows),
        sequence: u64,
        inboxes: &RowInboxes,
        deadline: Deadline,
    ) -> Result<()> {
        // Those of the last launch have arrived long since: the users have worked with them.
        for (position, (connection, _)) in self.sent.drain(..).zip(&inboxes.there) {
            unless_gone(connection.flush_to(position, deadline))?;
        }
        let mut words = vec![sequence];
        words.extend(ids(plan).iter().map(|id| rows.extents.get(id).copied().unwrap_or(0)));
        words.extend(rows.input.iter().chain(&rows.output));
        self.buffer.write(0, &words)?;
        for (connection, inbox) in &inboxes.there {
            let sent = connection.write(inbox, 0, &self.memory, 0, 8 * words.len() as u64);
            self.sent.push(unless_gone(sent)?);
        }
        Ok(())
    }

    /// Where users on this host find them.
    pub(super) fn slot(&self) -> Option<SlotId> {
        self.publication.as_ref().map(Publication::slot)
    }
}

/// The rows of a peer in launch `sequence`; `None` if it is ahead, and has done without this rank.
pub(super) fn read(memory: &RegisteredMemory, plan: &RankPlan, sequence: u64) -> Result<Option<SizeRows>> {
    let mut found = vec![0u64; words(plan)];
    let address = memory.pointer("plan rows", 0, 8 * found.len() as u64)?;
    // SAFETY: `pointer` has checked the range, which `memory` keeps mapped; `found` is a local.
    unsafe { copy_out(&mut found, address) };
    let (ids, (input, output)) = (ids(plan), chunks(plan));
    if found[0] != sequence {
        return Ok(None);
    }
    let (extents, displacements) = found[1..].split_at(ids.len());
    Ok(Some(SizeRows {
        extents: ids.into_iter().zip(extents.iter().copied()).collect::<BTreeMap<u64, u64>>(),
        input: displacements[..input].to_vec(),
        output: displacements[input..input + output].to_vec(),
    }))
}

/// The first size id of both for which they have unequal extents: id, here, there.
pub(super) fn difference(here: &SizeRows, there: &SizeRows) -> Option<(u64, u64, u64)> {
    here.extents.iter().find_map(|(id, bytes)| {
        let other = there.extents.get(id)?;
        (other != bytes).then_some((*id, *bytes, *other))
    })
}
