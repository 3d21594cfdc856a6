//! `warpway plan verify`.

use std::fmt::Write as _;
use std::io::IsTerminal as _;

use clap::{Args, ValueEnum};
use warpway_plan::verify::{self, Diagnostic, Options, Report, Rule, Severity, Sizes, Verdict};
use warpway_plan::{Plan, ReadError, ReadPlan, Repairs};

use super::notation::Notation;
use super::{File, Unreadable, print, print_json};
use crate::size;

/// Prove that a plan ends, is free of races and computes what it claims
#[derive(Args)]
#[command(after_long_help = "\
The profile `default` warns about what MSCCL++ programs commonly do and Warpway repairs when it runs them;
`strict` makes it errors. For the target `mscclpp`, which repairs nothing, only strict counts.

Exit code:
  0  accepted; warnings are allowed
  1  rejected
  2  inconclusive
  3  unreadable: no such file, not JSON, or wrong arguments

Examples:
  warpway plan verify allreduce.json
  warpway plan verify allreduce.json --profile strict --target mscclpp --json
  warpway plan verify custom.json --size 1M --size 64M --waive V306")]
pub(super) struct Arguments {
    #[command(flatten)]
    file: File,
    /// How strict
    #[arg(long, value_enum, default_value = "default")]
    profile: Profile,
    /// Whose executor the plan is for
    #[arg(long, value_enum, default_value = "warpway")]
    target: Target,
    /// Check this message size in bytes as well; suffixes K, M, G (may be repeated)
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    size: Vec<u64>,
    /// Root of broadcast, reduce, gather and scatter
    #[arg(long, value_name = "RANK", default_value_t = 0)]
    root: u32,
    /// Take findings of this rule for notes, e.g. V306 (may be repeated)
    #[arg(long, value_name = "RULE", value_parser = rule)]
    waive: Vec<Rule>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Profile {
    /// Habits of MSCCL++ programs are warnings
    Default,
    /// They are errors
    Strict,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Target {
    /// Warpway's
    Warpway,
    /// MSCCL++'s, with its limits and defects
    Mscclpp,
}

/// `V306`.
fn rule(text: &str) -> Result<Rule, String> {
    let number = text.strip_prefix(['V', 'v']).and_then(|digits| digits.parse().ok());
    number
        .filter(|number| (100..1000).contains(number))
        .map(Rule)
        .ok_or_else(|| format!("`{text}` is not a rule such as V306"))
}

impl Arguments {
    fn options(&self) -> Options<'static> {
        Options {
            target: match self.target {
                Target::Warpway => verify::Target::Warpway,
                Target::Mscclpp => verify::Target::Mscclpp,
            },
            profile: match self.profile {
                Profile::Default => verify::Profile::Default,
                Profile::Strict => verify::Profile::Strict,
            },
            root: self.root,
            sizes: self.size.clone(),
            waivers: self.waive.clone(),
            ..Options::default()
        }
    }
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let (plan, report) = match Plan::from_json(&arguments.file.bytes()?) {
        Ok(ReadPlan { plan, warnings, .. }) => {
            if arguments.root >= plan.n_ranks() {
                let what = format!("--root {}: the plan has {} ranks", arguments.root, plan.n_ranks());
                return Err(Unreadable(what).into());
            }
            let mut report = verify::verify(&plan, &arguments.options());
            // What the reader alone has seen: the plan does not hold keys that mean nothing.
            let known = |noted: &Diagnostic| {
                report.diagnostics.iter().any(|d| (d.rule, &d.message) == (noted.rule, &noted.message))
            };
            let noted = warnings.into_iter().map(Diagnostic::from);
            let noted: Vec<Diagnostic> = noted.filter(|noted| !known(noted)).collect();
            report.diagnostics.splice(0..0, noted);
            (Some(plan), report)
        }
        Err(ReadError::NoPlan { errors, more_errors, warnings }) => {
            let mut diagnostics: Vec<Diagnostic> = errors.into_iter().map(Diagnostic::from).collect();
            if more_errors > 0 {
                diagnostics
                    .push(Diagnostic::info(101, format!("{more_errors} more errors of form are not listed")));
            }
            diagnostics.extend(warnings.into_iter().map(Diagnostic::from));
            diagnostics.sort_by_key(|diagnostic| diagnostic.rule);
            let report = Report {
                verdict: Verdict::Reject,
                roundings: None,
                fold_roles: verify::FoldRoles::default(),
                repairs: Repairs::default(),
                sizes: None,
                diagnostics,
            };
            (None, report)
        }
        Err(error) => {
            return Err(Unreadable(format!("{}: {error}", arguments.file.path.display())).into());
        }
    };
    if arguments.json {
        print_json(&report)?;
    } else {
        let colours = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        print(&text(plan.as_ref(), &report, colours))?;
    }
    Ok(report.verdict.exit_code())
}

/// The report for people.
fn text(plan: Option<&Plan>, report: &Report, colours: bool) -> String {
    let notation = plan.map(Notation::new);
    let mut text = String::new();
    for diagnostic in &report.diagnostics {
        write_diagnostic(&mut text, notation.as_ref(), diagnostic, colours);
    }
    let count = |severity, one: &str| match report.of(severity).count() {
        0 => None,
        1 => Some(format!("1 {one}")),
        n => Some(format!("{n} {one}s")),
    };
    let counts: Vec<String> =
        [count(Severity::Error, "error"), count(Severity::Warning, "warning"), count(Severity::Info, "note")]
            .into_iter()
            .flatten()
            .collect();
    let counts = if counts.is_empty() { "no findings".to_owned() } else { counts.join(", ") };
    let (verdict, code) = match report.verdict {
        Verdict::Accept => ("accepted", "32"),
        Verdict::Reject => ("rejected", "31"),
        Verdict::Inconclusive => ("inconclusive", "33"),
    };
    // Writing into a string does not fail.
    let name = plan.map_or_else(String::new, |plan| format!("{}: ", plan.name.escape_debug()));
    let _ = writeln!(text, "{name}{}: {counts}", paint(verdict, code, colours));
    if let Some(roundings) = report.roundings {
        let times = if roundings == 1 { "once".to_owned() } else { format!("{roundings} times") };
        let _ = writeln!(text, "a result is rounded at most {times} on its way");
    }
    if let Some(Sizes::ChunkBytes(sizes)) = &report.sizes {
        let sizes: Vec<String> = sizes.iter().map(u64::to_string).collect();
        let _ = writeln!(text, "proven only for chunks of {} bytes", sizes.join(", "));
    }
    for repair in repairs(&report.repairs) {
        let _ = writeln!(text, "the executor adds: {repair}");
    }
    text
}

fn write_diagnostic(
    text: &mut String,
    notation: Option<&Notation<'_>>,
    diagnostic: &Diagnostic,
    colours: bool,
) {
    let severity = match diagnostic.severity {
        Severity::Error => paint("error", "31", colours),
        Severity::Warning => paint("warning", "33", colours),
        Severity::Info => paint("note", "36", colours),
    };
    let _ = writeln!(text, "{severity} {}: {}", diagnostic.rule, diagnostic.message);
    for place in &diagnostic.places {
        let _ = write!(text, "    {place}");
        if let (Some(notation), Some(block), Some(op)) = (notation, place.block, place.op)
            && let (Some(operation), Some(block_plan)) =
                (notation.operation(place.rank, block, op), notation.block(place.rank, block))
        {
            let _ = write!(text, ": {}", notation.line(place.rank, block_plan, operation));
            if let Some(location) = &operation.location {
                let _ = write!(text, "  # {}:{}", location.file.escape_debug(), location.line);
            }
        }
        text.push('\n');
    }
    if let Some(region) = &diagnostic.region {
        let (first, end) = region.chunks;
        let _ = writeln!(text, "    in rank {} {}[{first}..{end}]", region.rank, region.buffer);
    }
    for step in &diagnostic.schedule {
        let _ = writeln!(text, "    | {step}");
    }
    if !diagnostic.hint.is_empty() {
        let _ = writeln!(text, "    -> {}", diagnostic.hint);
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

fn paint(word: &str, code: &str, colours: bool) -> String {
    if colours { format!("\x1b[{code}m{word}\x1b[0m") } else { word.to_owned() }
}
