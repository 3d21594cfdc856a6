//! `warpway plan convert`.

use std::io::{BufWriter, Write as _};
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, ValueEnum};

use super::File;

/// Read a plan and write it anew
///
/// Older forms of the format are written in the current one, keys without a meaning are left out (and named on
/// standard error), source locations as well. Converting twice changes nothing more.
#[derive(Args)]
#[command(after_long_help = "Exit code: 0 if the plan was written, 3 if the file is no plan.")]
pub(super) struct Arguments {
    #[command(flatten)]
    file: File,
    /// Layout of the text
    #[arg(long, value_enum, default_value = "pretty")]
    style: Style,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Style {
    /// As Python's json.dumps(plan, indent=2), keys in the order of MSCCL++
    Pretty,
    /// Without white space
    Compact,
    /// Without white space, keys in alphabetical order; its SHA-256 is the plan's identity
    Canonical,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let plan = arguments.file.plan()?;
    let style = match arguments.style {
        Style::Pretty => warpway_plan::Style::Pretty,
        Style::Compact => warpway_plan::Style::Compact,
        Style::Canonical => warpway_plan::Style::Canonical,
    };
    // The canonical form is exactly what is hashed; the others end their line.
    let end: &[u8] = if matches!(arguments.style, Style::Canonical) { b"" } else { b"\n" };
    match &arguments.output {
        None => {
            let mut output = std::io::stdout().lock();
            plan.write_json(&mut output, style)?;
            output.write_all(end)?;
            output.flush()?;
        }
        Some(path) => {
            let write = || {
                let mut file = BufWriter::new(std::fs::File::create(path)?);
                plan.write_json(&mut file, style)?;
                file.write_all(end)?;
                file.flush()
            };
            write().with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    Ok(0)
}
