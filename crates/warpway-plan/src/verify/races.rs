//! V5: two accesses, one of them a write, with nothing between them. And what else is found while following one
//! order of the steps: accesses to peers that may not have started (V507) or may have ended (V508), port puts that
//! may not be complete (V511).

use std::cell::LazyCell;

use super::accesses::{Access, Mode, waits_for_packets};
use super::cells::{Meeting, Memory, Party};
use super::clock::{Knowledge, Position, RankSet};
use super::counterexample::Counterexamples;
use super::explain;
use super::extent::Extent;
use super::findings::Findings;
use super::intervals::IntervalSet;
use super::options::Options;
use super::order::{Order, request_channel};
use super::packets;
use super::path::Node;
use super::report::Diagnostic;
use super::reuse;
use super::schedule::Schedule;
use super::slots::{Actor, Known, Slots, Told, View, Write, overlay};
use super::trace::{ChannelId, Step, Trace};
use crate::ir::{Action, BufferKind, ChannelType, DataKind, DataOperation, Form};

/// Something that is not in order.
#[derive(Debug, Clone, Copy)]
pub(super) enum Problem {
    /// Two accesses; the first one happened first in this run.
    Race(Party, Party),
    /// The owner may not have started.
    NotStarted(Party),
    /// The owner may have ended.
    NotOver(Party),
    /// The put may still read when its rank has ended.
    NotComplete(Party),
    /// Packets are read that nobody may have written.
    Unwritten(Party),
}

/// What following one order of the steps has shown.
#[derive(Debug)]
pub(super) struct Replay<'t, 'p> {
    pub(super) problems: Vec<Problem>,
    pub(super) order: Order<'t, 'p>,
    pub(super) slots: Slots,
    /// What comes before the end of each rank's launch.
    pub(super) ends: Vec<Knowledge>,
    /// Raw accesses to scratch, and the ranks whose start they come after.
    pub(super) scratch: Vec<(Party, RankSet)>,
    /// More races than are looked at.
    pub(super) truncated: bool,
    /// Accesses overlap so much that not all could be compared.
    pub(super) exhausted: bool,
}

/// Races of one run that are looked at.
const MOST_RACES: usize = 20_000;

/// Problems of one run that are looked at though one is enough to know what is to be done: a handshake, a flush.
const MOST_HANDSHAKES: usize = 2_000;

/// Comparisons of an access with one part of a memory.
const MOST_VISITS: u64 = 400_000_000;

/// The pass for V5 and V6.
pub(super) fn check(trace: &Trace<'_>, schedule: &Schedule, options: &Options<'_>, findings: &mut Findings) {
    if options.checks(6) && packets::check(trace, options, findings) {
        return;
    }
    let mut replay = replay(trace, schedule, false);
    // Made when first asked for: most plans need none.
    let examples = LazyCell::new(|| Counterexamples::new(trace, schedule));
    if !replay.problems.is_empty() && options.checks(5) {
        // Again, now with everything that explanations need.
        replay = self::replay(trace, schedule, true);
        explain::report(trace, &mut replay, &examples, findings);
    }
    if replay.exhausted {
        let message = "too many accesses overlap: not all were compared";
        let hint = "refer to few chunks at a time, or cut all operations alike";
        findings.push(Diagnostic::error(409, message).hint(hint));
    }
    if options.checks(6) && !replay.truncated && !replay.exhausted {
        packets::unread(trace, &replay.slots, findings);
    }
    if !replay.truncated && !replay.exhausted {
        reuse::check(
            trace,
            &replay,
            &|earlier, later| examples.reversed(earlier, later, false),
            options,
            findings,
        );
    }
}

/// Follows the order of a schedule.
pub(super) fn replay<'t, 'p>(trace: &'t Trace<'p>, schedule: &Schedule, explain: bool) -> Replay<'t, 'p> {
    let mut run = Run {
        trace,
        memory: Memory::new(trace),
        remote: Vec::new(),
        local_puts: Vec::new(),
        races: 0,
        handshakes: 0,
        replay: Replay {
            problems: Vec::new(),
            order: Order::new(trace, explain),
            slots: Slots::default(),
            ends: Vec::new(),
            scratch: Vec::new(),
            truncated: false,
            exhausted: false,
        },
        accesses: Vec::new(),
    };
    for (block, step) in &schedule.order {
        let (block, step) = (*block as usize, *step as usize);
        match trace.steps[step].action {
            Action::Data(data) => run.data(block, step, data),
            _ => run.replay.order.synchronise(block, step),
        }
        run.replay.exhausted = run.memory.visits() > MOST_VISITS;
        if run.replay.truncated || run.replay.exhausted {
            break;
        }
    }
    run.finish();
    run.replay
}

struct Run<'t, 'p> {
    trace: &'t Trace<'p>,
    memory: Memory,
    /// Accesses to peers' input and output.
    remote: Vec<Party>,
    /// Port puts that read memory of their own rank.
    local_puts: Vec<Party>,
    /// How many problems there were that each need an answer of their own, and how many that do not.
    races: usize,
    handshakes: usize,
    replay: Replay<'t, 'p>,
    accesses: Vec<Access>,
}

/// The requests of a step, by thread.
type Requests = Vec<Option<(ChannelId, Position, Knowledge)>>;

impl Run<'_, '_> {
    fn data(&mut self, block: usize, step: usize, data: &DataOperation) {
        let trace = self.trace;
        let mut accesses = std::mem::take(&mut self.accesses);
        accesses.clear();
        trace.accesses(block, &trace.steps[step], &mut accesses);
        let (position, base) = self.replay.order.now(block);
        let base = base.clone();
        let of_step = OfStep {
            block,
            step,
            data,
            position,
            requests: self.requests(block, step, data, &accesses),
            base,
        };
        let told = self.read_packets(&of_step, &accesses);
        for access in &accesses {
            self.access(&of_step, access, &told);
        }
        for access in &accesses {
            if (access.mode, access.form, access.extent.buffer)
                == (Mode::Write, Form::Packets, BufferKind::Scratch)
            {
                self.write_packets(&of_step, access, &told);
            }
        }
        self.replay.order.after_data(block, step, data);
        self.accesses = accesses;
    }

    fn requests(&mut self, block: usize, step: usize, data: &DataOperation, accesses: &[Access]) -> Requests {
        let mut requests = Requests::new();
        if data.channel_type != Some(ChannelType::Port) || accesses.is_empty() {
            return requests;
        }
        let count = if data.kind.joins() { data.destinations.len() } else { data.items().count() };
        for thread in 0..count as u32 {
            let channel = request_channel(self.trace, block, data, thread);
            requests.push(channel.map(|channel| {
                let (position, known) = self.replay.order.request(block, step, thread, channel);
                (channel, position, known)
            }));
        }
        requests
    }

    /// Waits for the packets that a step reads. What they tell, by item.
    fn read_packets(&mut self, of: &OfStep<'_>, accesses: &[Access]) -> Vec<(u32, Vec<Known>)> {
        let mut told: Vec<(u32, Vec<Known>)> = Vec::new();
        if !waits_for_packets(of.data) {
            return told;
        }
        for access in accesses.iter().filter(|a| (a.mode, a.form) == (Mode::Read, Form::Packets)) {
            let by = of.actor(access.item);
            if !self.replay.slots.covers(&access.extent) {
                self.problem(Problem::Unwritten(of.party(access, None)));
            }
            let news = self.replay.slots.read(by, &access.extent);
            if of.certain(self.trace, &access.extent) {
                for Told { known, node, .. } in news.iter().filter(|t| t.certain) {
                    self.replay.order.learn(of.block, known.knowledge.clone());
                    if let Some(paths) = self.replay.order.paths.as_mut() {
                        paths.acquire(of.block, of.step, *node);
                    }
                }
            }
            let news = news.into_iter().map(|t| t.known);
            match told.last_mut() {
                Some((item, list)) if *item == access.item => list.extend(news),
                _ => told.push((access.item, news.collect())),
            }
            // The proxy reads the same packets again, once for each destination.
            for request in of.requests.iter().flatten() {
                let party = of.party(access, Some(request));
                self.replay.slots.read(party.by, &access.extent);
                self.local_puts.push(party);
            }
        }
        told.into_iter().map(|(item, list)| (item, overlay(&list))).collect()
    }

    fn access(&mut self, of: &OfStep<'_>, access: &Access, told: &[(u32, Vec<Known>)]) {
        let request = of.request(access);
        let party = of.party(access, request);
        let rank = self.trace.blocks[of.block].rank;
        let knowledge = request.map_or(&of.base, |(_, _, known)| known);
        let is_remote = access.extent.rank != rank;
        if is_remote && access.extent.buffer != BufferKind::Scratch && !access.extent.is_empty() {
            if !knowledge.executed.contains(access.extent.rank) {
                self.problem(Problem::NotStarted(party));
            }
            self.remote.push(party);
        }
        if access.asynchronous && access.mode == Mode::Read {
            self.local_puts.push(party);
        }
        let nothing: &[Known] = &[];
        let of_item = told.iter().find(|(item, _)| *item == access.item).map_or(nothing, |(_, list)| list);
        let view = View {
            own: Position { time: of.position.time.saturating_sub(1), ..of.position },
            knowledge,
            step: of.step,
            item: access.item,
            told: if access.mode == Mode::Write { of_item } else { nothing },
        };
        if access.form == Form::Packets {
            if access.asynchronous && access.mode == Mode::Read {
                self.forward_packets(&party, &view);
            }
            return;
        }
        if access.extent.buffer == BufferKind::Scratch {
            self.replay.scratch.push((party, knowledge.started.clone()));
        }
        let slots = &self.replay.slots;
        let mut conflicts = Vec::new();
        let mut is_ordered = |meeting: &Meeting<'_>| comes_before(slots, meeting, &party, &view);
        self.memory.enter(&party, access.form, &mut is_ordered, &mut |earlier| conflicts.push(*earlier));
        for earlier in conflicts {
            self.problem(Problem::Race(earlier, party));
        }
    }

    /// A proxy reads packets without looking at them: they must have been written.
    fn forward_packets(&mut self, party: &Party, view: &View<'_>) {
        let slots = &mut self.replay.slots;
        let mut late = Vec::new();
        for (number, region) in slots.writers(&party.extent) {
            if !slots.order_write(number, region, view, &party.extent) {
                late.extend(slots.writes.get(number as usize).map(|w| (w.by, w.extent)));
            }
        }
        if !slots.covers(&party.extent) {
            self.problem(Problem::Unwritten(*party));
        }
        for (by, extent) in late {
            let earlier = Party { by, mode: Mode::Write, extent, channel: None, packs: true, rewrites: true };
            self.problem(Problem::Race(earlier, *party));
        }
        self.replay.slots.read(party.by, &party.extent);
    }

    fn write_packets(&mut self, of: &OfStep<'_>, access: &Access, told: &[(u32, Vec<Known>)]) {
        let request = of.request(access);
        let before = match request {
            Some((_, _, known)) => known.clone(),
            None => self.replay.order.published(of.block),
        };
        let extent = access.extent;
        let Some(start) = extent.start.checked_sub(extent.origin) else { return };
        let whole = Known { start, end: start + (extent.end - extent.start), knowledge: before };
        let mut known = vec![whole];
        known.extend(told.iter().filter(|(item, _)| *item == access.item).flat_map(|(_, list)| list.clone()));
        let node = self.replay.order.paths.as_ref().map_or(Node::default(), |p| p.start(of.block));
        self.replay.slots.write(Write {
            by: of.party(access, request).by,
            extent,
            known: overlay(&known),
            readers: Vec::new(),
            certain: of.certain(self.trace, &extent),
            node,
        });
    }

    fn problem(&mut self, problem: Problem) {
        let solved_for_all = matches!(problem, Problem::NotStarted(_) | Problem::NotComplete(_));
        let (count, most) = match solved_for_all {
            true => (&mut self.handshakes, MOST_HANDSHAKES),
            false => (&mut self.races, MOST_RACES),
        };
        *count += 1;
        if *count <= most {
            self.replay.problems.push(problem);
        } else if !solved_for_all {
            self.replay.truncated = true;
        }
    }

    /// What can be said only at the end of a launch.
    fn finish(&mut self) {
        let ranks = 0..self.trace.plan().n_ranks();
        self.replay.ends = ranks.map(|rank| self.replay.order.end(rank)).collect();
        if let Some(paths) = self.replay.order.paths.as_mut() {
            paths.finish(self.trace);
        }
        if self.replay.truncated || self.replay.exhausted {
            // What comes later was not followed, so the ends know too little.
            return;
        }
        let over = |ends: &[Knowledge], rank: u32, at| {
            ends.get(rank as usize).is_some_and(|end| end.clock.covers(at))
        };
        for party in std::mem::take(&mut self.remote) {
            if !over(&self.replay.ends, party.extent.rank, party.by.position) {
                self.problem(Problem::NotOver(party));
            }
        }
        for party in std::mem::take(&mut self.local_puts) {
            let rank = self.trace.blocks[party.by.block].rank;
            if !over(&self.replay.ends, rank, party.by.position) {
                self.problem(Problem::NotComplete(party));
            }
        }
    }
}

/// A step that is being followed.
struct OfStep<'a> {
    block: usize,
    step: usize,
    data: &'a DataOperation,
    position: Position,
    base: Knowledge,
    requests: Requests,
}

impl OfStep<'_> {
    fn actor(&self, item: u32) -> Actor {
        Actor { position: self.position, block: self.block, step: self.step, item }
    }

    /// The request that does an access.
    fn request(&self, access: &Access) -> Option<&(ChannelId, Position, Knowledge)> {
        if !access.asynchronous {
            return None;
        }
        let thread = if self.data.kind.joins() { access.position } else { access.item };
        self.requests.get(thread as usize)?.as_ref()
    }

    fn party(&self, access: &Access, request: Option<&(ChannelId, Position, Knowledge)>) -> Party {
        let mut by = self.actor(access.item);
        if let Some((_, position, _)) = request {
            by.position = *position;
        }
        Party {
            by,
            mode: access.mode,
            extent: access.extent,
            channel: request.map(|(channel, ..)| *channel),
            packs: writes_packets(self.data),
            rewrites: !moves_to_others(self.data.kind),
        }
    }

    /// True if a piece has packets at every size: it is not cut, or its member comes before the last chunk, and no
    /// chunk can be empty.
    fn certain(&self, trace: &Trace<'_>, extent: &Extent) -> bool {
        let sized = trace.plan().ranks.iter().any(|rank| rank.size_ids.is_some());
        let Step { slice, .. } = trace.steps[self.step];
        let chunks = extent.cut.item / trace.scale.chunk.max(1);
        let cut =
            self.data.group.is_some_and(|g| g.size > 1 && (slice.is_some() || u64::from(g.member) >= chunks));
        !sized && !cut
    }
}

/// True if what is read and what is written belong to different ranks.
fn moves_to_others(kind: DataKind) -> bool {
    use DataKind::{Get, Put, PutWithSignal, PutWithSignalAndFlush};
    matches!(kind, Put | PutWithSignal | PutWithSignalAndFlush | Get)
}

fn writes_packets(data: &DataOperation) -> bool {
    data.kind.uses_packets() && !matches!(data.kind, DataKind::UnpackPackets | DataKind::ReducePackets)
}

/// True if the earlier access comes before `party` at all units that both touch.
fn comes_before(slots: &Slots, meeting: &Meeting<'_>, party: &Party, view: &View<'_>) -> bool {
    let Meeting { earlier, at, extent, region } = *meeting;
    let position = earlier.by.position;
    if earlier.by.step == party.by.step {
        // Threads do the items of a step in list order, each always at the same place of the item.
        let mapped_alike = (at.origin, at.cut, at.start) == (extent.origin, extent.cut, extent.start);
        return mapped_alike && earlier.channel.is_none() && party.channel.is_none();
    }
    if view.knows(position) {
        return true;
    }
    if !view.told.is_empty() {
        // Where both are cut alike, the common part is enough; else it depends on the size who told of it.
        let alike = (at.origin, at.cut) == (extent.origin, extent.cut);
        let (start, end) = if alike { region } else { (extent.start, extent.end) };
        let mut known = IntervalSet::default();
        for part in view.told.iter().filter(|part| part.knowledge.clock.covers(position)) {
            known.insert(part.start, part.end);
        }
        let origin = extent.origin;
        if start >= origin && start < end && known.covers(start - origin, end - origin) {
            return true;
        }
    }
    earlier.mode == Mode::Read && earlier.packs && slots.order_read(earlier.by, at, region, view, extent)
}
