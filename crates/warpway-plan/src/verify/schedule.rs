//! One run of the plan with maximal progress: does everything end, and in which order can it happen?
//!
//! Channels, barriers and packets are deterministic, so which blocks stay blocked does not depend on the order
//! chosen. Semaphores with several acquiring blocks are the exception ([`Schedule::contested`]).

use std::collections::BTreeMap;

use super::accesses::{Access, Mode, waits_for_packets};
use super::intervals::IntervalSet;
use super::trace::{ChannelId, NO_PARTNER, Step, Trace};
use crate::ir::{Action, BufferKind, DataOperation, Form, Via};

/// What a block waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blocker {
    /// The next signal on a channel of its own; which one of its life it would be, from 1.
    Signal { channel: ChannelId, number: u64 },
    /// The other blocks of a barrier of its rank.
    Barrier { id: u32 },
    /// A release of a semaphore of its rank.
    Semaphore { id: u32 },
    /// Packets in a scratch.
    Packets(Access),
}

/// See the module's page.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    /// Block and step, in an order in which the steps can happen.
    pub(super) order: Vec<(u32, u32)>,
    /// The blocks that never end: the step they stand at, and why.
    pub(super) blocked: BTreeMap<usize, (usize, Blocker)>,
    /// Semaphores (rank, number) that several blocks acquire.
    pub(super) contested: Vec<(u32, u32)>,
}

/// The channels on which a step signals its peer.
pub(super) fn signalled<'s>(trace: &'s Trace<'_>, block: usize, action: &'s Action) -> Vec<ChannelId> {
    let (via, positions) = match action {
        Action::Signal { via, channels, .. } => (*via, channels),
        Action::Data(data) if data.kind.signals() => (via_of(data), &data.channels),
        _ => return Vec::new(),
    };
    positions.iter().filter_map(|p| trace.channel(block, via, *p)).collect()
}

/// The kind of channel that a data operation uses.
pub(super) fn via_of(data: &DataOperation) -> Via {
    match data.channel_type {
        Some(crate::ir::ChannelType::Port) => Via::Port,
        _ => Via::Memory,
    }
}

struct Run<'t, 'p> {
    trace: &'t Trace<'p>,
    /// Next step of each block.
    next: Vec<usize>,
    /// How many of the ids of the step a block stands at have been satisfied.
    progress: Vec<usize>,
    /// Signals that have arrived at a channel and waits that have been satisfied there.
    arrived: Vec<u64>,
    taken: Vec<u64>,
    waiting_for_signal: BTreeMap<ChannelId, Vec<usize>>,
    /// Arrived blocks by (rank, barrier).
    barriers: BTreeMap<(u32, u32), Vec<usize>>,
    semaphores: Vec<Vec<u64>>,
    waiting_for_semaphore: BTreeMap<(u32, u32), Vec<usize>>,
    packets: Vec<IntervalSet>,
    waiting_for_packets: Vec<Vec<usize>>,
    blockers: BTreeMap<usize, Blocker>,
    ready: Vec<usize>,
    scratch: Vec<Access>,
    order: Vec<(u32, u32)>,
}

/// Runs the plan.
pub(super) fn run(trace: &Trace<'_>) -> Schedule {
    let n_ranks = trace.plan().ranks.len();
    let mut run = Run {
        trace,
        next: trace.blocks.iter().map(|b| b.steps.start).collect(),
        progress: vec![0; trace.blocks.len()],
        arrived: vec![0; trace.channels.len()],
        taken: vec![0; trace.channels.len()],
        waiting_for_signal: BTreeMap::new(),
        barriers: BTreeMap::new(),
        semaphores: trace.plan().ranks.iter().map(|r| r.semaphores.clone()).collect(),
        waiting_for_semaphore: BTreeMap::new(),
        packets: vec![IntervalSet::default(); n_ranks],
        waiting_for_packets: vec![Vec::new(); n_ranks],
        blockers: BTreeMap::new(),
        ready: (0..trace.blocks.len()).rev().collect(),
        scratch: Vec::new(),
        order: Vec::with_capacity(trace.steps.len()),
    };
    while let Some(block) = run.ready.pop() {
        run.advance(block);
    }
    let blocked = run.blockers.iter().map(|(block, why)| (*block, (run.next[*block], *why))).collect();
    Schedule { order: run.order, blocked, contested: contested(trace) }
}

impl Run<'_, '_> {
    /// Runs a block until it ends or waits.
    fn advance(&mut self, block: usize) {
        let trace = self.trace;
        self.blockers.remove(&block);
        while self.next[block] < trace.blocks[block].steps.end {
            let at = self.next[block];
            let step = &trace.steps[at];
            if let Some(blocker) = self.obstacle(block, step) {
                self.blockers.insert(block, blocker);
                return;
            }
            self.progress[block] = 0;
            self.next[block] = at + 1;
            self.order.push((block as u32, at as u32));
            self.effects(block, step);
        }
    }

    /// Why a step cannot happen now. Takes what it can get.
    fn obstacle(&mut self, block: usize, step: &Step<'_>) -> Option<Blocker> {
        let trace = self.trace;
        let rank = trace.blocks[block].rank;
        match step.action {
            Action::Wait { via, channels, .. } => {
                while let Some(position) = channels.get(self.progress[block]) {
                    let Some(channel) = trace.channel(block, *via, *position) else {
                        self.progress[block] += 1;
                        continue;
                    };
                    let at = channel as usize;
                    if self.taken[at] == self.arrived[at] {
                        self.waiting_for_signal.entry(channel).or_default().push(block);
                        return Some(Blocker::Signal { channel, number: self.taken[at] + 1 });
                    }
                    self.taken[at] += 1;
                    self.progress[block] += 1;
                }
                None
            }
            Action::Barrier { id, blocks } => {
                if self.progress[block] > 0 {
                    return None;
                }
                let arrived = self.barriers.entry((rank, *id)).or_default();
                arrived.push(block);
                if (arrived.len() as u64) < u64::from(*blocks) {
                    self.progress[block] = 1;
                    return Some(Blocker::Barrier { id: *id });
                }
                let others = std::mem::take(arrived);
                self.ready.extend(others.into_iter().filter(|other| *other != block).rev());
                None
            }
            Action::Acquire { semaphores } => {
                while let Some(id) = semaphores.get(self.progress[block]) {
                    let Some(value) = self.semaphores[rank as usize].get_mut(*id as usize) else {
                        self.progress[block] += 1;
                        continue;
                    };
                    if *value == 0 {
                        self.waiting_for_semaphore.entry((rank, *id)).or_default().push(block);
                        return Some(Blocker::Semaphore { id: *id });
                    }
                    *value -= 1;
                    self.progress[block] += 1;
                }
                None
            }
            Action::Data(data) if waits_for_packets(data) => {
                let mut accesses = std::mem::take(&mut self.scratch);
                accesses.clear();
                trace.accesses(block, step, &mut accesses);
                let missing = accesses.iter().copied().find(|a| {
                    let (e, written) = (a.extent, &self.packets[a.extent.rank as usize]);
                    (a.mode, a.form) == (Mode::Read, Form::Packets) && !written.covers(e.start, e.end)
                });
                self.scratch = accesses;
                let missing = missing?;
                self.waiting_for_packets[missing.extent.rank as usize].push(block);
                Some(Blocker::Packets(missing))
            }
            _ => None,
        }
    }

    /// What a step gives to others.
    fn effects(&mut self, block: usize, step: &Step<'_>) {
        let trace = self.trace;
        for channel in signalled(trace, block, step.action) {
            let partner = trace.channels[channel as usize].partner;
            if partner != NO_PARTNER {
                self.arrived[partner as usize] += 1;
                if let Some(waiting) = self.waiting_for_signal.remove(&partner) {
                    self.ready.extend(waiting);
                }
            }
        }
        match step.action {
            Action::Release { semaphores } => {
                let rank = trace.blocks[block].rank;
                for id in semaphores {
                    if let Some(value) = self.semaphores[rank as usize].get_mut(*id as usize) {
                        *value += 1;
                    }
                    if let Some(waiting) = self.waiting_for_semaphore.remove(&(rank, *id)) {
                        self.ready.extend(waiting);
                    }
                }
            }
            Action::Data(data) if data.kind.uses_packets() => {
                let mut accesses = std::mem::take(&mut self.scratch);
                accesses.clear();
                trace.accesses(block, step, &mut accesses);
                for access in &accesses {
                    let extent = access.extent;
                    if (access.mode, access.form, extent.buffer)
                        == (Mode::Write, Form::Packets, BufferKind::Scratch)
                    {
                        self.packets[extent.rank as usize].insert(extent.start, extent.end);
                        let waiting = std::mem::take(&mut self.waiting_for_packets[extent.rank as usize]);
                        self.ready.extend(waiting);
                    }
                }
                self.scratch = accesses;
            }
            _ => {}
        }
    }
}

/// Semaphores that more than one block acquires.
fn contested(trace: &Trace<'_>) -> Vec<(u32, u32)> {
    let mut first: BTreeMap<(u32, u32), (usize, bool)> = BTreeMap::new();
    for (at, block) in trace.blocks.iter().enumerate() {
        for step in &trace.steps[block.steps.clone()] {
            if let Action::Acquire { semaphores } = step.action {
                for id in semaphores {
                    let entry = first.entry((block.rank, *id)).or_insert((at, false));
                    entry.1 |= entry.0 != at;
                }
            }
        }
    }
    first.into_iter().filter(|(_, (_, several))| *several).map(|(semaphore, _)| semaphore).collect()
}
