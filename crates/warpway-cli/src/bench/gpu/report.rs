//! What was measured, as a table with verdicts for people, and as a document.

use std::fmt::Write as _;
use std::io::IsTerminal;

use comfy_table::{CellAlignment, Table};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::figure::{Comparison, Figure, Unit};
use super::origin::Origin;
use super::turns::Series;
use crate::table::STYLE;

/// Collects figures.
pub(super) struct Report {
    figures: Vec<Figure>,
    notes: Vec<String>,
    progress: ProgressBar,
}

#[derive(Serialize)]
struct Document<'a> {
    benchmark: &'static str,
    what: &'static str,
    command: String,
    #[serde(flatten)]
    origin: &'a Origin,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    notes: &'a [String],
    figures: &'a [Figure],
}

impl Report {
    pub(super) fn new() -> Self {
        let progress = if std::io::stderr().is_terminal() {
            ProgressBar::new_spinner().with_style(ProgressStyle::default_spinner())
        } else {
            ProgressBar::hidden()
        };
        Self { figures: Vec::new(), notes: Vec::new(), progress }
    }

    /// Says what is being measured.
    pub(super) fn begin(&self, what: &str) {
        self.progress.set_message(what.to_owned());
        self.progress.tick();
    }

    pub(super) fn push(&mut self, figure: Figure) {
        self.figures.push(figure);
    }

    /// What was left out, and why.
    pub(super) fn note(&mut self, text: String) {
        self.notes.push(text);
    }

    /// A benchmark that could not be made ready.
    pub(super) fn fail(&mut self, benchmark: &'static str, why: &str) {
        let series = Series { name: "all".into(), failed: Some(why.to_owned()), ..Series::default() };
        self.figures.push(Figure::new(benchmark, "set-up", Unit::Microseconds, &series));
    }

    /// For a file.
    pub(super) fn document(&self, origin: &Origin, command: &[String]) -> anyhow::Result<String> {
        Ok(serde_json::to_string_pretty(&self.contents(origin, command))? + "\n")
    }

    /// For a program that reads lines.
    pub(super) fn line(&self, origin: &Origin, command: &[String]) -> anyhow::Result<String> {
        Ok(serde_json::to_string(&self.contents(origin, command))?)
    }

    fn contents<'a>(&'a self, origin: &'a Origin, command: &[String]) -> Document<'a> {
        // The program's name without the folder of this machine.
        let name = |program: &String| program.rsplit('/').next().unwrap_or_default().to_owned();
        let (program, arguments) = command.split_first().map_or_else(Default::default, |(p, a)| (name(p), a));
        Document {
            benchmark: "gpu",
            what: "device headers, driver and communicators between two GPUs of one process, each figure beside its floor in the same \
                   run, contestants in turns; medians over the rounds, ratios of the same round, every word checked",
            command: [&[program], arguments].concat().join(" "),
            origin,
            notes: &self.notes,
            figures: &self.figures,
        }
    }

    /// Prints everything, verdicts last. The exit code: 1 if a word was wrong or a measurement failed.
    pub(super) fn print(&self, origin: &Origin) -> u8 {
        self.progress.finish_and_clear();
        println!("{origin}\n{}", table(&self.figures));
        for note in &self.notes {
            println!("note: {note}");
        }
        let (text, code) = verdicts(&self.figures);
        print!("{text}");
        code
    }
}

fn table(figures: &[Figure]) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE);
    table.set_header([
        "benchmark",
        "case",
        "contestant",
        "median",
        "lowest",
        "highest",
        "p99",
        "unit",
        "ratio",
        "to",
        "target",
    ]);
    for figure in figures {
        // Each comparison has a line; the first one shares that of the figure.
        let first = figure.comparisons.iter().find(|c| c.against.is_some());
        let mut cells = vec![figure.benchmark.to_owned(), figure.case.clone(), figure.contestant.clone()];
        cells.extend(
            [figure.median, figure.lowest, figure.highest, figure.p99].map(|v| number(v, figure.unit)),
        );
        cells.push(figure.unit.text().to_owned());
        cells.push(first.map_or_else(String::new, |c| ratio(c.value)));
        cells.push(first.and_then(|c| c.against.clone()).unwrap_or_default());
        let targets = figure.comparisons.iter().filter_map(|c| Some((c, c.target?)));
        let shown =
            targets.map(
                |(c, target)| {
                    if c.against.is_some() { format!("ratio {target}") } else { target.to_string() }
                },
            );
        cells.push(shown.collect::<Vec<_>>().join(", "));
        table.add_row(cells);
    }
    for column in table.column_iter_mut().skip(3).take(4) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Failures, then misses and hits, then how many of each; the exit code.
fn verdicts(figures: &[Figure]) -> (String, u8) {
    let mut text = String::new();
    for figure in figures {
        let what = || format!("{} ({}): {}", figure.benchmark, figure.case, figure.contestant);
        if figure.wrong > 0 {
            let _ = writeln!(text, "WRONG {}: {} words were not what they should be", what(), figure.wrong);
        }
        if let Some(why) = &figure.failed {
            let _ = writeln!(text, "FAILED {}: {why}", what());
        }
    }
    let code = u8::from(!text.is_empty());
    let judged = || figures.iter().flat_map(|figure| figure.comparisons.iter().map(move |c| (figure, c)));
    let (mut met, mut all) = (0, 0);
    for wanted in [true, false] {
        for (figure, comparison) in judged().filter(|(_, c)| c.is_met() == Some(wanted)) {
            let _ = writeln!(text, "{}", verdict(figure, comparison, wanted));
            all += 1;
            met += u32::from(wanted);
        }
    }
    if all > 0 {
        let _ = writeln!(text, "{met} of {all} targets met");
    }
    (text, code)
}

fn verdict(figure: &Figure, comparison: &Comparison, is_met: bool) -> String {
    let word = if is_met { "PASS" } else { "MISS" };
    let target = comparison.target.map_or_else(String::new, |target| target.to_string());
    let value = match &comparison.against {
        Some(other) => format!("{} of {other}", ratio(comparison.value)),
        None => format!("{} {}", number(comparison.value, figure.unit), figure.unit.text()),
    };
    format!("{word} {} ({}): {}: {value}, target {target}", figure.benchmark, figure.case, figure.contestant)
}

fn ratio(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.3}"))
}

fn number(value: Option<f64>, unit: Unit) -> String {
    let places = match unit {
        Unit::GigabytesPerSecond => 1,
        Unit::Microseconds => 3,
        Unit::Milliseconds => 2,
    };
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.places$}"))
}

/// Powers of 1024 where they are whole.
pub(super) fn size(bytes: u64) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes >= 1 << shift && bytes.is_multiple_of(1 << shift) {
            return format!("{} {unit}", bytes >> shift);
        }
    }
    format!("{bytes} B")
}

#[cfg(test)]
mod tests {
    use super::super::figure::Target;
    use super::*;

    fn series(name: &str, rounds: &[f64]) -> Series {
        let mut samples = rounds.to_vec();
        samples.sort_by(f64::total_cmp);
        Series { name: name.into(), rounds: rounds.to_vec(), samples, ..Series::default() }
    }

    fn figures() -> Vec<Figure> {
        let (own, floor) =
            (series("channel put", &[351.0, 352.0, 350.0]), series("plain stores", &[360.0; 3]));
        let packet = series("LL16 packet", &[0.61, 0.6, 0.7]);
        let case = "256 MiB, both ways, 8 blocks";
        vec![
            Figure::new("put", case, Unit::GigabytesPerSecond, &own).against(
                &own,
                &floor,
                Some(Target::AtLeast(0.98)),
            ),
            Figure::new("put", case, Unit::GigabytesPerSecond, &floor),
            Figure::new("flight", "one way", Unit::Microseconds, &packet).should_be(Target::AtMost(0.65)),
        ]
    }

    #[test]
    fn a_table_shows_figures_and_a_verdict_each_target() {
        let shown = table(&figures()).to_string();
        let lines: Vec<String> =
            shown.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(lines.len(), 5, "{shown}");
        assert_eq!(
            lines[2],
            "put 256 MiB, both ways, 8 blocks channel put 351.0 350.0 352.0 350.0 GB/s 0.975 plain stores ratio ≥ 0.98"
        );
        assert_eq!(lines[4], "flight one way LL16 packet 0.610 0.600 0.700 0.700 µs ≤ 0.65");
        assert_eq!(
            verdicts(&figures()),
            (
                "PASS flight (one way): LL16 packet: 0.610 µs, target ≤ 0.65\n\
                 MISS put (256 MiB, both ways, 8 blocks): channel put: 0.975 of plain stores, target ≥ 0.98\n\
                 1 of 2 targets met\n"
                    .to_owned(),
                0
            )
        );
    }

    #[test]
    fn wrong_words_and_failures_are_the_exit_code() {
        let mut all = figures();
        all.truncate(1);
        all[0].comparisons.clear();
        assert_eq!(verdicts(&all), (String::new(), 0));
        all[0].wrong = 7;
        let (text, code) = verdicts(&all);
        assert_eq!(code, 1);
        assert!(text.starts_with("WRONG put (256 MiB, both ways, 8 blocks): channel put: 7 words"), "{text}");
        all[0].wrong = 0;
        all[0].failed = Some("refused".into());
        assert_eq!(verdicts(&all).1, 1);
    }

    #[test]
    fn sizes_are_shown_as_people_say_them() {
        assert_eq!(
            [16, 1 << 10, 256 << 20, 3 << 30, 1040].map(size),
            ["16 B", "1 KiB", "256 MiB", "3 GiB", "1040 B"]
        );
    }
}
