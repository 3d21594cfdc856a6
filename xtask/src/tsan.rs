//! `cargo xtask tsan`.

use std::env::consts::ARCH;

use clap::Args;

use crate::run::{nightly_cargo, root, skipped, step};

/// Crates whose unit tests share memory between threads.
const PACKAGES: &[&str] = &["warpway-core", "warpway-host"];

/// What to run.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Arguments for the test binaries, e.g. a filter
    #[arg(last = true)]
    tests: Vec<String>,
}

/// std is not rebuilt (that needs rust-src): its own synchronisation is invisible to the sanitizer, which is
/// what the suppressions are for.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Some(mut command) = nightly_cargo("test") else {
        skipped("thread sanitizer", "no nightly toolchain (rustup toolchain install nightly)");
        return Ok(());
    };
    let suppressions = root().join("xtask/tsan.supp");
    for package in PACKAGES {
        command.args(["--package", package]);
    }
    command
        .args(["--lib", "--target", &format!("{ARCH}-unknown-linux-gnu"), "--"])
        .args(&arguments.tests)
        .env("RUSTFLAGS", "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer")
        .env("TSAN_OPTIONS", format!("suppressions={} halt_on_error=1", suppressions.display()))
        .env("CARGO_TARGET_DIR", root().join("target/tsan"));
    step("thread sanitizer", &mut command)
}
