//! Which packets of a launch are on their way, and which are there.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::program::{Move, Operand};
use super::result::SpanId;
use crate::ir::Form;

/// Packets by rank and launch.
#[derive(Debug, Default)]
pub(super) struct Packets {
    written: HashMap<(u32, u32), BTreeMap<u64, Written>>,
    waiting: HashMap<(u32, u32), BTreeSet<usize>>,
}

/// A stretch of packets, in bytes of data; its key is the first.
#[derive(Debug, Clone, Copy)]
struct Written {
    end: u64,
    /// When the first packet can be seen, and the last.
    begun: f64,
    /// When the writer would be done if it had the machine to itself.
    expected: f64,
    ready: Option<f64>,
    cause: Option<SpanId>,
}

/// When packets are there, and which span wrote the last of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub(super) at: f64,
    pub(super) expected: f64,
    pub(super) cause: Option<SpanId>,
}

impl Seen {
    /// Share of the packets that the writer had before it at `now`, had it the machine to itself.
    pub(super) fn unwritten(&self, now: f64) -> f64 {
        if self.expected > self.at {
            ((self.expected - now) / (self.expected - self.at)).clamp(0.0, 1.0)
        } else {
            0.0
        }
    }
}

impl Packets {
    /// A move begins to write its packets, the first of which are seen at `at`, and the last at `expected` if nothing delays
    /// it; or, with the span that wrote them, has
    /// written the last, seen at `at`. Gives the ranks where somebody waits.
    pub(super) fn write(
        &mut self,
        round: u32,
        work: &Move,
        slice: Option<(u64, u64)>,
        (at, expected): (f64, f64),
        done: Option<Option<SpanId>>,
    ) -> Vec<u32> {
        let mut ranks = BTreeSet::new();
        let packets = |operand: &&Operand| operand.form == Form::Packets;
        for (number, operand) in (work.n_sources..).zip(work.destinations()) {
            if operand.form != Form::Packets {
                continue;
            }
            let written = self.written.entry((operand.rank, round)).or_default();
            for stretch in work.stretches(slice) {
                let start = stretch.offset(number);
                let new =
                    Written { end: start + stretch.cover, begun: at, expected, ready: None, cause: None };
                let stretch = written.entry(start).or_insert(new);
                if let Some(cause) = done {
                    (stretch.ready, stretch.cause) = (Some(at), cause);
                }
            }
        }
        for operand in work.destinations().iter().filter(packets) {
            if self.waiting.get(&(operand.rank, round)).is_some_and(|waiting| !waiting.is_empty()) {
                ranks.insert(operand.rank);
            }
        }
        ranks.into_iter().collect()
    }

    /// When the first packets of every stretch that a move reads are seen; `None` if some are not on their way yet.
    pub(super) fn begun(
        &self,
        rank: u32,
        round: u32,
        work: &Move,
        slice: Option<(u64, u64)>,
    ) -> Option<Seen> {
        self.latest(rank, round, work, slice, |written| Some(written.begun))
    }

    /// When all packets that a move reads are there.
    pub(super) fn ready(
        &self,
        rank: u32,
        round: u32,
        work: &Move,
        slice: Option<(u64, u64)>,
    ) -> Option<Seen> {
        self.latest(rank, round, work, slice, |written| written.ready)
    }

    fn latest(
        &self,
        rank: u32,
        round: u32,
        work: &Move,
        slice: Option<(u64, u64)>,
        when: impl Fn(&Written) -> Option<f64>,
    ) -> Option<Seen> {
        let mut latest = Seen { at: f64::NEG_INFINITY, expected: f64::NEG_INFINITY, cause: None };
        for (number, operand) in work.sources().iter().enumerate() {
            if operand.form != Form::Packets || operand.rank != rank {
                continue;
            }
            let written = self.written.get(&(rank, round));
            for stretch in work.stretches(slice).filter(|stretch| stretch.bytes > 0) {
                let (mut at, end) = (stretch.offset(number), stretch.offset(number) + stretch.bytes);
                while at < end {
                    let (_, found) = written?.range(..=at).next_back().filter(|(_, found)| found.end > at)?;
                    let seen = when(found)?;
                    if seen > latest.at {
                        latest = Seen { at: seen, expected: found.expected, cause: found.cause };
                    }
                    at = found.end;
                }
            }
        }
        Some(latest)
    }

    /// A thread of `rank` is to look again when packets come.
    pub(super) fn wait(&mut self, rank: u32, round: u32, thread: usize) {
        self.waiting.entry((rank, round)).or_default().insert(thread);
    }

    /// Who is to look again.
    pub(super) fn waiting(&mut self, rank: u32, round: u32) -> BTreeSet<usize> {
        self.waiting.remove(&(rank, round)).unwrap_or_default()
    }

    /// Nobody reads these packets any more.
    pub(super) fn forget(&mut self, rank: u32, round: u32) {
        self.written.remove(&(rank, round));
    }
}
