//! Configuration, from code or from the environment.

/// A setting that cannot be used.
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
}

impl ConfigError {
    /// A stable id.
    pub fn id(&self) -> &'static str {
        match self {
            Self::Value { .. } => "config.value",
            Self::Missing { .. } => "config.missing",
        }
    }
}
