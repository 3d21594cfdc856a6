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
    /// The thread that writes.
    writer: Option<usize>,
}

/// When packets are there, and which span wrote the last of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub(super) at: f64,
    pub(super) expected: f64,
    pub(super) cause: Option<SpanId>,
    pub(super) writer: Option<usize>,
}

/// How much longer than the writer a reader may take by itself and still stay right behind it.
const HELD_UP: f64 = 1.25;

/// A read of packets that are still being written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Chase {
    /// How long the read takes.
    pub(super) reader: f64,
    /// How long the writer takes from now on, if the reader delays it.
    pub(super) writer: Option<f64>,
}

impl Seen {
    /// Of a read that begins at `now` and takes `alone` if all is written, `streamed` if it follows the writer line by line.
    ///
    /// A reader that is faster catches up with the writer at some place; from there on both wait for each line. One that
    /// begins right behind the writer and is little slower by itself stays there, since it holds the writer up.
    pub(super) fn chase(&self, now: f64, alone: f64, streamed: f64) -> Chase {
        let (left, all) = (self.expected - now, self.expected - self.at);
        let apart = Chase { reader: alone, writer: None };
        if left <= 0.0 || all <= 0.0 || streamed <= alone {
            return apart;
        }
        let lead = (1.0 - left / all).max(0.0);
        let nearing = 1.0 / alone - 1.0 / all;
        let follows = lead <= 0.0 && alone <= HELD_UP * all;
        if !follows && lead >= nearing * left {
            return apart;
        }
        let meets = if lead > 0.0 { lead / nearing } else { 0.0 };
        let together = (1.0 - meets / alone).max(0.0) * streamed.max(all);
        let reader = (meets + together).max(alone);
        Chase { reader, writer: (reader > left).then_some(reader) }
    }
}

impl Packets {
    /// A move of a thread begins to write its packets, the first of which are seen at `at`, and the last at `expected` if
    /// nothing delays it; or, with the span that wrote them, has written the last, seen at `at`. Gives the ranks where
    /// somebody waits.
    pub(super) fn write(
        &mut self,
        round: u32,
        work: &Move,
        slice: Option<(u64, u64)>,
        (at, expected): (f64, f64),
        (writer, done): (Option<usize>, Option<Option<SpanId>>),
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
                let end = start + stretch.cover;
                let new = Written { end, begun: at, expected, ready: None, cause: None, writer };
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
        let never = f64::NEG_INFINITY;
        let mut latest = Seen { at: never, expected: never, cause: None, writer: None };
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
                        let Written { expected, cause, writer, .. } = *found;
                        latest = Seen { at: seen, expected, cause, writer };
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Writing takes from 100 to 200.
    fn chase(now: f64, alone: f64, streamed: f64) -> (f64, Option<f64>) {
        let seen = Seen { at: 100.0, expected: 200.0, cause: None, writer: Some(0) };
        let Chase { reader, writer } = seen.chase(now, alone, streamed);
        (reader, writer)
    }

    #[test]
    fn a_reader_right_behind_the_writer_delays_both() {
        assert_eq!(chase(100.0, 100.0, 400.0), (400.0, Some(400.0)), "from the first line on");
        assert_eq!(chase(100.0, 50.0, 400.0), (400.0, Some(400.0)));
        assert_eq!(chase(100.0, 101.0, 400.0), (400.0, Some(400.0)), "little slower by itself");
        assert_eq!(chase(100.0, 126.0, 400.0), (126.0, None), "it falls behind");
        assert_eq!(chase(200.0, 50.0, 400.0), (50.0, None), "all is written");
        assert_eq!(chase(150.0, 100.0, 400.0), (100.0, None), "as fast as the writer, half behind");
        // Half is written; twice as fast: at 200 it would be done with all, just as the writer.
        assert_eq!(chase(150.0, 50.0, 400.0), (50.0, None));
        // Four times as fast: half / (3 per 100) = 50 / 3 later two thirds are read, the rest takes a third of 400.
        let (reader, writer) = chase(150.0, 25.0, 400.0);
        assert!((reader - (50.0 / 3.0 + 400.0 / 3.0)).abs() < 1e-9, "{reader}");
        assert_eq!(writer, Some(reader));
        assert_eq!(chase(100.0, 50.0, 80.0), (100.0, None), "the writer itself is slower than that");
    }
}
