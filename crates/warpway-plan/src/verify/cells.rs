//! Raw memory along one order of the steps: for every part, the accesses that later ones must come after.
//!
//! Memory is cut where the items of accesses begin and end. An access that comes after an earlier one and covers
//! it takes its place: whatever comes after the later one comes after both. So cells stay short.

use super::accesses::Mode;
use super::extent::Extent;
use super::in_place::home;
use super::scale::Cut;
use super::slots::Actor;
use super::trace::{ChannelId, Trace};
use crate::ir::{BufferKind, Form};

/// An access and who does it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Party {
    pub(super) by: Actor,
    pub(super) mode: Mode,
    /// In the buffer that the plan names.
    pub(super) extent: Extent,
    /// The port channel, if the proxy does it.
    pub(super) channel: Option<ChannelId>,
    /// The step writes packets, so that its reads may be ordered by them.
    pub(super) packs: bool,
    /// The step may write where it reads: such a write comes after the reads of its own step, but not after others
    /// of the same segment.
    pub(super) rewrites: bool,
}

/// Two accesses that touch the same units. Extents are those of the memory, where buffers may be moved.
#[derive(Debug, Clone, Copy)]
pub(super) struct Meeting<'a> {
    pub(super) earlier: &'a Party,
    pub(super) at: &'a Extent,
    /// Of the one that comes now.
    pub(super) extent: &'a Extent,
    /// What both touch.
    pub(super) region: (u64, u64),
}

/// Accesses with the same piece of the same item.
#[derive(Debug)]
struct Piece {
    origin: u64,
    cut: Cut,
    start: u64,
    writes: Vec<(Party, Extent)>,
    reads: Vec<(Party, Extent)>,
}

#[derive(Debug, Default)]
struct Space {
    /// Where cells begin, and where the last one ends.
    bounds: Vec<u64>,
    cells: Vec<Vec<Piece>>,
}

/// See the module's page.
#[derive(Debug)]
pub(super) struct Memory {
    /// Three for each rank, by buffer.
    spaces: Vec<Space>,
    /// By rank and buffer: the space of the rank, and how many units further the buffer begins.
    homes: Vec<[(usize, u64); 3]>,
    /// Accesses entered, once for each cell.
    visits: u64,
}

/// Reads that are looked at to drop those that a new read replaces.
const RECENT: usize = 8;

impl Memory {
    pub(super) fn new(trace: &Trace<'_>) -> Self {
        let plan = trace.plan();
        let home_of = |rank, buffer| {
            let (home, first) = home(plan, rank, buffer);
            (home as usize, first.saturating_mul(trace.scale.chunk))
        };
        let homes = (0..plan.n_ranks()).map(|rank| BufferKind::ALL.map(|buffer| home_of(rank, buffer)));
        let mut memory = Self { spaces: Vec::new(), homes: homes.collect(), visits: 0 };
        memory.spaces.resize_with(plan.ranks.len() * 3, Space::default);
        let mut accesses = Vec::new();
        for (block, of) in trace.blocks.iter().enumerate() {
            for step in &trace.steps[of.steps.clone()] {
                accesses.clear();
                trace.accesses(block, step, &mut accesses);
                for access in &accesses {
                    if let Some((space, extent)) = memory.locate(&access.extent, access.form) {
                        let (start, end) = extent.whole();
                        memory.spaces[space].bounds.extend([start, end]);
                    }
                }
            }
        }
        for space in &mut memory.spaces {
            space.bounds.sort_unstable();
            space.bounds.dedup();
            space.bounds.shrink_to_fit();
            space.cells.resize_with(space.bounds.len().saturating_sub(1), Vec::new);
        }
        memory
    }

    /// Which memory an access touches and where; `None` for packets.
    fn locate(&self, extent: &Extent, form: Form) -> Option<(usize, Extent)> {
        if form == Form::Packets {
            return None;
        }
        let rank = extent.rank as usize;
        let (space, by) = self.homes.get(rank)?[extent.buffer as usize];
        // Whatever the plan calls it, it is the same memory: extents meet only within one buffer.
        let buffer = *BufferKind::ALL.get(space)?;
        Some((rank * 3 + space, Extent { buffer, ..extent.moved(by)? }))
    }

    /// How much has been compared.
    pub(super) fn visits(&self) -> u64 {
        self.visits
    }

    /// Enters an access. `is_ordered` says whether an earlier one comes before it; `conflict` hears of those that
    /// do not.
    pub(super) fn enter(
        &mut self,
        party: &Party,
        form: Form,
        is_ordered: &mut dyn FnMut(&Meeting<'_>) -> bool,
        conflict: &mut dyn FnMut(&Party),
    ) {
        let Some((space, extent)) = self.locate(&party.extent, form) else { return };
        if extent.is_empty() {
            return;
        }
        let space = &mut self.spaces[space];
        let (start, end) = extent.whole();
        let first = space.bounds.partition_point(|bound| *bound < start);
        let last = space.bounds.partition_point(|bound| *bound < end);
        for cell in space.cells.get_mut(first..last).into_iter().flatten() {
            self.visits += enter_cell(cell, party, &extent, is_ordered, conflict);
        }
    }
}

/// Enters an access in one cell; returns how many pieces were looked at.
fn enter_cell(
    cell: &mut Vec<Piece>,
    party: &Party,
    extent: &Extent,
    is_ordered: &mut dyn FnMut(&Meeting<'_>) -> bool,
    conflict: &mut dyn FnMut(&Party),
) -> u64 {
    let writes = party.mode == Mode::Write;
    // Other pieces of the same item, cut alike, are apart from this one.
    let class = (extent.origin, extent.cut);
    let alike = cell.partition_point(|piece| (piece.origin, piece.cut) < class)
        ..cell.partition_point(|piece| (piece.origin, piece.cut) <= class);
    let own = cell[alike.clone()].binary_search_by_key(&extent.start, |piece| piece.start);
    let own = own.map(|at| alike.start + at);
    let mut visits = 1;
    let others = (0..alike.start).chain(own).chain(alike.end..cell.len());
    for at in others {
        visits += 1;
        let piece = &mut cell[at];
        let same = own == Ok(at);
        // Within the cell, a whole item covers everything.
        let covers = same || extent.is_uncut();
        let mut check = |(earlier, at): &(Party, Extent)| {
            let Some(region) = at.common(extent) else { return true };
            let ordered = is_ordered(&Meeting { earlier, at, extent, region });
            if !ordered {
                conflict(earlier);
            }
            !covers
        };
        piece.writes.retain(|entry| match writes {
            true => check(entry),
            false => {
                // Later accesses must still come after the write: the read does not replace it.
                check(entry);
                true
            }
        });
        if writes {
            piece.reads.retain(|entry| check(entry));
        } else if covers {
            let recent = piece.reads.len().saturating_sub(RECENT);
            let mut seen = 0;
            piece.reads.retain(|(earlier, at)| {
                seen += 1;
                let region = (at.start.max(extent.start), at.end.min(extent.end));
                seen <= recent
                    || !(replaces(party, earlier) || is_ordered(&Meeting { earlier, at, extent, region }))
            });
        }
    }
    let at = own.unwrap_or_else(|at| {
        let Extent { origin, cut, start, .. } = *extent;
        cell.insert(alike.start + at, Piece { origin, cut, start, writes: Vec::new(), reads: Vec::new() });
        alike.start + at
    });
    let piece = &mut cell[at];
    if writes { &mut piece.writes } else { &mut piece.reads }.push((*party, *extent));
    if visits > RECENT as u64 {
        // What has been replaced is not looked at again.
        cell.retain(|piece| !(piece.writes.is_empty() && piece.reads.is_empty()));
    }
    visits
}

/// True if whatever comes after a read comes after an earlier one of the same thread too.
fn replaces(party: &Party, earlier: &Party) -> bool {
    let (a, b) = (earlier.by.position, party.by.position);
    a.thread == b.thread && (a.time < b.time || (a.time == b.time && !party.packs && !party.rewrites))
}
