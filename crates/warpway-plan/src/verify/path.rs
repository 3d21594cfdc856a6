//! The edges of happens-before as a graph, for explanations: what would have to change so that one access comes
//! before another? Built only when something was found.

use std::collections::VecDeque;

use super::trace::{ChannelId, Trace};

/// A point in a block's run. The default is no point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Node(u32);

impl Default for Node {
    fn default() -> Self {
        Self(u32::MAX)
    }
}

/// Why one point comes before another, or why not quite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Edge {
    Sure,
    /// Only as far as execution goes. Steps of the signaller and the waiter.
    Relaxed {
        channel: ChannelId,
        signal: usize,
        wait: usize,
    },
    /// If a nop stood before this step.
    NopBefore(usize),
    /// If a nop stood after this step.
    NopAfter(usize),
    /// If this step signalled on the channel of the put.
    OtherChannel(usize),
}

/// The kinds of missing edges that one explanation may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    OtherChannel,
    Relaxed,
    Nop,
}

impl Cause {
    fn allows(self, edge: Edge) -> bool {
        match edge {
            Edge::Sure => true,
            Edge::Relaxed { .. } => self == Self::Relaxed,
            Edge::NopBefore(_) | Edge::NopAfter(_) => self == Self::Nop,
            Edge::OtherChannel(_) => self == Self::OtherChannel,
        }
    }
}

/// A signal, wait, flush, release, acquire, or a step that reads packets.
#[derive(Debug, Clone, Copy)]
struct Event {
    node: Node,
    step: usize,
    segment: usize,
    thread: Option<u32>,
    /// For signals.
    channel: Option<ChannelId>,
}

#[derive(Debug, Default)]
struct Block {
    /// Begin of each segment, and its end as far as it has come.
    segments: Vec<(Node, Option<Node>)>,
    gives: Vec<Event>,
    takes: Vec<Event>,
}

impl Block {
    fn current(&self) -> usize {
        self.segments.len().saturating_sub(1)
    }

    /// What has been taken in the current segment.
    fn taken(&self) -> impl Iterator<Item = &Event> {
        let current = self.current();
        self.takes.iter().rev().take_while(move |event| event.segment == current)
    }
}

/// Where an access stands: its block, step and segment (from 1), or the request that does it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spot {
    pub(super) block: usize,
    pub(super) step: usize,
    pub(super) segment: u32,
    pub(super) request: Option<Node>,
    /// Of the request.
    pub(super) channel: Option<ChannelId>,
}

/// See the module's page.
#[derive(Debug)]
pub(super) struct Paths {
    blocks: Vec<Block>,
    edges: Vec<Vec<(Node, Edge)>>,
    ends: Vec<Node>,
}

impl Paths {
    pub(super) fn new(trace: &Trace<'_>) -> Self {
        let mut paths = Self { blocks: Vec::new(), edges: Vec::new(), ends: Vec::new() };
        for _ in &trace.blocks {
            let start = paths.node();
            paths.blocks.push(Block { segments: vec![(start, None)], ..Block::default() });
        }
        paths
    }

    fn node(&mut self) -> Node {
        self.edges.push(Vec::new());
        Node(self.edges.len() as u32 - 1)
    }

    pub(super) fn link(&mut self, from: Node, to: Node, edge: Edge) {
        if let Some(edges) = self.edges.get_mut(from.0 as usize) {
            edges.push((to, edge));
        }
    }

    /// The point where a block's current segment began.
    pub(super) fn start(&self, block: usize) -> Node {
        self.blocks[block].segments.last().map_or(Node::default(), |(start, _)| *start)
    }

    /// Something that thread `thread` of a block learns in its current segment.
    pub(super) fn wait(&mut self, block: usize, step: usize, thread: u32) -> Node {
        let node = self.node();
        let of = &mut self.blocks[block];
        let event = Event { node, step, segment: of.current(), thread: Some(thread), channel: None };
        of.takes.push(event);
        node
    }

    /// All threads learn it, from the next segment on.
    pub(super) fn acquire(&mut self, block: usize, step: usize, from: Node) {
        let node = self.node();
        let of = &mut self.blocks[block];
        of.takes.push(Event { node, step, segment: of.current(), thread: None, channel: None });
        self.link(from, node, Edge::Sure);
    }

    pub(super) fn signal(&mut self, block: usize, step: usize, thread: u32, channel: ChannelId) -> Node {
        self.give(block, step, Some(thread), Some(channel))
    }

    pub(super) fn release(&mut self, block: usize, step: usize) -> Node {
        self.give(block, step, None, None)
    }

    fn give(&mut self, block: usize, step: usize, thread: Option<u32>, channel: Option<ChannelId>) -> Node {
        let node = self.node();
        let taken: Vec<Event> = self.blocks[block].taken().copied().collect();
        for event in taken {
            let same = thread.is_some() && event.thread == thread;
            self.link(event.node, node, if same { Edge::Sure } else { Edge::NopBefore(step) });
        }
        self.link(self.start(block), node, Edge::Sure);
        let of = &mut self.blocks[block];
        of.gives.push(Event { node, step, segment: of.current(), thread, channel });
        node
    }

    /// A request to a port channel.
    pub(super) fn request(&mut self, block: usize, step: usize, thread: u32) -> Node {
        let node = self.node();
        let taken: Vec<Event> = self.blocks[block].taken().copied().collect();
        for event in taken {
            let same = event.thread == Some(thread);
            self.link(event.node, node, if same { Edge::Sure } else { Edge::NopBefore(step) });
        }
        self.link(self.start(block), node, Edge::Sure);
        node
    }

    /// The end of the current segment.
    fn over(&mut self, block: usize) -> Node {
        if let Some((_, Some(over))) = self.blocks[block].segments.last() {
            return *over;
        }
        let over = self.node();
        let taken: Vec<Node> = self.blocks[block].taken().map(|event| event.node).collect();
        for node in taken.into_iter().chain([self.start(block)]) {
            self.link(node, over, Edge::Sure);
        }
        if let Some(segment) = self.blocks[block].segments.last_mut() {
            segment.1 = Some(over);
        }
        over
    }

    pub(super) fn next_segment(&mut self, block: usize) {
        let (over, start) = (self.over(block), self.node());
        self.link(over, start, Edge::Sure);
        self.blocks[block].segments.push((start, None));
    }

    /// The point that all these blocks reach together.
    pub(super) fn barrier(&mut self, blocks: &[usize]) -> Node {
        let node = self.node();
        for block in blocks {
            let over = self.over(*block);
            self.link(over, node, Edge::Sure);
        }
        node
    }

    /// A block has passed it; its next segment has begun.
    pub(super) fn passed(&mut self, block: usize, barrier: Node) {
        self.link(barrier, self.start(block), Edge::Sure);
    }

    /// All blocks have ended.
    pub(super) fn finish(&mut self, trace: &Trace<'_>) {
        for rank in 0..trace.plan().n_ranks() {
            let end = self.node();
            for block in trace.blocks_of(rank) {
                let over = self.over(block);
                self.link(over, end, Edge::Sure);
            }
            self.ends.push(end);
        }
    }

    /// The relaxed pairs: steps of the signaller and the waiter.
    pub(super) fn relaxed(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.edges.iter().flatten().filter_map(|(_, edge)| match edge {
            Edge::Relaxed { signal, wait, .. } => Some((*signal, *wait)),
            _ => None,
        })
    }

    /// The missing edges of one kind, as few as possible, on a way from an access to another, or to the end of a
    /// rank. `None` if there is no such way.
    pub(super) fn missing(
        &self,
        trace: &Trace<'_>,
        from: &Spot,
        to: Result<&Spot, u32>,
        cause: Cause,
    ) -> Option<Vec<Edge>> {
        let mut search = Search { seen: vec![None; self.edges.len()], queue: VecDeque::new(), cause };
        for (node, edge) in self.sources(trace, from) {
            search.reach(node, None, edge, 0);
        }
        let targets = match to {
            Ok(spot) => self.targets(spot),
            Err(rank) => self.ends.get(rank as usize).map(|end| (*end, Edge::Sure)).into_iter().collect(),
        };
        while let Some((node, cost)) = search.queue.pop_front() {
            if search.seen.get(node.0 as usize).is_some_and(|s| s.as_ref().is_some_and(|s| s.cost < cost)) {
                continue;
            }
            for (next, edge) in self.edges.get(node.0 as usize).into_iter().flatten() {
                search.reach(*next, Some(node), *edge, cost);
            }
        }
        let found = targets
            .iter()
            .filter(|(_, edge)| cause.allows(*edge))
            .filter_map(|(node, edge)| {
                let reached = search.seen.get(node.0 as usize)?.as_ref()?;
                Some((reached.cost + u32::from(*edge != Edge::Sure), *node, *edge))
            })
            .min_by_key(|(cost, node, _)| (*cost, node.0))?;
        let mut missing = Vec::new();
        let (_, mut at, edge) = found;
        if edge != Edge::Sure {
            missing.push(edge);
        }
        while let Some(reached) = search.seen.get(at.0 as usize).and_then(|s| s.as_ref()) {
            if reached.edge != Edge::Sure {
                missing.push(reached.edge);
            }
            match reached.from {
                Some(from) => at = from,
                None => break,
            }
        }
        missing.reverse();
        Some(missing)
    }

    fn sources(&self, trace: &Trace<'_>, from: &Spot) -> Vec<(Node, Edge)> {
        let of = &self.blocks[from.block];
        if let Some(request) = from.request {
            let mut sources = vec![(request, Edge::Sure)];
            if let Some(channel) = from.channel {
                let peer = trace.channels[channel as usize].peer;
                let others = of.gives.iter().filter(|give| {
                    give.step >= from.step
                        && give
                            .channel
                            .is_some_and(|c| c != channel && trace.channels[c as usize].peer == peer)
                });
                sources.extend(others.map(|give| (give.node, Edge::OtherChannel(give.step))));
            }
            return sources;
        }
        let segment = from.segment.saturating_sub(1) as usize;
        let over = of.segments.get(segment).and_then(|(_, over)| *over);
        let mut sources: Vec<_> = over.map(|node| (node, Edge::Sure)).into_iter().collect();
        let first = of.gives.partition_point(|give| (give.segment, give.step) < (segment, from.step));
        let later = of.gives[first..].iter().take_while(|give| give.segment == segment);
        sources.extend(later.map(|give| (give.node, Edge::NopBefore(give.step))));
        sources
    }

    fn targets(&self, to: &Spot) -> Vec<(Node, Edge)> {
        if let Some(request) = to.request {
            return vec![(request, Edge::Sure)];
        }
        let of = &self.blocks[to.block];
        let segment = to.segment.saturating_sub(1) as usize;
        let start = of.segments.get(segment).map(|(start, _)| (*start, Edge::Sure));
        let first = of.takes.partition_point(|take| take.segment < segment);
        let here = of.takes[first..].iter().take_while(|take| take.segment == segment && take.step < to.step);
        start.into_iter().chain(here.map(|take| (take.node, Edge::NopAfter(take.step)))).collect()
    }
}

#[derive(Debug, Clone, Copy)]
struct Reached {
    cost: u32,
    from: Option<Node>,
    edge: Edge,
}

struct Search {
    seen: Vec<Option<Reached>>,
    queue: VecDeque<(Node, u32)>,
    cause: Cause,
}

impl Search {
    fn reach(&mut self, node: Node, from: Option<Node>, edge: Edge, cost: u32) {
        if !self.cause.allows(edge) {
            return;
        }
        let sure = edge == Edge::Sure;
        let cost = cost + u32::from(!sure);
        let Some(seen) = self.seen.get_mut(node.0 as usize) else { return };
        if seen.as_ref().is_some_and(|s| s.cost <= cost) {
            return;
        }
        *seen = Some(Reached { cost, from, edge });
        match sure {
            true => self.queue.push_front((node, cost)),
            false => self.queue.push_back((node, cost)),
        }
    }
}
