//! The `warpway` command. Each subcommand is a module with its arguments and a `run` that gives the exit code.
#![forbid(unsafe_code)]

mod bench;
mod date;
mod doctor;
mod jit;
mod launch;
mod origin;
mod plan;
mod plan_file;
mod size;
mod table;
mod tune;

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Warpway: GPU-driven communication, also without a GPU
#[derive(Parser)]
#[command(version, arg_required_else_help = true, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Bench(bench::Arguments),
    Doctor(doctor::Arguments),
    Jit(jit::Arguments),
    Launch(launch::Arguments),
    Plan(plan::Arguments),
    Tune(tune::Arguments),
    #[command(hide = true, name = launch::GUARD_COMMAND)]
    LaunchGuard(launch::GuardArguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::try_parse().unwrap_or_else(|error| plan::exit_for_wrong_arguments(&error));
    let result = match arguments.command {
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Jit(arguments) => jit::run(&arguments),
        Command::Launch(arguments) => launch::run(arguments),
        Command::Plan(arguments) => plan::run(&arguments),
        Command::Tune(arguments) => tune::run(&arguments),
        Command::LaunchGuard(arguments) => launch::run_guard(&arguments),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            // In one write: `eprintln!` makes one per piece, and a launcher that ends this rank meanwhile would
            // leave a line that says nothing.
            let line = format!("warpway: {error:#}\n");
            let _ = std::io::stderr().write_all(line.as_bytes());
            ExitCode::FAILURE
        }
    }
}
