//! `cargo xtask loom`.
//!
//! Models are unit tests whose path contains `loom`, compiled with `--cfg loom`; the same build turns the
//! crate's atomics into loom's, so ordinary tests do not run there.

use crate::run::{cargo, root, step};

/// Crates that have models.
const PACKAGES: &[&str] = &["warpway-core"];

pub(crate) fn run() -> anyhow::Result<()> {
    let mut command = cargo("test");
    for package in PACKAGES {
        command.args(["--package", package]);
    }
    command
        .args(["--lib", "--release", "--", "loom"])
        .env("RUSTFLAGS", "--cfg loom")
        // Three preemptions find practically every ordering bug; the full space takes hours.
        .env("LOOM_MAX_PREEMPTIONS", std::env::var("LOOM_MAX_PREEMPTIONS").unwrap_or_else(|_| "3".into()))
        // Other flags, other artefacts: keep the ordinary build warm.
        .env("CARGO_TARGET_DIR", root().join("target/loom"));
    step("models", &mut command)
}
