//! What can be wrong with calls on channels.

use crate::error::ErrorCode;

/// A call on a channel, from the host or from a block.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// Packets need a flag other than zero.
    #[error("{operation} to rank {peer}: flag 0 means a packet that was never written; begin with 1")]
    PacketFlag {
        /// The call.
        operation: &'static str,
        /// The peer.
        peer: u32,
    },
    /// The channel was made without a packet buffer.
    #[error(
        "{operation} from rank {peer}: the channel has no packet buffer; give one when the channel is made"
    )]
    NoPacketBuffer {
        /// The call.
        operation: &'static str,
        /// The peer.
        peer: u32,
    },
    /// Source and destination of a copy share bytes.
    #[error("{operation} to rank {peer}: the {size} bytes at source and destination overlap")]
    Overlap {
        /// The call.
        operation: &'static str,
        /// The peer.
        peer: u32,
        /// Bytes to copy.
        size: u64,
    },
    /// A participant of a collective call that is not among the participants.
    #[error("{operation}: participant {index} of {count} does not exist")]
    Share {
        /// The call.
        operation: &'static str,
        /// Its number.
        index: u32,
        /// How many there are.
        count: u32,
    },
}

impl ChannelError {
    /// The numeric code.
    pub fn code(&self) -> ErrorCode {
        ErrorCode::InvalidUsage
    }

    /// A stable id.
    pub fn id(&self) -> &'static str {
        match self {
            Self::PacketFlag { .. } => "channel.packet_flag",
            Self::NoPacketBuffer { .. } => "channel.no_packet_buffer",
            Self::Overlap { .. } => "channel.overlap",
            Self::Share { .. } => "channel.share",
        }
    }

    /// The peer concerned.
    pub fn peer(&self) -> Option<u32> {
        match self {
            Self::PacketFlag { peer, .. }
            | Self::NoPacketBuffer { peer, .. }
            | Self::Overlap { peer, .. } => Some(*peer),
            Self::Share { .. } => None,
        }
    }
}
