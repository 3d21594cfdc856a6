//! What a thread block does, step by step.

use std::sync::Arc;

use super::reference::Reference;

/// One step of a thread block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// What is done.
    pub action: Action,
    /// Where the program that built the plan said so.
    pub location: Option<Arc<Location>>,
}

impl From<Action> for Operation {
    fn from(action: Action) -> Self {
        Self { action, location: None }
    }
}

/// A place in the source of the program that built a plan.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Location {
    /// File, as the compiler or interpreter names it.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
}

/// What is done by all threads of the block. There is no barrier between two actions but `Nop`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Barrier of the block (`nop`).
    Nop,
    /// Barrier of several blocks of the rank, each of which is one of the block's own too.
    Barrier {
        /// Number of the barrier.
        id: u32,
        /// How many blocks take part.
        blocks: u32,
    },
    /// Thread `j` signals channel `j`.
    Signal {
        /// Memory or port.
        via: Via,
        /// Without order to the data (`rlxsignal`). On a port channel it is as strong as the other.
        relaxed: bool,
        /// Positions in the block's list of channels of that type.
        channels: Vec<u32>,
    },
    /// Thread `j` waits for the next signal on channel `j`.
    Wait {
        /// Memory or port.
        via: Via,
        /// Without order to the data (`rlxwait`).
        relaxed: bool,
        /// Positions in the block's list of channels of that type.
        channels: Vec<u32>,
    },
    /// Waits until all earlier requests of each port channel are complete.
    Flush {
        /// Positions in the block's list of port channels.
        channels: Vec<u32>,
    },
    /// Thread `j` takes one from semaphore `j`, waiting while it is zero.
    Acquire {
        /// Semaphores of the rank.
        semaphores: Vec<u32>,
    },
    /// Thread `j` adds one to semaphore `j`.
    Release {
        /// Semaphores of the rank.
        semaphores: Vec<u32>,
    },
    /// Moves or folds data.
    Data(Box<DataOperation>),
    /// Runs its body slice by slice.
    Pipeline(Box<Pipeline>),
}

impl Action {
    /// Its name in the file.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Nop => "nop",
            Self::Barrier { .. } => "barrier",
            Self::Signal { relaxed: false, .. } => "signal",
            Self::Signal { relaxed: true, .. } => "rlxsignal",
            Self::Wait { relaxed: false, .. } => "wait",
            Self::Wait { relaxed: true, .. } => "rlxwait",
            Self::Flush { .. } => "flush",
            Self::Acquire { .. } => "sem_acquire",
            Self::Release { .. } => "sem_release",
            Self::Data(data) => data.kind.name(),
            Self::Pipeline(_) => "pipeline",
        }
    }
}

/// The two kinds of channels that carry signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Via {
    /// Memory channels.
    Memory,
    /// Port channels.
    Port,
}

/// An operation that touches data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataOperation {
    /// Which one.
    pub kind: DataKind,
    /// How remote references are reached; `None` for operations without one.
    pub channel_type: Option<super::ChannelType>,
    /// In the order of the file. Sources of a fold enter it in this order unless [`Fold::order`] says otherwise.
    pub sources: Vec<Reference>,
    /// In the order of the file; for folds the local result comes first.
    pub destinations: Vec<Reference>,
    /// Positions in the block's list of channels of that type: one per item on port channels and for `get`;
    /// empty where the file names none.
    pub channels: Vec<u32>,
    /// How sources are joined, for operations that fold.
    pub fold: Option<Fold>,
    /// The share of this block, if the operation is done by a group of blocks.
    pub group: Option<GroupMember>,
}

/// The operations that touch data, by their names in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DataKind {
    /// `copy`: local to local.
    Copy,
    /// `put`: local to remote.
    Put,
    /// `pws`: put, then signal.
    PutWithSignal,
    /// `pwsf`: put, signal, flush.
    PutWithSignalAndFlush,
    /// `get`: remote to local.
    Get,
    /// `ppkt`: local raw data packed into a peer's scratch; on port channels, packets sent on as they are.
    PutPackets,
    /// `cpkt`: local raw data packed into the local scratch.
    CopyPackets,
    /// `upkt`: packets of the local scratch unpacked into raw data.
    UnpackPackets,
    /// `rppkt`: packets of the local scratch, once valid, to peers' scratch.
    ReadPutPackets,
    /// `re`: fold of local data.
    Reduce,
    /// `res`: and the result stored to peers.
    ReduceSend,
    /// `rre`: fold of local and peers' data.
    ReadReduce,
    /// `rres`: and the result stored to peers.
    ReadReduceSend,
    /// `repkt`: fold of raw data and packets.
    ReducePackets,
    /// `respkt`: and the result packed to peers.
    ReduceSendPackets,
    /// `recpkt`: and the result packed locally.
    ReduceCopyPackets,
    /// `recspkt`: and the result packed locally and to peers.
    ReduceCopySendPackets,
    /// `glre`: multicast load-reduce into a local reference (extension).
    GroupLoadReduce,
    /// `glres`: multicast load-reduce, then multicast store.
    GroupLoadReduceStore,
    /// `gstore`: multicast store of local data.
    GroupStore,
    /// `gstorepkt`: multicast store of local packets, once valid.
    GroupStorePackets,
}

/// How several sources become one value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fold {
    /// The operator.
    pub op: ReduceOp,
    /// Positions of the sources in the order in which they enter; `None` is the order of the list.
    pub order: Option<Vec<u32>>,
}

/// The operator of a fold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReduceOp {
    /// Sum.
    Sum,
    /// Minimum.
    Min,
    /// Maximum.
    Max,
    /// Product (extension).
    Prod,
    /// Sum divided by the number of ranks (extension).
    Avg,
}

/// The share of one block in an operation done by a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GroupMember {
    /// Number within the group.
    pub member: u32,
    /// Members of the group.
    pub size: u32,
}

/// A body that runs slice by slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pipeline {
    /// Bytes of each data operation per iteration.
    pub unit_size: u64,
    /// Chunks that the iterations cover.
    pub num_chunks: u64,
    /// In plans with sized chunks, the size id whose extent the iterations cover.
    pub size_id: Option<u64>,
    /// Holds no pipeline (reading refuses it, V107).
    pub body: Vec<Operation>,
}
