//! Happens-before, carried along one order in which the steps can happen.
//!
//! Synchronisation of a plan is deterministic (or counted so cautiously that it does not matter), so the edges
//! found along one order are those of every order. What is said about edges is in the plan format, 10.3.

mod requests;

use std::collections::{BTreeMap, BTreeSet};

use requests::Stream;
pub(super) use requests::request_channel;

use super::clock::{Knowledge, Position, RankSet, Thread, Time};
use super::counter::{Counter, Post};
use super::path::{Edge, Node, Paths};
use super::schedule::{signalled, via_of};
use super::trace::{ChannelId, NO_PARTNER, Trace};
use crate::ir::{Action, BufferKind, DataKind, DataOperation, Via};
use crate::repairs::OperationPlace;

/// Of one block.
#[derive(Debug, Default)]
struct Block {
    /// The current segment, from 1.
    segment: Time,
    /// What all its threads know since the segment began, own segments left out.
    base: Knowledge,
    /// `base` with the own segments that are over; made when first asked for.
    published: Option<Knowledge>,
    /// Learned in this segment; all threads know it from the next one on.
    pending: Vec<Knowledge>,
    /// What single threads have learned in this segment, by thread.
    threads: Vec<(u32, Knowledge)>,
}

/// No thread has this number.
const NO_THREAD: u32 = u32::MAX;

/// See the module's page.
#[derive(Debug)]
pub(super) struct Order<'t, 'p> {
    trace: &'t Trace<'p>,
    blocks: Vec<Block>,
    /// By receiving end of a channel.
    channels: Vec<Counter>,
    semaphores: BTreeMap<(u32, u32), Counter>,
    /// Participants of a barrier, what they all know, and how many have still to pass.
    barriers: BTreeMap<(u32, u32), Barrier>,
    streams: Vec<Stream>,
    /// The streams of each channel.
    streams_of: BTreeMap<ChannelId, Vec<u32>>,
    /// Signals and waits that the executor makes ordered.
    ordered: BTreeSet<OperationPlace>,
    /// The edges, for explanations.
    pub(super) paths: Option<Paths>,
}

#[derive(Debug, Default)]
struct Barrier {
    blocks: Vec<usize>,
    joined: Knowledge,
    node: Node,
    to_pass: usize,
}

impl<'t, 'p> Order<'t, 'p> {
    /// At the start of a launch. With `explain`, edges are recorded.
    pub(super) fn new(trace: &'t Trace<'p>, explain: bool) -> Self {
        let ordered = trace.repairs.ordered_pairs.iter().flat_map(|p| [p.signal.clone(), p.wait.clone()]);
        let mut order = Self {
            trace,
            blocks: Vec::with_capacity(trace.blocks.len()),
            channels: Vec::new(),
            semaphores: BTreeMap::new(),
            barriers: BTreeMap::new(),
            streams: Vec::new(),
            streams_of: BTreeMap::new(),
            ordered: ordered.collect(),
            paths: explain.then(|| Paths::new(trace)),
        };
        order.channels.resize_with(trace.channels.len(), Counter::default);
        let greeted = if trace.repairs.start_handshake { owners(trace) } else { Vec::new() };
        for of in &trace.blocks {
            let own = RankSet::of(std::iter::once(of.rank));
            let executed = greeted.get(of.rank as usize).map_or_else(|| own.clone(), |set| own.union(set));
            let base = Knowledge { started: own, executed, ..Knowledge::default() };
            order.blocks.push(Block { segment: 1, base, ..Block::default() });
        }
        for block in 0..trace.blocks.len() {
            let mut segment = 1;
            for step in trace.blocks[block].steps.clone() {
                order.count(block, step, &mut segment);
            }
        }
        order
    }

    /// Enters a step into the totals.
    fn count(&mut self, block: usize, step: usize, segment: &mut Time) {
        let trace = self.trace;
        let rank = trace.blocks[block].rank;
        let action = trace.steps[step].action;
        let relaxed = self.is_relaxed(block, step);
        if ends_segment(action) {
            *segment = segment.saturating_add(1);
        }
        for (thread, channel) in (0..).zip(signalled(trace, block, action)) {
            if let Some(counter) = self.receiver(channel) {
                let poster = counter.posters.entry(block).or_default();
                poster.posts += 1;
                if relaxed {
                    poster.last_relaxed = poster.posts;
                }
                counter.meet(0, (block, *segment, thread), relaxed);
            }
        }
        match action {
            Action::Wait { via, channels, .. } => {
                for (thread, position) in (0..).zip(channels) {
                    if let Some(channel) = trace.channel(block, *via, *position) {
                        let counter = &mut self.channels[channel as usize];
                        counter.takers.entry(block).or_default();
                        counter.meet(1, (block, *segment, thread), relaxed);
                    }
                }
            }
            Action::Acquire { semaphores } => {
                for id in semaphores {
                    self.semaphore(rank, *id).takers.entry(block).or_default();
                }
            }
            Action::Release { semaphores } => {
                for id in semaphores {
                    self.semaphore(rank, *id).posters.entry(block).or_default().posts += 1;
                }
            }
            Action::Barrier { id, .. } => {
                let blocks = &mut self.barriers.entry((rank, *id)).or_default().blocks;
                if blocks.last() != Some(&block) {
                    blocks.push(block);
                }
            }
            _ => {}
        }
    }

    fn semaphore(&mut self, rank: u32, id: u32) -> &mut Counter {
        let plan = self.trace.plan();
        self.semaphores.entry((rank, id)).or_insert_with(|| {
            let initial = plan.ranks.get(rank as usize).and_then(|r| r.semaphores.get(id as usize));
            Counter { initial: initial.copied().unwrap_or(0), ..Counter::default() }
        })
    }

    /// The end at which signals on a channel arrive.
    fn receiver(&mut self, channel: ChannelId) -> Option<&mut Counter> {
        match self.trace.channels[channel as usize].partner {
            NO_PARTNER => None,
            partner => self.channels.get_mut(partner as usize),
        }
    }

    /// True if a signal or wait does not order data.
    fn is_relaxed(&self, block: usize, step: usize) -> bool {
        let relaxed = match self.trace.steps[step].action {
            // Port signals are as strong as the others.
            Action::Signal { via, relaxed, .. } => *relaxed && *via == Via::Memory,
            Action::Wait { relaxed, .. } => *relaxed,
            _ => false,
        };
        relaxed && !self.ordered.contains(&operation_place(self.trace, block, step))
    }

    /// What all threads of a block know in its current segment, and the position of its accesses.
    pub(super) fn now(&self, block: usize) -> (Position, &Knowledge) {
        let of = &self.blocks[block];
        (Position { thread: block as Thread, time: of.segment }, &of.base)
    }

    /// Synchronisation steps, and what data operations do besides their accesses, in this order: [`Self::request`]
    /// for each port request, [`Self::learn`], [`Self::after_data`].
    pub(super) fn synchronise(&mut self, block: usize, step: usize) {
        let trace = self.trace;
        let rank = trace.blocks[block].rank;
        match trace.steps[step].action {
            Action::Nop => self.next_segment(block),
            Action::Barrier { id, .. } => self.pass_barrier(block, (rank, *id)),
            Action::Signal { via, channels, .. } => {
                for (thread, position) in (0..).zip(channels) {
                    if let Some(channel) = trace.channel(block, *via, *position) {
                        self.signal(block, step, thread, channel);
                    }
                }
            }
            Action::Wait { via, channels, .. } => {
                let relaxed = self.is_relaxed(block, step);
                for (thread, position) in (0..).zip(channels) {
                    if let Some(channel) = trace.channel(block, *via, *position) {
                        let node = self.paths.as_mut().map(|p| p.wait(block, step, thread));
                        let counter = &mut self.channels[channel as usize];
                        let posts = counter.take(block);
                        let ambiguous = counter.ambiguous;
                        let uncertain = counter.may_be_relaxed(block);
                        for post in posts {
                            let only_executed = uncertain || relaxed || post.relaxed;
                            if let (Some(paths), Some(node)) = (self.paths.as_mut(), node) {
                                let edge = match only_executed {
                                    true => Edge::Relaxed { channel, signal: post.step, wait: step },
                                    false => Edge::Sure,
                                };
                                paths.link(post.node, node, edge);
                            }
                            let learned = match only_executed {
                                true => post.knowledge.execution_only(),
                                false => post.knowledge,
                            };
                            match ambiguous {
                                true => self.learn(block, learned),
                                false => self.thread_learns(block, thread, learned),
                            }
                        }
                    }
                }
            }
            Action::Flush { channels } => {
                for (thread, position) in (0..).zip(channels) {
                    if let Some(channel) = trace.channel(block, Via::Port, *position) {
                        self.flush(block, step, thread, channel);
                    }
                }
            }
            Action::Release { semaphores } => {
                for id in semaphores {
                    let knowledge = self.published(block);
                    let node = self.paths.as_mut().map_or(Node::default(), |p| p.release(block, step));
                    let post = Post { knowledge, relaxed: false, step, node };
                    self.semaphore(rank, *id).posters.entry(block).or_default().happened.push(post);
                }
            }
            Action::Acquire { semaphores } => {
                for id in semaphores {
                    let posts = self.semaphore(rank, *id).take(block);
                    for post in posts {
                        if let Some(paths) = self.paths.as_mut() {
                            paths.acquire(block, step, post.node);
                        }
                        self.blocks[block].pending.push(post.knowledge);
                    }
                }
            }
            Action::Data(_) | Action::Pipeline(_) => {}
        }
    }

    /// A step of a block has learned something that holds for all threads from the next segment on.
    pub(super) fn learn(&mut self, block: usize, knowledge: Knowledge) {
        self.blocks[block].pending.push(knowledge);
    }

    /// The signals and waits that are part of a data operation.
    pub(super) fn after_data(&mut self, block: usize, step: usize, data: &DataOperation) {
        if !data.kind.signals() {
            return;
        }
        let via = via_of(data);
        if ends_segment(self.trace.steps[step].action) {
            // All threads have stored before any signals.
            self.next_segment(block);
        }
        for (thread, position) in (0..).zip(&data.channels) {
            let Some(channel) = self.trace.channel(block, via, *position) else { continue };
            self.signal(block, step, thread, channel);
            if via == Via::Port && data.kind == DataKind::PutWithSignalAndFlush {
                self.flush(block, step, thread, channel);
            }
        }
    }

    /// What comes before the end of a rank's launch. Own blocks are in it.
    pub(super) fn end(&self, rank: u32) -> Knowledge {
        let mut all = Vec::new();
        for block in self.trace.blocks_of(rank) {
            let of = &self.blocks[block];
            let own = Position { thread: block as Thread, time: of.segment };
            all.push(Knowledge { clock: of.base.clock.with(&[own]), ..of.base.clone() });
            all.extend(of.pending.iter().cloned());
        }
        if self.trace.repairs.flush_at_end {
            let last = self.all_requests(rank);
            let clock = Knowledge::default().clock.with(&last);
            all.push(Knowledge { clock, ..Knowledge::default() });
        }
        Knowledge::join_all(all)
    }

    fn next_segment(&mut self, block: usize) {
        let of = &mut self.blocks[block];
        if !of.pending.is_empty() {
            let mut all = std::mem::take(&mut of.pending);
            all.push(std::mem::take(&mut of.base));
            of.base = Knowledge::join_all(all);
        }
        of.threads.clear();
        of.segment = of.segment.saturating_add(1);
        of.published = None;
        if let Some(paths) = self.paths.as_mut() {
            paths.next_segment(block);
        }
    }

    fn pass_barrier(&mut self, block: usize, at: (u32, u32)) {
        let Some(barrier) = self.barriers.get_mut(&at) else { return };
        if barrier.to_pass == 0 {
            // The first to pass: all others stand before it and have done all that comes earlier.
            let mut all = Vec::new();
            for participant in &barrier.blocks {
                let of = &mut self.blocks[*participant];
                all.append(&mut of.pending);
                let own = Position { thread: *participant as Thread, time: of.segment };
                all.push(Knowledge { clock: of.base.clock.with(&[own]), ..of.base.clone() });
            }
            barrier.joined = Knowledge::join_all(all);
            barrier.to_pass = barrier.blocks.len();
            if let Some(paths) = self.paths.as_mut() {
                barrier.node = paths.barrier(&barrier.blocks);
            }
        }
        barrier.to_pass -= 1;
        let joined = barrier.joined.clone();
        let of = &mut self.blocks[block];
        of.pending.push(joined);
        let node = barrier.node;
        self.next_segment(block);
        if let Some(paths) = self.paths.as_mut() {
            paths.passed(block, node);
        }
    }

    fn signal(&mut self, block: usize, step: usize, thread: u32, channel: ChannelId) {
        // A thread of its own that no request or wait belongs to.
        let ambiguous = self.receiver(channel).is_some_and(|counter| counter.ambiguous);
        let thread = if ambiguous { NO_THREAD } else { thread };
        let mut knowledge = self.known_to_thread(block, thread);
        let mut node = Node::default();
        if self.paths.is_some() {
            let requests = match self.trace.channels[channel as usize].via {
                Via::Port => self.request_nodes(block, thread, channel),
                Via::Memory => Vec::new(),
            };
            if let Some(paths) = self.paths.as_mut() {
                node = paths.signal(block, step, thread, channel);
                requests.into_iter().for_each(|request| paths.link(request, node, Edge::Sure));
            }
        }
        if self.trace.channels[channel as usize].via == Via::Port {
            knowledge.clock = knowledge.clock.with(&self.earlier_requests(block, thread, channel));
        }
        let relaxed = self.is_relaxed(block, step);
        if let Some(counter) = self.receiver(channel) {
            let post = Post { knowledge, relaxed, step, node };
            counter.posters.entry(block).or_default().happened.push(post);
        }
    }

    /// What a block gives away in its current segment: everything but the segment itself.
    pub(super) fn published(&mut self, block: usize) -> Knowledge {
        let of = &mut self.blocks[block];
        let made = of.published.get_or_insert_with(|| {
            // Time 0 says that the rank has started.
            let own = Position { thread: block as Thread, time: of.segment - 1 };
            Knowledge { clock: of.base.clock.with(&[own]), ..of.base.clone() }
        });
        made.clone()
    }

    /// The same, and what the thread has learned itself.
    fn known_to_thread(&mut self, block: usize, thread: u32) -> Knowledge {
        let known = self.published(block);
        let own = self.blocks[block].threads.iter().find(|(t, _)| *t == thread);
        own.map_or_else(|| known.clone(), |(_, learned)| known.join(learned))
    }

    fn thread_learns(&mut self, block: usize, thread: u32, learned: Knowledge) {
        let of = &mut self.blocks[block];
        of.pending.push(learned.clone());
        match of.threads.iter_mut().find(|(t, _)| *t == thread) {
            Some((_, known)) => *known = known.join(&learned),
            None => of.threads.push((thread, learned)),
        }
    }
}

/// True if a block barrier stands at the end of a step, or inside it before it signals.
fn ends_segment(action: &Action) -> bool {
    match action {
        Action::Nop | Action::Barrier { .. } => true,
        Action::Data(data) => data.kind.signals() && via_of(data) == Via::Memory,
        _ => false,
    }
}

/// An operation, as repairs name it.
pub(super) fn operation_place(trace: &Trace<'_>, block: usize, step: usize) -> OperationPlace {
    let of = &trace.blocks[block];
    let path = trace.steps[step].path;
    OperationPlace { rank: of.rank, block: of.block, path: (path.index, path.inner) }
}

/// By rank: the ranks whose input or output it touches.
fn owners(trace: &Trace<'_>) -> Vec<RankSet> {
    let mut owners: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); trace.plan().ranks.len()];
    for (rank, of_rank) in (0..).zip(&trace.plan().ranks) {
        for remote in of_rank.remote_buffers.iter().filter(|r| r.buffer != BufferKind::Scratch) {
            owners[rank as usize].insert(remote.rank);
        }
        if let Some(channels) = trace.topology.rank(rank) {
            for switch in channels.switch.iter().filter(|c| c.buffer != BufferKind::Scratch) {
                owners[rank as usize].extend(&switch.group.ranks);
            }
        }
    }
    owners.into_iter().map(|set| RankSet::of(set.into_iter())).collect()
}
