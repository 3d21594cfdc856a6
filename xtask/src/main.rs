//! `cargo xtask`: the project's chores. Each is one file; `.ci/run` calls them in turn.
#![forbid(unsafe_code)]

mod bench;
mod collectives;
mod docs;
mod figures;
mod fuzz;
mod gpu_bundle;
mod hosts;
mod links;
mod lint;
mod loom;
mod run;
mod test;
mod tsan;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The project's chores.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Run every test that needs no GPU: documentation samples, then the suites (a process per test)
    Test(test::Arguments),
    /// Check formatting, lints, and the policy for dependencies
    Lint,
    /// Build the documentation (warnings are errors); check the pages' links and the figures in README.md
    Docs(docs::Arguments),
    /// Model-check the concurrency primitives: every interleaving, with the source that ships
    Loom,
    /// Run the unit tests under ThreadSanitizer (needs a nightly toolchain; skipped without)
    Tsan(tsan::Arguments),
    /// Run each fuzz target for a while (needs a nightly toolchain and cargo-fuzz; skipped without)
    Fuzz(fuzz::Arguments),
    /// Run programs against each other in turns and keep the figures under benchmarks/results
    Bench(bench::Arguments),
    /// Pack everything that is needed to test and measure on a machine with GPUs and without Rust
    GpuBundle(gpu_bundle::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().chore {
        Chore::Test(arguments) => test::run(&arguments),
        Chore::Lint => lint::run(),
        Chore::Docs(arguments) => docs::run(&arguments),
        Chore::Loom => loom::run(),
        Chore::Tsan(arguments) => tsan::run(&arguments),
        Chore::Fuzz(arguments) => fuzz::run(&arguments),
        Chore::Bench(arguments) => bench::run(&arguments),
        Chore::GpuBundle(arguments) => gpu_bundle::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
