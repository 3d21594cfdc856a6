//! What is to be done, as far as a plan depends on it: sizes, types and buffers come at launch.

use warpway_plan::ReduceOp;

use crate::world::World;

/// What a collective computes. Shapes: n ranks, each with `count` elements unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Function {
    /// Every rank gets the fold of all inputs.
    AllReduce,
    /// Every rank gets all inputs, in rank order: n × count.
    AllGather,
    /// Rank r gets part r of the fold of all inputs: input n × count.
    ReduceScatter,
    /// Every rank gets the input of the root.
    Broadcast,
    /// The root gets the fold of all inputs.
    Reduce,
    /// The root gets all inputs, in rank order: n × count.
    Gather,
    /// Rank r gets part r of the root's input: n × count.
    Scatter,
    /// Part r of rank q's input becomes part q of rank r's output: n × count on both sides.
    AllToAll,
    /// [`AllGather`](Self::AllGather) with a count per rank, given at launch, zeros included.
    AllGatherV,
    /// [`ReduceScatter`](Self::ReduceScatter) with a count per rank.
    ReduceScatterV,
    /// [`AllToAll`](Self::AllToAll) with a count per pair of ranks.
    AllToAllV,
    /// No rank returns before all have called it.
    Barrier,
}

impl Function {
    /// Every one, with the name that commands, files and variables use.
    pub const NAMED: &'static [(Self, &'static str)] = &[
        (Self::AllReduce, "all_reduce"),
        (Self::AllGather, "all_gather"),
        (Self::ReduceScatter, "reduce_scatter"),
        (Self::Broadcast, "broadcast"),
        (Self::Reduce, "reduce"),
        (Self::Gather, "gather"),
        (Self::Scatter, "scatter"),
        (Self::AllToAll, "all_to_all"),
        (Self::AllGatherV, "all_gather_v"),
        (Self::ReduceScatterV, "reduce_scatter_v"),
        (Self::AllToAllV, "all_to_all_v"),
        (Self::Barrier, "barrier"),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMED.iter().find(|(function, _)| *function == self).map_or("", |(_, name)| name)
    }

    /// The function of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::NAMED.iter().find(|(_, other)| *other == name).map(|(function, _)| *function)
    }

    /// True if one rank is the root.
    pub fn is_rooted(self) -> bool {
        matches!(self, Self::Broadcast | Self::Reduce | Self::Gather | Self::Scatter)
    }

    /// True if it folds.
    pub fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::ReduceScatter | Self::Reduce | Self::ReduceScatterV)
    }

    /// True if counts differ between ranks and come at launch.
    pub fn is_sized(self) -> bool {
        matches!(self, Self::AllGatherV | Self::ReduceScatterV | Self::AllToAllV)
    }
}

impl std::fmt::Display for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Thread blocks of a rank at most. More than any device runs at once for one collective, and few enough for a plan to be proven.
pub const MOST_BLOCKS: u32 = 1024;

/// What a plan is built for. All ranks give the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Task {
    /// What to compute.
    pub function: Function,
    /// Among whom.
    pub world: World,
    /// The root, of functions that have one; else 0.
    pub root: u32,
    /// How to fold, of functions that do.
    pub reduce_op: ReduceOp,
    /// Input and output are one memory, by the convention of the function.
    pub in_place: bool,
    /// Thread blocks per rank, 1 to [`MOST_BLOCKS`]. Algorithms may use fewer.
    pub n_blocks: u32,
    /// Thread blocks that share packets, at least 1. One is right for threads of a host, where packets are few; on a GPU
    /// several keep a link busy.
    pub packet_blocks: u32,
}

impl Task {
    /// Root 0, sum, out of place, one block.
    pub fn new(function: Function, world: World) -> Self {
        Self {
            function,
            world,
            root: 0,
            reduce_op: ReduceOp::Sum,
            in_place: false,
            n_blocks: 1,
            packet_blocks: 1,
        }
    }

    /// The same with another root.
    pub fn with_root(self, root: u32) -> Self {
        Self { root, ..self }
    }

    /// The same with another operator.
    pub fn with_op(self, reduce_op: ReduceOp) -> Self {
        Self { reduce_op, ..self }
    }

    /// The same in place.
    pub fn in_place(self) -> Self {
        Self { in_place: true, ..self }
    }

    /// The same with that many blocks for packets.
    pub fn with_packet_blocks(self, packet_blocks: u32) -> Self {
        Self { packet_blocks, ..self }
    }

    /// The same with that many blocks.
    pub fn with_blocks(self, n_blocks: u32) -> Self {
        Self { n_blocks, ..self }
    }
}
