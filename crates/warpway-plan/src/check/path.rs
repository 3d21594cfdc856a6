//! Where in a file something is said.

use std::fmt;

use crate::verify::{OpPath, Place};

/// One step into the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// A key that the format knows.
    Key(&'static str),
    /// A key that it does not know.
    Unknown(String),
    /// A position in a list, from 0.
    Index(usize),
}

/// The steps from the top, displayed as `$.gpus[1].threadblocks[0].ops[3]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Path(Vec<Step>);

impl Path {
    pub(crate) fn push(&mut self, step: Step) {
        self.0.push(step);
    }

    pub(crate) fn pop(&mut self) {
        self.0.pop();
    }

    /// The position in the innermost list.
    pub(crate) fn index(&self) -> Option<u64> {
        self.0.iter().rev().find_map(|step| match step {
            Step::Index(index) => Some(*index as u64),
            _ => None,
        })
    }

    /// How often a key occurs on the way.
    pub(crate) fn count(&self, key: &str) -> usize {
        self.0.iter().filter(|step| matches!(step, Step::Key(known) if *known == key)).count()
    }

    /// The rank, block and operation on the way; `None` above the ranks.
    pub(crate) fn place(&self) -> Option<Place> {
        let mut place: Option<Place> = None;
        for pair in self.0.windows(2) {
            let [Step::Key(list), Step::Index(index)] = pair else { continue };
            let number = u32::try_from(*index).unwrap_or(u32::MAX);
            match (*list, &mut place) {
                ("gpus", None) => place = Some(Place::rank(number)),
                ("threadblocks", Some(place)) => place.block = Some(number),
                ("ops", Some(place)) => {
                    place.op = Some(match place.op {
                        None => OpPath { index: number, inner: None },
                        Some(outer) => OpPath { inner: Some(number), ..outer },
                    });
                }
                _ => {}
            }
        }
        place
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("$")?;
        for step in &self.0 {
            match step {
                Step::Key(key) => write!(f, ".{key}")?,
                Step::Unknown(key) => {
                    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
                    match !key.is_empty() && key.chars().all(plain) {
                        true => write!(f, ".{}", Clipped(key))?,
                        false => write!(f, "[\"{}\"]", Clipped(key))?,
                    }
                }
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

/// Text from a file, fit for a line of a report: control characters escaped, at most 60 characters.
pub(crate) struct Clipped<'t>(pub(crate) &'t str);

impl fmt::Display for Clipped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LONGEST: usize = 60;
        for c in self.0.chars().take(LONGEST) {
            write!(f, "{}", c.escape_debug())?;
        }
        if self.0.chars().nth(LONGEST).is_some() {
            f.write_str("…")?;
        }
        Ok(())
    }
}
