//! The form of the result files: documents of `warpway bench <collective> --json`, with where they come from.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use crate::bench::machine::Machine;
use crate::run::root;

/// The version of these files.
pub(super) const VERSION: u32 = 1;

/// All functions and types that were measured together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct File {
    pub(super) version: u32,
    /// Its name; what tells these files from those of other contests.
    pub(crate) collectives: String,
    /// UTC, to the second.
    pub(super) date: String,
    pub(super) commit: String,
    /// Whether the working tree differed from it: such figures are for looking only.
    pub(super) modified: bool,
    pub(super) machine: Machine,
    /// The command that makes such a file.
    pub(super) command: String,
    pub(super) runs: Vec<Run>,
}

/// One function and type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(super) benchmark: String,
    pub(super) ranks: u32,
    #[serde(rename = "type")]
    pub(super) data_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) op: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) root: Option<u32>,
    pub(super) memory: String,
    pub(super) rows: Vec<Row>,
}

/// One size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// Of the larger buffer.
    pub(super) bytes: u64,
    pub(super) count: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) out_of_place: Option<Side>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) in_place: Option<Side>,
}

/// One size in one place, and its peers in the same turns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Side {
    pub(super) median_us: f64,
    pub(super) min_us: f64,
    pub(super) p99_us: f64,
    pub(super) samples_us: Vec<f64>,
    pub(super) gb_per_s: f64,
    pub(super) bus_gb_per_s: f64,
    pub(super) wrong: u64,
    pub(super) algorithm: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) floor: Option<Floor>,
    pub(super) peers: Vec<Peer>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) unsupported: Option<String>,
}

/// What plain copies would take.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Floor {
    pub(super) moved_bytes: f64,
    pub(super) copy_gb_per_s: f64,
    pub(super) us: f64,
    pub(super) share: f64,
}

/// A peer's figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Peer {
    pub(super) name: String,
    pub(super) median_us: f64,
    pub(super) min_us: f64,
    pub(super) p99_us: f64,
    pub(super) samples_us: Vec<f64>,
    pub(super) in_place: bool,
    pub(super) program: Option<String>,
    pub(super) wrong: u64,
    pub(super) ratio: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) unsupported: Option<String>,
}

impl Row {
    /// What was measured: out of place if it was.
    pub(super) fn side(&self) -> Option<&Side> {
        [&self.out_of_place, &self.in_place].into_iter().flatten().find(|side| side.unsupported.is_none())
    }
}

impl Side {
    pub(super) fn peer(&self, name: &str) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.name == name && peer.ratio.is_some())
    }
}

impl Run {
    /// The peers that have a figure anywhere.
    pub(super) fn peers(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for peer in self.rows.iter().filter_map(Row::side).flat_map(|side| &side.peers) {
            if peer.ratio.is_some() && !names.contains(&peer.name.as_str()) {
                names.push(&peer.name);
            }
        }
        names
    }

    /// The program that a peer's figures come from.
    pub(super) fn program(&self, peer: &str) -> Option<&str> {
        let peers = self.rows.iter().filter_map(Row::side).filter_map(|side| side.peer(peer));
        peers.filter_map(|peer| peer.program.as_deref()).next()
    }
}

impl File {
    /// How many ranks there were.
    pub(crate) fn ranks(&self) -> u32 {
        self.runs.first().map_or(0, |run| run.ranks)
    }

    /// Reads a file.
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let file: Self = serde_json::from_str(text)?;
        ensure!(file.version == VERSION, "version {} is not {VERSION}", file.version);
        ensure!(!file.runs.is_empty(), "no runs");
        Ok(file)
    }

    /// Its text: one line per size, so that a diff of two files can be read, and numbers of five digits.
    pub(super) fn text(&self) -> anyhow::Result<String> {
        let head = Self { runs: Vec::new(), ..self.clone() };
        let mut text = serde_json::to_string_pretty(&head)?;
        // The list of runs comes last, and is empty.
        text.truncate(text.rfind("[]").context("no empty list")?);
        text.push_str("[\n");
        for (index, run) in self.runs.iter().enumerate() {
            let head = serde_json::to_string(&Run { rows: Vec::new(), ..run.clone() })?;
            let head = head.strip_suffix("[]}").context("no empty list")?;
            let rows: Vec<String> = run.rows.iter().map(row_text).collect::<anyhow::Result<_>>()?;
            let comma = if index + 1 < self.runs.len() { "," } else { "" };
            let _ = write!(text, "    {head}[\n      {}\n    ]}}{comma}\n", rows.join(",\n      "));
        }
        text.push_str("  ]\n}\n");
        Ok(text)
    }
}

fn row_text(row: &Row) -> anyhow::Result<String> {
    let mut value = serde_json::to_value(row)?;
    round(&mut value);
    Ok(value.to_string())
}

/// Five significant digits: more than one measurement has.
fn round(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Array(values) => values.iter_mut().for_each(round),
        serde_json::Value::Object(fields) => fields.values_mut().for_each(round),
        serde_json::Value::Number(number) if number.is_f64() => {
            let short = number.as_f64().and_then(|number| format!("{number:.4e}").parse::<f64>().ok());
            if let Some(short) = short.and_then(serde_json::Number::from_f64) {
                *number = short;
            }
        }
        _ => {}
    }
}

/// All files of this form, fewest ranks first.
pub(crate) fn all() -> anyhow::Result<Vec<File>> {
    let folder = root().join("benchmarks/results");
    let mut files = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let document: serde_json::Value =
            serde_json::from_str(&text).with_context(|| format!("{} is not JSON", path.display()))?;
        if document.get("collectives").is_some() {
            files.push(File::parse(&text).with_context(|| format!("cannot read {}", path.display()))?);
        }
    }
    files.sort_by(|a, b| (a.ranks(), &a.collectives).cmp(&(b.ranks(), &b.collectives)));
    Ok(files)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Two sizes of one function, against one peer, and a peer without the call.
    pub(crate) fn example() -> File {
        let peer = |us: f64, ratio: f64| {
            serde_json::json!({"name": "Open MPI", "median_us": us, "min_us": us, "p99_us": us, "samples_us": [us],
                "in_place": false, "program": "Open MPI v4", "wrong": 0, "ratio": ratio})
        };
        let none = serde_json::json!({"name": "Gloo", "median_us": 0.0, "min_us": 0.0, "p99_us": 0.0, "samples_us": [],
            "in_place": false, "program": null, "wrong": 0, "ratio": null, "unsupported": "no such call"});
        let side = |us: f64, bus: f64, peer, floor| {
            serde_json::json!({"median_us": us, "min_us": us, "p99_us": us, "samples_us": [us], "gb_per_s": bus,
                "bus_gb_per_s": bus, "wrong": 0, "algorithm": "ring", "floor": floor, "peers": [peer, none]})
        };
        let floor =
            serde_json::json!({"moved_bytes": 1e8, "copy_gb_per_s": 50.0, "us": 1800.0, "share": 0.9});
        let rows = serde_json::json!([
            {"bytes": 8, "count": 2, "out_of_place": side(0.5, 0.016, peer(0.7, 1.4), serde_json::Value::Null)},
            {"bytes": 16_777_216, "count": 4_194_304, "out_of_place": side(2000.0, 8.3886, peer(3000.0, 1.5), floor)},
        ]);
        let file = serde_json::json!({
            "version": 1, "collectives": "c", "date": "2026-11-30T00:01:14Z", "commit": "0123456789abcdef",
            "modified": false, "machine": {"cpu": "CPU", "cores": 2, "kernel": "6", "memory": 1},
            "command": "cargo xtask bench collectives",
            "runs": [{"benchmark": "all_reduce", "ranks": 2, "type": "float32", "op": "sum",
                      "memory": "registered memory", "rows": rows}],
        });
        File::parse(&file.to_string()).unwrap()
    }

    #[test]
    fn a_file_has_a_line_per_size_and_reads_back() {
        let mut file = example();
        file.runs.push(file.runs[0].clone());
        let text = file.text().unwrap();
        assert_eq!(File::parse(&text).unwrap(), file);
        assert_eq!(text.lines().filter(|line| line.contains("\"bytes\":")).count(), 4);
        // More digits than are kept.
        let Some(side) = &mut file.runs[0].rows[0].out_of_place else { panic!("no side") };
        side.median_us = 0.123_456_789;
        let read = File::parse(&file.text().unwrap()).unwrap();
        assert_eq!(read.runs[0].rows[0].side().unwrap().median_us, 0.123_46);
    }
}
