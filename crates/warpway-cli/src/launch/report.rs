//! What the launcher says: how ranks ended and what was done about it, as text and as JSON.

use std::fmt;

use rustix::process::{Signal, WaitIdStatus};
use serde::Serialize;
use signal_hook::low_level::signal_name;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ending {
    /// By itself, with this code.
    Code(i32),
    /// Killed by this signal.
    Signal(i32),
}

impl Ending {
    /// From a wait that asked for ended processes only.
    pub(super) fn from_status(status: &WaitIdStatus) -> Self {
        match (status.terminating_signal(), status.exit_status()) {
            (Some(signal), _) => Self::Signal(signal),
            (None, code) => Self::Code(code.unwrap_or(0)),
        }
    }

    /// Whether it is success.
    pub(super) fn is_success(self) -> bool {
        self == Self::Code(0)
    }

    /// As a shell would give it.
    pub(super) fn exit_code(self) -> u8 {
        match self {
            // The kernel keeps 8 bits of a process's code.
            Self::Code(code) => u8::try_from(code & 0xff).unwrap_or(u8::MAX),
            Self::Signal(signal) => signal_exit_code(signal),
        }
    }
}

/// 128 + signal.
pub(super) fn signal_exit_code(signal: i32) -> u8 {
    u8::try_from(signal.saturating_add(128)).unwrap_or(u8::MAX)
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exited with code {code}"),
            Self::Signal(signal) => write!(f, "was killed by {}", name(*signal)),
        }
    }
}

/// `SIGTERM`, or the number where it has no name.
pub(super) fn name(signal: i32) -> String {
    signal_name(signal).map_or_else(|| format!("signal {signal}"), str::to_owned)
}

/// Why a job does not simply run to its end.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Cause {
    /// The first rank that failed.
    Rank { rank: u32, pid: i32, ending: Ending },
    /// The launcher was told to end.
    Signal(i32),
    /// The job's time is up.
    Timeout { seconds: f64 },
    /// A rank could not be started.
    Start { rank: u32, exit_code: u8, reason: String },
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rank { rank, pid, ending } => write!(f, "rank {rank} (pid {pid}) {ending}"),
            Self::Signal(signal) => write!(f, "got {}", name(*signal)),
            Self::Timeout { seconds } => write!(f, "not done after {seconds} s (--timeout)"),
            Self::Start { rank, reason, .. } => write!(f, "rank {rank} could not be started: {reason}"),
        }
    }
}

/// One thing that happened. JSON: one object a line, told apart by `event`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Event {
    /// A rank runs.
    Started { rank: u32, pid: i32 },
    /// A rank ended.
    Ended { rank: u32, pid: i32, ending: Ending },
    /// The rest of the job was asked to end.
    Stopping { cause: Cause, signal: i32, running: u32, grace_seconds: f64 },
    /// The grace period is over, or the user is out of patience.
    Killing { ranks: Vec<u32> },
    /// What ranks left behind.
    Leftovers { pids: Vec<i32> },
    /// The guard process was replaced.
    GuardReplaced,
    /// The job is over; `cause` is null if every rank ended with 0.
    Finished { exit_code: u8, seconds: f64, cause: Option<Cause> },
}

impl Event {
    /// A line for people; `None` for what they need not be told.
    pub(super) fn text(&self) -> Option<String> {
        match self {
            Self::Started { .. } | Self::Ended { .. } | Self::Finished { cause: None, .. } => None,
            // The last line will say it.
            Self::Stopping { running: 0, .. } => None,
            Self::Stopping { cause, signal, running, grace_seconds } => Some(format!(
                "{cause}; sent {} to the {running} running rank{}, SIGKILL follows in {grace_seconds} s",
                name(*signal),
                if *running == 1 { "" } else { "s" },
            )),
            Self::Killing { ranks } if ranks.is_empty() => None,
            Self::Killing { ranks } => {
                Some(format!("sent {} to {}", name(Signal::KILL.as_raw()), list(ranks)))
            }
            Self::Leftovers { pids } => {
                let pids: Vec<String> = pids.iter().map(ToString::to_string).collect();
                Some(format!("ending processes that ranks left behind: pid {}", pids.join(", ")))
            }
            Self::GuardReplaced => Some("the guard process ended unexpectedly; started another".into()),
            Self::Finished { exit_code, cause: Some(cause), .. } => {
                Some(format!("exit code {exit_code}: {cause}"))
            }
        }
    }
}

/// `rank 3`, `ranks 0, 2 and 5`; long lists are cut.
fn list(ranks: &[u32]) -> String {
    const SHOWN: usize = 8;
    let names: Vec<String> = ranks.iter().take(SHOWN).map(ToString::to_string).collect();
    match (names.split_last(), ranks.len().saturating_sub(SHOWN)) {
        (None, _) => "no rank".into(),
        (Some((only, [])), 0) => format!("rank {only}"),
        (Some((last, first)), 0) => format!("ranks {} and {last}", first.join(", ")),
        (Some(_), more) => format!("ranks {} and {more} more", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::{Ending, list};

    #[test]
    fn endings_map_to_shell_codes() {
        assert_eq!(Ending::Code(0).exit_code(), 0);
        assert_eq!(Ending::Code(255).exit_code(), 255);
        assert_eq!(Ending::Signal(9).exit_code(), 137);
        assert_eq!(Ending::Signal(64).exit_code(), 192);
        assert_eq!(Ending::Signal(15).to_string(), "was killed by SIGTERM");
    }

    #[test]
    fn lists_read_well() {
        assert_eq!(list(&[3]), "rank 3");
        assert_eq!(list(&[0, 2, 5]), "ranks 0, 2 and 5");
        assert_eq!(list(&(0..10).collect::<Vec<_>>()), "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
    }
}
