//! The edges of plan-format.md 10.3, literally: a node for the begin and the end of each segment, each operation
//! that synchronises, each port request, and the start and end of each launch of each rank.

use std::collections::BTreeMap;

use super::At;
use super::program::{Channel, Chunk, Op, Program};

pub(super) struct Access {
    pub(super) at: At,
    pub(super) launch: usize,
    pub(super) of: Chunk,
    pub(super) writes: bool,
    pub(super) by_proxy: bool,
    /// What comes before `begin` comes before the access; what comes after `end` comes after it.
    pub(super) begin: usize,
    pub(super) end: usize,
}

/// Of a channel: from, to, number, port.
type Ends = (u32, u32, u32, bool);

#[derive(Default)]
pub(super) struct Graph {
    edges: Vec<Vec<usize>>,
    /// By launch and rank.
    pub(super) starts: Vec<Vec<usize>>,
    pub(super) ends: Vec<Vec<usize>>,
    pub(super) accesses: Vec<Access>,
    /// Signals and waits on a channel, in the order of their blocks: node, relaxed.
    signals: BTreeMap<Ends, Vec<(usize, bool)>>,
    waits: BTreeMap<Ends, Vec<(usize, bool)>>,
    /// By launch, rank and number: release and acquire.
    semaphores: BTreeMap<(usize, u32, u32), [Option<usize>; 2]>,
    /// By launch, rank and passage.
    barriers: BTreeMap<(usize, u32, usize), usize>,
}

impl Graph {
    /// With `execution`, relaxed pairs are edges too.
    pub(super) fn new(program: &Program, launches: usize, execution: bool) -> Self {
        let mut graph = Self::default();
        for launch in 0..launches {
            graph.starts.push(program.blocks.iter().map(|_| 0).collect());
            graph.ends.push(program.blocks.iter().map(|_| 0).collect());
            for (rank, blocks) in (0..).zip(&program.blocks) {
                let (start, end) = (graph.node(), graph.node());
                (graph.starts[launch][rank as usize], graph.ends[launch][rank as usize]) = (start, end);
                if let Some(before) = launch.checked_sub(1) {
                    let before = graph.ends[before][rank as usize];
                    graph.edge(before, start);
                }
                for (block, ops) in (0..).zip(blocks) {
                    graph.block(launch, (rank, block), ops);
                }
            }
        }
        // The m-th wait is satisfied by the m-th signal.
        let (signals, waits) = (std::mem::take(&mut graph.signals), std::mem::take(&mut graph.waits));
        for (channel, signals) in signals {
            assert_eq!(signals.len(), waits[&channel].len());
            for ((signal, loose), (wait, also_loose)) in signals.into_iter().zip(&waits[&channel]) {
                if execution || !(loose || *also_loose) {
                    graph.edge(signal, *wait);
                }
            }
        }
        for pair in std::mem::take(&mut graph.semaphores).into_values() {
            graph.edge(pair[0].unwrap(), pair[1].unwrap());
        }
        graph
    }

    fn node(&mut self) -> usize {
        self.edges.push(Vec::new());
        self.edges.len() - 1
    }

    fn edge(&mut self, from: usize, to: usize) {
        self.edges[from].push(to);
    }

    fn block(&mut self, launch: usize, (rank, block): (u32, u32), ops: &[Op]) {
        let (mut begin, mut end) = (self.node(), self.node());
        self.edge(self.starts[launch][rank as usize], begin);
        self.edge(begin, end);
        // What the one thread that synchronises has done in the segment, and all its requests.
        let mut done: Vec<usize> = Vec::new();
        let mut requests: Vec<(Channel, usize)> = Vec::new();
        let mut passages = 0;
        for (index, op) in (0..).zip(ops) {
            let node = self.node();
            let after_earlier = |graph: &mut Self| {
                graph.edge(begin, node);
                done.iter().for_each(|earlier| graph.edge(*earlier, node));
            };
            match *op {
                Op::Nop | Op::Barrier => {
                    self.edge(end, node);
                    let (next, its_end) = (self.node(), self.node());
                    self.edge(node, next);
                    self.edge(next, its_end);
                    if let Op::Barrier = op {
                        let key = (launch, rank, passages);
                        let common = match self.barriers.get(&key) {
                            Some(node) => *node,
                            None => self.node(),
                        };
                        self.barriers.insert(key, common);
                        self.edge(node, common);
                        self.edge(common, next);
                        passages += 1;
                    }
                    (begin, end) = (next, its_end);
                    done.clear();
                }
                Op::Signal { to, relaxed } => {
                    after_earlier(self);
                    let pushed = requests.iter().filter(|(channel, _)| *channel == to);
                    pushed.for_each(|(_, request)| self.edges[*request].push(node));
                    let channel = (rank, to.peer, to.number, to.port);
                    self.signals.entry(channel).or_default().push((node, relaxed && !to.port));
                }
                Op::Wait { on, relaxed } => {
                    self.edge(node, end);
                    done.push(node);
                    let channel = (on.peer, rank, on.number, on.port);
                    self.waits.entry(channel).or_default().push((node, relaxed));
                }
                Op::Flush { channel } => {
                    let pushed = requests.iter().filter(|(other, _)| *other == channel);
                    pushed.for_each(|(_, request)| self.edges[*request].push(node));
                    self.edge(node, end);
                    done.push(node);
                }
                Op::Release(id) => {
                    self.edge(begin, node);
                    self.semaphores.entry((launch, rank, id)).or_default()[0] = Some(node);
                }
                Op::Acquire(id) => {
                    self.edge(node, end);
                    self.semaphores.entry((launch, rank, id)).or_default()[1] = Some(node);
                }
                Op::Put { from, to, port: Some(channel) } => {
                    after_earlier(self);
                    requests.push((channel, node));
                    self.data((rank, block, index), launch, (from, to), Some(node), (begin, end));
                }
                Op::Copy { from, to } | Op::Put { from, to, port: None } | Op::Get { from, to, .. } => {
                    self.data((rank, block, index), launch, (from, to), None, (begin, end));
                }
            }
        }
        self.edge(end, self.ends[launch][rank as usize]);
    }

    fn data(
        &mut self,
        at: At,
        launch: usize,
        (from, to): (Chunk, Chunk),
        request: Option<usize>,
        segment: (usize, usize),
    ) {
        let (begin, end) = request.map_or(segment, |node| (node, node));
        let by_proxy = request.is_some();
        for (of, writes) in [(from, false), (to, true)] {
            self.accesses.push(Access { at, launch, of, writes, by_proxy, begin, end });
        }
    }

    /// True if there is a way.
    pub(super) fn reaches(&self, from: usize, to: usize) -> bool {
        let mut seen = vec![false; self.edges.len()];
        let mut work = vec![from];
        while let Some(node) = work.pop() {
            if node == to {
                return true;
            }
            if !std::mem::replace(&mut seen[node], true) {
                work.extend(&self.edges[node]);
            }
        }
        false
    }
}
