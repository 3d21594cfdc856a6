//! `warpway plan`: execution plans as files: proven, shown, converted, predicted, pictured.

mod calibrate;
mod convert;
mod draw;
mod show;
mod simulate;
mod source;
mod verify;

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use warpway_plan::{Plan, ReadError, ReadPlan};

use crate::plan_file;

/// Verify, show, convert, simulate and draw execution plans
///
/// A plan says for every rank and thread block of a collective what it does, step by step. The format is that of
/// MSCCL++ 0.9 with a few extensions; docs/plan.schema.json describes it.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Verify(verify::Arguments),
    Show(show::Arguments),
    Convert(convert::Arguments),
    Simulate(simulate::Arguments),
    Draw(draw::Arguments),
    Calibrate(calibrate::Arguments),
}

/// A plan as a file.
#[derive(Args)]
struct File {
    /// The plan; `-` is standard input
    #[arg(value_name = "FILE")]
    path: PathBuf,
}

/// No such file, not JSON, wrong arguments.
const UNREADABLE: u8 = 3;

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let result = match &arguments.command {
        Command::Verify(arguments) => verify::run(arguments),
        Command::Show(arguments) => show::run(arguments),
        Command::Convert(arguments) => convert::run(arguments),
        Command::Simulate(arguments) => simulate::run(arguments),
        Command::Draw(arguments) => draw::run(arguments),
        Command::Calibrate(arguments) => calibrate::run(arguments),
    };
    result.or_else(|error| match error.downcast::<Unreadable>() {
        Ok(unreadable) => {
            complain(&unreadable.0.to_string());
            Ok(UNREADABLE)
        }
        // Who closes our output has seen enough.
        Err(error) => match error.downcast_ref::<std::io::Error>().map(std::io::Error::kind) {
            Some(std::io::ErrorKind::BrokenPipe) => Ok(0),
            _ => Err(error),
        },
    })
}

/// The verifier's exit codes 1 and 2 say something of the plan, so wrong arguments of `warpway plan` have another.
pub(crate) fn exit_for_wrong_arguments(error: &clap::Error) -> ! {
    let is_ours = std::env::args_os().nth(1).is_some_and(|word| word == "plan");
    if error.use_stderr() && is_ours {
        let _ = error.print();
        std::process::exit(UNREADABLE.into());
    }
    error.exit()
}

/// What ends the command with `UNREADABLE`.
#[derive(Debug)]
struct Unreadable(String);

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unreadable {}

impl File {
    /// The bytes.
    fn bytes(&self) -> anyhow::Result<Vec<u8>> {
        plan_file::read(&self.path)
            .map_err(|error| Unreadable(format!("{}: {error}", self.path.display())).into())
    }

    /// A plan right in its form; what is wrong is printed line by line.
    fn plan(&self) -> anyhow::Result<Plan> {
        match Plan::from_json(&self.bytes()?) {
            Ok(ReadPlan { plan, warnings, more_warnings }) => {
                for finding in &warnings {
                    complain(&format!("warning: {finding}"));
                }
                if more_warnings > 0 {
                    complain(&format!("{more_warnings} more warnings"));
                }
                Ok(plan)
            }
            Err(ReadError::NoPlan { errors, more_errors, .. }) => {
                for finding in &errors {
                    complain(&finding.to_string());
                }
                let count = (errors.len() as u64).saturating_add(more_errors);
                let file = self.path.display();
                Err(Unreadable(format!("{file}: no plan, {count} findings")).into())
            }
            Err(error) => Err(Unreadable(format!("{}: {error}", self.path.display())).into()),
        }
    }
}

/// A line on standard error, in one write.
fn complain(line: &str) {
    let _ = std::io::stderr().write_all(format!("warpway: {line}\n").as_bytes());
}

/// Text on standard output.
fn print(text: &str) -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    output.write_all(text.as_bytes())?;
    output.flush()?;
    Ok(())
}

/// A value as a JSON document on standard output.
fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    print(&(serde_json::to_string_pretty(value).context("cannot write JSON")? + "\n"))
}
