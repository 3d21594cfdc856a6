//! What a program names: buffers, chunks, channels, semaphores and blocks. All are plain values; a program checks
//! them when they are used.

use std::ops::{BitAnd, BitOr, BitXor, Bound, RangeBounds};
use std::panic;

use super::error::{BuildError, BuildProblem, Site};
use crate::ir::{BufferKind, Location, Via};

/// A buffer of a rank, or one region of its scratch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Buffer {
    pub(crate) rank: u32,
    pub(crate) kind: BufferKind,
    pub(crate) offset: u64,
    pub(crate) size: u64,
}

impl Buffer {
    /// Its owner.
    pub fn rank(self) -> u32 {
        self.rank
    }

    /// Which of the owner's buffers.
    pub fn kind(self) -> BufferKind {
        self.kind
    }

    /// Its first chunk within the owner's buffer; not zero for later scratch regions.
    pub fn offset(self) -> u64 {
        self.offset
    }

    /// Number of chunks.
    pub fn size(self) -> u64 {
        self.size
    }

    /// Some of its chunks, counted from its own start. May be empty.
    ///
    /// # Errors
    /// [`BuildProblem::BadRange`], [`BuildProblem::BeyondBuffer`].
    #[track_caller]
    pub fn chunk(self, range: impl RangeBounds<u64>) -> Result<Chunk, BuildError> {
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => self.size,
        };
        let problem = if start > end {
            BuildProblem::BadRange { start, end }
        } else if end > self.size {
            BuildProblem::BeyondBuffer { buffer: self.kind, rank: self.rank, end, size: self.size }
        } else {
            let index = self.offset + start;
            return Ok(Chunk { rank: self.rank, buffer: self.kind, index, size: end - start, identity: 0 });
        };
        let caller = panic::Location::caller();
        let location = Some(Location { file: caller.file().to_owned(), line: caller.line() });
        Err(BuildError::new(
            Site { operation: "chunk", rank: Some(self.rank), block: None, location },
            problem,
        ))
    }

    /// All of its chunks.
    pub fn whole(self) -> Chunk {
        Chunk { rank: self.rank, buffer: self.kind, index: self.offset, size: self.size, identity: 0 }
    }
}

/// Adjacent chunks of one buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Chunk {
    pub(crate) rank: u32,
    pub(crate) buffer: BufferKind,
    pub(crate) index: u64,
    pub(crate) size: u64,
    pub(crate) identity: u64,
}

impl Chunk {
    /// Owner of the buffer.
    pub fn rank(self) -> u32 {
        self.rank
    }

    /// The buffer.
    pub fn buffer(self) -> BufferKind {
        self.buffer
    }

    /// First chunk, within the owner's buffer.
    pub fn index(self) -> u64 {
        self.index
    }

    /// Number of chunks.
    pub fn size(self) -> u64 {
        self.size
    }

    /// Marks it as one object of the program's own language. Matters only to
    /// [`Compat::Mscclpp`](crate::Compat), which shifts an object as often as it is used (X19); chunks without
    /// this mark are one object if they are equal.
    pub fn with_identity(self, identity: u64) -> Self {
        Self { identity, ..self }
    }
}

/// Loads and stores to a peer's memory, and signals. Its operations run on its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MemoryChannel {
    pub(crate) owner: u32,
    pub(crate) peer: u32,
    pub(crate) index: u32,
}

/// Requests to the owner's proxy, and signals. Its operations run on its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PortChannel {
    pub(crate) owner: u32,
    pub(crate) peer: u32,
    pub(crate) index: u32,
}

macro_rules! ends {
    ($type:ty) => {
        impl $type {
            /// The rank that runs its operations.
            pub fn owner(self) -> u32 {
                self.owner
            }

            /// The rank at the other end.
            pub fn peer(self) -> u32 {
                self.peer
            }

            /// Among the owner's channels of this type, in order of creation.
            pub fn index(self) -> u32 {
                self.index
            }
        }
    };
}
ends!(MemoryChannel);
ends!(PortChannel);

/// A channel of either kind, where both can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Channel {
    /// Loads and stores.
    Memory(MemoryChannel),
    /// Requests to the proxy.
    Port(PortChannel),
}

impl Channel {
    /// The rank that runs its operations.
    pub fn owner(self) -> u32 {
        match self {
            Self::Memory(channel) => channel.owner,
            Self::Port(channel) => channel.owner,
        }
    }

    /// The rank at the other end.
    pub fn peer(self) -> u32 {
        match self {
            Self::Memory(channel) => channel.peer,
            Self::Port(channel) => channel.peer,
        }
    }

    /// Its type.
    pub fn via(self) -> Via {
        match self {
            Self::Memory(_) => Via::Memory,
            Self::Port(_) => Via::Port,
        }
    }

    pub(crate) fn index(self) -> u32 {
        match self {
            Self::Memory(channel) => channel.index,
            Self::Port(channel) => channel.index,
        }
    }
}

impl From<MemoryChannel> for Channel {
    fn from(channel: MemoryChannel) -> Self {
        Self::Memory(channel)
    }
}

impl From<PortChannel> for Channel {
    fn from(channel: PortChannel) -> Self {
        Self::Port(channel)
    }
}

/// A multicast channel over one buffer of each member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SwitchGroup {
    pub(crate) number: u32,
}

impl SwitchGroup {
    /// A run of chunks of every member's buffer, as `rank` reaches it. Rank and bounds are checked when an
    /// operation uses it.
    pub fn region(self, rank: u32, offset: u64, size: u64) -> SwitchRegion {
        SwitchRegion { channel: self, rank, offset, size }
    }
}

/// Chunks of a multicast channel, as one member reaches them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SwitchRegion {
    pub(crate) channel: SwitchGroup,
    pub(crate) rank: u32,
    pub(crate) offset: u64,
    pub(crate) size: u64,
}

/// A counter between the blocks of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Semaphore {
    pub(crate) rank: u32,
    pub(crate) index: u32,
}

/// Blocks that share the bytes of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadBlockGroup {
    blocks: Vec<u32>,
}

impl ThreadBlockGroup {
    /// Of different blocks; the position in the list is the number within the group.
    ///
    /// # Errors
    /// [`BuildProblem::Empty`], [`BuildProblem::Duplicate`].
    #[track_caller]
    pub fn new(blocks: impl IntoIterator<Item = u32>) -> Result<Self, BuildError> {
        let blocks: Vec<u32> = blocks.into_iter().collect();
        let problem = match duplicate(&blocks) {
            _ if blocks.is_empty() => BuildProblem::Empty { what: "blocks" },
            Some(number) => BuildProblem::Duplicate { what: "block", number },
            None => return Ok(Self { blocks }),
        };
        let caller = panic::Location::caller();
        let location = Some(Location { file: caller.file().to_owned(), line: caller.line() });
        Err(BuildError::new(Site { operation: "group", rank: None, block: None, location }, problem))
    }

    /// The blocks, by their number within the group.
    pub fn blocks(&self) -> &[u32] {
        &self.blocks
    }

    /// The number of a block within the group.
    pub fn member(&self, block: u32) -> Option<u32> {
        self.blocks.iter().position(|b| *b == block).map(|at| at as u32)
    }
}

/// The first number that a list has twice.
pub(crate) fn duplicate(numbers: &[u32]) -> Option<u32> {
    let mut seen = std::collections::BTreeSet::new();
    numbers.iter().copied().find(|number| !seen.insert(*number))
}

/// Who does an operation: one block, or a group that shares its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocks<'g> {
    /// One block.
    One(u32),
    /// All of a group.
    Group(&'g ThreadBlockGroup),
}

impl From<u32> for Blocks<'_> {
    fn from(block: u32) -> Self {
        Self::One(block)
    }
}

impl<'g> From<&'g ThreadBlockGroup> for Blocks<'g> {
    fn from(group: &'g ThreadBlockGroup) -> Self {
        Self::Group(group)
    }
}

impl Blocks<'_> {
    pub(crate) fn first(&self) -> Option<u32> {
        match self {
            Self::One(block) => Some(*block),
            Self::Group(group) => group.blocks.first().copied(),
        }
    }
}

/// On which sides of a synchronisation the block's threads meet, so that data of all of them is ordered by it.
/// `|`, `&` and `^` work on the two sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DataSync {
    /// On neither.
    None,
    /// In front.
    Before,
    /// Behind.
    After,
    /// On both.
    #[default]
    Both,
}

impl DataSync {
    /// True if the threads meet in front.
    pub fn before(self) -> bool {
        matches!(self, Self::Before | Self::Both)
    }

    /// True if the threads meet behind.
    pub fn after(self) -> bool {
        matches!(self, Self::After | Self::Both)
    }

    fn of(before: bool, after: bool) -> Self {
        match (before, after) {
            (false, false) => Self::None,
            (true, false) => Self::Before,
            (false, true) => Self::After,
            (true, true) => Self::Both,
        }
    }
}

impl BitOr for DataSync {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self::of(self.before() | other.before(), self.after() | other.after())
    }
}

impl BitAnd for DataSync {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self::of(self.before() & other.before(), self.after() & other.after())
    }
}

impl BitXor for DataSync {
    type Output = Self;
    fn bitxor(self, other: Self) -> Self {
        Self::of(self.before() ^ other.before(), self.after() ^ other.after())
    }
}
