//! One run of the plan with maximal progress: does everything end, and in which order can it happen?
//!
//! Which blocks stay blocked does not depend on the order chosen, unless several blocks take from one semaphore
//! or wait on one channel; then [`explore`](super::explore) tries the others.

use std::collections::BTreeMap;

use super::accesses::{Access, Mode, waits_for_packets};
use super::intervals::IntervalSet;
use super::packets_ready::PacketItems;
use super::trace::{ChannelId, NO_PARTNER, Step, Trace};
use crate::ir::{Action, ChannelType, DataOperation, Form, Via};

/// What a block waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blocker {
    /// The next signal on a channel of its own; which one of its life it would be, from 1.
    Signal { channel: ChannelId, number: u64 },
    /// The other blocks of a barrier of its rank.
    Barrier { id: u32 },
    /// A release of a semaphore of its rank.
    Semaphore { id: u32 },
    /// Packets in a scratch: the read, and the first unit that nobody has written.
    Packets { read: Access, missing: u64 },
}

/// See the module's page.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    /// Block and step, in an order in which the steps can happen.
    pub(super) order: Vec<(u32, u32)>,
    /// The blocks that never end: the step they stand at, and why.
    pub(super) blocked: BTreeMap<usize, (usize, Blocker)>,
}

/// The channels on which a step signals its peer.
pub(super) fn signalled<'s>(
    trace: &'s Trace<'_>,
    block: usize,
    action: &'s Action,
) -> impl Iterator<Item = ChannelId> + 's {
    let (via, positions) = match action {
        Action::Signal { via, channels, .. } => (*via, channels.as_slice()),
        Action::Data(data) if data.kind.signals() => (via_of(data), data.channels.as_slice()),
        _ => (Via::Memory, &[][..]),
    };
    positions.iter().filter_map(move |p| trace.channel(block, via, *p))
}

/// The kind of channel that a data operation uses.
pub(super) fn via_of(data: &DataOperation) -> Via {
    match data.channel_type {
        Some(ChannelType::Port) => Via::Port,
        _ => Via::Memory,
    }
}

/// Something that several blocks take from, so that it matters who comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Resource {
    /// Rank and number.
    Semaphore(u32, u32),
    /// As its owner sees it.
    Channel(ChannelId),
}

/// Who may go on by itself, and who must be told to.
pub(super) trait Arbiter {
    /// True if nobody takes from `resource` without being told.
    fn holds(&self, resource: Resource) -> bool;
}

/// First come, first served.
pub(super) struct Unarbitrated;

impl Arbiter for Unarbitrated {
    fn holds(&self, _: Resource) -> bool {
        false
    }
}

/// What does not change during a run.
pub(super) struct Machine<'t, 'p, A> {
    pub(super) trace: &'t Trace<'p>,
    pub(super) arbiter: A,
    items: Vec<PacketItems>,
}

/// A moment of a run.
#[derive(Debug, Clone)]
pub(super) struct State {
    /// Next step of each block.
    pub(super) next: Vec<usize>,
    /// How many of the ids of the step a block stands at have been satisfied.
    pub(super) progress: Vec<usize>,
    /// Signals that have arrived at a channel and waits that have been satisfied there.
    arrived: Vec<u64>,
    taken: Vec<u64>,
    waiting_for_signal: BTreeMap<ChannelId, Vec<usize>>,
    /// Arrived blocks by (rank, barrier).
    barriers: BTreeMap<(u32, u32), Vec<usize>>,
    semaphores: Vec<Vec<u64>>,
    waiting_for_semaphore: BTreeMap<(u32, u32), Vec<usize>>,
    /// Written units by rank.
    packets: Vec<IntervalSet>,
    /// Blocks by rank and the first unit that they miss.
    waiting_for_packets: Vec<BTreeMap<u64, Vec<usize>>>,
    pub(super) blockers: BTreeMap<usize, Blocker>,
    /// Blocks that wait for the arbiter, and for what.
    pub(super) parked: BTreeMap<usize, Resource>,
    /// Those that can go on; the last one goes first.
    ready: Vec<usize>,
    pub(super) order: Vec<(u32, u32)>,
}

/// Runs the plan.
pub(super) fn run(trace: &Trace<'_>) -> Schedule {
    let machine = Machine::new(trace, Unarbitrated);
    let mut state = machine.start();
    state.order.reserve_exact(trace.steps.len());
    machine.settle(&mut state);
    let blocked = state.blocked();
    Schedule { order: state.order, blocked }
}

impl State {
    /// The blocks that wait, with the step they stand at.
    pub(super) fn blocked(&self) -> BTreeMap<usize, (usize, Blocker)> {
        self.blockers.iter().map(|(block, why)| (*block, (self.next[*block], *why))).collect()
    }

    /// How much there is to take from a resource.
    pub(super) fn available(&self, resource: Resource) -> u64 {
        match resource {
            Resource::Channel(channel) => self.arrived[channel as usize] - self.taken[channel as usize],
            Resource::Semaphore(rank, id) => self.semaphores[rank as usize][id as usize],
        }
    }

    /// Takes one.
    fn take(&mut self, resource: Resource) {
        match resource {
            Resource::Channel(channel) => self.taken[channel as usize] += 1,
            Resource::Semaphore(rank, id) => self.semaphores[rank as usize][id as usize] -= 1,
        }
    }

    /// Lets a parked block take what it waits for.
    pub(super) fn grant(&mut self, block: usize) {
        if let Some(resource) = self.parked.remove(&block) {
            self.take(resource);
            self.progress[block] += 1;
            self.ready.push(block);
        }
    }
}

impl<'t, 'p, A: Arbiter> Machine<'t, 'p, A> {
    pub(super) fn new(trace: &'t Trace<'p>, arbiter: A) -> Self {
        Self { trace, arbiter, items: PacketItems::of(trace) }
    }

    /// Before the first step.
    pub(super) fn start(&self) -> State {
        let trace = self.trace;
        let n_ranks = trace.plan().ranks.len();
        State {
            next: trace.blocks.iter().map(|b| b.steps.start).collect(),
            progress: vec![0; trace.blocks.len()],
            arrived: vec![0; trace.channels.len()],
            taken: vec![0; trace.channels.len()],
            waiting_for_signal: BTreeMap::new(),
            barriers: BTreeMap::new(),
            semaphores: trace.plan().ranks.iter().map(|r| r.semaphores.clone()).collect(),
            waiting_for_semaphore: BTreeMap::new(),
            packets: vec![IntervalSet::default(); n_ranks],
            waiting_for_packets: vec![BTreeMap::new(); n_ranks],
            blockers: BTreeMap::new(),
            parked: BTreeMap::new(),
            ready: (0..trace.blocks.len()).rev().collect(),
            order: Vec::new(),
        }
    }

    /// Runs until every block has ended or waits. Returns the number of steps.
    pub(super) fn settle(&self, state: &mut State) -> u64 {
        let mut accesses = Vec::new();
        let mut steps = 0;
        while let Some(block) = state.ready.pop() {
            steps += self.advance(state, block, &mut accesses);
        }
        steps
    }

    /// Runs a block until it ends or waits.
    fn advance(&self, state: &mut State, block: usize, accesses: &mut Vec<Access>) -> u64 {
        let trace = self.trace;
        state.blockers.remove(&block);
        let (begin, end) = (state.next[block], trace.blocks[block].steps.end);
        while state.next[block] < end {
            let at = state.next[block];
            let step = &trace.steps[at];
            accesses.clear();
            if matches!(step.action, Action::Data(data) if data.kind.uses_packets()) {
                trace.accesses(block, step, accesses);
            }
            if let Some(blocker) = self.obstacle(state, block, step, accesses) {
                state.blockers.insert(block, blocker);
                break;
            }
            state.progress[block] = 0;
            state.next[block] = at + 1;
            state.order.push((block as u32, at as u32));
            self.effects(state, block, step, accesses);
        }
        (state.next[block] - begin) as u64
    }

    /// Why a step cannot happen now. Takes what it can get.
    fn obstacle(
        &self,
        state: &mut State,
        block: usize,
        step: &Step<'_>,
        accesses: &[Access],
    ) -> Option<Blocker> {
        let trace = self.trace;
        let rank = trace.blocks[block].rank;
        match step.action {
            Action::Wait { via, channels, .. } => {
                while let Some(position) = channels.get(state.progress[block]) {
                    let Some(channel) = trace.channel(block, *via, *position) else {
                        state.progress[block] += 1;
                        continue;
                    };
                    let resource = Resource::Channel(channel);
                    let blocker = Blocker::Signal { channel, number: state.taken[channel as usize] + 1 };
                    if self.arbiter.holds(resource) {
                        state.parked.insert(block, resource);
                        return Some(blocker);
                    }
                    if state.available(resource) == 0 {
                        state.waiting_for_signal.entry(channel).or_default().push(block);
                        return Some(blocker);
                    }
                    state.take(resource);
                    state.progress[block] += 1;
                }
                None
            }
            Action::Barrier { id, blocks } => {
                if state.progress[block] > 0 {
                    return None;
                }
                let arrived = state.barriers.entry((rank, *id)).or_default();
                arrived.push(block);
                if (arrived.len() as u64) < u64::from(*blocks) {
                    state.progress[block] = 1;
                    return Some(Blocker::Barrier { id: *id });
                }
                let others = std::mem::take(arrived);
                state.ready.extend(others.into_iter().filter(|other| *other != block).rev());
                None
            }
            Action::Acquire { semaphores } => {
                while let Some(id) = semaphores.get(state.progress[block]) {
                    let resource = Resource::Semaphore(rank, *id);
                    let blocker = Blocker::Semaphore { id: *id };
                    if self.arbiter.holds(resource) {
                        state.parked.insert(block, resource);
                        return Some(blocker);
                    }
                    if state.available(resource) == 0 {
                        state.waiting_for_semaphore.entry((rank, *id)).or_default().push(block);
                        return Some(blocker);
                    }
                    state.take(resource);
                    state.progress[block] += 1;
                }
                None
            }
            Action::Data(data) if waits_for_packets(data) => {
                // What has been found written stays so: go on behind it.
                let reads = accesses.iter().filter(|a| (a.mode, a.form) == (Mode::Read, Form::Packets));
                for read in reads.skip(state.progress[block]) {
                    let at = read.extent.rank as usize;
                    let (start, end) = self.items[at].needed(read);
                    if let Some(missing) = state.packets[at].first_gap(start, end) {
                        state.waiting_for_packets[at].entry(missing).or_default().push(block);
                        return Some(Blocker::Packets { read: *read, missing });
                    }
                    state.progress[block] += 1;
                }
                None
            }
            _ => None,
        }
    }

    /// What a step gives to others.
    fn effects(&self, state: &mut State, block: usize, step: &Step<'_>, accesses: &[Access]) {
        let trace = self.trace;
        for channel in signalled(trace, block, step.action) {
            let partner = trace.channels[channel as usize].partner;
            if partner != NO_PARTNER {
                state.arrived[partner as usize] += 1;
                if let Some(waiting) = state.waiting_for_signal.remove(&partner) {
                    state.ready.extend(waiting.into_iter().rev());
                }
            }
        }
        if let Action::Release { semaphores } = step.action {
            let rank = trace.blocks[block].rank;
            for id in semaphores {
                let value = &mut state.semaphores[rank as usize][*id as usize];
                *value = value.saturating_add(1);
                if let Some(waiting) = state.waiting_for_semaphore.remove(&(rank, *id)) {
                    state.ready.extend(waiting.into_iter().rev());
                }
            }
        }
        for access in accesses.iter().filter(|a| (a.mode, a.form) == (Mode::Write, Form::Packets)) {
            let (extent, at) = (access.extent, access.extent.rank as usize);
            state.packets[at].insert(extent.start, extent.end);
            while let Some((&unit, _)) =
                state.waiting_for_packets[at].range(extent.start..extent.end.max(extent.start)).next()
            {
                let waiting = state.waiting_for_packets[at].remove(&unit);
                state.ready.extend(waiting.into_iter().flatten());
            }
        }
    }
}
