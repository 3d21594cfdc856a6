//! What an operation reads and writes: runs of chunks in a local, remote or multicast buffer.

/// The three buffers of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BufferKind {
    /// `i`: what the caller gives.
    Input,
    /// `o`: what the caller gets.
    Output,
    /// `s`: the library's own.
    Scratch,
}

impl BufferKind {
    /// All three.
    pub const ALL: [Self; 3] = [Self::Input, Self::Output, Self::Scratch];
}

/// `size` chunks from chunk `index` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reference {
    /// Of a buffer of this rank.
    Local {
        /// The buffer.
        buffer: BufferKind,
        /// First chunk.
        index: u64,
        /// Number of chunks.
        size: u64,
    },
    /// Of a peer's buffer.
    Remote {
        /// Position in the block's list of remote buffers for the operation's channel type.
        position: u32,
        /// First chunk, in the owner's buffer.
        index: u64,
        /// Number of chunks.
        size: u64,
    },
    /// Of a multicast region.
    Switch {
        /// Position in the block's list of switch channels.
        position: u32,
        /// First chunk, in every member's buffer.
        index: u64,
        /// Number of chunks.
        size: u64,
    },
}

impl Reference {
    /// First chunk.
    pub fn index(&self) -> u64 {
        match self {
            Self::Local { index, .. } | Self::Remote { index, .. } | Self::Switch { index, .. } => *index,
        }
    }

    /// Number of chunks.
    pub fn size(&self) -> u64 {
        match self {
            Self::Local { size, .. } | Self::Remote { size, .. } | Self::Switch { size, .. } => *size,
        }
    }
}
