//! `cargo xtask tsan`.

use std::{env::consts::ARCH, path::Path, process::Command};

use clap::Args;

use crate::run::{nightly_cargo, root, skipped, step};

/// Crates whose unit tests share memory between threads.
const PACKAGES: &[&str] = &["warpway-core", "warpway-host"];

/// Tests that share memory without std's locks.
const LOCK_FREE: &[&str] = &["wait::", "token::", "fifo::ring"];

/// What to run.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Arguments for the test binaries, e.g. a filter
    #[arg(last = true)]
    tests: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Some(mut command) = nightly_cargo("test") else {
        skipped("thread sanitizer", "no nightly toolchain (rustup toolchain install nightly)");
        return Ok(());
    };
    for package in PACKAGES {
        command.args(["--package", package]);
    }
    command.args(["--lib", "--target", &format!("{ARCH}-unknown-linux-gnu")]);
    // rustix calls the kernel directly, past the sanitizer's interceptors: an address that was unmapped and mapped
    // again would still have its former writers. Through libc it is seen.
    let flags = "-Zsanitizer=thread --cfg=rustix_use_libc";
    let tests = if has_std_sources() {
        command.arg("-Zbuild-std").env("RUSTFLAGS", flags);
        &arguments.tests
    } else {
        // The locks of a std that is not instrumented are invisible, and all they protect looks like a race.
        println!(
            "xtask: thread sanitizer: only lock-free code (all of it: rustup +nightly component add rust-src)"
        );
        command.env("RUSTFLAGS", format!("{flags} -Cunsafe-allow-abi-mismatch=sanitizer"));
        &LOCK_FREE.iter().map(ToString::to_string).collect()
    };
    let suppressions = root().join("xtask/tsan.supp");
    command
        .arg("--")
        .args(tests)
        .env("TSAN_OPTIONS", format!("suppressions={}", suppressions.display()))
        .env("CARGO_TARGET_DIR", root().join("target/tsan"));
    step("thread sanitizer", &mut command)
}

fn has_std_sources() -> bool {
    let sysroot = Command::new("rustup").args(["run", "nightly", "rustc", "--print", "sysroot"]).output();
    let sysroot = sysroot.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    sysroot.is_ok_and(|path| Path::new(&path).join("lib/rustlib/src/rust/library/std/src/lib.rs").is_file())
}
