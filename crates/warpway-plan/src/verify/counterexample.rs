//! Counter-examples for people: the steps that lead to the moment at which two accesses meet.
//!
//! The later access comes first, with the synchronisation it needs, and then the earlier one, since nothing forbids
//! that. Where the earlier step is among what the later one needs, it has been begun, but need not be complete.

use std::collections::BTreeSet;

use super::accesses::Mode;
use super::causes::{Causes, Event, Link, Moment};
use super::cells::Party;
use super::extent::Extent;
use super::packets::region;
use super::report::{Place, Region};
use super::schedule::Schedule;
use super::slots::Actor;
use super::trace::Trace;
use crate::ir::{Action, BufferKind, Form};

/// Lines of one counter-example.
const MOST_LINES: usize = 12;

/// An access that takes part.
#[derive(Debug, Clone, Copy)]
pub(super) struct Act {
    pub(super) by: Actor,
    pub(super) mode: Mode,
    pub(super) form: Form,
    pub(super) extent: Extent,
}

impl From<&Party> for Act {
    fn from(party: &Party) -> Self {
        Self { by: party.by, mode: party.mode, form: Form::Raw, extent: party.extent }
    }
}

/// What comes too early.
#[derive(Debug, Clone, Copy)]
pub(super) enum Later {
    /// An access, so many launches after the other.
    Access(Act, usize),
    /// The end of a rank's launch.
    End(u32),
}

/// See the module's page.
#[derive(Debug)]
pub(super) struct Counterexamples<'t, 'p> {
    causes: Causes<'t, 'p>,
}

impl<'t, 'p> Counterexamples<'t, 'p> {
    pub(super) fn new(trace: &'t Trace<'p>, schedule: &Schedule) -> Self {
        Self { causes: Causes::new(trace, schedule) }
    }

    fn trace(&self) -> &'t Trace<'p> {
        self.causes.trace
    }

    /// How `later` comes before `earlier` is complete. Port requests are taken to be carried out as late as
    /// possible unless they are known to be `done`. Empty if that takes too long to find out.
    pub(super) fn reversed(&self, earlier: &Act, later: Later, done: bool) -> Vec<String> {
        let proxy = is_by_proxy(self.trace(), earlier);
        let deferred = proxy && !done;
        let launches = match later {
            Later::Access(_, after) => after + 1,
            Later::End(_) => 1,
        };
        if let Later::Access(act, 0) = later
            && act.by.block == earlier.by.block
            && !proxy
        {
            return self.same_block(earlier, &act);
        }
        let mut past = self.causes.nothing(launches);
        let (found, target) = match later {
            Later::Access(act, launch) => (
                self.causes.add_steps(&mut past, launch, act.by.block, act.by.step + 1),
                self.causes.moment(launch, act.by.step),
            ),
            Later::End(rank) => (self.causes.add_end(&mut past, 0, rank), Moment::end(0, rank)),
        };
        if !found {
            return Vec::new();
        }
        let at = self.causes.moment(0, earlier.by.step);
        let begun = past.holds(self.trace(), &at);
        let mut all = past.clone();
        if !self.causes.add_steps(&mut all, 0, earlier.by.block, earlier.by.step + 1) {
            return Vec::new();
        }
        all.moments.entry(at).or_default();
        all.moments.remove(&target);
        let (before, behind): (Vec<_>, Vec<_>) =
            all.moments.iter().partition(|(moment, _)| past.holds(self.trace(), moment));
        let is_target = |block: usize| match later {
            Later::Access(act, _) => block == act.by.block,
            Later::End(rank) => self.trace().blocks[block].rank == rank,
        };
        let way = match begun && launches == 1 {
            true => self.causes.way(&past, earlier.by.step, is_target),
            false => BTreeSet::new(),
        };
        let mut lines = Lines { trace: self.trace(), several: launches > 1, way, list: Vec::new() };
        for (moment, links) in before {
            match (*moment == at, deferred) {
                (true, true) => lines.request(earlier),
                (true, false) => lines.act(0, earlier, ""),
                (false, _) => lines.step(moment, links),
            }
        }
        let late = format!(" ({} need not be complete)", self.place(earlier));
        let note = if begun && !deferred { late.as_str() } else { "" };
        match later {
            Later::Access(act, launch) => lines.act(launch, &act, note),
            Later::End(rank) => lines.add(0, Weight::Access, format!("rank {rank} ends its launch{note}")),
        }
        behind.iter().filter(|(moment, _)| **moment != at).for_each(|(m, links)| lines.step(m, links));
        match (begun, deferred) {
            (false, _) => lines.act(0, earlier, " (nothing makes it come first)"),
            (true, true) => lines.act(0, earlier, ""),
            (true, false) => {}
        }
        lines.finish()
    }

    /// How an access comes before the start of its owner's launch.
    pub(super) fn before_start(&self, act: &Act) -> Vec<String> {
        let mut past = self.causes.nothing(1);
        if !self.causes.add_steps(&mut past, 0, act.by.block, act.by.step + 1) {
            return Vec::new();
        }
        let mut lines = Lines { trace: self.trace(), several: false, way: BTreeSet::new(), list: Vec::new() };
        past.moments.remove(&self.causes.moment(0, act.by.step));
        past.moments.iter().for_each(|(moment, links)| lines.step(moment, links));
        let owner = act.extent.rank;
        let note = match past.has_begun(self.trace(), owner) {
            // A wait without a nop behind it, or one that another signal may satisfy.
            true => format!(" (not all threads need have heard of rank {owner})"),
            false => format!(" (rank {owner} need not have started)"),
        };
        lines.act(0, act, &note);
        lines.finish()
    }

    /// How blocks come to stand at steps, each given with its block. Empty if they need nobody for that, or too
    /// many.
    pub(super) fn reached(&self, stands: impl Iterator<Item = (usize, usize)>) -> Vec<String> {
        let mut past = self.causes.nothing(1);
        for (block, step) in stands {
            if !self.causes.add_steps(&mut past, 0, block, step) {
                return Vec::new();
            }
        }
        let mut lines = Lines { trace: self.trace(), several: false, way: BTreeSet::new(), list: Vec::new() };
        past.moments.iter().for_each(|(moment, links)| lines.step(moment, links));
        if lines.list.len() > MOST_LINES { Vec::new() } else { lines.finish() }
    }

    /// Two accesses in one segment.
    fn same_block(&self, earlier: &Act, later: &Act) -> Vec<String> {
        let mut lines = Lines { trace: self.trace(), several: false, way: BTreeSet::new(), list: Vec::new() };
        if earlier.by.step == later.by.step {
            let item = |act: &Act| Place { item: Some(act.by.item), ..self.place(act) };
            lines.act_at(item(earlier), 0, earlier, "");
            lines.act_at(item(later), 0, later, " (nothing orders the two items)");
        } else {
            lines.act(0, earlier, "");
            lines.act(0, later, &format!(" ({} need not be complete)", self.place(earlier)));
        }
        lines.finish()
    }

    fn place(&self, act: &Act) -> Place {
        self.trace().place(act.by.block, act.by.step)
    }
}

fn is_by_proxy(trace: &Trace<'_>, act: &Act) -> bool {
    act.by.position.thread as usize >= trace.blocks.len()
}

/// What is left out first, if there are too many lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Weight {
    Synchronisation,
    /// Synchronisation on the way from the earlier access to the later one.
    Way,
    Access,
}

/// The lines so far.
struct Lines<'t, 'p> {
    trace: &'t Trace<'p>,
    /// Several launches.
    several: bool,
    /// From the earlier access to the later one.
    way: BTreeSet<Moment>,
    list: Vec<(String, Weight)>,
}

impl Lines<'_, '_> {
    fn add(&mut self, launch: usize, weight: Weight, text: String) {
        let text = if self.several { format!("launch {}: {text}", launch + 1) } else { text };
        self.list.push((text, weight));
    }

    /// Synchronisation.
    fn step(&mut self, moment: &Moment, links: &BTreeSet<Link>) {
        let weight = if self.way.contains(moment) { Weight::Way } else { Weight::Synchronisation };
        let step = match moment.event {
            Event::Step(step) => step,
            Event::End(rank) => {
                return self.add(moment.launch, weight, format!("rank {rank} ends its launch"));
            }
        };
        let place = self.trace.place(self.trace.block_of(step), step);
        let name = self.trace.steps[step].action.name();
        let more = links.len().saturating_sub(1);
        let mut text = format!("{place} `{name}`");
        if let Some(link) = links.first() {
            text += &match *link {
                Link::Signal(channel) => format!(" on {}", self.trace.channel_name(channel)),
                Link::Barrier(id) => match self.trace.steps[step].action {
                    Action::Barrier { blocks, .. } => format!(" {id} of {blocks} blocks"),
                    _ => String::new(),
                },
                Link::Semaphore(id) => format!(" on semaphore {id}"),
                Link::Packets(rank, chunks) => {
                    let of = Region { rank, buffer: BufferKind::Scratch, chunks };
                    format!(" with packets in {}", chunks_of(place.rank, &of))
                }
            };
        }
        if more > 0 {
            text += &format!(" and {more} more");
        }
        self.add(moment.launch, weight, text);
    }

    /// The step of an access that the proxy will do.
    fn request(&mut self, act: &Act) {
        let place = self.trace.place(act.by.block, act.by.step);
        let name = self.trace.steps[act.by.step].action.name();
        self.add(0, Weight::Access, format!("{place} `{name}` pushes a request"));
    }

    fn act(&mut self, launch: usize, act: &Act, note: &str) {
        let place = self.trace.place(act.by.block, act.by.step);
        self.act_at(place, launch, act, note);
    }

    fn act_at(&mut self, place: Place, launch: usize, act: &Act, note: &str) {
        let of = chunks_of(place.rank, &region(self.trace, &act.extent));
        let action = self.trace.steps[act.by.step].action;
        let verb = match act.mode {
            Mode::Read => "reads",
            Mode::Write => "writes",
        };
        let packets = if act.form == Form::Packets { "packets in " } else { "" };
        let name = action.name();
        let text = match is_by_proxy(self.trace, act) {
            true => format!("the proxy carries out {place} `{name}`: it {verb} {packets}{of}{note}"),
            false => format!("{place} `{name}` {verb} {packets}{of}{note}"),
        };
        self.add(launch, Weight::Access, text);
    }

    /// As many lines as people read.
    fn finish(self) -> Vec<String> {
        let mut kept: Vec<usize> = (0..self.list.len()).collect();
        if kept.len() > MOST_LINES {
            // Later lines before earlier ones of the same weight; one line says how many are missing.
            kept.sort_by_key(|at| std::cmp::Reverse((self.list[*at].1, *at)));
            kept.truncate(MOST_LINES - 1);
            kept.sort_unstable();
        }
        let left_out = self.list.len() - kept.len();
        let mut lines = Vec::new();
        if left_out > 0 {
            lines.push(format!("... {left_out} more steps of synchronisation"));
        }
        lines.extend(kept.into_iter().map(|at| self.list[at].0.clone()));
        lines
    }
}

/// `o[0..1]`, with its owner if that is another rank.
fn chunks_of(rank: u32, region: &Region) -> String {
    let (first, end) = region.chunks;
    let owner = match region.rank == rank {
        true => String::new(),
        false => format!(" of rank {}", region.rank),
    };
    format!("{}[{first}..{end}]{owner}", region.buffer.name())
}
