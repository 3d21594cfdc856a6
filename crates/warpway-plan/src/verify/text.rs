//! A report as people read it.

use std::fmt;

use super::report::{Diagnostic, Place, Report, Severity, Sizes, Verdict};
use crate::ir::Plan;
use crate::notation::Notation;
use crate::repairs::Repairs;

/// A report as text, several lines for each finding: rule and message; the operations that take part, each with
/// what it does and where its program wrote it; the chunks; the steps that show it; what to do about it. The last
/// lines say the verdict and what it rests on.
#[derive(Debug, Clone, Copy)]
pub struct ReportText<'a> {
    report: &'a Report,
    plan: Option<&'a Plan>,
    colours: bool,
}

impl Report {
    /// The whole report for people, as `warpway plan verify` prints it. With the plan that it is about, it shows the
    /// operations and not only their places.
    pub fn display<'a>(&'a self, plan: Option<&'a Plan>) -> ReportText<'a> {
        ReportText { report: self, plan, colours: false }
    }
}

impl ReportText<'_> {
    /// Severities and verdict in the colours of a terminal.
    #[must_use]
    pub fn with_colours(self, colours: bool) -> Self {
        Self { colours, ..self }
    }

    fn verdict(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.report;
        let count = |severity, one: &str| match report.of(severity).count() {
            0 => None,
            1 => Some(format!("1 {one}")),
            n => Some(format!("{n} {one}s")),
        };
        let named = [(Severity::Error, "error"), (Severity::Warning, "warning"), (Severity::Info, "note")];
        let counts: Vec<String> =
            named.into_iter().filter_map(|(severity, one)| count(severity, one)).collect();
        let counts = if counts.is_empty() { "no findings".to_owned() } else { counts.join(", ") };
        let (verdict, code) = match report.verdict {
            Verdict::Accept => ("accepted", "32"),
            Verdict::Reject => ("rejected", "31"),
            Verdict::Inconclusive => ("inconclusive", "33"),
        };
        if let Some(plan) = self.plan {
            write!(f, "{}: ", plan.name.escape_debug())?;
        }
        writeln!(f, "{}: {counts}", self.paint(verdict, code))
    }

    fn finding(
        &self,
        f: &mut fmt::Formatter<'_>,
        notation: Option<&Notation<'_>>,
        diagnostic: &Diagnostic,
    ) -> fmt::Result {
        let severity = match diagnostic.severity {
            Severity::Error => self.paint("error", "31"),
            Severity::Warning => self.paint("warning", "33"),
            Severity::Info => self.paint("note", "36"),
        };
        writeln!(f, "{severity} {}: {}", diagnostic.rule, diagnostic.message)?;
        for place in &diagnostic.places {
            write!(f, "    {place}")?;
            if let Some(notation) = notation {
                operation(f, notation, place)?;
            }
            writeln!(f)?;
        }
        if let Some(region) = &diagnostic.region {
            let (first, end) = region.chunks;
            writeln!(f, "    in rank {} {}[{first}..{end}]", region.rank, region.buffer)?;
        }
        for step in &diagnostic.schedule {
            writeln!(f, "    | {step}")?;
        }
        if !diagnostic.hint.is_empty() {
            writeln!(f, "    -> {}", diagnostic.hint)?;
        }
        Ok(())
    }

    fn paint(&self, word: &str, code: &str) -> String {
        if self.colours { format!("\x1b[{code}m{word}\x1b[0m") } else { word.to_owned() }
    }
}

impl fmt::Display for ReportText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let notation = self.plan.map(Notation::new);
        for diagnostic in &self.report.diagnostics {
            self.finding(f, notation.as_ref(), diagnostic)?;
        }
        self.verdict(f)?;
        if let Some(roundings) = self.report.roundings {
            let times = if roundings == 1 { "once".to_owned() } else { format!("{roundings} times") };
            writeln!(f, "a result is rounded at most {times} on its way")?;
        }
        match &self.report.sizes {
            None | Some(Sizes::Any) => {}
            Some(Sizes::ChunkBytes(sizes)) => {
                let sizes: Vec<String> = sizes.iter().map(u64::to_string).collect();
                writeln!(f, "proven only for chunks of {} bytes", sizes.join(", "))?;
            }
            Some(Sizes::ChunkBytesUpTo(most)) => {
                writeln!(f, "proven only for chunks of at most {most} bytes")?;
            }
        }
        if let Some(slices) = self.report.reused_slices {
            let each = if slices == 1 { "every slice".to_owned() } else { format!("every {slices} slices") };
            writeln!(f, "scratch may be smaller than a chunk: pipelines may come back to it after {each}")?;
        }
        repairs(&self.report.repairs).iter().try_for_each(|repair| writeln!(f, "the executor adds: {repair}"))
    }
}

/// What an operation does, and where its program wrote it.
fn operation(f: &mut fmt::Formatter<'_>, notation: &Notation<'_>, place: &Place) -> fmt::Result {
    let (Some(block), Some(op)) = (place.block, place.op) else { return Ok(()) };
    let found = notation.operation(place.rank, block, op).zip(notation.block(place.rank, block));
    let Some((operation, block)) = found else { return Ok(()) };
    write!(f, ": {}", notation.line(place.rank, block, operation))?;
    match &operation.location {
        Some(location) => write!(f, "  # {}:{}", location.file.escape_debug(), location.line),
        None => Ok(()),
    }
}

/// What Warpway does about the warnings of an accepted plan.
fn repairs(repairs: &Repairs) -> Vec<String> {
    let mut lines = Vec::new();
    match repairs.ordered_pairs.len() {
        0 => {}
        1 => lines.push("order to 1 relaxed signal and its wait".to_owned()),
        n => lines.push(format!("order to {n} relaxed signals and their waits")),
    }
    let flags = [
        (repairs.start_handshake, "an opening handshake"),
        (repairs.flush_at_end, "a flush of port puts at the end"),
        (repairs.closing_handshake, "a closing handshake"),
    ];
    lines.extend(flags.iter().filter(|(made, _)| *made).map(|(_, what)| (*what).to_owned()));
    lines
}
