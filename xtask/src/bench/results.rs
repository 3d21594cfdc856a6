//! The form of measurements: what a benchmark program prints, and the files under `benchmarks/results`.
//! `benchmarks/README.md` describes it for people.

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use super::machine::Machine;

/// The version of result files.
pub(crate) const VERSION: u32 = 1;

/// What a program measured in one run: the line it prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measurement {
    /// Name and version.
    pub(crate) program: String,
    /// What was measured (`"ping_pong"`).
    pub(crate) benchmark: String,
    /// Processes, or threads that act as ranks.
    pub(crate) ranks: u32,
    /// Payload of one operation (of one rank, where ranks have their own).
    pub(crate) bytes: u64,
    /// `"us"` (smaller is better) or `"GB/s"` (10^9 bytes; larger is better).
    pub(crate) unit: Unit,
    /// One figure per batch, in the order they were taken.
    pub(crate) samples: Vec<f64>,
    /// Everything else that the program says about the run.
    #[serde(flatten)]
    pub(crate) more: serde_json::Map<String, serde_json::Value>,
}

/// Units of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Unit {
    /// Microseconds.
    #[serde(rename = "us")]
    Microseconds,
    /// 10^9 bytes per second.
    #[serde(rename = "GB/s")]
    GigabytesPerSecond,
}

impl Unit {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Microseconds => "µs",
            Self::GigabytesPerSecond => "GB/s",
        }
    }
}

impl Measurement {
    /// Reads a program's output: its last line that is a measurement; other lines are its log.
    pub(crate) fn parse(output: &str) -> anyhow::Result<Self> {
        let line = output.lines().rev().find(|line| line.starts_with('{')).context("no line of JSON")?;
        let read: Self = serde_json::from_str(line).context("not a measurement")?;
        ensure!(!read.samples.is_empty(), "no samples");
        // JSON has no infinities, but a program may print 1e999 or a negative time.
        ensure!(
            read.samples.iter().all(|sample| sample.is_finite() && *sample > 0.0),
            "samples must be positive"
        );
        Ok(read)
    }

    /// True if `other` measured the same thing, so that the two may be compared.
    pub(crate) fn is_comparable(&self, other: &Self) -> bool {
        (&self.benchmark, self.ranks, self.bytes, self.unit)
            == (&other.benchmark, other.ranks, other.bytes, other.unit)
    }
}

/// All runs of one command in a contest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Series {
    /// The command, as given.
    pub(crate) command: String,
    /// Median of the runs' medians: the figure.
    pub(crate) median: f64,
    /// Median of each run, in order.
    pub(crate) medians: Vec<f64>,
    /// The runs.
    pub(crate) runs: Vec<Measurement>,
}

impl Series {
    /// Of at least one run, all of the same thing.
    pub(crate) fn new(command: String, runs: Vec<Measurement>) -> anyhow::Result<Self> {
        let first = runs.first().context("a series needs a run")?;
        ensure!(runs.iter().all(|run| run.is_comparable(first)), "{command}: runs measured different things");
        let medians: Vec<f64> = runs.iter().map(|run| median(&run.samples)).collect();
        Ok(Self { command, median: median(&medians), medians, runs })
    }
}

/// One file under `benchmarks/results`: a contest on one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ResultFile {
    /// [`VERSION`].
    pub(crate) version: u32,
    /// Name of the contest.
    pub(crate) contest: String,
    /// UTC, to the second (`2026-11-30T00:01:14Z`).
    pub(crate) date: String,
    /// The repository's commit.
    pub(crate) commit: String,
    /// Whether the working tree differed from it: such figures are for looking only.
    pub(crate) modified: bool,
    /// Where.
    pub(crate) machine: Machine,
    /// Order of the runs: indices into `series`, A B A B ….
    pub(crate) order: Vec<usize>,
    /// One per command.
    pub(crate) series: Vec<Series>,
}

impl ResultFile {
    /// Reads a file.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let file: Self = serde_json::from_str(text)?;
        ensure!(file.version == VERSION, "version {} is not {VERSION}", file.version);
        Ok(file)
    }
}

/// Of at least one sample; NaN for none.
pub(crate) fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.len() / 2, sorted.len() % 2) {
        (0, 0) => f64::NAN,
        (middle, 0) => (sorted[middle - 1] + sorted[middle]) / 2.0,
        (middle, _) => sorted[middle],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"program":"P 1","benchmark":"ping_pong","ranks":2,"bytes":8,"unit":"us","samples":[3,1,2.5],"streams":4}"#;

    #[test]
    fn medians_of_odd_even_and_no_samples() {
        assert_eq!(median(&[3.0]), 3.0);
        assert_eq!(median(&[9.0, 1.0, 4.0]), 4.0);
        assert_eq!(median(&[8.0, 1.0, 4.0, 2.0]), 3.0);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn measurements_are_read_among_other_lines() {
        let read = Measurement::parse(&format!("warming up\n{LINE}\nbye\n")).unwrap();
        assert_eq!((read.program.as_str(), read.ranks, read.bytes), ("P 1", 2, 8));
        assert_eq!((read.unit, read.samples.as_slice()), (Unit::Microseconds, [3.0, 1.0, 2.5].as_slice()));
        assert_eq!(read.more["streams"], 4);
        assert_eq!(Measurement::parse(&serde_json::to_string(&read).unwrap()).unwrap(), read);
    }

    #[test]
    fn what_is_no_measurement_is_refused() {
        for (from, to) in
            [("[3,1,2.5]", "[]"), ("[3,1", "[0,1"), ("[3", "[-3"), ("\"us\"", "\"s\""), ("{", "")]
        {
            assert!(Measurement::parse(&LINE.replacen(from, to, 1)).is_err(), "{to}");
        }
        assert!(Measurement::parse("").is_err());
    }

    #[test]
    fn a_series_is_the_median_of_medians_of_one_thing() {
        let run =
            |samples: &[f64]| Measurement { samples: samples.to_vec(), ..Measurement::parse(LINE).unwrap() };
        let runs = vec![run(&[1.0, 2.0, 90.0]), run(&[7.0]), run(&[3.0, 3.0])];
        let series = Series::new("p".into(), runs.clone()).unwrap();
        assert_eq!((series.median, series.medians.as_slice()), (3.0, [2.0, 7.0, 3.0].as_slice()));
        let other = Measurement { bytes: 16, ..run(&[1.0]) };
        assert!(Series::new("p".into(), [runs, vec![other]].concat()).is_err());
        assert!(Series::new("p".into(), Vec::new()).is_err());
    }
}
