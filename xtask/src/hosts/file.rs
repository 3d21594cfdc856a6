//! The form of the result file, and what its figures mean.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use crate::bench::machine::Machine;
use crate::bench::median;
use crate::figures::{digits, size};
use crate::run::root;

/// The version of these files.
pub(super) const VERSION: u32 = 1;

/// Least share of iperf3's rate, and most bytes on the wire as a multiple of the fewest.
const RATE_TARGET: f64 = 0.8;
const WIRE_TARGET: f64 = 1.05;

/// A contest between an all-reduce of two hosts and iperf3, in turns. Rates are 10^9 bytes a second in one direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct File {
    pub(super) version: u32,
    /// Its name; what tells these files from those of other contests.
    pub(super) hosts: String,
    /// UTC, to the second.
    pub(super) date: String,
    pub(super) commit: String,
    /// Whether the working tree differed from it: such figures are for looking only.
    pub(super) modified: bool,
    pub(super) machine: Machine,
    /// The command that makes such a file.
    pub(super) command: String,
    pub(super) programs: Vec<String>,
    /// The wire.
    pub(super) link: String,
    /// TCP's congestion control on both hosts, for all contestants.
    pub(super) congestion: String,
    /// What the figures mean, for those who read the file alone.
    pub(super) meaning: Vec<String>,
    pub(super) ranks: u32,
    pub(super) ranks_per_host: u32,
    /// S: bytes of each rank's input, and of its output.
    pub(super) bytes: u64,
    pub(super) algorithm: Option<String>,
    /// Whether the targets are reached, and against which figure of iperf3.
    pub(super) verdict: String,
    pub(super) summary: Summary,
    pub(super) rounds: Vec<Round>,
}

/// One round: each contestant once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Round {
    /// iperf3 with its defaults: what the receiver took.
    pub(super) iperf3_one_way: f64,
    /// iperf3 --bidir: the mean of both directions.
    pub(super) iperf3_both_ways: f64,
    /// Milliseconds of an all_to_all that puts the same bytes on the wire and folds nothing.
    pub(super) exchange_ms: f64,
    /// Milliseconds in which plain copies on all ranks at once read and write what all_reduce does beyond that.
    pub(super) copies_ms: f64,
    /// Milliseconds of a call on the slowest rank: the median over batches.
    pub(super) all_reduce_ms: f64,
    /// S / time.
    pub(super) all_reduce: f64,
    /// Calls of this round, those that were checked or not timed included.
    pub(super) calls: u64,
    /// Bytes that each host has sent meanwhile.
    pub(super) sent: Vec<u64>,
}

/// Medians over the rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Summary {
    pub(super) iperf3_one_way: f64,
    pub(super) iperf3_both_ways: f64,
    pub(super) exchange_ms: f64,
    pub(super) copies_ms: f64,
    pub(super) all_reduce_ms: f64,
    pub(super) all_reduce: f64,
    /// (exchange_ms + copies_ms) / all_reduce_ms: more than 1 where wire and memory work at the same time, or caches help.
    pub(super) floor_share: f64,
    /// Median of the rounds' ratios.
    pub(super) to_one_way: f64,
    pub(super) to_both_ways: f64,
    /// Bytes that the busier host has sent per call, by the fewest that it can send; the worst round.
    pub(super) wire_by_minimum: f64,
}

impl File {
    fn parse(text: &str) -> anyhow::Result<Self> {
        let file: Self = serde_json::from_str(text)?;
        ensure!(file.version == VERSION, "version {} is not {VERSION}", file.version);
        Ok(file)
    }
}

/// All files of this form, by name.
pub(crate) fn all() -> anyhow::Result<Vec<File>> {
    let folder = root().join("benchmarks/results");
    let mut files = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let document: serde_json::Value =
            serde_json::from_str(&text).with_context(|| format!("{} is not JSON", path.display()))?;
        if document.get("hosts").is_some_and(serde_json::Value::is_string) {
            files.push(File::parse(&text).with_context(|| format!("cannot read {}", path.display()))?);
        }
    }
    files.sort_by(|a, b| a.hosts.cmp(&b.hosts));
    Ok(files)
}

/// The chapter of `benchmarks/RESULTS.md`; nothing if there are no files.
pub(crate) fn page(files: &[File]) -> String {
    let Some(first) = files.first() else { return String::new() };
    let mut page = "## Two hosts\n\nall_reduce between network namespaces joined by a veth pair, in turns with iperf3 \
                    ([README.md](README.md) says what the figures mean). GB/s in each direction.\n\n\
                    | file | wire, congestion control | ranks | bytes | all_reduce | iperf3 one way | both ways | wire bytes | floor | verdict |\n\
                    |---|---|--:|--:|--:|--:|--:|--:|--:|---|\n"
        .to_owned();
    for File { hosts, link, congestion, ranks, bytes, summary, verdict, .. } in files {
        let _ = writeln!(
            page,
            "| [{hosts}](results/{hosts}.json) | {link}, {congestion} | {ranks} | {} | **{}** ({} ms) | {} | {} | {:.4} × | {} | {verdict} |",
            size(*bytes),
            digits(summary.all_reduce),
            digits(summary.all_reduce_ms),
            digits(summary.iperf3_one_way),
            digits(summary.iperf3_both_ways),
            summary.wire_by_minimum,
            digits(summary.floor_share),
        );
    }
    let _ = writeln!(
        page,
        "\nFloor: time of an exchange of the same bytes and of plain copies of what is read and written beyond it, by that of \
         the all_reduce. {}, {} cores.\n",
        first.machine.cpu, first.machine.cores
    );
    page
}

impl Round {
    /// 2 (H - 1) / H of the message leave each host at least; with two hosts that is the message.
    fn wire_by_minimum(&self, bytes: u64) -> f64 {
        let most = self.sent.iter().copied().max().unwrap_or(0);
        most as f64 / (self.calls as f64 * bytes as f64)
    }
}

impl Summary {
    pub(super) fn of(rounds: &[Round], bytes: u64) -> Self {
        let of = |value: &dyn Fn(&Round) -> f64| median(&rounds.iter().map(value).collect::<Vec<_>>());
        Self {
            iperf3_one_way: of(&|round| round.iperf3_one_way),
            iperf3_both_ways: of(&|round| round.iperf3_both_ways),
            exchange_ms: of(&|round| round.exchange_ms),
            copies_ms: of(&|round| round.copies_ms),
            all_reduce_ms: of(&|round| round.all_reduce_ms),
            floor_share: of(&|round| (round.exchange_ms + round.copies_ms) / round.all_reduce_ms),
            all_reduce: of(&|round| round.all_reduce),
            to_one_way: of(&|round| round.all_reduce / round.iperf3_one_way),
            to_both_ways: of(&|round| round.all_reduce / round.iperf3_both_ways),
            wire_by_minimum: rounds.iter().map(|round| round.wire_by_minimum(bytes)).fold(0.0, f64::max),
        }
    }

    /// The share of iperf3's rate is judged one way if that is reached, else both ways.
    pub(super) fn verdict(&self) -> String {
        let (against, share) = match self.to_one_way >= RATE_TARGET {
            true => ("one way", self.to_one_way),
            false => ("both ways", self.to_both_ways),
        };
        let word = |reached: bool| if reached { "reached" } else { "missed" };
        format!(
            "rate: {} ({share:.2} of iperf3 {against}, target {RATE_TARGET}); bytes on the wire: {} ({:.4} of the minimum, target {WIRE_TARGET})",
            word(share >= RATE_TARGET),
            word(self.wire_by_minimum <= WIRE_TARGET),
            self.wire_by_minimum
        )
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        format!(
            "all_reduce {:.2} ms, {:.3} GB/s each way; exchange {:.2} + copies {:.2} ms, share {:.2}; iperf3 one way {:.3}, both ways {:.3} GB/s each; \
             ratio to one way {:.3}, to both ways {:.3}; bytes on the wire by the minimum {:.4}",
            self.all_reduce_ms,
            self.all_reduce,
            self.exchange_ms,
            self.copies_ms,
            self.floor_share,
            self.iperf3_one_way,
            self.iperf3_both_ways,
            self.to_one_way,
            self.to_both_ways,
            self.wire_by_minimum
        )
    }
}

/// See [`File::meaning`].
pub(super) fn meaning() -> Vec<String> {
    [
        "all_reduce: S / time. Each direction of the wire carries at least 2 (H - 1) / H x S = S bytes of a call of H = 2 hosts, \
         so that is the rate of each direction, both at once.",
        "iperf3_one_way: iperf3 -c, defaults: one stream in one direction. iperf3_both_ways: iperf3 -c --bidir: one stream \
         in each direction at once, the mean of both rates.",
        "exchange_ms: all_to_all of S bytes, by `push`: as many bytes on the wire, no folds. copies_ms: bytes that the all_reduce's \
         plan reads and writes beyond those of the all_to_all's, by the rate of plain copies on all ranks at once. Where the \
         processors are the limit, all_reduce can take less than the two together only by what the caches hold.",
        "wire_by_minimum: tx_bytes of the busier host's interface, headers and retransmissions included, by calls x S.",
        "Both hosts are namespaces of one machine and share its cores. One way, iperf3 has all of them for one direction; \
         the fair peer of a call that uses both directions is iperf3_both_ways.",
    ]
    .map(str::to_owned)
    .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(one_way: f64, both_ways: f64, rate: f64, sent: [u64; 2]) -> Round {
        Round {
            iperf3_one_way: one_way,
            iperf3_both_ways: both_ways,
            exchange_ms: 0.04,
            copies_ms: 0.04,
            all_reduce_ms: 0.1 / rate,
            all_reduce: rate,
            calls: 10,
            sent: sent.to_vec(),
        }
    }

    #[test]
    fn ratios_are_medians_of_the_rounds_and_bytes_those_of_the_worst() {
        let rounds = [
            round(4.0, 2.0, 1.0, [1000, 1010]),
            round(4.0, 1.0, 2.0, [1040, 1000]),
            round(2.0, 2.0, 1.5, [1000, 1000]),
        ];
        let summary = Summary::of(&rounds, 100);
        assert_eq!((summary.iperf3_one_way, summary.iperf3_both_ways, summary.all_reduce), (4.0, 2.0, 1.5));
        assert_eq!((summary.to_one_way, summary.to_both_ways), (0.5, 0.75));
        assert_eq!(summary.wire_by_minimum, 1.04);
        let verdict = "rate: missed (0.75 of iperf3 both ways, target 0.8); bytes on the wire: reached (1.0400 of the minimum, target 1.05)";
        assert_eq!(summary.verdict(), verdict);
        let fast = Summary { to_one_way: 0.8, wire_by_minimum: 1.06, ..summary };
        let verdict = "rate: reached (0.80 of iperf3 one way, target 0.8); bytes on the wire: missed (1.0600 of the minimum, target 1.05)";
        assert_eq!(fast.verdict(), verdict);
        assert!((summary.floor_share - 1.2).abs() < 1e-9, "{}", summary.floor_share);
    }
}
