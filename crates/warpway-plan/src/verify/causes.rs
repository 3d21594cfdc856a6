//! What must have happened so that a step can: the least past of a step, for counter-examples.
//!
//! Signals and semaphores are matched as in the order that was followed. Any part of that order that holds with
//! each step all that it needs is a run of the plan.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use super::accesses::{Access, Mode, waits_for_packets};
use super::range_map::{Coalesce, RangeMap};
use super::schedule::{Schedule, signalled};
use super::trace::{ChannelId, NO_PARTNER, Trace};
use crate::ir::{Action, DataOperation, Form};

/// How one step lets another one happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Link {
    /// A signal; the channel as the sender calls it.
    Signal(ChannelId),
    Barrier(u32),
    Semaphore(u32),
    /// Owner of the scratch, first chunk and the one after the last.
    Packets(u32, (u64, u64)),
}

/// `step` cannot happen without `by`.
#[derive(Debug, Clone, Copy)]
struct Cause {
    step: u32,
    by: u32,
    link: Link,
}

/// A point in several launches, numbered from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment {
    pub(super) launch: usize,
    /// In the order of a launch; its end comes after all steps.
    position: u32,
    pub(super) event: Event,
}

impl Moment {
    /// The end of a rank's launch.
    pub(super) fn end(launch: usize, rank: u32) -> Self {
        Self { launch, position: u32::MAX, event: Event::End(rank) }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    Step(usize),
    /// The launch of a rank is over.
    End(u32),
}

/// A set of steps that holds with each of them all that it needs.
#[derive(Debug, Clone)]
pub(super) struct Past {
    /// By launch and block: the first step that is not in it.
    next: Vec<Vec<usize>>,
    begun: BTreeSet<(usize, u32)>,
    /// The steps that let others happen, those others, and how; of each passage of a barrier only the first.
    pub(super) moments: BTreeMap<Moment, BTreeSet<Link>>,
}

impl Past {
    /// True if a rank has done something in the first launch.
    pub(super) fn has_begun(&self, trace: &Trace<'_>, rank: u32) -> bool {
        let next = self.next.first();
        next.is_some_and(|next| {
            trace.blocks_of(rank).any(|block| next[block] > trace.blocks[block].steps.start)
        })
    }

    pub(super) fn holds(&self, trace: &Trace<'_>, moment: &Moment) -> bool {
        let until = |block| self.next.get(moment.launch).and_then(|blocks: &Vec<usize>| blocks.get(block));
        match moment.event {
            Event::Step(step) => until(trace.block_of(step)).is_some_and(|next| *next > step),
            Event::End(_) => self.moments.contains_key(moment),
        }
    }
}

/// Causes that are followed at most, in all searches together.
const MOST_FOLLOWED: u64 = 2_000_000;

/// See the module's page.
#[derive(Debug)]
pub(super) struct Causes<'t, 'p> {
    pub(super) trace: &'t Trace<'p>,
    /// By step.
    causes: Vec<Cause>,
    /// By step: where it stands in the order.
    positions: Vec<u32>,
    followed: Cell<u64>,
}

impl<'t, 'p> Causes<'t, 'p> {
    pub(super) fn new(trace: &'t Trace<'p>, schedule: &Schedule) -> Self {
        let mut gather = Gather::new(trace);
        let mut positions = vec![u32::MAX; trace.steps.len()];
        for (position, &(block, step)) in (0..).zip(&schedule.order) {
            gather.step(block as usize, step);
            positions[step as usize] = position;
        }
        let mut causes = gather.causes;
        causes.sort_by_key(|cause| cause.step);
        Self { trace, causes, positions, followed: Cell::new(0) }
    }

    /// Nothing has happened yet.
    pub(super) fn nothing(&self, launches: usize) -> Past {
        let next: Vec<usize> = self.trace.blocks.iter().map(|block| block.steps.start).collect();
        Past { next: vec![next; launches], begun: BTreeSet::new(), moments: BTreeMap::new() }
    }

    pub(super) fn moment(&self, launch: usize, step: usize) -> Moment {
        let position = self.positions.get(step).copied().unwrap_or(u32::MAX);
        Moment { launch, position, event: Event::Step(step) }
    }

    /// Adds the end of a rank's launch, and all that it needs. False if that is too much.
    pub(super) fn add_end(&self, past: &mut Past, launch: usize, rank: u32) -> bool {
        past.moments.insert(Moment::end(launch, rank), BTreeSet::new());
        let blocks = self.trace.blocks_of(rank);
        let all = blocks.map(|block| (launch, block, self.trace.blocks[block].steps.end));
        self.add(past, all.collect())
    }

    /// Adds the steps of a block before `end`, and all that they need. False if that is too much.
    pub(super) fn add_steps(&self, past: &mut Past, launch: usize, block: usize, end: usize) -> bool {
        self.add(past, vec![(launch, block, end)])
    }

    /// Of the moments of a first launch those that lead from a step to blocks of which `is_target` holds: over each
    /// block as soon as it can be reached.
    pub(super) fn way(
        &self,
        past: &Past,
        from: usize,
        is_target: impl Fn(usize) -> bool,
    ) -> BTreeSet<Moment> {
        let start = self.trace.block_of(from);
        // Since which step a block comes behind `from`, and which steps made it so, of which other block.
        let mut behind: BTreeMap<usize, (usize, [usize; 2], usize)> = BTreeMap::new();
        behind.insert(start, (from, [from; 2], start));
        let mut target = is_target(start).then_some(start);
        for moment in past.moments.keys() {
            if target.is_some() {
                break;
            }
            let Event::Step(step) = moment.event else { continue };
            let causes: Vec<Cause> = self.causes_of(step..step + 1).collect();
            let by = causes.iter().map(|cause| cause.by as usize).chain([step]);
            let source = by
                .map(|by| (by, self.trace.block_of(by)))
                .find(|(by, block)| behind.get(block).is_some_and(|(since, ..)| by >= since));
            let Some((by, block)) = source else { continue };
            // All that pass a barrier come behind what one of them comes behind.
            let others = causes.iter().filter(|cause| matches!(cause.link, Link::Barrier(_)));
            for reached in others.map(|cause| cause.by as usize).chain([step]) {
                let other = self.trace.block_of(reached);
                behind.entry(other).or_insert((reached, [by, step], block));
                target = target.or_else(|| is_target(other).then_some(other));
            }
        }
        let mut way = BTreeSet::new();
        while let Some((_, steps, before)) = target.filter(|at| *at != start).and_then(|at| behind.get(&at)) {
            way.extend(steps.map(|step| self.moment(0, step)));
            target = Some(*before);
        }
        way
    }

    fn causes_of(&self, steps: Range<usize>) -> impl Iterator<Item = Cause> {
        let from = self.causes.partition_point(|cause| (cause.step as usize) < steps.start);
        self.causes[from..].iter().copied().take_while(move |cause| (cause.step as usize) < steps.end)
    }

    fn add(&self, past: &mut Past, mut work: Vec<(usize, usize, usize)>) -> bool {
        while let Some((launch, block, end)) = work.pop() {
            let Some(next) = past.next.get_mut(launch).and_then(|blocks| blocks.get_mut(block)) else {
                continue;
            };
            if *next >= end {
                continue;
            }
            let first = std::mem::replace(next, end);
            let rank = self.trace.blocks[block].rank;
            if launch > 0 && past.begun.insert((launch, rank)) {
                // A rank's launches follow each other.
                let before = launch - 1;
                past.moments.insert(Moment::end(before, rank), BTreeSet::new());
                let blocks = self.trace.blocks_of(rank);
                work.extend(blocks.map(|block| (before, block, self.trace.blocks[block].steps.end)));
            }
            for Cause { step, by, link } in self.causes_of(first..end) {
                let (step, from) = (self.moment(launch, step as usize), self.moment(launch, by as usize));
                match link {
                    // Those that pass a barrier pass it together.
                    Link::Barrier(_) => past.moments.entry(step.min(from)).or_default().insert(link),
                    _ => {
                        past.moments.entry(step).or_default().insert(link);
                        past.moments.entry(from).or_default().insert(link)
                    }
                };
                work.push((launch, self.trace.block_of(by as usize), by as usize + 1));
                self.followed.set(self.followed.get() + 1);
            }
            if self.followed.get() > MOST_FOLLOWED {
                return false;
            }
        }
        true
    }
}

/// The last step that wrote packets somewhere.
#[derive(Debug, Clone, Copy)]
struct Writer(Option<u32>);

impl Coalesce for Writer {
    fn coalesces(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

/// What has been given and not taken yet.
struct Gather<'t, 'p> {
    trace: &'t Trace<'p>,
    causes: Vec<Cause>,
    /// By receiving end of a channel.
    signals: Vec<VecDeque<u32>>,
    /// By rank and number; nobody has given what a semaphore holds at the start.
    semaphores: BTreeMap<(u32, u32), VecDeque<Option<u32>>>,
    /// The first block to pass, and how many have still to.
    barriers: BTreeMap<(u32, u32), (u32, u32)>,
    /// By owner.
    packets: BTreeMap<u32, RangeMap<Writer>>,
    accesses: Vec<Access>,
}

impl<'t, 'p> Gather<'t, 'p> {
    fn new(trace: &'t Trace<'p>) -> Self {
        Self {
            trace,
            causes: Vec::new(),
            signals: vec![VecDeque::new(); trace.channels.len()],
            semaphores: BTreeMap::new(),
            barriers: BTreeMap::new(),
            packets: BTreeMap::new(),
            accesses: Vec::new(),
        }
    }

    fn semaphore(&mut self, rank: u32, id: u32) -> &mut VecDeque<Option<u32>> {
        let plan = self.trace.plan();
        self.semaphores.entry((rank, id)).or_insert_with(|| {
            let initial = plan.ranks.get(rank as usize).and_then(|r| r.semaphores.get(id as usize));
            // More than the steps there are is never taken.
            let most = self.trace.steps.len() as u64;
            vec![None; initial.copied().unwrap_or(0).min(most) as usize].into()
        })
    }

    fn step(&mut self, block: usize, step: u32) {
        let trace = self.trace;
        let rank = trace.blocks[block].rank;
        let action = trace.steps[step as usize].action;
        match action {
            Action::Wait { via, channels, .. } => {
                for channel in channels.iter().filter_map(|at| trace.channel(block, *via, *at)) {
                    if let Some(by) = self.signals[channel as usize].pop_front() {
                        let partner = trace.channels[channel as usize].partner;
                        self.causes.push(Cause { step, by, link: Link::Signal(partner) });
                    }
                }
            }
            Action::Acquire { semaphores } => {
                for id in semaphores {
                    if let Some(Some(by)) = self.semaphore(rank, *id).pop_front() {
                        self.causes.push(Cause { step, by, link: Link::Semaphore(*id) });
                    }
                }
            }
            Action::Release { semaphores } => {
                semaphores.iter().for_each(|id| self.semaphore(rank, *id).push_back(Some(step)));
            }
            Action::Barrier { id, blocks } => {
                let (first, left) = self.barriers.entry((rank, *id)).or_insert((step, *blocks));
                let (by, link) = (*first, Link::Barrier(*id));
                *left = left.saturating_sub(1);
                if *left == 0 {
                    self.barriers.remove(&(rank, *id));
                }
                if by != step {
                    // They pass together: one stands for all.
                    self.causes.push(Cause { step, by, link });
                    self.causes.push(Cause { step: by, by: step, link });
                }
            }
            Action::Data(data) if data.kind.uses_packets() => self.packets(block, step, data),
            _ => {}
        }
        for channel in signalled(trace, block, action) {
            let partner = trace.channels[channel as usize].partner;
            if partner != NO_PARTNER {
                self.signals[partner as usize].push_back(step);
            }
        }
    }

    fn packets(&mut self, block: usize, step: u32, data: &DataOperation) {
        let mut accesses = std::mem::take(&mut self.accesses);
        accesses.clear();
        self.trace.accesses(block, &self.trace.steps[step as usize], &mut accesses);
        let of_packets = accesses.iter().filter(|a| a.form == Form::Packets && !a.extent.is_empty());
        for access in of_packets {
            let extent = access.extent;
            let of_rank = self.packets.entry(extent.rank).or_insert_with(|| RangeMap::new(Writer(None)));
            let range = extent.start..extent.end;
            if access.mode == Mode::Write {
                of_rank.set(range, Writer(Some(step)));
            } else if waits_for_packets(data) {
                let link = Link::Packets(extent.rank, extent.chunks(&self.trace.scale));
                let writers: BTreeSet<u32> =
                    of_rank.segments(range).filter_map(|(_, writer)| writer.0).collect();
                self.causes.extend(writers.into_iter().map(|by| Cause { step, by, link }));
            }
        }
        self.accesses = accesses;
    }
}
