//! Requests to port channels: each thread pushes its own in program order, and the proxy carries them out some time
//! later. They count time as threads do.

use super::{Knowledge, Node, Order, Position, Thread, Time};
use crate::ir::{ChannelType, DataOperation, Via};
use crate::verify::path::Edge;
use crate::verify::trace::{ChannelId, Trace};

/// The requests of one thread of a block to one port channel: they are pushed in program order.
#[derive(Debug)]
pub(super) struct Stream {
    block: usize,
    thread: u32,
    /// The segment of each request.
    segments: Vec<Time>,
    /// The node that stands for each, if paths are recorded.
    nodes: Vec<Node>,
}

impl Order<'_, '_> {
    /// Thread `thread` of a block pushes a request; returns its position and what comes before it.
    pub(in crate::verify) fn request(
        &mut self,
        block: usize,
        step: usize,
        thread: u32,
        channel: ChannelId,
    ) -> (Position, Knowledge) {
        let known = self.known_to_thread(block, thread);
        let node = self.paths.as_mut().map(|p| p.request(block, step, thread));
        let at = self.stream(block, thread, channel);
        let segment = self.blocks[block].segment;
        let stream = &mut self.streams[at as usize];
        stream.segments.push(segment);
        stream.nodes.extend(node);
        let time = stream.segments.len() as Time;
        (Position { thread: self.trace.blocks.len() as Thread + at, time }, known)
    }

    /// The node of a request, if paths are recorded.
    pub(in crate::verify) fn request_node(&self, at: Position) -> Option<Node> {
        let stream = (at.thread as usize).checked_sub(self.trace.blocks.len())?;
        self.streams.get(stream)?.nodes.get((at.time as usize).checked_sub(1)?).copied()
    }

    /// What a thread knows behind a flush: that the requests before it are complete.
    pub(super) fn flush(&mut self, block: usize, step: usize, thread: u32, channel: ChannelId) {
        let clock = Knowledge::default().clock.with(&self.earlier_requests(block, thread, channel));
        if self.paths.is_some() {
            let requests = self.request_nodes(block, thread, channel);
            if let Some(paths) = self.paths.as_mut() {
                let node = paths.wait(block, step, thread);
                requests.into_iter().for_each(|request| paths.link(request, node, Edge::Sure));
            }
        }
        self.thread_learns(block, thread, Knowledge { clock, ..Knowledge::default() });
    }

    /// The last request of each thread of a rank to each channel.
    pub(super) fn all_requests(&self, rank: u32) -> Vec<Position> {
        let mut last = Vec::new();
        for (at, stream) in (0..).zip(&self.streams) {
            if self.trace.blocks[stream.block].rank == rank {
                let thread = self.trace.blocks.len() as Thread + at;
                last.push(Position { thread, time: stream.segments.len() as Time });
            }
        }
        last
    }

    /// The requests to a channel that were certainly pushed before `thread` of `block` does something now: its
    /// own, those of the block's earlier segments, those of other blocks' segments that are over.
    pub(super) fn earlier_requests(&self, block: usize, thread: u32, channel: ChannelId) -> Vec<Position> {
        let mut earlier = Vec::new();
        for at in self.streams_of.get(&channel).into_iter().flatten() {
            let count = self.earlier_of_stream(block, thread, *at);
            if count > 0 {
                let thread = self.trace.blocks.len() as Thread + at;
                earlier.push(Position { thread, time: count as Time });
            }
        }
        earlier
    }

    fn earlier_of_stream(&self, block: usize, thread: u32, at: u32) -> usize {
        let (stream, of) = (&self.streams[at as usize], &self.blocks[block]);
        if stream.block == block && stream.thread == thread {
            return stream.segments.len();
        }
        let over = match stream.block == block {
            true => of.segment - 1,
            false => of.base.clock.get(stream.block as Thread).unwrap_or(0),
        };
        stream.segments.partition_point(|segment| *segment <= over)
    }

    pub(super) fn request_nodes(&self, block: usize, thread: u32, channel: ChannelId) -> Vec<Node> {
        let mut nodes = Vec::new();
        for at in self.streams_of.get(&channel).into_iter().flatten() {
            let count = self.earlier_of_stream(block, thread, *at);
            nodes.extend(self.streams[*at as usize].nodes.iter().take(count));
        }
        nodes
    }

    fn stream(&mut self, block: usize, thread: u32, channel: ChannelId) -> u32 {
        let of_channel = self.streams_of.entry(channel).or_default();
        let found = of_channel.iter().copied().find(|at| {
            let stream = &self.streams[*at as usize];
            (stream.block, stream.thread) == (block, thread)
        });
        found.unwrap_or_else(|| {
            let at = self.streams.len() as u32;
            of_channel.push(at);
            self.streams.push(Stream { block, thread, segments: Vec::new(), nodes: Vec::new() });
            at
        })
    }
}

/// The channel of a port request: one per item, or one per destination of an operation that joins.
pub(in crate::verify) fn request_channel(
    trace: &Trace<'_>,
    block: usize,
    data: &DataOperation,
    thread: u32,
) -> Option<ChannelId> {
    debug_assert_eq!(data.channel_type, Some(ChannelType::Port));
    trace.channel(block, Via::Port, *data.channels.get(thread as usize)?)
}
