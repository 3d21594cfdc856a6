//! Sizes that come at launch: a rank's rows, as its peers read them.
//!
//! The rows lie in a memory of their own, published like a user's buffer. They are written before the launch is
//! announced, and written again only at the next launch, when the ranks that touch this rank's buffers have ended
//! this one.

use std::collections::BTreeMap;

use warpway_core::Result;
use warpway_core::communicator::{Communicator, Publication};
use warpway_core::memory::{Access, RegisteredMemory};
use warpway_core::transport::{Transport, TransportFlags};
use warpway_plan::{Plan, RankPlan, SizeRows};

use super::NO_REGION;
use crate::buffer::SharedBuffer;
use crate::copy::copy_out;

/// The memory of this rank's rows.
#[derive(Debug)]
pub(super) struct RowMemory {
    buffer: SharedBuffer,
    publication: Publication,
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
    /// For the rows of `plan`, known to `peers`.
    pub(super) fn new(comm: &Communicator, plan: &RankPlan, peers: &[u32]) -> Result<Self> {
        let buffer = SharedBuffer::allocate(8 * words(plan) as u64)?;
        let region = buffer.region().cloned().ok_or(NO_REGION)?;
        let memory =
            comm.register_memory(region, TransportFlags::from(Transport::SharedMemory), Access::READ)?;
        Ok(Self { publication: comm.publish_to(&memory, peers)?, buffer })
    }

    /// Rows that fit the plan (a [`ChunkTable`](warpway_plan::ChunkTable) has been made of them).
    pub(super) fn write(&self, plan: &RankPlan, rows: &SizeRows, sequence: u64) -> Result<()> {
        let mut words = vec![sequence];
        words.extend(ids(plan).iter().map(|id| rows.extents.get(id).copied().unwrap_or(0)));
        words.extend(rows.input.iter().chain(&rows.output));
        Ok(self.buffer.write(0, &words)?)
    }

    pub(super) fn publication(&self) -> &Publication {
        &self.publication
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
