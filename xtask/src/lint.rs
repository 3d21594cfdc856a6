//! `cargo xtask lint`.

use crate::run::{answers, cargo, skipped, step};

pub(crate) fn run() -> anyhow::Result<()> {
    step("format", cargo("fmt").args(["--all", "--check"]))?;
    step(
        "clippy",
        cargo("clippy").args(["--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"]),
    )?;
    if !answers(cargo("deny").arg("--version")) {
        skipped("dependencies", "cargo-deny is not installed (cargo install --locked cargo-deny)");
        return Ok(());
    }
    // Without advisories: a check whose answer depends on the day is not a test.
    step("dependencies", cargo("deny").args(["--log-level", "error", "check", "bans", "licenses", "sources"]))
}
