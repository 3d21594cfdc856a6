//! What the user should know about the variables that are set.

use std::fmt;

use super::Environment;
use super::table::{NOT_HONOURED, VARIABLES};

/// A remark on a variable of the environment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// An alias was read in place of our own name.
    Alias {
        /// Our name.
        name: &'static str,
        /// The name that is set.
        alias: &'static str,
    },
    /// A `WARPWAY_` name that does not exist.
    Unknown {
        /// The name that is set.
        name: String,
        /// The name that may be meant.
        nearest: Option<&'static str>,
    },
    /// A name of MSCCL++ that does nothing here.
    NotHonoured {
        /// The name.
        name: &'static str,
        /// What to do instead.
        instead: &'static str,
    },
    /// A variable of a part that this version does not have.
    NoEffect {
        /// The name.
        name: &'static str,
        /// The part.
        part: &'static str,
    },
}

impl Notice {
    /// Hands the notice to `tracing`: the use of an alias as information, all else as a warning.
    pub fn log(&self) {
        match self {
            Self::Alias { .. } => tracing::info!("{self}"),
            _ => tracing::warn!("{self}"),
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alias { name, alias } => write!(f, "{alias} is read because {name} is not set"),
            Self::Unknown { name, nearest: Some(nearest) } => {
                write!(f, "{name} is not a variable of Warpway; did you mean {nearest}?")
            }
            Self::Unknown { name, nearest: None } => {
                write!(f, "{name} is not a variable of Warpway; docs/environment.md lists them")
            }
            Self::NotHonoured { name, instead } => write!(f, "{name} does nothing; {instead}"),
            Self::NoEffect { name, part } => {
                write!(f, "{name} has no effect: this version does not have the part it is for ({part})")
            }
        }
    }
}

/// Names that are set and not in the table.
pub(super) fn foreign(environment: &Environment) -> Vec<Notice> {
    let known = |name: &str| VARIABLES.iter().any(|variable| variable.name == name);
    let unknown = environment
        .names()
        .filter(|name| name.starts_with("WARPWAY_") && !known(name))
        .map(|name| Notice::Unknown { name: name.into(), nearest: nearest(name) });
    let dead = NOT_HONOURED
        .iter()
        .filter(|(name, _)| environment.get(name).is_some())
        .map(|(name, instead)| Notice::NotHonoured { name, instead });
    unknown.chain(dead).collect()
}

/// The variable with the fewest edits, if they are few.
fn nearest(name: &str) -> Option<&'static str> {
    let stem = |name: &str| name.trim_start_matches("WARPWAY_").to_ascii_uppercase();
    let wanted = stem(name);
    VARIABLES
        .iter()
        .filter(|variable| variable.name.starts_with("WARPWAY_"))
        .map(|variable| (edits(&wanted, &stem(variable.name)), variable.name))
        .min()
        .filter(|(edits, name)| *edits <= 3 && 2 * edits < stem(name).len())
        .map(|(_, name)| name)
}

/// Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`.
fn edits(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let substitute = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let best = substitute.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                if swapped { best.min(rows[i - 2][j - 2] + 1) } else { best }
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        for (a, b, n) in
            [("", "", 0), ("", "abc", 3), ("abc", "abc", 0), ("abc", "acb", 1), ("kitten", "sitting", 3)]
        {
            assert_eq!((edits(a, b), edits(b, a)), (n, n), "{a} {b}");
        }
    }

    #[test]
    fn misspelt_names_are_recognised() {
        for (name, meant) in [
            ("WARPWAY_LOGLEVEL", "WARPWAY_LOG_LEVEL"),
            ("WARPWAY_BOOTSTRAP_TOKNE", "WARPWAY_BOOTSTRAP_TOKEN"),
            ("WARPWAY_SOCKET_IF_NAME", "WARPWAY_SOCKET_IFNAME"),
            ("WARPWAY_rank", "WARPWAY_RANK"),
        ] {
            let environment = [(name, "1")].into_iter().collect();
            assert_eq!(foreign(&environment), [Notice::Unknown { name: name.into(), nearest: Some(meant) }]);
        }
        assert_eq!(nearest("WARPWAY_QUANTUM_FLUX"), None);
        assert_eq!(nearest("WARPWAY_X"), None);
    }

    #[test]
    fn known_and_foreign_names_are_left_alone() {
        let environment =
            [("WARPWAY_RANK", "0"), ("PATH", "/bin"), ("WARPWAY_EMPTY", ""), ("NCCL_DEBUG", "INFO")]
                .into_iter()
                .collect();
        assert_eq!(foreign(&environment), []);
    }
}
