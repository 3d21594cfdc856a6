//! What can go wrong when two ranks exchange handles.

use crate::error::ErrorCode;

/// Exchange of handles between two ranks of a communicator.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ExchangeError {
    /// The i-th call here and the i-th call there are of different kinds.
    #[error(
        "rank {rank} called {here} as exchange {sequence} with rank {peer}, tag {tag}, but rank {peer} called {there}; \
         calls of one (peer, tag) must match in order"
    )]
    Mismatch {
        /// This rank.
        rank: u32,
        /// The peer.
        peer: u32,
        /// The tag.
        tag: i32,
        /// Number of the exchange on that tag.
        sequence: u64,
        /// The call here, with its place in the source.
        here: String,
        /// The call there, with its place in the source.
        there: String,
    },
    /// A number in the sequence is missing or repeated.
    #[error("rank {rank}: exchange with rank {peer}, tag {tag}: sequence {found} where {expected} was due")]
    Sequence {
        /// This rank.
        rank: u32,
        /// The peer.
        peer: u32,
        /// The tag.
        tag: i32,
        /// The number due.
        expected: u64,
        /// The number found.
        found: u64,
    },
    /// A rank, tag, colour or handle that does not belong here.
    #[error("{operation}: {why}")]
    Argument {
        /// The call.
        operation: &'static str,
        /// What is wrong.
        why: String,
    },
    /// The communicator was dropped before the exchange completed.
    #[error("rank {rank}: the communicator was dropped while {operation} with rank {peer} was under way")]
    Dropped {
        /// This rank.
        rank: u32,
        /// The peer.
        peer: u32,
        /// The call.
        operation: &'static str,
    },
    /// A peer could not import a buffer published one-sidedly.
    #[error("rank {rank}: rank {peer} cannot import buffer {slot}: {why}")]
    ImportRefused {
        /// This rank.
        rank: u32,
        /// The peer.
        peer: u32,
        /// Slot of the buffer.
        slot: u64,
        /// The peer's words.
        why: String,
    },
    /// The owner has withdrawn the buffer, or its slot holds a newer one.
    #[error("rank {rank}: buffer {slot} (generation {generation}) of rank {peer} has been withdrawn")]
    Withdrawn {
        /// This rank.
        rank: u32,
        /// The owner.
        peer: u32,
        /// Slot of the buffer.
        slot: u64,
        /// Generation asked for.
        generation: u64,
    },
    /// Every slot for published buffers is in use.
    #[error(
        "rank {rank}: all {capacity} slots for published buffers are in use; drop publications or raise the capacity"
    )]
    SlotsInUse {
        /// This rank.
        rank: u32,
        /// How many there are.
        capacity: u64,
    },
    /// A collective call was refused because one rank's arguments or state do not allow it.
    #[error("{operation}: rank {culprit}: {why}")]
    Collective {
        /// The call.
        operation: &'static str,
        /// The rank whose call does not fit.
        culprit: u32,
        /// What is wrong.
        why: String,
    },
    /// A buffer published one-sidedly was not acknowledged in time.
    #[error("rank {rank}: buffer {slot} has not been acknowledged by ranks {waiting:?}")]
    Unacknowledged {
        /// This rank.
        rank: u32,
        /// Slot of the buffer.
        slot: u64,
        /// Who has not answered.
        waiting: Vec<u32>,
    },
}

impl ExchangeError {
    /// The numeric code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Mismatch { .. }
            | Self::Sequence { .. }
            | Self::Argument { .. }
            | Self::Withdrawn { .. }
            | Self::SlotsInUse { .. }
            | Self::Collective { .. } => ErrorCode::InvalidUsage,
            Self::ImportRefused { .. } => ErrorCode::RemoteError,
            Self::Dropped { .. } => ErrorCode::Aborted,
            Self::Unacknowledged { .. } => ErrorCode::Timeout,
        }
    }

    /// A stable id.
    pub fn id(&self) -> &'static str {
        match self {
            Self::Mismatch { .. } => "exchange.mismatch",
            Self::Sequence { .. } => "exchange.sequence",
            Self::Argument { .. } => "exchange.argument",
            Self::Dropped { .. } => "exchange.dropped",
            Self::Unacknowledged { .. } => "exchange.unacknowledged",
            Self::ImportRefused { .. } => "exchange.import_refused",
            Self::Withdrawn { .. } => "exchange.withdrawn",
            Self::SlotsInUse { .. } => "exchange.slots_in_use",
            Self::Collective { .. } => "exchange.collective",
        }
    }

    /// The peer concerned.
    pub fn peer(&self) -> Option<u32> {
        match self {
            Self::Mismatch { peer, .. }
            | Self::Sequence { peer, .. }
            | Self::Dropped { peer, .. }
            | Self::ImportRefused { peer, .. }
            | Self::Withdrawn { peer, .. } => Some(*peer),
            Self::Collective { culprit, .. } => Some(*culprit),
            Self::Unacknowledged { waiting, .. } => waiting.first().copied(),
            Self::Argument { .. } | Self::SlotsInUse { .. } => None,
        }
    }
}
