//! How a run may fail.

use std::fmt;

use super::memory::Stamp;

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Nobody can take a step, and not everybody is done.
    Deadlock,
    /// A read that is not ordered after the write whose value it gets.
    RaceOnRead,
    /// A write that is not ordered after an earlier access.
    RaceOnWrite,
    /// A peer's access to the caller's buffers that is not known to be over when the launch ends.
    OpenAtEnd,
    /// A peer's input or output, touched while the peer does not run that launch.
    PeerNotRunning,
    /// A packet slot written again under the same flag, or an old one over a newer one.
    PacketWrittenTwice,
    /// A port sent on a slot that holds no packet of this launch.
    InvalidPacketForwarded,
    /// An output holds something else than the collective promises.
    WrongResult,
    /// An input that the plan may not change has changed.
    InputChanged,
    /// A semaphore does not come back to its initial value.
    SemaphoreOff,
    /// Its numbers point nowhere, or its lists do not match.
    Meaningless,
    /// Signals and waits of a channel do not balance.
    Unbalanced,
}

/// One failure, before the run puts names to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    pub(crate) at: u32,
    pub(crate) first: Option<Stamp>,
    pub(crate) second: Option<Stamp>,
}

impl Fault {
    pub(crate) fn at(kind: Kind, at: u32, by: Stamp) -> Self {
        Self { kind, at, first: Some(by), second: None }
    }

    pub(crate) fn between(kind: Kind, at: u32, first: Stamp, second: Stamp) -> Self {
        Self { kind, at, first: Some(first), second: Some(second) }
    }
}

/// One failure, with what it takes to see it again.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) kind: Kind,
    pub(crate) seed: u64,
    pub(crate) message: String,
    /// The last steps of the schedule, oldest first; only if the run was traced.
    pub(crate) schedule: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} with seed {}: {}", self.kind, self.seed, self.message)?;
        for step in &self.schedule {
            write!(f, "\n    {step}")?;
        }
        Ok(())
    }
}
