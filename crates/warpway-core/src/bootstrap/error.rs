//! What can go wrong while ranks find and talk to each other.

use std::time::Duration;

use crate::error::{ErrorCode, seconds};
use crate::trace::Operation;

/// Ranks of a job at most. Tables have a place for each of them before anybody has checked in, so a mistyped
/// world size must not be tried.
pub const MAX_RANKS: u32 = 1 << 20;

/// Joining a job or exchanging messages with its ranks.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum BootstrapError {
    /// Not a unique id of this library, or a damaged one.
    #[error("not a valid unique id: {why}")]
    UniqueId {
        /// What is wrong.
        why: &'static str,
    },
    /// Rank and world size do not fit each other.
    #[error(
        "rank {rank} of {n_ranks} is not valid: ranks are 0..n_ranks, and there are 1 to {MAX_RANKS} of them"
    )]
    Rank {
        /// The rank given.
        rank: u32,
        /// The world size given.
        n_ranks: u32,
    },
    /// The peer argument of a call is not a rank of this communicator.
    #[error("{operation}: there is no rank {peer} among {n_ranks}")]
    NoSuchPeer {
        /// The call.
        operation: Operation,
        /// The argument.
        peer: u32,
        /// How many ranks there are.
        n_ranks: u32,
    },
    /// The root refused the job: two ranks with one number, different world sizes, another version.
    #[error("rank {rank}: the root refused the job: {why}")]
    Refused {
        /// This rank.
        rank: u32,
        /// The rank that does not fit, if it is one.
        culprit: Option<u32>,
        /// The root's words.
        why: String,
    },
    /// Whoever answered does not know the job's secret, or this rank does not.
    #[error(
        "rank {rank}: {address} did not authenticate: {why}; unique id or WARPWAY_BOOTSTRAP_TOKEN differ, or another job listens there"
    )]
    Authentication {
        /// This rank.
        rank: u32,
        /// The other side.
        address: String,
        /// What was wrong.
        why: &'static str,
    },
    /// Ranks that did not come.
    #[error("rank {rank}: after {} these ranks have not checked in: {missing:?}", seconds(.elapsed))]
    Missing {
        /// This rank.
        rank: u32,
        /// Who has not come (at most 64 are listed).
        missing: Vec<u32>,
        /// Time waited.
        elapsed: Duration,
    },
    /// The root or a peer could not be reached.
    #[error("rank {rank}: cannot reach {what} after {}: {why}", seconds(.elapsed))]
    Unreachable {
        /// This rank.
        rank: u32,
        /// The peer, if it is a rank and not the root.
        peer: Option<u32>,
        /// Root or rank, with the addresses tried.
        what: String,
        /// The last error of each.
        why: String,
        /// Time spent.
        elapsed: Duration,
    },
    /// A message did not come in time.
    #[error("rank {rank}: {operation} {} within {}", silence(*.rank, *.peer, *.tag), seconds(.elapsed))]
    Timeout {
        /// This rank.
        rank: u32,
        /// Whom it waited for.
        peer: u32,
        /// Tag of the message; negative ones are the library's own.
        tag: i32,
        /// The call.
        operation: Operation,
        /// Time waited.
        elapsed: Duration,
    },
    /// The message is longer than the buffer; it has been discarded, the connection is usable.
    #[error(
        "rank {rank}: message of {length} bytes from rank {peer}, tag {tag}, is truncated: the buffer holds {capacity}"
    )]
    Truncated {
        /// This rank.
        rank: u32,
        /// The sender.
        peer: u32,
        /// Tag of the message.
        tag: i32,
        /// Length sent.
        length: u64,
        /// Length of the buffer.
        capacity: u64,
    },
    /// A message longer than the protocol allows.
    #[error("a message of {length} bytes exceeds the limit of {limit}")]
    TooLong {
        /// Length asked for.
        length: u64,
        /// Length allowed.
        limit: u64,
    },
    /// A message that no correct peer sends.
    #[error("rank {rank}: protocol violation by {from}: {what}")]
    Protocol {
        /// This rank.
        rank: u32,
        /// A rank or an address.
        from: String,
        /// What was wrong.
        what: &'static str,
    },
    /// The arguments of a collective call do not fit.
    #[error("{operation}: {why}")]
    Argument {
        /// The call.
        operation: Operation,
        /// What is wrong.
        why: String,
    },
    /// Two ranks are in different collective calls.
    #[error(
        "rank {rank}: {mine}, but rank {peer} is in {theirs}: all ranks must make the same calls in the same order"
    )]
    Mismatch {
        /// This rank.
        rank: u32,
        /// The other.
        peer: u32,
        /// This rank's call: operation, number, size and root.
        mine: String,
        /// The other's.
        theirs: String,
    },
    /// Hosts do not divide the ranks into equal, consecutive groups.
    #[error(
        "ranks are not divided into equal, consecutive groups: {domains}; start the same number of ranks per host, host by host"
    )]
    Domains {
        /// The groups, as ranges of ranks.
        domains: String,
    },
    /// A descriptor could not be fetched from its owner.
    #[error("rank {rank}: rank {peer} did not hand out descriptor {descriptor}: {why}")]
    Descriptor {
        /// This rank.
        rank: u32,
        /// The owner.
        peer: u32,
        /// Its number.
        descriptor: u64,
        /// What happened.
        why: String,
    },
}

/// What did not happen. The tags of collective calls would mean nothing to anybody.
fn silence(rank: u32, peer: u32, tag: i32) -> String {
    match tag {
        0.. => format!("with rank {peer}, tag {tag}: nothing came"),
        _ if peer == rank => "did not begin: another thread's collective call did not end".to_owned(),
        _ => format!("with rank {peer}: nothing came"),
    }
}

impl BootstrapError {
    /// `bootstrap.rank` unless such a rank can exist.
    pub(crate) fn check_rank(rank: u32, n_ranks: u32) -> Result<(), Self> {
        if rank < n_ranks && n_ranks <= MAX_RANKS { Ok(()) } else { Err(Self::Rank { rank, n_ranks }) }
    }

    /// The numeric code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Missing { .. } | Self::Timeout { .. } => ErrorCode::Timeout,
            Self::Unreachable { .. } | Self::Protocol { .. } | Self::Descriptor { .. } => {
                ErrorCode::RemoteError
            }
            _ => ErrorCode::InvalidUsage,
        }
    }

    /// A stable id.
    pub fn id(&self) -> &'static str {
        match self {
            Self::UniqueId { .. } => "bootstrap.id",
            Self::Rank { .. } => "bootstrap.rank",
            Self::NoSuchPeer { .. } => "bootstrap.peer",
            Self::Refused { .. } => "bootstrap.refused",
            Self::Authentication { .. } => "bootstrap.authentication",
            Self::Missing { .. } => "bootstrap.missing",
            Self::Unreachable { .. } => "bootstrap.unreachable",
            Self::Timeout { .. } => "bootstrap.timeout",
            Self::Truncated { .. } => "bootstrap.truncated",
            Self::TooLong { .. } => "bootstrap.too_long",
            Self::Protocol { .. } => "bootstrap.protocol",
            Self::Argument { .. } => "bootstrap.argument",
            Self::Mismatch { .. } => "bootstrap.mismatch",
            Self::Domains { .. } => "bootstrap.domains",
            Self::Descriptor { .. } => "bootstrap.descriptor",
        }
    }

    /// The peer concerned.
    pub fn peer(&self) -> Option<u32> {
        match self {
            Self::NoSuchPeer { peer, .. }
            | Self::Timeout { peer, .. }
            | Self::Truncated { peer, .. }
            | Self::Mismatch { peer, .. }
            | Self::Descriptor { peer, .. } => Some(*peer),
            Self::Refused { culprit, .. } => *culprit,
            Self::Unreachable { peer, .. } => *peer,
            Self::Missing { missing, .. } => missing.first().copied(),
            _ => None,
        }
    }
}
