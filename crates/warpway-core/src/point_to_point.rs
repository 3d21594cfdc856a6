//! What can go wrong between a send and its receive, on any engine.

use crate::error::ErrorCode;

/// A send or receive that is refused, or that its counterpart does not fit.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum PointToPointError {
    /// A send met a receive of other bytes, or of another type. Both ranks get this error.
    #[error(
        "rank {rank} {} rank {peer}, which {}: message {message} from rank {} to rank {} does not fit; give both sides \
         the same count and type, in the same order",
        mine(.sends, .here), theirs(.sends, .there),
        if *.sends { .rank } else { .peer }, if *.sends { .peer } else { .rank }
    )]
    Mismatch {
        /// This rank.
        rank: u32,
        /// The rank at the other end.
        peer: u32,
        /// True on the rank that sends.
        sends: bool,
        /// Number of the message from the one rank to the other, from 1.
        message: u64,
        /// Bytes and type here.
        here: String,
        /// Bytes and type there.
        there: String,
    },
    /// Two members of a group would use the same bytes, one of them to receive into. Nothing was begun.
    #[error(
        "rank {rank}: members {first} and {second} of the group share {shared} bytes, which the group receives into; \
         give each receive memory of its own"
    )]
    Overlap {
        /// This rank.
        rank: u32,
        /// One member, from 0 in the order of the calls.
        first: usize,
        /// The other one.
        second: usize,
        /// How many bytes both use.
        shared: u64,
    },
    /// A rank sends to itself, or receives from itself, without the counterpart in the same group. Nothing was begun.
    #[error(
        "rank {rank} has {sends} sends to itself and {receives} receives from itself in one group; it needs as many of the \
         one as of the other"
    )]
    Alone {
        /// This rank.
        rank: u32,
        /// Sends to itself.
        sends: usize,
        /// Receives from itself.
        receives: usize,
    },
    /// A receive into bytes that may only be read. Nothing was begun.
    #[error("rank {rank} cannot receive {bytes} bytes from rank {peer} into memory that may only be read")]
    ReadOnly {
        /// This rank.
        rank: u32,
        /// The rank that sends.
        peer: u32,
        /// How many bytes.
        bytes: u64,
    },
}

fn mine(sends: &bool, here: &str) -> String {
    if *sends { format!("sends {here} to") } else { format!("receives {here} from") }
}

fn theirs(sends: &bool, there: &str) -> String {
    if *sends { format!("receives {there}") } else { format!("sends {there}") }
}

impl PointToPointError {
    /// The numeric code.
    pub fn code(&self) -> ErrorCode {
        ErrorCode::InvalidUsage
    }

    /// A stable id.
    pub fn id(&self) -> &'static str {
        match self {
            Self::Mismatch { .. } => "p2p.mismatch",
            Self::Overlap { .. } => "p2p.overlap",
            Self::Alone { .. } => "p2p.alone",
            Self::ReadOnly { .. } => "p2p.read_only",
        }
    }

    /// The other rank concerned.
    pub fn peer(&self) -> Option<u32> {
        match self {
            Self::Mismatch { peer, .. } | Self::ReadOnly { peer, .. } => Some(*peer),
            Self::Overlap { .. } | Self::Alone { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mismatch_reads_alike_from_both_ends() {
        let error = |rank, peer, sends, here: &str, there: &str| PointToPointError::Mismatch {
            rank,
            peer,
            sends,
            message: 7,
            here: here.into(),
            there: there.into(),
        };
        let (eight, four) = ("8 bytes of float32", "4 bytes of float32");
        assert_eq!(
            error(2, 5, true, eight, four).to_string(),
            "rank 2 sends 8 bytes of float32 to rank 5, which receives 4 bytes of float32: message 7 from rank 2 to \
             rank 5 does not fit; give both sides the same count and type, in the same order"
        );
        assert_eq!(
            error(5, 2, false, four, eight).to_string(),
            "rank 5 receives 4 bytes of float32 from rank 2, which sends 8 bytes of float32: message 7 from rank 2 to \
             rank 5 does not fit; give both sides the same count and type, in the same order"
        );
    }
}
