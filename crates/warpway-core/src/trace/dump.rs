//! The dump of a flight recorder: a JSON document that says whose it is, what failed, and the last
//! operations.
//!
//! Readers ignore fields they do not know, so fields may be added without a new version.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::{DumpError, FlightRecorder, RecordedOperation};
use crate::bootstrap::ScopeId;
use crate::error::SystemError;
use crate::health::{Failure, Health};
use crate::wire::JobNonce;

/// The version this release writes, and the newest it reads.
pub const DUMP_VERSION: u64 = 1;

/// Why a dump was made; part of its file's name, so that a later dump does not replace the first
/// failure's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DumpReason {
    /// The communicator failed.
    Failure,
    /// The process got the signal.
    Signal,
    /// The program asked for it.
    Request,
    /// Somebody connected to the status socket.
    Status,
}

impl DumpReason {
    fn name(self) -> &'static str {
        match self {
            Self::Failure => "failure",
            Self::Signal => "signal",
            Self::Request => "request",
            Self::Status => "status",
        }
    }
}

/// A communicator's failure, as kept in dumps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureRecord {
    /// The stable id (`"wait.timeout"`, `"peer.died"`).
    pub id: String,
    /// The numeric [`ErrorCode`](crate::ErrorCode).
    pub code: i32,
    /// The rank to blame, if one is known.
    pub culprit: Option<u32>,
    /// What was going on.
    pub phase: String,
    /// The whole message.
    pub message: String,
    /// When, on the scale of the operations; `None` if it was not observed as it happened.
    pub at_ns: Option<u64>,
}

/// See the module's page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlightDump {
    /// [`DUMP_VERSION`] of the writer.
    pub version: u64,
    /// Why it was made.
    pub reason: DumpReason,
    /// Names the job: the envelope's nonce in hexadecimal digits.
    pub job: String,
    /// Names the communicator inside its job; 0 is the job's own.
    pub scope: u64,
    /// Rank in the communicator.
    pub rank: u32,
    /// Ranks of the communicator.
    pub n_ranks: u32,
    /// The same rank in the job.
    pub job_rank: u32,
    /// Process id, as the process itself sees it.
    pub process: u32,
    /// Host name.
    pub host: String,
    /// Wall-clock time at which the times of the operations are 0, in nanoseconds since 1970.
    pub epoch_unix_ns: u64,
    /// When the dump was made, on the scale of the operations.
    pub dumped_ns: u64,
    /// The communicator's failure, if it has failed.
    pub failure: Option<FailureRecord>,
    /// Operations begun so far; more than there are lines if the ring has gone round.
    pub recorded: u64,
    /// Operations whose line could not be written.
    pub unrecorded: u64,
    /// The last operations, oldest first.
    pub operations: Vec<RecordedOperation>,
}

impl FlightDump {
    /// Reads a document.
    ///
    /// # Errors
    /// `trace.version` for a newer version, `trace.malformed` for everything else that is not a dump.
    pub fn parse(document: &[u8]) -> Result<Self, DumpError> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u64,
        }
        let malformed = |e: serde_json::Error| DumpError::Malformed { reason: e.to_string() };
        // The version first: a newer document may differ in anything else.
        let Versioned { version: found } = serde_json::from_slice(document).map_err(malformed)?;
        if found > DUMP_VERSION {
            return Err(DumpError::Version { found, supported: DUMP_VERSION });
        }
        serde_json::from_slice(document).map_err(malformed)
    }

    /// The document, indented.
    pub fn to_json(&self) -> Vec<u8> {
        // Writing numbers, strings and lists into memory has no way to fail.
        let mut document = serde_json::to_vec_pretty(self).unwrap_or_default();
        document.push(b'\n');
        document
    }

    /// Name of the file: who, and why.
    pub fn file_name(&self) -> String {
        let Self { job, scope, rank, process, reason, .. } = self;
        let job = job.get(..8).unwrap_or(job);
        format!("warpway-{job}-scope{scope:x}-rank{rank}-pid{process}-{}.json", reason.name())
    }

    /// Writes the document into `directory`, which is made if it is missing. The file appears whole or
    /// not at all; an earlier one of the same name is replaced.
    ///
    /// # Errors
    /// `trace.write` with the file and the call that failed.
    pub fn write(&self, directory: &Path) -> Result<PathBuf, DumpError> {
        let name = self.file_name();
        let path = directory.join(&name);
        let failed = |call: String, e: &io::Error| DumpError::Write {
            rank: self.rank,
            path: path.clone(),
            source: SystemError::from_io(call, e),
        };
        fs::create_dir_all(directory)
            .map_err(|e| failed(format!("creation of the folder {}", directory.display()), &e))?;
        let temporary = directory.join(format!(".{name}.tmp"));
        // What a killed process of the same number left; `create_new` then follows nobody's link.
        let _ = fs::remove_file(&temporary);
        // No fsync: the file must survive the process, not the host.
        let written = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&temporary)
            .and_then(|mut file| file.write_all(&self.to_json()))
            .map_err(|e| failed(format!("write of {}", temporary.display()), &e))
            .and_then(|()| {
                fs::rename(&temporary, &path)
                    .map_err(|e| failed(format!("rename of {}", temporary.display()), &e))
            });
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written.map(|()| path)
    }
}

/// Whose dump it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DumpIdentity {
    /// The job.
    pub job: JobNonce,
    /// The communicator.
    pub scope: ScopeId,
    /// Rank in the communicator.
    pub rank: u32,
    /// Ranks of the communicator.
    pub n_ranks: u32,
    /// The same rank in the job.
    pub job_rank: u32,
}

/// What dumps of one communicator are made from.
#[derive(Debug)]
pub struct DumpSource {
    identity: DumpIdentity,
    recorder: Arc<FlightRecorder>,
    health: Arc<Health>,
    failed_at: Arc<OnceLock<Instant>>,
}

impl DumpSource {
    /// Joins the parts, and watches `health` to know the time of its failure.
    pub fn new(identity: DumpIdentity, recorder: Arc<FlightRecorder>, health: Arc<Health>) -> Self {
        let failed_at = Arc::new(OnceLock::new());
        let already_failed = health.is_failed();
        let observed = Arc::clone(&failed_at);
        if !already_failed {
            health.subscribe(Box::new(move |_| {
                observed.get_or_init(Instant::now);
            }));
        }
        Self { identity, recorder, health, failed_at }
    }

    /// The communicator's dump as of now.
    pub fn capture(&self, reason: DumpReason) -> FlightDump {
        let DumpIdentity { job, scope, rank, n_ranks, job_rank } = self.identity;
        let operations = self.recorder.snapshot();
        FlightDump {
            version: DUMP_VERSION,
            reason,
            job: job.0.iter().map(|byte| format!("{byte:02x}")).collect(),
            scope: scope.0,
            rank,
            n_ranks,
            job_rank,
            process: std::process::id(),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            epoch_unix_ns: self.recorder.epoch_unix_ns(),
            dumped_ns: self.recorder.nanoseconds_at(Instant::now()),
            failure: self.health.failure().map(|failure| self.failure_record(&failure)),
            recorded: self.recorder.recorded(),
            unrecorded: self.recorder.unrecorded(),
            operations,
        }
    }

    /// Whose dumps they are.
    pub fn identity(&self) -> DumpIdentity {
        self.identity
    }

    /// The health watched.
    pub fn health(&self) -> &Arc<Health> {
        &self.health
    }

    fn failure_record(&self, failure: &Failure) -> FailureRecord {
        FailureRecord {
            id: failure.id().to_owned(),
            code: failure.code() as i32,
            culprit: failure.culprit,
            phase: failure.phase.clone(),
            message: failure.to_string(),
            at_ns: self.failed_at.get().map(|at| self.recorder.nanoseconds_at(*at)),
        }
    }
}
