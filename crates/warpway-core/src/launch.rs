//! What can be wrong with a kernel: the launch itself, or what its blocks did.

use crate::error::ErrorCode;

/// A launch, on any engine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// A number of blocks that cannot run at the same time.
    #[error("rank {rank}: {blocks} blocks cannot be launched: 1 to {limit} can run at the same time")]
    Blocks {
        /// This rank.
        rank: u32,
        /// The number asked for.
        blocks: u32,
        /// The most that can be resident.
        limit: u32,
    },
    /// A block panicked; the other blocks were made to leave.
    #[error("rank {rank}: block {block} of {blocks} panicked: {message}")]
    Panicked {
        /// This rank.
        rank: u32,
        /// The block.
        block: u32,
        /// How many there were.
        blocks: u32,
        /// The panic's message.
        message: String,
    },
    /// A block waits at a grid barrier that another block will never reach, since it has returned.
    #[error(
        "rank {rank}: block {block} of {blocks} waits at a grid barrier, but {finished} blocks have returned; \
         every block must pass the same barriers"
    )]
    BarrierLeft {
        /// This rank.
        rank: u32,
        /// The block that waits.
        block: u32,
        /// How many there were.
        blocks: u32,
        /// How many have returned.
        finished: u32,
    },
}

impl LaunchError {
    /// The numeric code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Blocks { .. } | Self::BarrierLeft { .. } => ErrorCode::InvalidUsage,
            Self::Panicked { .. } => ErrorCode::InternalError,
        }
    }

    /// A stable id.
    pub fn id(&self) -> &'static str {
        match self {
            Self::Blocks { .. } => "launch.blocks",
            Self::Panicked { .. } => "launch.panicked",
            Self::BarrierLeft { .. } => "launch.barrier",
        }
    }
}
