//! What the verifier finds, as data.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::fold_roles::FoldRoles;
use crate::ir::{BufferKind, Location};
use crate::repairs::{OperationPlace, OrderedPair, Repairs};

/// What [`verify`](super::verify) says of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Whether it may run.
    pub verdict: Verdict,
    /// The greatest number of folds that a contribution passes through, 1 for one-hop plans; absent for plans
    /// that were not evaluated or fold nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub roundings: Option<u32>,
    /// What averages ask of the folds; for executors.
    #[serde(skip)]
    pub fold_roles: FoldRoles,
    /// The scratch that an accepted plan may share with other plans; for executors.
    #[serde(skip)]
    pub shareable_areas: ShareableAreas,
    /// Of plans with sized chunks: scratch chunks may be smaller than the message's if they hold a multiple of this many
    /// slices of their pipelines, which then share them. Absent: they may not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reused_slices: Option<u64>,
    /// What the executor adds to an accepted plan; empty under the strict profile.
    #[serde(serialize_with = "repairs", skip_serializing_if = "Repairs::is_empty")]
    pub repairs: Repairs,
    /// The sizes for which an accepted plan is proven. An executor refuses others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sizes: Option<Sizes>,
    /// Sorted by rule, rank, block and operation.
    pub diagnostics: Vec<Diagnostic>,
}

impl Report {
    /// The findings of one severity.
    pub fn of(&self, severity: Severity) -> impl Iterator<Item = &Diagnostic> {
        self.diagnostics.iter().filter(move |d| d.severity == severity)
    }

    /// The verdict in a line, with the first reason: where the program wrote the first operation that takes part, and
    /// what to do. All of it is what [`display`](Self::display) shows.
    pub fn summary(&self) -> String {
        let first = self.diagnostics.iter().min_by_key(|d| d.severity).map_or_else(String::new, |d| {
            let at = d.locations.first().map(|at| format!(" ({}:{})", at.file.escape_debug(), at.line));
            let hint = if d.hint.is_empty() { String::new() } else { format!("; hint: {}", d.hint) };
            format!("{d}{}{hint}", at.unwrap_or_default())
        });
        match (self.verdict, self.of(Severity::Error).count()) {
            (Verdict::Accept, _) => "accepted".to_owned(),
            (Verdict::Inconclusive, _) => format!("inconclusive: {first}"),
            (Verdict::Reject, 1) => format!("1 error: {first}"),
            (Verdict::Reject, errors) => format!("{errors} errors, the first: {first}"),
        }
    }
}

/// Areas of scratch in which a plan alone, with its repairs, makes every rank know that every peer has finished the
/// epoch before (V612). What was not examined is not shareable; an area that the plan does not use is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ShareableAreas {
    /// That of raw data.
    pub raw: bool,
    /// That of packets.
    pub packets: bool,
}

/// Message sizes for which a proof holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sizes {
    /// Every size that the plan itself allows.
    Any,
    /// Only those with one of these numbers of bytes per chunk, in ascending order.
    ChunkBytes(Vec<u64>),
    /// Only those with at most so many bytes per chunk.
    ChunkBytesUpTo(u64),
}

impl Sizes {
    /// True if the proof covers chunks of that many bytes.
    pub fn admit(&self, chunk_bytes: u64) -> bool {
        match self {
            Self::Any => true,
            Self::ChunkBytes(sizes) => sizes.binary_search(&chunk_bytes).is_ok(),
            Self::ChunkBytesUpTo(most) => chunk_bytes <= *most,
        }
    }
}

impl Serialize for Sizes {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let mut map = match self {
            Self::Any => return serializer.serialize_str("any"),
            Self::ChunkBytes(_) | Self::ChunkBytesUpTo(_) => serializer.serialize_map(Some(1))?,
        };
        match self {
            Self::Any => {}
            Self::ChunkBytes(sizes) => map.serialize_entry("chunk_bytes", sizes)?,
            Self::ChunkBytesUpTo(most) => map.serialize_entry("chunk_bytes_up_to", most)?,
        }
        map.end()
    }
}

/// Repairs as the report shows them: only those that are made.
fn repairs<S: serde::Serializer>(repairs: &Repairs, serializer: S) -> Result<S::Ok, S::Error> {
    use serde::ser::SerializeMap;
    let place = |p: &OperationPlace| {
        let (index, inner) = p.path;
        Place::op(p.rank, p.block, OpPath { index, inner })
    };
    let pair = |OrderedPair { signal, wait }: &OrderedPair| [place(signal), place(wait)];
    let mut map = serializer.serialize_map(None)?;
    if !repairs.ordered_pairs.is_empty() {
        let pairs: Vec<_> = repairs.ordered_pairs.iter().map(pair).collect();
        map.serialize_entry("ordered_pairs", &pairs)?;
    }
    let flags = [
        ("start_handshake", repairs.start_handshake),
        ("flush_at_end", repairs.flush_at_end),
        ("closing_handshake", repairs.closing_handshake),
    ];
    for (name, _) in flags.iter().filter(|(_, made)| *made) {
        map.serialize_entry(name, &true)?;
    }
    map.end()
}

/// A rule of the verifier, `V101` to `V905`; the list is in docs/plan-rules.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rule(pub u16);

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "V{}", self.0)
    }
}

impl Serialize for Rule {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The plan is rejected.
    Error,
    /// Accepted; what the executor does about it stands in the repairs.
    Warning,
    /// Worth knowing.
    Info,
}

/// Where in the list of a block an operation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpPath {
    /// In the list of the block.
    pub index: u32,
    /// In the body of the pipeline at `index`.
    pub inner: Option<u32>,
}

impl Serialize for OpPath {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.inner {
            None => [self.index].serialize(serializer),
            Some(inner) => [self.index, inner].serialize(serializer),
        }
    }
}

impl fmt::Display for OpPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.inner {
            None => write!(f, "{}", self.index),
            Some(inner) => write!(f, "{}.{inner}", self.index),
        }
    }
}

/// One operation that takes part in a finding.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Place {
    /// Rank.
    pub rank: u32,
    /// Thread block; absent for findings about the rank.
    #[serde(rename = "tb", skip_serializing_if = "Option::is_none")]
    pub block: Option<u32>,
    /// Operation; absent for findings about the block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub op: Option<OpPath>,
    /// Item of the operation's lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
    /// Iteration of the pipeline, where it matters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iteration: Option<u64>,
}

impl Place {
    /// An operation.
    pub fn op(rank: u32, block: u32, op: OpPath) -> Self {
        Self { rank, block: Some(block), op: Some(op), item: None, iteration: None }
    }

    /// A rank as a whole.
    pub fn rank(rank: u32) -> Self {
        Self { rank, block: None, op: None, item: None, iteration: None }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}", self.rank)?;
        if let Some(block) = self.block {
            write!(f, " tb {block}")?;
        }
        if let Some(op) = self.op {
            write!(f, " op {op}")?;
        }
        if let Some(item) = self.item {
            write!(f, " item {item}")?;
        }
        if let Some(iteration) = self.iteration {
            write!(f, " iteration {iteration}")?;
        }
        Ok(())
    }
}

/// Chunks of one rank's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Region {
    /// The rank that owns the buffer.
    pub rank: u32,
    /// Which of its buffers.
    pub buffer: BufferKind,
    /// First chunk and the one after the last.
    pub chunks: (u64, u64),
}

impl Serialize for Region {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut fields = serializer.serialize_struct("Region", 3)?;
        fields.serialize_field("rank", &self.rank)?;
        fields.serialize_field("buffer", self.buffer.name())?;
        fields.serialize_field("chunks", &self.chunks)?;
        fields.end()
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// Which rule.
    pub rule: Rule,
    /// How bad.
    pub severity: Severity,
    /// The operations that take part, the first one first.
    #[serde(rename = "where")]
    pub places: Vec<Place>,
    /// The chunks concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<Region>,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hint: String,
    /// A shortest sequence of steps that shows it, for races, deadlocks and reuse.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub schedule: Vec<String>,
    /// Where the program that built the plan wrote the operations of `places`, as far as known.
    #[serde(skip)]
    pub locations: Vec<Arc<Location>>,
}

impl Diagnostic {
    /// An error without places; the setters below add the rest.
    pub fn error(rule: u16, message: impl Into<String>) -> Self {
        Self {
            rule: Rule(rule),
            severity: Severity::Error,
            places: Vec::new(),
            region: None,
            message: message.into(),
            hint: String::new(),
            schedule: Vec::new(),
            locations: Vec::new(),
        }
    }

    /// The same as a warning.
    pub fn warning(rule: u16, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(rule, message) }
    }

    /// The same as a note.
    pub fn info(rule: u16, message: impl Into<String>) -> Self {
        Self { severity: Severity::Info, ..Self::error(rule, message) }
    }

    /// Adds a place.
    #[must_use]
    pub fn at(mut self, place: Place) -> Self {
        self.places.push(place);
        self
    }

    /// Sets the region.
    #[must_use]
    pub fn region(mut self, region: Region) -> Self {
        self.region = Some(region);
        self
    }

    /// Sets the hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// Sets the schedule.
    #[must_use]
    pub fn schedule(mut self, steps: Vec<String>) -> Self {
        self.schedule = steps;
        self
    }
}

impl fmt::Display for Diagnostic {
    /// One line: rule, places, message.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.rule)?;
        // Many messages begin with the place themselves.
        if let [place] = &self.places[..]
            && self.message.starts_with(&format!("{place} "))
        {
            return write!(f, ": {}", self.message);
        }
        for (at, place) in self.places.iter().enumerate() {
            write!(f, "{} {place}", if at == 0 { "" } else { "," })?;
        }
        write!(f, ": {}", self.message)
    }
}

/// The verdict on a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// No error.
    Accept,
    /// At least one error.
    Reject,
    /// No error, but not all could be examined (V409).
    Inconclusive,
}

impl Verdict {
    /// The exit code of the command: 0, 1 or 2.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Accept => 0,
            Self::Reject => 1,
            Self::Inconclusive => 2,
        }
    }
}
