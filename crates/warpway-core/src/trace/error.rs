//! What can go wrong when a flight recorder is dumped or a dump is read.

use std::path::PathBuf;

use crate::error::{ErrorCode, SystemError};

/// Writing, serving or reading a dump of the flight recorder.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DumpError {
    /// The file could not be written; nothing of it was left behind.
    #[error("rank {rank}: the flight recorder's dump {} could not be written: {source}", path.display())]
    Write {
        /// The rank whose dump it is.
        rank: u32,
        /// The file.
        path: PathBuf,
        /// The call that failed.
        source: SystemError,
    },
    /// A dump was asked for and there is no folder to put it into.
    #[error("rank {rank}: no folder for dumps of the flight recorder; set WARPWAY_TRACE_DIR")]
    NoDirectory {
        /// The rank asked.
        rank: u32,
    },
    /// The service that writes dumps could not be started, in whole or in part.
    #[error("rank {rank}: the flight recorder's service cannot {what}: {source}")]
    Service {
        /// The rank whose service it is.
        rank: u32,
        /// The part.
        what: &'static str,
        /// The call that failed.
        source: SystemError,
    },
    /// The text is not a dump.
    #[error("not a dump of the flight recorder: {reason}")]
    Malformed {
        /// Where and why.
        reason: String,
    },
    /// The dump was written by a newer release.
    #[error("the dump has version {found}, this release reads up to version {supported}")]
    Version {
        /// Its version.
        found: u64,
        /// The newest that can be read.
        supported: u64,
    },
    /// A status socket did not answer with a dump.
    #[error("status socket @{name}: {source}")]
    Status {
        /// The socket's abstract name.
        name: String,
        /// The call that failed.
        source: SystemError,
    },
}

impl DumpError {
    /// The numeric code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Write { .. } | Self::Service { .. } | Self::Status { .. } => ErrorCode::SystemError,
            Self::NoDirectory { .. } | Self::Malformed { .. } | Self::Version { .. } => {
                ErrorCode::InvalidUsage
            }
        }
    }

    /// A stable id.
    pub fn id(&self) -> &'static str {
        match self {
            Self::Write { .. } => "trace.write",
            Self::NoDirectory { .. } => "trace.directory",
            Self::Service { .. } => "trace.service",
            Self::Malformed { .. } => "trace.malformed",
            Self::Version { .. } => "trace.version",
            Self::Status { .. } => "trace.status",
        }
    }
}
