//! What is wrong with a plan, and where.

use std::fmt;

use super::path::{Path, Step};
use crate::verify::{Diagnostic, Place};

/// One violation of the rules V101 to V111.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Number of the rule: 105 is V105.
    pub rule: u16,
    /// Where the file says it, or would: `$.gpus[1].threadblocks[0].ops[3].src_buff[0].index`.
    pub path: String,
    /// The rank, block and operation of that path; `None` for what concerns the whole plan.
    pub place: Option<Place>,
    /// What stands there.
    pub found: String,
    /// What should.
    pub expected: String,
}

impl Finding {
    /// False for what is only noted: keys without a meaning (V106).
    pub fn is_error(&self) -> bool {
        self.rule != 106
    }
}

impl From<Finding> for Diagnostic {
    fn from(finding: Finding) -> Self {
        let Finding { rule, path, place, found, expected } = &finding;
        let message = format!("{path}: found {found}");
        let diagnostic = match finding.is_error() {
            true => Self::error(*rule, message),
            false => Self::warning(*rule, message),
        };
        let diagnostic = diagnostic.hint(format!("expected {expected}"));
        match place {
            Some(place) => diagnostic.at(place.clone()),
            None => diagnostic,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "V{}: {}: found {}, expected {}", self.rule, self.path, self.found, self.expected)
    }
}

/// Findings under way, and the place that is being looked at.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) path: Path,
    errors: Vec<Finding>,
    warnings: Vec<Finding>,
    /// All errors, kept or not.
    n_errors: u64,
    n_warnings: u64,
}

impl Notes {
    /// As many errors, and as many warnings, are kept; a file made of nothing else must not fill the memory.
    pub(crate) const KEPT: usize = 100;

    /// Something about the place that is being looked at.
    pub(crate) fn note(&mut self, rule: u16, found: impl fmt::Display, expected: impl fmt::Display) {
        let warning = rule == 106;
        let (list, count) = match warning {
            true => (&mut self.warnings, &mut self.n_warnings),
            false => (&mut self.errors, &mut self.n_errors),
        };
        *count += 1;
        if list.len() < Self::KEPT {
            list.push(Finding {
                rule,
                path: self.path.to_string(),
                place: self.path.place(),
                found: found.to_string(),
                expected: expected.to_string(),
            });
        }
    }

    /// Something about one key of the object that is being looked at.
    pub(crate) fn note_key(
        &mut self,
        key: &'static str,
        rule: u16,
        found: impl fmt::Display,
        expected: impl fmt::Display,
    ) {
        self.within(Step::Key(key), |notes| notes.note(rule, found, expected));
    }

    /// Looks at a place below.
    pub(crate) fn within<T>(&mut self, step: Step, look: impl FnOnce(&mut Self) -> T) -> T {
        self.path.push(step);
        let result = look(self);
        self.path.pop();
        result
    }

    /// Number of errors so far.
    pub(crate) fn n_errors(&self) -> u64 {
        self.n_errors
    }

    /// Errors and warnings, and how many of each there were beyond those kept.
    pub(crate) fn finish(self) -> Noted {
        Noted {
            more_errors: self.n_errors - self.errors.len() as u64,
            more_warnings: self.n_warnings - self.warnings.len() as u64,
            errors: self.errors,
            warnings: self.warnings,
        }
    }
}

/// What [`Notes`] has come to.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    pub(crate) errors: Vec<Finding>,
    pub(crate) more_errors: u64,
    pub(crate) warnings: Vec<Finding>,
    pub(crate) more_warnings: u64,
}
