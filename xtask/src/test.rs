//! `cargo xtask test`.

use clap::Args;

use crate::run::{answers, cargo, step};

/// What to test.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Only this package (may be repeated); all of them without
    #[arg(short, long)]
    package: Vec<String>,
    /// Arguments for the test runner, e.g. a filter
    #[arg(last = true)]
    runner: Vec<String>,
}

/// The suites come last, so that the runner's summary is the last thing on the screen.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.package.is_empty() && arguments.runner.is_empty() {
        step("documentation samples", cargo("test").args(["--workspace", "--doc", "--quiet"]))?;
        // Only then are the loops the vector code that ships.
        let optimised = ["--release", "--package", "warpway-host", "--lib", "--quiet", "numeric"];
        step("arithmetic, optimised", cargo("test").args(optimised))?;
    }
    let mut suites = if answers(cargo("nextest").arg("--version")) {
        let mut command = cargo("nextest");
        command.arg("run");
        command
    } else {
        eprintln!(
            "xtask: cargo-nextest is not installed: falling back on cargo test, one test at a time \
             (cargo install --locked cargo-nextest)"
        );
        cargo("test")
    };
    if arguments.package.is_empty() {
        suites.arg("--workspace");
    }
    for package in &arguments.package {
        suites.args(["--package", package]);
    }
    suites.args(&arguments.runner);
    step("suites", &mut suites)
}
