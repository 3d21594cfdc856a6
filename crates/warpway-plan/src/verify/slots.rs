//! Packet slots along one order of the steps: who wrote them, who read them, and what order that gives.
//!
//! A packet orders element by element: what its writer knew, and the elements that its payload was made of, come
//! before the read of the slot and what the reader makes of the payload.

use std::collections::{BTreeMap, BTreeSet};

use super::clock::{Knowledge, Position};
use super::extent::Extent;
use super::intervals::IntervalSet;
use super::path::Node;
use super::scale::Cut;

/// What is known at some elements of an item. Positions count from the item's start.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) knowledge: Knowledge,
}

/// What a packet has told its reader.
#[derive(Debug, Clone)]
pub(super) struct Told {
    pub(super) known: Known,
    /// At every size there is such a packet.
    pub(super) certain: bool,
    /// Where the writer's segment began.
    pub(super) node: Node,
}

/// Who does something.
#[derive(Debug, Clone, Copy)]
pub(super) struct Actor {
    pub(super) position: Position,
    pub(super) block: usize,
    pub(super) step: usize,
    pub(super) item: u32,
}

/// A packet write.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) by: Actor,
    pub(super) extent: Extent,
    /// What comes before it.
    pub(super) known: Vec<Known>,
    pub(super) readers: Vec<Reader>,
    /// Writes at least one packet at every size.
    pub(super) certain: bool,
    /// Where the writer's segment began, if paths are recorded.
    pub(super) node: Node,
}

/// A read of packets of one write.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader {
    pub(super) by: Actor,
    /// All that the reference reads.
    pub(super) extent: Extent,
    /// Of that, what the write wrote.
    pub(super) common: (u64, u64),
}

/// Who asks whether something comes before.
#[derive(Debug, Clone, Copy)]
pub(super) struct View<'a> {
    /// The block's segments up to this one are over.
    pub(super) own: Position,
    pub(super) knowledge: &'a Knowledge,
    pub(super) step: usize,
    pub(super) item: u32,
    /// What packets have told the elements of the item.
    pub(super) told: &'a [Known],
}

impl View<'_> {
    pub(super) fn knows(&self, at: Position) -> bool {
        (at.thread == self.own.thread && at.time <= self.own.time) || self.knowledge.clock.covers(at)
    }
}

/// See the module's page.
#[derive(Debug, Default)]
pub(super) struct Slots {
    pub(super) writes: Vec<Write>,
    /// By rank: start of a range, its end, the write.
    written: BTreeMap<u32, BTreeMap<u64, (u64, u32)>>,
    /// The writes of a step follow each other; the first one by step.
    of_step: BTreeMap<usize, u32>,
}

impl Slots {
    /// The writes of which an extent reads something, and what.
    pub(super) fn writers(&self, extent: &Extent) -> Vec<(u32, (u64, u64))> {
        let Some(written) = self.written.get(&extent.rank) else { return Vec::new() };
        let first = written.range(..=extent.start).next_back().map_or(extent.start, |(start, _)| *start);
        written
            .range(first..extent.end)
            .filter(|(_, (end, _))| *end > extent.start)
            .map(|(start, (end, write))| (*write, ((*start).max(extent.start), (*end).min(extent.end))))
            .collect()
    }

    /// True if every slot of an extent has been written, whatever the size.
    pub(super) fn covers(&self, extent: &Extent) -> bool {
        let exact = self.writers(extent).iter().all(|(write, _)| {
            self.writes.get(*write as usize).is_some_and(|w| w.extent.is_exact_with(extent))
        });
        let (start, end) = if exact { (extent.start, extent.end) } else { extent.whole() };
        let whole = Extent { start, end, ..*extent };
        let mut reached = start;
        for (_, (from, to)) in self.writers(&whole) {
            if from > reached {
                return false;
            }
            reached = reached.max(to);
        }
        reached >= end
    }

    /// Enters a write.
    pub(super) fn write(&mut self, write: Write) {
        let Extent { rank, start, end, .. } = write.extent;
        let number = self.writes.len() as u32;
        self.of_step.entry(write.by.step).or_insert(number);
        self.writes.push(write);
        if start < end {
            let written = self.written.entry(rank).or_default();
            // Written twice is an error already; the last one counts.
            let over: Vec<u64> = written.range(start..end).map(|(at, _)| *at).collect();
            over.into_iter().for_each(|at| {
                written.remove(&at);
            });
            if let Some((_, (before, _))) = written.range_mut(..start).next_back() {
                *before = (*before).min(start);
            }
            written.insert(start, (end, number));
        }
    }

    /// Enters a read; returns what the packets tell, by element of the item. Writers that cut the item in another
    /// way tell nothing: which of them wrote an element depends on the size.
    pub(super) fn read(&mut self, by: Actor, extent: &Extent) -> Vec<Told> {
        let mut told = Vec::new();
        for (number, common) in self.writers(extent) {
            let Some(write) = self.writes.get_mut(number as usize) else { continue };
            if !write.extent.is_exact_with(extent) {
                continue;
            }
            write.readers.push(Reader { by, extent: *extent, common });
            for known in &write.known {
                let from = (write.extent.origin.saturating_add(known.start)).max(common.0);
                let to = (write.extent.origin.saturating_add(known.end)).min(common.1);
                if from < to && from >= extent.origin {
                    let (start, end) = (from - extent.origin, to - extent.origin);
                    let known = Known { start, end, knowledge: known.knowledge.clone() };
                    told.push(Told { known, certain: write.certain, node: write.node });
                }
            }
        }
        told
    }

    /// The writes of a step.
    fn writes_of(&self, step: usize) -> impl Iterator<Item = (u32, &Write)> {
        let first = self.of_step.get(&step).copied();
        let from = first.map_or(self.writes.len(), |f| f as usize);
        (from as u32..).zip(&self.writes[from..]).take_while(move |(_, write)| write.by.step == step)
    }

    /// True if packets order a read by `reader` before the access `target` of `view`, at all units `region` that
    /// both have in common. Both extents lie in the same memory.
    pub(super) fn order_read(
        &self,
        reader: Actor,
        extent: &Extent,
        region: (u64, u64),
        view: &View<'_>,
        target: &Extent,
    ) -> bool {
        let Some(within) = region.0.checked_sub(extent.origin) else { return false };
        let end = within + (region.1 - region.0);
        // Where the target's item starts, counted from this one's start.
        let distance = i128::from(target.origin) - i128::from(extent.origin);
        let mut search = Search { region: (within, end), ..Search::default() };
        if self.of_step.is_empty() || !search.begins_with(extent, 0) || !search.begins_with(target, distance)
        {
            return false;
        }
        let whole = Part { step: reader.step, item: reader.item, shift: 0, start: within, end };
        self.search(vec![whole], view, Some(distance), &mut search);
        search.ordered.covers(within, end)
    }

    /// True if the write `number` comes before what `view` asks about, for the slots `region` of `extent`.
    pub(super) fn order_write(
        &self,
        number: u32,
        region: (u64, u64),
        view: &View<'_>,
        extent: &Extent,
    ) -> bool {
        let Some(write) = self.writes.get(number as usize) else { return false };
        if view.knows(write.by.position) {
            return true;
        }
        let Some(within) = region.0.checked_sub(write.extent.origin) else { return false };
        let end = within + (region.1 - region.0);
        let distance = i128::from(extent.origin) - i128::from(write.extent.origin);
        let mut search = Search { region: (within, end), ..Search::default() };
        if !search.begins_with(&write.extent, 0) || !search.begins_with(extent, distance) {
            return false;
        }
        let part = Part { step: write.by.step, item: write.by.item, shift: 0, start: within, end };
        let mut work = Vec::new();
        follow(write, &part, view, None, &mut search, &mut work);
        self.search(work, view, None, &mut search);
        search.ordered.covers(within, end)
    }

    fn search(&self, mut work: Vec<Part>, view: &View<'_>, distance: Option<i128>, search: &mut Search) {
        while let Some(part) = work.pop() {
            for (number, write) in self.writes_of(part.step) {
                if write.by.item == part.item && search.is_new(number, &part) {
                    follow(write, &part, view, distance, search, &mut work);
                }
            }
        }
    }
}

/// The readers of one write: those that come before are enough, the others lead on.
fn follow(
    write: &Write,
    part: &Part,
    view: &View<'_>,
    distance: Option<i128>,
    search: &mut Search,
    work: &mut Vec<Part>,
) {
    for reader in &write.readers {
        // Elements of the part, counted as at the start of the search.
        let origin = i128::from(write.extent.origin);
        let from = i128::from(reader.common.0) - origin - part.shift;
        let to = i128::from(reader.common.1) - origin - part.shift;
        let (Ok(from), Ok(to)) = (u64::try_from(from.max(0)), u64::try_from(to.max(0))) else { continue };
        let (start, end) = (from.max(part.start), to.min(part.end));
        let shift = part.shift + origin - i128::from(reader.extent.origin);
        if start >= end || !search.fits(&reader.extent, -shift) {
            continue;
        }
        let itself = reader.by.step == view.step && reader.by.item == view.item;
        if view.knows(reader.by.position) || (itself && distance == Some(-shift)) {
            search.ordered.insert(start, end);
        } else if reader.by.step != view.step {
            work.push(Part { step: reader.by.step, item: reader.by.item, shift, start, end });
        }
    }
}

/// Elements of an item of a step, counted from the start of the item at which the search began; `shift` leads to
/// positions in this item.
#[derive(Debug, Clone, Copy)]
struct Part {
    step: usize,
    item: u32,
    shift: i128,
    start: u64,
    end: u64,
}

#[derive(Default)]
struct Search {
    region: (u64, u64),
    /// The items that are cut, as positions of the start of the search, and how.
    frames: Vec<(i128, i128, Cut)>,
    ordered: IntervalSet,
    seen: BTreeMap<(u32, i128), IntervalSet>,
}

impl Search {
    /// True if the two accesses in question are not cut in two ways.
    fn begins_with(&mut self, extent: &Extent, start: i128) -> bool {
        if extent.is_uncut() {
            return true;
        }
        let frame = frame(extent, start);
        let other = self.frames.first().copied();
        self.frames.push(frame);
        other.is_none_or(|other| other == frame)
    }

    /// True if it is known for every size which elements of the region a piece handles: it is whole, or its item
    /// lies in the region and is cut in one way only.
    fn fits(&mut self, extent: &Extent, start: i128) -> bool {
        if extent.is_uncut() {
            return true;
        }
        let frame = frame(extent, start);
        let meets = |other: &&(i128, i128, Cut)| other.0 < frame.1 && frame.0 < other.1;
        match self.frames.iter().find(meets) {
            Some(other) => *other == frame,
            None => {
                self.frames.push(frame);
                i128::from(self.region.0) <= frame.0 && frame.1 <= i128::from(self.region.1)
            }
        }
    }

    fn is_new(&mut self, write: u32, part: &Part) -> bool {
        let seen = self.seen.entry((write, part.shift)).or_default();
        if seen.covers(part.start, part.end) {
            return false;
        }
        seen.insert(part.start, part.end);
        true
    }
}

fn frame(extent: &Extent, start: i128) -> (i128, i128, Cut) {
    (start, start + i128::from(extent.cut.item), extent.cut)
}

/// What several packets tell of the same elements: of each element, all of it.
pub(super) fn overlay(list: &[Known]) -> Vec<Known> {
    if let [one] = list {
        return vec![one.clone()];
    }
    let bounds: BTreeSet<u64> = list.iter().flat_map(|known| [known.start, known.end]).collect();
    let bounds: Vec<u64> = bounds.into_iter().collect();
    let mut parts = Vec::with_capacity(bounds.len());
    for pair in bounds.windows(2) {
        let &[start, end] = pair else { continue };
        let here = list.iter().filter(|known| known.start <= start && end <= known.end);
        let all: Vec<Knowledge> = here.map(|known| known.knowledge.clone()).collect();
        if !all.is_empty() {
            parts.push(Known { start, end, knowledge: Knowledge::join_all(all) });
        }
    }
    parts
}
