//! Rows of what `warpway bench gpu` has measured: each beside its floor, a plain kernel or the parts it is made of.

use std::fmt::Write as _;
use std::fs;

use anyhow::Context as _;
use serde::Deserialize;

use super::digits;
use crate::run::root;

const FILE: &str = "benchmarks/results/gpu_primitives.json";

/// What the table shows: its name there, the size, and which figure of the document it is.
const SHOWN: [(&str, &str, Key); 7] = [
    ("put, both ways", "256 MiB", ("put", "256 MiB, both ways, 132 blocks", "channel put")),
    ("bulk put, both ways", "256 MiB", ("bulk", "256 MiB, both ways, 132 blocks", "bulk put")),
    ("get, both ways", "256 MiB", ("get", "256 MiB, both ways, 132 blocks", "channel get")),
    ("packet, one way", "4", ("flight", "one way", "LL8 packet")),
    ("signal and wait, one way", "0", ("flight", "one way", "signal, wait, unguarded")),
    ("put and signal by a port channel", "8", ("port", "8 bytes, one way", "port channel, put with signal")),
    (
        "port channel, both ways",
        "256 MiB",
        ("port", "256 MiB, both ways", "port channel, flushed in the end"),
    ),
];

/// Benchmark, case, contestant.
type Key = (&'static str, &'static str, &'static str);

#[derive(Deserialize)]
struct Document {
    date: String,
    machine: Machine,
    figures: Vec<Figure>,
}

#[derive(Deserialize)]
struct Machine {
    gpus: Vec<Gpu>,
}

#[derive(Deserialize)]
struct Gpu {
    name: String,
}

#[derive(Deserialize)]
struct Figure {
    benchmark: String,
    case: String,
    contestant: String,
    unit: String,
    median: Option<f64>,
    lowest: Option<f64>,
    highest: Option<f64>,
    #[serde(default)]
    comparisons: Vec<Comparison>,
}

#[derive(Deserialize)]
struct Comparison {
    against: Option<String>,
}

/// The rows, and the machine with its day.
pub(super) fn rows() -> anyhow::Result<(String, String)> {
    let text = fs::read_to_string(root().join(FILE)).with_context(|| format!("cannot read {FILE}"))?;
    table(&text).with_context(|| format!("cannot use {FILE}"))
}

fn table(text: &str) -> anyhow::Result<(String, String)> {
    let document: Document = serde_json::from_str(text)?;
    let find = |benchmark: &str, case: &str, contestant: &str| {
        let mut all = document.figures.iter();
        let found = all.find(|f| (&*f.benchmark, &*f.case, &*f.contestant) == (benchmark, case, contestant));
        found.with_context(|| format!("it has no figure {benchmark}, {case}, {contestant}"))
    };
    let mut rows = String::new();
    for (name, bytes, (benchmark, case, contestant)) in SHOWN {
        let own = find(benchmark, case, contestant)?;
        let floor = own.comparisons.iter().find_map(|comparison| comparison.against.as_deref());
        let floor = floor.context("a figure is compared with nothing")?;
        let other = find(benchmark, case, floor)?;
        let (own, other) = (figure(own)?, figure(other)?);
        let _ =
            writeln!(rows, "| [GPU: {name}]({FILE}) | 2 | {bytes} | **{own}** | floor {other} ({floor}) |");
    }
    let gpu = document.machine.gpus.first().context("it names no GPU")?;
    let day = document.date.get(..10).unwrap_or(&document.date);
    Ok((rows, format!("{} × {}, {day}", document.machine.gpus.len(), gpu.name)))
}

fn figure(figure: &Figure) -> anyhow::Result<String> {
    let (Some(median), Some(lowest), Some(highest)) = (figure.median, figure.lowest, figure.highest) else {
        anyhow::bail!("{} {} was not measured", figure.benchmark, figure.contestant);
    };
    let unit = if figure.unit == "us" { "µs" } else { &figure.unit };
    Ok(format!("{} {unit} ({} to {})", digits(median), digits(lowest), digits(highest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_stand_beside_their_floors() {
        let figures = SHOWN.iter().flat_map(|(_, _, (benchmark, case, contestant))| {
            let figure = |contestant: &str, median: f64, comparisons: serde_json::Value| {
                serde_json::json!({
                    "benchmark": benchmark, "case": case, "contestant": contestant, "unit": "us",
                    "median": median, "lowest": median / 2.0, "highest": median * 2.0, "comparisons": comparisons,
                })
            };
            let against = serde_json::json!([{"against": null, "value": 1}, {"against": "plain", "value": 1.1}]);
            [figure(contestant, 1.5, against), figure("plain", 1.0, serde_json::json!([]))]
        });
        let mut document = serde_json::json!({
            "date": "2026-11-30T15:12:02Z", "machine": {"gpus": [{"name": "H"}, {"name": "H"}]},
            "figures": figures.collect::<Vec<_>>(),
        });
        let (rows, origin) = table(&document.to_string()).unwrap();
        assert_eq!((rows.lines().count(), &*origin), (SHOWN.len(), "2 × H, 2026-11-30"));
        assert_eq!(
            rows.lines().nth(3).unwrap(),
            "| [GPU: packet, one way](benchmarks/results/gpu_primitives.json) | 2 | 4 | \
             **1.50 µs (0.750 to 3.00)** | floor 1.00 µs (0.500 to 2.00) (plain) |"
        );
        document["figures"][1]["median"] = serde_json::Value::Null;
        assert!(table(&document.to_string()).is_err(), "a floor that was not measured");
        document["figures"] = serde_json::json!([]);
        assert!(table(&document.to_string()).is_err(), "no figures");
    }
}
