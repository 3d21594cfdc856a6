//! What was chosen, and why nothing was.

use std::fmt;
use std::sync::Arc;

use super::registered::Registered;
use crate::algorithm::Algorithm;
use crate::task::Function;

/// What a call takes.
#[derive(Debug, Clone)]
pub struct Choice {
    /// The algorithm.
    pub taken: Taken,
    /// Blocks per rank; of no concern to plans of the user.
    pub blocks: u32,
    /// The same request with so many bytes, or more up to [`max_bytes`](Self::max_bytes), gets the same choice.
    pub min_bytes: u64,
    /// The largest such size.
    pub max_bytes: u64,
    /// Who proposed it.
    pub reason: Reason,
    /// Overrides that could not be followed, for a warning.
    pub passed_over: Vec<String>,
}

/// An algorithm of the catalogue, or a plan of the user.
#[derive(Debug, Clone)]
pub enum Taken {
    /// Its plan is built for the task.
    Catalogue(&'static Algorithm),
    /// A plan that has been registered.
    Registered(Arc<Registered>),
}

impl Taken {
    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Self::Catalogue(algorithm) => algorithm.name,
            Self::Registered(registered) => &registered.name,
        }
    }
}

/// Who proposed an algorithm.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Reason {
    /// The caller.
    Named,
    /// An override, and where it stands.
    Override(String),
    /// The user, by registering it.
    Registered,
    /// The table: the median time at the nearest measured size.
    Measured {
        /// That size.
        bytes: u64,
        /// The time.
        microseconds: f64,
        /// Whether it is the shortest there.
        is_fastest: bool,
    },
    /// A built-in rule, and what it says.
    Rule(&'static str),
    /// Nobody: it is the first that fits.
    First,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named => f.write_str("the call names it"),
            Self::Override(place) => write!(f, "{place} says so"),
            Self::Registered => f.write_str("a plan of the user, registered for this size"),
            Self::Measured { bytes, microseconds, is_fastest } => {
                let fastest = if *is_fastest { ", the fastest there" } else { "" };
                write!(f, "measured {microseconds:.2} µs at {bytes} bytes{fastest}")
            }
            Self::Rule(text) => write!(f, "built-in rule: {text}"),
            Self::First => f.write_str("no rule speaks of this case; the first that fits"),
        }
    }
}

/// Why there is no algorithm for a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoChoice {
    /// A name that no algorithm has.
    #[error("{by}: there is no algorithm {name:?} for {function}; there is {}", list(known))]
    Unknown {
        /// Who named it.
        by: String,
        /// Of this function.
        function: Function,
        /// The name.
        name: String,
        /// The names that there are.
        known: Vec<String>,
    },
    /// The algorithm that the caller wants does not fit.
    #[error("{function} by {name}: {why}")]
    Unfit {
        /// What was to be computed.
        function: Function,
        /// By which algorithm.
        name: String,
        /// The reason.
        why: String,
    },
    /// More blocks than a rank may have, or none.
    #[error("{function} with {blocks} blocks: a rank has 1 to {}", crate::MOST_BLOCKS)]
    Blocks {
        /// What was to be computed.
        function: Function,
        /// As many as the caller wants.
        blocks: u32,
    },
    /// None fits.
    #[error("no algorithm for {function} fits: {}", reasons(why))]
    Nothing {
        /// What was to be computed.
        function: Function,
        /// Each algorithm with its reason.
        why: Vec<(String, String)>,
    },
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn reasons(why: &[(String, String)]) -> String {
    if why.is_empty() {
        return "the catalogue has none".to_owned();
    }
    why.iter().map(|(name, why)| format!("{name}: {why}")).collect::<Vec<_>>().join("; ")
}
