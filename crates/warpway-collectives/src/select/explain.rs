//! What else was possible, and why it was not taken.

use std::fmt;

use warpway_plan::DataType;

use super::choice::{Choice, Reason, Taken};
use super::request::Request;
use crate::task::Task;

/// An account of one choice. Its `Display` is for people.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// What was to be done, with the chosen number of blocks.
    pub task: Task,
    /// Bytes of the larger buffer.
    pub bytes: Option<u64>,
    /// What the buffers hold.
    pub data_type: DataType,
    /// The choice is the same from this size on,
    pub min_bytes: u64,
    /// and up to this one.
    pub max_bytes: u64,
    /// All algorithms: the one that is taken first, those that do not fit last.
    pub candidates: Vec<Candidate>,
}

/// An algorithm, and what became of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// Its name.
    pub name: String,
    /// How it goes about it.
    pub summary: String,
    /// What became of it.
    pub verdict: Verdict,
}

/// What became of an algorithm.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Verdict {
    /// It is taken.
    Taken(Reason),
    /// It would be taken if nobody stronger had made a proposal.
    Weaker(Reason),
    /// It is proposed for other sizes, ends included.
    OtherSize((u64, u64), Reason),
    /// It cannot do the task.
    Unfit(String),
}

impl Candidate {
    pub(super) fn new(taken: &Taken, verdict: Verdict) -> Self {
        let summary = match taken {
            Taken::Catalogue(algorithm) => algorithm.summary.to_owned(),
            Taken::Registered(registered) => format!("plan {:?} of the user", registered.plan.plan().name),
        };
        Self { name: taken.name().to_owned(), summary, verdict }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken(reason) => write!(f, "taken: {reason}"),
            Self::Weaker(Reason::First) => f.write_str("possible: no rule asks for it here"),
            Self::Weaker(reason) => write!(f, "possible, but something stronger comes first: {reason}"),
            Self::OtherSize((min, max), reason) => write!(f, "for {}: {reason}", sizes(*min, *max)),
            Self::Unfit(why) => write!(f, "does not fit: {why}"),
        }
    }
}

impl Explanation {
    pub(super) fn new(request: &Request<'_>, choice: &Choice, candidates: Vec<Candidate>) -> Self {
        Self {
            task: request.task.clone().with_blocks(choice.blocks),
            bytes: request.bytes,
            data_type: request.data_type,
            min_bytes: choice.min_bytes,
            max_bytes: choice.max_bytes,
            candidates,
        }
    }

    /// The algorithm that is taken.
    pub fn taken(&self) -> &str {
        self.candidates.first().map_or("", |first| &first.name)
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Task { function, world, root, reduce_op, in_place, n_blocks, packet_blocks: _ } = &self.task;
        write!(f, "{function}")?;
        if let Some(bytes) = self.bytes {
            write!(f, " of {bytes} bytes")?;
        }
        if function.reduces() {
            write!(f, ", {reduce_op}")?;
        }
        write!(f, " of {}", self.data_type)?;
        if function.is_rooted() {
            write!(f, ", root {root}")?;
        }
        let (ranks, hosts) = (world.n_ranks(), world.n_hosts());
        write!(f, ", {}", if *in_place { "in place" } else { "out of place" })?;
        write!(f, ", {ranks} rank{} on {hosts} host{}", plural(ranks), plural(hosts))?;
        writeln!(f, ": {} with {n_blocks} block{}", self.taken(), plural(*n_blocks))?;
        writeln!(f, "  the same for {}", sizes(self.min_bytes, self.max_bytes))?;
        for candidate in &self.candidates {
            writeln!(f, "  {}: {}", candidate.name, candidate.summary)?;
            writeln!(f, "    {}", candidate.verdict)?;
        }
        Ok(())
    }
}

fn plural(n: u32) -> &'static str {
    if n == 1 { "" } else { "s" }
}

fn sizes(min: u64, max: u64) -> String {
    match (min, max) {
        (0, u64::MAX) => "every size".to_owned(),
        (0, max) => format!("up to {max} bytes"),
        (min, u64::MAX) => format!("{min} bytes and more"),
        (min, max) => format!("{min} to {max} bytes"),
    }
}
