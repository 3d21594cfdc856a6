//! `cargo xtask bench`: contests between programs, in turns.
//!
//! Machines drift (clocks, neighbours, caches), so contestants run A B A B … and each figure is the median of its runs' medians.
//! A contestant is a command that prints a measurement; see `benchmarks/README.md`.

mod contest;
pub(crate) mod machine;
mod results;

use std::fs;

use anyhow::{Context as _, ensure};

use crate::run::root;
use crate::{collectives, figures, hosts};
use contest::Programs;
pub(crate) use results::{ResultFile, Series, Unit, median};

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    range: Option<Range>,
    /// Name of the contest, and of the file under benchmarks/results
    #[arg(value_parser = name, required = true)]
    contest: Option<String>,
    /// A contestant's command, split at spaces; {mpirun}, {peers} and {warpway} are replaced. Repeat for each
    #[arg(long = "run", value_name = "COMMAND", required = true)]
    commands: Vec<String>,
    /// How often each contestant runs
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Seconds that one run may take
    #[arg(long, default_value_t = 60)]
    limit: u64,
    /// Print the table only, write no file
    #[arg(long)]
    dry: bool,
}

/// Contests with files of their own form.
#[derive(clap::Subcommand)]
enum Range {
    Collectives(collectives::Arguments),
    Hosts(hosts::Arguments),
}

fn name(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !text.is_empty() && text.chars().all(fits) {
        Ok(text.to_owned())
    } else {
        Err("letters, digits, - and _ only".into())
    }
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.range {
        Some(Range::Collectives(arguments)) => return collectives::hold(arguments),
        Some(Range::Hosts(arguments)) => return hosts::hold(arguments),
        None => {}
    }
    let contest = arguments.contest.clone().context("the contest has no name")?;
    let programs = Programs::prepare(&arguments.commands)?;
    let limit = std::time::Duration::from_secs(arguments.limit);
    let (order, series) = contest::hold(&programs, &arguments.commands, arguments.rounds, limit)?;
    let first = &series[0].runs[0];
    for other in &series {
        let found = &other.runs[0];
        ensure!(
            found.is_comparable(first),
            "{} and {} measured different things",
            first.program,
            found.program
        );
    }
    println!(
        "{}: {} ranks, {} bytes, median of {} runs",
        first.benchmark, first.ranks, first.bytes, arguments.rounds
    );
    for one in &series {
        let (low, high) = one.medians.iter().fold((f64::MAX, f64::MIN), |(a, b), m| (a.min(*m), b.max(*m)));
        let (program, unit) = (&one.runs[0].program, first.unit.text());
        println!("  {program:<24} {:>10.4} {unit}   ({low:.4} to {high:.4})", one.median);
    }
    if arguments.dry {
        return Ok(());
    }
    let (commit, modified) = machine::commit()?;
    let file = ResultFile {
        version: results::VERSION,
        contest,
        date: machine::date(),
        commit,
        modified,
        machine: machine::Machine::detect()?,
        order,
        series,
    };
    write(&file)
}

/// One line per run, so that a diff of two files can be read.
fn write(file: &ResultFile) -> anyhow::Result<()> {
    let folder = root().join("benchmarks/results");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let path = folder.join(format!("{}.json", file.contest));
    let text = serde_json::to_string_pretty(file)? + "\n";
    ensure!(ResultFile::parse(&text)? == *file, "the file would not read back as it was written");
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    eprintln!("xtask: wrote {}", path.display());
    // Its figures are shown there.
    figures::refresh(true)
}
