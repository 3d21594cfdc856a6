//! The plan as data: per rank, per thread block, a list of operations on chunks. It mirrors the file
//! (numbers are positions in the tables of the file), so that reading and writing lose nothing;
//! [`Topology`](crate::Topology) says what the positions mean.
//!
//! A [`Plan`] of this module may be wrong: references may point nowhere, waits may never end. The verifier says
//! so; whoever runs a plan asks it first.

mod names;
mod operation;
mod reference;
mod semantics;

use std::collections::BTreeSet;

pub use operation::{
    Action, DataKind, DataOperation, Fold, GroupMember, Location, Operation, Pipeline, ReduceOp, Via,
};
pub use reference::{BufferKind, Reference};
pub use semantics::{Form, Item};

/// What a collective plan computes; decides the checked size and the goal of verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Collective {
    /// Every rank gets the fold of all inputs.
    AllReduce,
    /// Every rank gets all inputs, in rank order.
    AllGather,
    /// Every rank gets its block of the fold of all inputs.
    ReduceScatter,
    /// Block `r` of rank `q` becomes block `q` of rank `r`.
    AllToAll,
    /// Every rank gets the input of one other rank.
    SendRecv,
    /// Every rank gets the input of the root.
    Broadcast,
    /// The root gets the fold of all inputs.
    Reduce,
    /// The root gets all inputs, in rank order.
    Gather,
    /// Every rank gets its block of the root's input.
    Scatter,
    /// Sizes of its own; no goal unless the user gives one.
    Test,
    /// Sizes of its own; no goal unless the user gives one.
    Custom,
}

/// What the file says of its protocol. It does not choose operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// Raw data, flags beside it.
    Simple,
    /// Packets: flags within the data.
    LowLatency,
}

/// A way in which a plan goes beyond MSCCL++'s format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Extension {
    /// Multicast load-reduce into a local reference.
    LoadReduce,
    /// The order in which the sources of a fold enter.
    Order,
    /// The reductions `prod` and `avg`.
    ReduceOp,
    /// Chunk sizes from a table at launch.
    SizedChunks,
    /// Reuse of scratch is the executor's care: a rank begins to touch a rank's scratch only when that one has ended the
    /// launch that used the same place before. So the plan needs no acknowledgements, and ranks that only send run ahead
    /// as far as the executor has room for.
    ScratchCredits,
}

/// One collective algorithm for all ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Label for logs and selection. Not the identity: that is a hash of the contents.
    pub name: String,
    /// What it computes.
    pub collective: Collective,
    /// What the file says of its protocol.
    pub protocol: Protocol,
    /// Input and output are one memory, by the convention of the collective.
    pub in_place: bool,
    /// One scratch shared by all calls, of fixed size.
    pub reuse_resources: bool,
    /// Consecutive launches alternate between two halves of the scratch.
    pub double_scratch: bool,
    /// Threads of each block, 1 to 1024.
    pub threads_per_block: u32,
    /// Bytes; the unit of all splitting. A power of two, 4 to 1048576.
    pub buffer_alignment: u64,
    /// The least checked size in bytes.
    pub min_message_size: u64,
    /// The greatest checked size in bytes.
    pub max_message_size: u64,
    /// By rank.
    pub ranks: Vec<RankPlan>,
    /// The extensions that the file lists. Which ones it uses, [`Plan::used_extensions`] says.
    pub extensions: BTreeSet<Extension>,
}

/// What one rank does.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RankPlan {
    /// Chunks of the input.
    pub input_chunks: u64,
    /// Chunks of the output.
    pub output_chunks: u64,
    /// Chunks of the scratch.
    pub scratch_chunks: u64,
    /// Size ids per chunk, only in plans with sized chunks.
    pub size_ids: Option<SizeIds>,
    /// By block number.
    pub blocks: Vec<ThreadBlock>,
    /// In the order of the file; their members, concatenated per type, are the channel indices of the rank.
    pub channels: Vec<ChannelEntry>,
    /// Peer buffers this rank accesses; the position is the remote buffer index.
    pub remote_buffers: Vec<RemoteBuffer>,
    /// Initial values of the rank's semaphores.
    pub semaphores: Vec<u64>,
}

impl RankPlan {
    /// Chunks of one buffer.
    pub fn chunks(&self, buffer: BufferKind) -> u64 {
        match buffer {
            BufferKind::Input => self.input_chunks,
            BufferKind::Output => self.output_chunks,
            BufferKind::Scratch => self.scratch_chunks,
        }
    }
}

/// One number per chunk; equal numbers mean equal bytes, on all ranks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SizeIds {
    /// Of the input's chunks.
    pub input: Vec<u64>,
    /// Of the output's chunks.
    pub output: Vec<u64>,
    /// Of the scratch's chunks.
    pub scratch: Vec<u64>,
}

/// One thread block of a rank.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ThreadBlock {
    /// In program order.
    pub operations: Vec<Operation>,
    /// Channel indices of the rank that this block uses, by type.
    pub channels: Vec<ChannelRefs>,
    /// Remote buffers of the rank that this block uses, by access.
    pub remote_buffers: Vec<RemoteBufferRefs>,
}

impl ThreadBlock {
    /// Channel indices of the rank, by position, for one type.
    pub fn channels_of(&self, channel_type: ChannelType) -> &[u32] {
        self.channels.iter().find(|refs| refs.channel_type == channel_type).map_or(&[], |refs| &refs.channels)
    }

    /// Remote buffer indices of the rank, by position, for one access.
    pub fn remote_buffers_of(&self, access: ChannelType) -> &[u32] {
        self.remote_buffers.iter().find(|refs| refs.access == access).map_or(&[], |refs| &refs.buffers)
    }
}

/// How an operation or a remote buffer is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ChannelType {
    /// Loads and stores to a peer's memory.
    Memory,
    /// Requests to a proxy.
    Port,
    /// Multicast.
    Switch,
}

/// One entry of a rank's channel list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChannelEntry {
    /// Memory channels, one per peer named; a peer may be named several times.
    Memory(Vec<u32>),
    /// Port channels, one per peer named.
    Port(Vec<u32>),
    /// Multicast channels over one buffer, one per group.
    Switch {
        /// The buffer of each member.
        buffer: BufferKind,
        /// The groups.
        groups: Vec<RankGroup>,
    },
}

/// The members of a multicast channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankGroup {
    /// As the file says; informative.
    pub size: u64,
    /// The members, in the order of the file.
    pub ranks: Vec<u32>,
}

/// A peer's buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteBuffer {
    /// Its owner.
    pub rank: u32,
    /// Which of the owner's buffers.
    pub buffer: BufferKind,
    /// Reached by loads and stores.
    pub memory_access: bool,
    /// Reached by proxy requests.
    pub port_access: bool,
}

/// The channels of one type that a block uses; operations name positions in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelRefs {
    /// The type.
    pub channel_type: ChannelType,
    /// Channel indices of the rank.
    pub channels: Vec<u32>,
}

/// The remote buffers that a block reaches one way; operations name positions in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteBufferRefs {
    /// Memory or port.
    pub access: ChannelType,
    /// Remote buffer indices of the rank.
    pub buffers: Vec<u32>,
}
