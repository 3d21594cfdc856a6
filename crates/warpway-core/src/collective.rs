//! What can be wrong with the call of a collective, before a plan runs.

use crate::error::ErrorCode;

/// A call that cannot be carried out. Nothing has been launched, and the communicator stays as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CollectiveError {
    /// A root that does not exist.
    #[error("rank {rank}: {function}: there is no root {root} among {n_ranks} ranks")]
    Root {
        /// This rank.
        rank: u32,
        /// What was called.
        function: &'static str,
        /// The root that was given.
        root: u32,
        /// How many ranks there are.
        n_ranks: u32,
    },
    /// A buffer that is shorter or longer than the function makes it.
    #[error("rank {rank}: {function}: the {buffer} has {found} bytes and is to have {expected}: {why}")]
    Length {
        /// This rank.
        rank: u32,
        /// What was called.
        function: &'static str,
        /// `input`, `output` or `data`.
        buffer: &'static str,
        /// Bytes that it has.
        found: u64,
        /// Bytes that it should have.
        expected: u64,
        /// The rule.
        why: &'static str,
    },
    /// A buffer that cannot be divided among the ranks, or counts that do not fit it.
    #[error("rank {rank}: {function}: {why}")]
    Counts {
        /// This rank.
        rank: u32,
        /// What was called.
        function: &'static str,
        /// What is wrong.
        why: String,
    },
    /// There is no algorithm for the call.
    #[error("rank {rank}: {function}: {why}")]
    NoAlgorithm {
        /// This rank.
        rank: u32,
        /// What was called.
        function: &'static str,
        /// Why each is out of the question.
        why: String,
    },
    /// Ranks choose by different settings.
    #[error(
        "{what} differs between ranks, which would choose different algorithms: {here} on rank {rank}, {there} on \
         rank {peer}; set it alike on all ranks"
    )]
    Settings {
        /// The setting.
        what: &'static str,
        /// This rank.
        rank: u32,
        /// What it has.
        here: String,
        /// The other rank.
        peer: u32,
        /// What that one has.
        there: String,
    },
    /// A table of measurements that cannot be used.
    #[error("{path}: {why}")]
    Table {
        /// The file.
        path: String,
        /// What is wrong, with the line.
        why: String,
    },
}

impl CollectiveError {
    /// The numeric code.
    pub fn code(&self) -> ErrorCode {
        ErrorCode::InvalidUsage
    }

    /// A stable id.
    pub fn id(&self) -> &'static str {
        match self {
            Self::Root { .. } => "collective.root",
            Self::Length { .. } => "collective.length",
            Self::Counts { .. } => "collective.counts",
            Self::NoAlgorithm { .. } => "collective.algorithm",
            Self::Settings { .. } => "collective.settings",
            Self::Table { .. } => "collective.table",
        }
    }

    /// The other rank concerned.
    pub fn peer(&self) -> Option<u32> {
        match self {
            Self::Settings { peer, .. } => Some(*peer),
            _ => None,
        }
    }
}
