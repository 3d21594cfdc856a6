//! `warpway doctor`: what this machine offers, what is missing, and what to do about it.
//!
//! Each area is a module with a `check` that adds findings to a [`Report`]. Features of the kernel are tried
//! rather than looked up: a sandbox may forbid what the version promises.

mod gpu;
mod job;
mod kernel;
mod limits;
mod memory;
mod network;
mod processors;
mod report;
mod transports;

use std::io::IsTerminal as _;

use clap::Args;
use report::Report;
use warpway::{Config, Environment};

/// Check what this machine offers to a job, and how to improve it
///
/// Looks at processors, memory, limits, features of the kernel, network interfaces, the variables that a
/// launcher has set, GPUs with their driver, links and ways of sharing memory, the compiler of kernels, and at the
/// transports that result. GPUs are used a little: contexts, small allocations, one kernel is loaded. Run it as a job sees the machine: in the same
/// container, under the same limits, e.g. `warpway launch -n 2 -- warpway doctor`.
#[derive(Args)]
#[command(after_long_help = "\
Each line is one of
  ok    fine
  warn  works, but slower or with less room than it could; the hint says what to do
  fail  jobs will not work

Exit code: 1 if anything failed, otherwise 0.")]
pub(crate) struct Arguments {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The settings, or the usual ones if a variable cannot be read: [`job`] says so.
fn settings() -> (Config, Environment) {
    let environment = Environment::of_process().unwrap_or_default();
    let config = Config::read(&environment).map_or_else(|_| Config::default(), |loaded| loaded.config);
    (config, environment)
}

/// Checks and prints; 1 if something failed.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let mut report = Report::default();
    processors::check(&mut report);
    memory::check(&mut report);
    limits::check(&mut report);
    let features = kernel::check(&mut report);
    let network = network::check(&mut report);
    job::check(&mut report);
    let (config, environment) = settings();
    // What cannot be given back is only logged.
    if !tracing::dispatcher::has_been_set()
        && let Ok(lines) = warpway::log_subscriber(&config)
    {
        let _ = tracing::subscriber::set_global_default(lines);
    }
    let gpus = gpu::check(&mut report, &config, &environment);
    transports::check(&mut report, &features, &network, &gpus);
    report.gpus = gpus;
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&report.json())?);
    } else {
        let colours = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        print!("{}", report.text(colours));
    }
    Ok(u8::from(report.has_failed()))
}
