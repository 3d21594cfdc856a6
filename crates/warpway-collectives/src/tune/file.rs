//! A table as a file: JSON, with a version. What is wrong is told with its line.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use warpway_plan::DataType;

use super::origin::Origin;
use super::table::{Row, Sizes, Table, Timing};
use crate::select::Override;
use crate::task::{Function, MOST_BLOCKS};

/// Of this form.
const VERSION: u32 = 1;

/// A file that is no table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct BadTable {
    /// From 1.
    pub line: usize,
    /// What is wrong there.
    pub why: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    warpway_tuning: u32,
    origin: Origin,
    #[serde(default)]
    overrides: Vec<Entry>,
    measured: Vec<Measured>,
}

/// What every version has.
#[derive(Deserialize)]
struct Head {
    warpway_tuning: u32,
}

#[derive(Serialize, Deserialize, Clone)]
#[serde(try_from = "String", into = "String")]
struct FunctionName(Function);

#[derive(Serialize, Deserialize, Clone)]
#[serde(try_from = "String", into = "String")]
struct TypeName(DataType);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    function: FunctionName,
    #[serde(default)]
    min_bytes: u64,
    #[serde(default = "unlimited")]
    max_bytes: u64,
    algorithm: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    blocks: Option<u32>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Measured {
    function: FunctionName,
    ranks_per_host: Vec<u32>,
    data_type: TypeName,
    in_place: bool,
    sizes: Vec<MeasuredSize>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MeasuredSize {
    bytes: u64,
    fastest: MeasuredTiming,
    #[serde(default)]
    others: Vec<MeasuredTiming>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MeasuredTiming {
    algorithm: String,
    blocks: u32,
    microseconds: f64,
}

fn unlimited() -> u64 {
    u64::MAX
}

impl TryFrom<String> for FunctionName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        Function::from_name(&name).map(Self).ok_or_else(|| format!("there is no function {name:?}"))
    }
}

impl From<FunctionName> for String {
    fn from(name: FunctionName) -> Self {
        name.0.name().to_owned()
    }
}

impl TryFrom<String> for TypeName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        name.parse().map(Self).map_err(|error: warpway_plan::UnknownDataType| error.to_string())
    }
}

impl From<TypeName> for String {
    fn from(name: TypeName) -> Self {
        name.0.name().to_owned()
    }
}

/// What is wrong with measurements, and a word by which the line is found.
struct Mistake {
    word: String,
    why: String,
}

impl Measured {
    fn check(self) -> Result<Sizes, Mistake> {
        let Self { function: FunctionName(function), ranks_per_host, data_type, in_place, sizes } = self;
        let wrong =
            |word: &str, why: String| Mistake { word: word.to_owned(), why: format!("{function}{why}") };
        if ranks_per_host.is_empty() || ranks_per_host.contains(&0) {
            let why = ": ranks_per_host has a number of at least 1 for each host";
            return Err(wrong("\"ranks_per_host\"", why.into()));
        }
        if let Some(pair) = sizes.windows(2).find(|pair| pair[0].bytes >= pair[1].bytes) {
            let (before, after) = (pair[0].bytes, pair[1].bytes);
            let why = format!(": sizes ascend, and {after} bytes come behind {before}");
            return Err(wrong(&after.to_string(), why));
        }
        let mut rows = Vec::with_capacity(sizes.len());
        for MeasuredSize { bytes, fastest, others } in sizes {
            let mut timings = Vec::with_capacity(1 + others.len());
            for MeasuredTiming { algorithm, blocks, microseconds } in std::iter::once(fastest).chain(others) {
                if crate::find(function, &algorithm).is_none() {
                    let why = format!(" at {bytes} bytes: there is no algorithm {algorithm:?}");
                    return Err(wrong(&format!("{algorithm:?}"), why));
                }
                let possible =
                    (1..=MOST_BLOCKS).contains(&blocks) && microseconds.is_finite() && microseconds >= 0.0;
                if !possible {
                    let why = format!(
                        " at {bytes} bytes: {blocks} blocks and {microseconds} µs were never measured"
                    );
                    return Err(wrong(&bytes.to_string(), why));
                }
                timings.push(Timing { algorithm, blocks, microseconds });
            }
            rows.push(Row { bytes, timings });
        }
        Ok(Sizes { function, ranks_per_host, data_type: data_type.0, in_place, rows })
    }

    fn of(sizes: &Sizes) -> Self {
        let timing = |timing: &Timing| MeasuredTiming {
            algorithm: timing.algorithm.clone(),
            blocks: timing.blocks,
            microseconds: timing.microseconds,
        };
        let row = |Row { bytes, timings }: &Row| {
            let mut timings = timings.iter().map(timing);
            timings.next().map(|fastest| MeasuredSize { bytes: *bytes, fastest, others: timings.collect() })
        };
        Self {
            function: FunctionName(sizes.function),
            ranks_per_host: sizes.ranks_per_host.clone(),
            data_type: TypeName(sizes.data_type),
            in_place: sizes.in_place,
            sizes: sizes.rows.iter().filter_map(row).collect(),
        }
    }
}

impl Entry {
    fn check(self) -> Result<Override, String> {
        let Self { function: FunctionName(function), min_bytes, max_bytes, algorithm, blocks } = self;
        if min_bytes > max_bytes {
            return Err(format!(
                "{function}: an override from {min_bytes} to {max_bytes} bytes holds for none"
            ));
        }
        if let Some(blocks) = blocks.filter(|blocks| !(1..=MOST_BLOCKS).contains(blocks)) {
            return Err(format!("{function}: an override to {blocks} blocks: a rank has 1 to {MOST_BLOCKS}"));
        }
        Ok(Override { function, min_bytes, max_bytes, algorithm, blocks })
    }
}

/// The first line from line `start` on that has `word`, from 1.
fn line_of(text: &str, word: &str, start: usize) -> usize {
    let mut lines = text.lines().zip(1..).filter(|(_, at)| *at >= start);
    lines.find(|(line, _)| line.contains(word)).map_or(start.max(1), |(_, at)| at)
}

/// The line of the `number`-th function of a file.
fn line_of_function(text: &str, number: usize) -> usize {
    let mut lines = text.lines().zip(1..).filter(|(line, _)| line.contains("\"function\""));
    lines.nth(number).map_or(1, |(_, at)| at)
}

impl Table {
    /// Reads a file.
    ///
    /// # Errors
    /// The first line that is wrong, and what is.
    pub fn from_json(text: &str) -> Result<Self, BadTable> {
        let bad = |line, why| BadTable { line, why };
        if let Ok(Head { warpway_tuning: found }) = serde_json::from_str(text)
            && found != VERSION
        {
            let why = format!("version {found} of the form is not {VERSION}, which this library reads");
            return Err(bad(line_of(text, "\"warpway_tuning\"", 0), why));
        }
        let file: File = serde_json::from_str(text).map_err(|error| {
            let (line, text) = (error.line(), error.to_string());
            // The position stands before the reason already.
            let why = text.rsplit_once(" at line ").map_or(text.as_str(), |(why, _)| why);
            bad(line, why.to_owned())
        })?;
        // Overrides stand before the measurements, and each has its function.
        let before = file.overrides.len();
        let entry =
            |(at, entry): (usize, Entry)| entry.check().map_err(|why| bad(line_of_function(text, at), why));
        let overrides = file.overrides.into_iter().enumerate().map(entry).collect::<Result<_, _>>()?;
        let check = |(at, measured): (usize, Measured)| {
            let line = |word: &str| line_of(text, word, line_of_function(text, before + at));
            measured.check().map_err(|Mistake { word, why }| bad(line(&word), why))
        };
        let measured: Vec<Sizes> =
            file.measured.into_iter().enumerate().map(check).collect::<Result<_, _>>()?;
        for (at, sizes) in measured.iter().enumerate() {
            if measured[..at].iter().any(|other| other.is_like(sizes)) {
                let why = format!("{}: the same ranks, type and place are measured twice", sizes.function);
                return Err(bad(line_of_function(text, before + at), why));
            }
        }
        Ok(Self { origin: file.origin, overrides, measured })
    }

    /// The file, a line for each timing so that people can read and compare it.
    pub fn to_json(&self) -> String {
        let entry = |entry: &Override| Entry {
            function: FunctionName(entry.function),
            min_bytes: entry.min_bytes,
            max_bytes: entry.max_bytes,
            algorithm: entry.algorithm.clone(),
            blocks: entry.blocks,
        };
        let file = File {
            warpway_tuning: VERSION,
            origin: self.origin.clone(),
            overrides: self.overrides.iter().map(entry).collect(),
            measured: self.measured.iter().map(Measured::of).collect(),
        };
        // Maps with keys that are text, numbers that are finite: there is nothing that JSON cannot say.
        let mut text = serde_json::to_string_pretty(&file).unwrap_or_default();
        let _ = writeln!(text);
        text
    }
}
