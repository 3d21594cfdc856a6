//! `cargo xtask loom`.
//!
//! Models are unit tests in modules named `models` or with `loom` in their path, compiled with `--cfg loom`;
//! the same build turns the crate's atomics into loom's, so ordinary tests do not run there.

use std::process::Command;

use anyhow::{Context as _, bail};

use crate::run::{cargo, root, step};

/// Crates that have models.
const PACKAGES: &[&str] = &["warpway-core"];
const FILTERS: &[&str] = &["loom", "models::"];

pub(crate) fn run() -> anyhow::Result<()> {
    step("models: build", tests().args(["--no-run"]))?;
    let listed =
        tests().args(["--quiet", "--", "--list"]).args(FILTERS).output().context("cannot list the models")?;
    let count =
        String::from_utf8_lossy(&listed.stdout).lines().filter(|line| line.ends_with(": test")).count();
    if count == 0 {
        bail!("no models were found: a filter that matches nothing proves nothing");
    }
    step(&format!("{count} models"), tests().arg("--").args(FILTERS))
}

fn tests() -> Command {
    let mut command = cargo("test");
    for package in PACKAGES {
        command.args(["--package", package]);
    }
    command
        .args(["--lib", "--release"])
        .env("RUSTFLAGS", "--cfg loom")
        // Three preemptions find practically every ordering bug; the full space takes hours.
        .env("LOOM_MAX_PREEMPTIONS", std::env::var("LOOM_MAX_PREEMPTIONS").unwrap_or_else(|_| "3".into()))
        // Other flags, other artefacts: keep the ordinary build warm.
        .env("CARGO_TARGET_DIR", root().join("target/loom"));
    command
}
