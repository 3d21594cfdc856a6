//! What a rank tells the test.

use std::io::Write;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use warpway::core::connection::ConnectionError;
use warpway::core::wait::GaveUp;
use warpway::{Error, Failure};

/// One line of a rank's standard output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// It has come this far.
    Mark(String),
    /// A figure of its own.
    Figure(String, u64),
    /// An error that the scenario lets happen; it goes on.
    Met(Fault),
    /// The end: the scenario has succeeded.
    Done,
    /// The end: an error.
    Failed(Fault),
}

impl Line {
    /// Writes it, at once. Nobody may be left to read it: that is no concern of the rank.
    pub fn say(&self) {
        let mut text = serde_json::to_string(self).unwrap_or_default();
        text.push('\n');
        let mut output = std::io::stdout().lock();
        let _ = output.write_all(text.as_bytes()).and_then(|()| output.flush());
    }

    /// The error, if it is one that the scenario lets happen.
    pub(crate) fn met(&self) -> Option<&Fault> {
        match self {
            Self::Met(fault) => Some(fault),
            _ => None,
        }
    }

    /// A mark.
    pub fn mark(name: impl Into<String>) {
        Self::Mark(name.into()).say();
    }
}

/// An error as a rank met it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// [`Error::id`]; `"test"` for what the scenario itself found wrong.
    pub id: String,
    /// The number of [`Error::code`]; −1 for `"test"`.
    pub code: i32,
    /// [`Error::culprit`].
    pub culprit: Option<u32>,
    /// What was going on, as the error says.
    pub phase: String,
    /// When the rank held the error in its hands, on the clock of [`monotonic_ns`].
    pub at_ns: u64,
    /// The whole text.
    pub message: String,
}

impl Fault {
    /// Of an error just met.
    pub fn new(error: &Error) -> Self {
        Self {
            id: error.id().into(),
            code: error.code() as i32,
            culprit: error.culprit(),
            phase: phase(error),
            at_ns: monotonic_ns(),
            message: error.to_string(),
        }
    }

    /// Of an error of either kind.
    pub fn of_scenario(error: &anyhow::Error) -> Self {
        if let Some(error) = error.downcast_ref::<Error>() {
            return Self::new(error);
        }
        let (id, message) = ("test".into(), format!("{error:#}"));
        Self { id, code: -1, culprit: None, phase: String::new(), at_ns: monotonic_ns(), message }
    }
}

fn phase(error: &Error) -> String {
    let of_failure = |failure: &Failure| failure.phase.clone();
    match error {
        Error::Failed(failure) => of_failure(failure),
        Error::Wait(wait) => match &wait.reason {
            GaveUp::Failed(failure) => format!("{}: {}", wait.site.operation, of_failure(failure)),
            _ => wait.site.operation.to_string(),
        },
        Error::Connection(ConnectionError::Broken { operation, .. }) => operation.to_string(),
        // These name the operation in their text.
        other => other.to_string(),
    }
}

/// Nanoseconds of the clock that all processes of the host share.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
