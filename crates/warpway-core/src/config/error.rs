//! What can be wrong with settings.

/// Settings that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The value of a variable cannot be read.
    #[error("{variable}={value:?} is not valid: expected {expected}")]
    Value {
        /// The variable, as set.
        variable: String,
        /// Its value.
        value: String,
        /// What would be accepted.
        expected: String,
    },
    /// A variable that is needed is not set.
    #[error("{variable} is not set; {hint}")]
    Missing {
        /// The variable.
        variable: String,
        /// Who sets it usually, what else would do.
        hint: String,
    },
    /// Two variables that do not fit each other.
    #[error("{variable}={value:?} does not fit {other}={other_value:?}: {why}")]
    Conflict {
        /// One variable.
        variable: String,
        /// Its value.
        value: String,
        /// The other.
        other: String,
        /// Its value.
        other_value: String,
        /// The rule that is broken.
        why: &'static str,
    },
    /// Nothing says which rank of which job this process is.
    #[error("no launcher has set a rank for this process: {hint}")]
    NoLauncher {
        /// How to start a job; what looked like a launcher but was not.
        hint: String,
    },
    /// The place where the ranks would meet cannot be used.
    #[error("rank {rank}: cannot meet at {place} (from {variable}): {why}")]
    MeetingPlace {
        /// This rank.
        rank: u32,
        /// Host or address.
        place: String,
        /// Where it comes from.
        variable: String,
        /// What is wrong and what to set instead.
        why: String,
    },
}

impl ConfigError {
    /// A stable id.
    pub fn id(&self) -> &'static str {
        match self {
            Self::Value { .. } => "config.value",
            Self::Missing { .. } => "config.missing",
            Self::Conflict { .. } => "config.conflict",
            Self::NoLauncher { .. } => "config.launcher",
            Self::MeetingPlace { .. } => "config.meeting_place",
        }
    }
}
