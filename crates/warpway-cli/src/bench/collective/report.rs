//! The table for people, the document for programs, and what is being measured now.

use std::io::IsTerminal as _;
use std::path::PathBuf;

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use warpway_collectives::{Explanation, Function};

use super::arguments::Arguments;
use super::case::{Case, Subject};
use super::figures::{Row, Side};
use super::plot;
use super::table::Columns;

/// Collects rows and shows them. Rank 0 has one.
pub(super) struct Report {
    heading: Heading,
    form: Form,
    columns: Columns,
    plot: Option<PathBuf>,
    rows: Vec<Row>,
    /// Accounts of choices, with what tells them apart.
    explained: Vec<(String, Explanation)>,
    progress: ProgressBar,
}

/// What all rows have in common.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Heading {
    pub(super) benchmark: &'static str,
    pub(super) ranks: u32,
    #[serde(rename = "type")]
    pub(super) data_type: String,
    /// Of functions that fold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) op: Option<String>,
    /// Of functions that have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) root: Option<u32>,
    /// `registered memory` or `slices`.
    pub(super) memory: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Table,
    Document,
    Lines,
}

#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    heading: &'a Heading,
    rows: &'a [Row],
}

/// The line that `cargo xtask bench` compares; its form is described in benchmarks/README.md.
#[derive(Serialize)]
struct Contestant<'a> {
    program: String,
    #[serde(flatten)]
    heading: &'a Heading,
    bytes: u64,
    place: &'static str,
    algorithm: Option<&'a str>,
    wrong: u64,
    unit: &'static str,
    samples: &'a [f64],
}

impl Heading {
    fn new(subject: &Subject, memory: &'static str) -> Self {
        let operation = subject.operation;
        Self {
            benchmark: operation.name(),
            ranks: subject.n_ranks,
            data_type: subject.data_type.to_string(),
            op: operation.reduces().then(|| subject.op.to_string()),
            root: operation.is_rooted().then_some(subject.root),
            memory,
        }
    }

    /// One line for people.
    pub(super) fn line(&self) -> String {
        let mut words = vec![self.benchmark.to_owned(), self.data_type.clone()];
        if self.benchmark == Function::Barrier.name() {
            words.truncate(1);
        }
        words.extend(self.op.clone());
        words.extend(self.root.map(|root| format!("root {root}")));
        words.push(format!("{} ranks", self.ranks));
        words.join(", ")
    }
}

impl Report {
    pub(super) fn new(subject: &Subject, arguments: &Arguments) -> Self {
        let form = match (arguments.contest, arguments.json) {
            (true, _) => Form::Lines,
            (_, true) => Form::Document,
            _ => Form::Table,
        };
        let places: Vec<bool> = arguments.places(subject.operation).collect();
        let columns = Columns {
            places: [places.contains(&false), places.contains(&true)],
            peers: arguments.vs.iter().map(|rival| rival.name().to_owned()).collect(),
            floor: true,
            algorithm: arguments.explain,
        };
        let heading = Heading::new(subject, arguments.memory());
        if form == Form::Table {
            println!("{}, {}\n{}", heading.line(), heading.memory, columns.header());
        }
        let progress = match std::io::stderr().is_terminal() {
            true => ProgressBar::new_spinner().with_style(ProgressStyle::default_spinner()),
            false => ProgressBar::hidden(),
        };
        let plot = arguments.plot.clone();
        Self { heading, form, columns, plot, rows: Vec::new(), explained: Vec::new(), progress }
    }

    /// Says who is measured now.
    pub(super) fn progress(&self, case: Case, name: &str) {
        let place = if case.in_place { "in place" } else { "out of place" };
        self.progress.set_message(format!("{} {} bytes {place}: {name}", self.heading.benchmark, case.bytes));
        self.progress.tick();
    }

    /// Keeps the account of a choice for the end, once for all sizes that it holds for.
    pub(super) fn explain(&mut self, explanation: &Explanation) {
        let Explanation { task, min_bytes, max_bytes, .. } = explanation;
        let key = format!("{} {task:?} {min_bytes} {max_bytes}", explanation.taken());
        if self.explained.iter().all(|(known, _)| *known != key) {
            self.explained.push((key, explanation.clone()));
        }
    }

    /// A row is complete.
    pub(super) fn push(&mut self, row: Row) {
        if self.form == Form::Table {
            self.progress.suspend(|| println!("{}", self.columns.row(&row)));
        }
        self.rows.push(row);
    }

    /// Prints the rest; exit code 1 if anything was wrong, or nothing could be measured.
    pub(super) fn finish(self) -> anyhow::Result<u8> {
        self.progress.finish_and_clear();
        let Self { heading, form, rows, .. } = &self;
        match form {
            Form::Table => self.print_notes(),
            Form::Document => {
                println!("{}", serde_json::to_string_pretty(&Document { heading, rows })?);
            }
            Form::Lines => {
                for (bytes, place, side) in rows.iter().flat_map(sides) {
                    println!("{}", serde_json::to_string(&Contestant::new(heading, bytes, place, side))?);
                }
            }
        }
        if let Some(path) = &self.plot {
            let svg = plot::draw(heading, rows);
            std::fs::write(path, svg).with_context(|| format!("cannot write {}", path.display()))?;
        }
        let measured = rows.iter().flat_map(Row::sides).any(|side| side.unsupported.is_none());
        Ok(u8::from(!measured || rows.iter().any(|row| row.wrong() > 0)))
    }

    /// What the columns do not say: what was left out and why, wrong elements of peers, accounts of choices.
    fn print_notes(&self) {
        let mut notes: Vec<String> = Vec::new();
        let mut note = |text: String| {
            if !notes.contains(&text) {
                notes.push(text);
            }
        };
        for (_, place, side) in self.rows.iter().flat_map(sides) {
            if let Some(why) = &side.unsupported {
                note(format!("{place} place: {why}"));
            }
            for peer in &side.peers {
                if let Some(why) = &peer.unsupported {
                    note(format!("{}: {why}", peer.name));
                } else if peer.in_place != (place == "in") && self.heading.benchmark != "barrier" {
                    let only = if peer.in_place { "in place" } else { "out of place" };
                    note(format!("{}: {only}, the only one that it has", peer.name));
                }
                if peer.wrong > 0 {
                    note(format!("{}: {} wrong elements", peer.name, peer.wrong));
                }
            }
        }
        for note in notes {
            println!("{note}");
        }
        for (_, explanation) in &self.explained {
            println!("\n{}", explanation.to_string().trim_end());
        }
    }
}

/// The sides of a row with their names.
fn sides(row: &Row) -> impl Iterator<Item = (u64, &'static str, &Side)> {
    let sides = [("out", &row.out_of_place), ("in", &row.in_place)];
    sides.into_iter().filter_map(|(place, side)| Some((row.bytes, place, side.as_ref()?)))
}

impl<'a> Contestant<'a> {
    fn new(heading: &'a Heading, bytes: u64, place: &'static str, side: &'a Side) -> Self {
        Self {
            program: format!("warpway {}", env!("CARGO_PKG_VERSION")),
            heading,
            bytes,
            place,
            algorithm: side.algorithm.as_deref(),
            wrong: side.wrong,
            unit: "us",
            samples: &side.time.samples_us,
        }
    }
}
