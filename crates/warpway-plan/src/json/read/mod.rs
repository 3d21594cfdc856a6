//! From JSON.
//!
//! | file | what it reads |
//! |---|---|
//! | `slot.rs` | any value: types, keys, lists, in any order |
//! | `plan.rs`, `tables.rs`, `operation.rs` | the objects of the format |

mod operation;
mod plan;
mod slot;
mod tables;

pub(super) use plan::PlanFile;
use slot::{Context, Slot};

use crate::check::{Finding, Noted, check};
use crate::ir::Plan;

#[cfg(test)]
pub(super) use operation::{GroupMemberFile, IterationFile, OperationFile, ReferenceFile};
#[cfg(test)]
pub(super) use plan::RankFile;
#[cfg(test)]
pub(super) use slot::Object;
#[cfg(test)]
pub(super) use tables::{
    BufferRefsFile, ChannelEntryFile, ChannelRefsFile, GroupFile, RemoteBufferFile, SemaphoreFile,
};

/// A plan that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadPlan {
    /// The plan; [`Plan::check`] finds no error in it.
    pub plan: Plan,
    /// Keys that were ignored (V106); at most a hundred.
    pub warnings: Vec<Finding>,
    /// How many more there were.
    pub more_warnings: u64,
}

/// A file that is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Not JSON.
    #[error("not JSON: line {line}, column {column}: {message}")]
    Syntax {
        /// From 1.
        line: usize,
        /// From 1; 0 if the file ends at the line's start.
        column: usize,
        /// What is wrong.
        message: String,
    },
    /// More bytes than a plan may have. Nothing was looked at.
    #[error("more than {limit} bytes: no plan is that long")]
    TooLarge {
        /// [`Plan::FILE_BYTES_MAX`].
        limit: u64,
    },
    /// JSON, but no plan: V101 to V111.
    #[error("{}", Listed(errors, *more_errors))]
    NoPlan {
        /// Those of the reader come first, then those of [`Plan::check`]; each in the order of the file. One at
        /// least, a hundred at most.
        errors: Vec<Finding>,
        /// How many more there were.
        more_errors: u64,
        /// What would only have been noted.
        warnings: Vec<Finding>,
    },
}

/// The first finding and how many follow.
struct Listed<'f>(&'f [Finding], u64);

impl std::fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self([first, others @ ..], more) = self else { return f.write_str("no plan") };
        write!(f, "no plan: {first}")?;
        match (others.len() as u64).saturating_add(*more) {
            0 => Ok(()),
            others => write!(f, " (and {others} more)"),
        }
    }
}

impl Plan {
    /// Bytes of a plan's file, at most: some million operations.
    pub const FILE_BYTES_MAX: u64 = 1 << 30;

    /// Reads a plan. Numbers are exact, keys may come in any order, those of the older forms (switch entries with
    /// `buff`, blocks without `remote_buffer_refs`, ranks without `semaphores`, the lone `glre` of MSCCL++) are
    /// understood. Time and memory are linear in the length of `json`, whatever it contains.
    ///
    /// The file of the plan is right in its form (V1), not in its meaning: that is the verifier's.
    ///
    /// # Errors
    /// [`ReadError::TooLarge`] beyond [`Plan::FILE_BYTES_MAX`], [`ReadError::Syntax`] at the first byte that is not
    /// JSON, [`ReadError::NoPlan`] with all findings otherwise.
    pub fn from_json(json: &[u8]) -> Result<ReadPlan, ReadError> {
        fits(json.len() as u64, Self::FILE_BYTES_MAX)?;
        let text = std::str::from_utf8(json).map_err(|error| {
            let before = &json[..error.valid_up_to()];
            let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            ReadError::Syntax {
                line: before.iter().filter(|byte| **byte == b'\n').count() + 1,
                column: before.len() - line_start + 1,
                message: "not UTF-8".into(),
            }
        })?;
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let mut context = Context::default();
        let mut file = PlanFile::default();
        let result = Slot::new(&mut deserializer, &mut context).object(&mut file);
        result.and_then(|_| deserializer.end()).map_err(|error| {
            let message = error.to_string();
            let place = format!(" at line {} column {}", error.line(), error.column());
            ReadError::Syntax {
                line: error.line(),
                column: error.column(),
                message: message.strip_suffix(&place).unwrap_or(&message).to_owned(),
            }
        })?;
        let plan = file.plan(&context);
        // An operation or table that could not be read has left a placeholder, right in its form; only a list of
        // ranks that could not be read would be found wrong twice.
        if !(plan.ranks.is_empty() && context.notes.n_errors() > 0) {
            check(&plan, &mut context.notes);
        }
        let Noted { errors, more_errors, warnings, more_warnings } = context.notes.finish();
        match errors.is_empty() {
            true => Ok(ReadPlan { plan, warnings, more_warnings }),
            false => Err(ReadError::NoPlan { errors, more_errors, warnings }),
        }
    }
}

fn fits(bytes: u64, limit: u64) -> Result<(), ReadError> {
    if bytes <= limit { Ok(()) } else { Err(ReadError::TooLarge { limit }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_beyond_a_limit_are_not_looked_at() {
        assert_eq!(
            (fits(0, 9), fits(9, 9), fits(10, 9)),
            (Ok(()), Ok(()), Err(ReadError::TooLarge { limit: 9 }))
        );
        let said = ReadError::TooLarge { limit: Plan::FILE_BYTES_MAX }.to_string();
        assert_eq!(said, "more than 1073741824 bytes: no plan is that long");
    }
}
