//! Rows of results, as a table for people or a document for programs.

use std::io::IsTerminal;

use comfy_table::{CellAlignment, ColumnConstraint, Table};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::statistics::Samples;
use crate::table::STYLE;

/// One measured size.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    /// `all_gather`, `put`, …
    pub(super) benchmark: String,
    /// `shared`, `tcp` or `none`.
    pub(super) transport: &'static str,
    pub(super) blocks: u32,
    /// Bytes of the larger buffer; 0 where size has no meaning.
    pub(super) bytes: u64,
    pub(super) median_us: f64,
    pub(super) min_us: f64,
    pub(super) p99_us: f64,
    /// bytes / median, 10⁹ bytes a second; `None` without bytes.
    pub(super) gb_per_s: Option<f64>,
    /// What each link carries; `None` where the benchmark has no such notion.
    pub(super) bus_gb_per_s: Option<f64>,
    /// Events a second in millions, for rates.
    pub(super) million_per_s: Option<f64>,
    /// Wrong elements over all ranks and checked rounds.
    pub(super) errors: u64,
    pub(super) samples_us: Vec<f64>,
}

impl Row {
    pub(super) fn new(benchmark: impl Into<String>, bytes: u64, samples: &Samples) -> Self {
        let median = samples.median();
        Self {
            benchmark: benchmark.into(),
            transport: "none",
            blocks: 1,
            bytes,
            median_us: median,
            min_us: samples.min(),
            p99_us: samples.p99(),
            gb_per_s: (bytes > 0 && median > 0.0).then(|| bytes as f64 / median / 1e3),
            bus_gb_per_s: None,
            million_per_s: None,
            errors: 0,
            samples_us: samples.sorted().to_vec(),
        }
    }
}

/// The line that `cargo xtask bench` compares; its form is described in benchmarks/README.md.
#[derive(Serialize)]
struct Contestant<'a> {
    program: String,
    benchmark: &'a str,
    ranks: u32,
    bytes: u64,
    unit: &'static str,
    samples: Vec<f64>,
    transport: &'a str,
    blocks: u32,
    errors: u64,
}

impl<'a> Contestant<'a> {
    fn new(row: &'a Row, ranks: u32) -> Self {
        // Large writes are compared by rate, everything else by time.
        let by_rate = matches!(row.benchmark.as_str(), "put" | "memcpy");
        let rate = |us: &f64| row.bytes as f64 / us / 1e3;
        let warpway = |way: &str| format!("warpway {}{way}", env!("CARGO_PKG_VERSION"));
        let (program, benchmark) = match row.benchmark.as_str() {
            "packets" => (warpway(" packets"), "ping_pong"),
            "semaphore_barrier" => (warpway(" semaphores"), "barrier"),
            "memcpy" => ("memcpy".to_owned(), "put"),
            "put" if row.transport == "tcp" => (warpway(""), "tcp_stream"),
            other => (warpway(""), other),
        };
        Self {
            program,
            benchmark,
            ranks,
            bytes: row.bytes,
            unit: if by_rate { "GB/s" } else { "us" },
            samples: row.samples_us.iter().map(|us| if by_rate { rate(us) } else { *us }).collect(),
            transport: row.transport,
            blocks: row.blocks,
            errors: row.errors,
        }
    }
}

#[derive(Serialize)]
struct Document<'a> {
    ranks: u32,
    rows: &'a [Row],
}

/// How rows are printed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Form {
    Table,
    Document,
    /// For `cargo xtask bench`.
    Lines,
}

/// Collects rows; only rank 0 shows anything.
pub(super) struct Report {
    ranks: u32,
    form: Form,
    quiet: bool,
    rows: Vec<Row>,
    progress: ProgressBar,
}

impl Report {
    pub(super) fn new(rank: u32, ranks: u32, form: Form) -> Self {
        let quiet = rank != 0;
        let progress = if quiet || !std::io::stderr().is_terminal() {
            ProgressBar::hidden()
        } else {
            ProgressBar::new_spinner().with_style(ProgressStyle::default_spinner())
        };
        Self { ranks, form, quiet, rows: Vec::new(), progress }
    }

    /// Says what is being measured.
    pub(super) fn begin(&self, benchmark: &str, bytes: u64) {
        self.progress.set_message(format!("{benchmark} {bytes} bytes"));
        self.progress.tick();
    }

    pub(super) fn push(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Prints everything; exit code 1 if anything was wrong.
    pub(super) fn finish(self) -> anyhow::Result<u8> {
        self.progress.finish_and_clear();
        let wrong = self.rows.iter().any(|row| row.errors > 0);
        if self.quiet {
            return Ok(u8::from(wrong));
        }
        match self.form {
            Form::Table => println!("{} ranks\n{}", self.ranks, table(&self.rows)),
            Form::Document => {
                println!(
                    "{}",
                    serde_json::to_string_pretty(&Document { ranks: self.ranks, rows: &self.rows })?
                );
            }
            Form::Lines => {
                for row in &self.rows {
                    println!("{}", serde_json::to_string(&Contestant::new(row, self.ranks))?);
                }
            }
        }
        Ok(u8::from(wrong))
    }
}

/// Columns in which no row has a figure are left out.
fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE);
    table.set_header([
        "benchmark",
        "transport",
        "blocks",
        "bytes",
        "median µs",
        "min µs",
        "p99 µs",
        "GB/s",
        "bus GB/s",
        "M/s",
        "wrong",
    ]);
    let number = |value: Option<f64>| value.map_or(String::new(), |v| format!("{v:.3}"));
    for row in rows {
        table.add_row([
            row.benchmark.clone(),
            row.transport.to_owned(),
            row.blocks.to_string(),
            if row.bytes == 0 { String::new() } else { row.bytes.to_string() },
            number(Some(row.median_us)),
            number(Some(row.min_us)),
            number(Some(row.p99_us)),
            number(row.gb_per_s),
            number(row.bus_gb_per_s),
            number(row.million_per_s),
            row.errors.to_string(),
        ]);
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let empty = [
        rows.iter().all(|row| row.bytes == 0),
        rows.iter().all(|row| row.gb_per_s.is_none()),
        rows.iter().all(|row| row.bus_gb_per_s.is_none()),
        rows.iter().all(|row| row.million_per_s.is_none()),
    ];
    for (index, empty) in [3, 7, 8, 9].into_iter().zip(empty) {
        if let Some(column) = table.column_mut(index).filter(|_| empty) {
            column.set_constraint(ColumnConstraint::Hidden);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_line_per_row_and_no_empty_columns() {
        let samples = || Samples::new(vec![2.0; 3]);
        let mut all_gather = Row::new("all_gather", 4096, &samples());
        all_gather.transport = "shared";
        all_gather.bus_gb_per_s = Some(1.5);
        let shown = table(&[Row::new("barrier", 0, &samples()), all_gather]).to_string();
        let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines.len(), 4, "{shown}");
        assert_eq!(
            lines[0].join(" "),
            "benchmark transport blocks bytes median µs min µs p99 µs GB/s bus GB/s wrong"
        );
        assert_eq!(lines[2].join(" "), "barrier none 1 2.000 2.000 2.000 0");
        assert_eq!(lines[3].join(" "), "all_gather shared 1 4096 2.000 2.000 2.000 2.048 1.500 0");
    }
}
