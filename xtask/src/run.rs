//! Running cargo: which cargo, from where, and how long it took.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context as _, bail};

/// The repository's root: all commands run there.
pub(crate) fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_path_buf()
}

/// The cargo that runs this program.
pub(crate) fn cargo(subcommand: &str) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.arg(subcommand).current_dir(root());
    command
}

/// The nightly toolchain's cargo, or `None` if there is none. (`CARGO` names one toolchain's binary, which
/// ignores `+nightly`; hence rustup.)
pub(crate) fn nightly_cargo(subcommand: &str) -> Option<Command> {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo"]).current_dir(root());
    let mut probe = Command::new("rustup");
    probe.args(["run", "nightly", "cargo", "--version"]);
    if !answers(&mut probe) {
        return None;
    }
    command.arg(subcommand);
    Some(command)
}

/// Whether a tool is installed: it can be started and ends with 0.
pub(crate) fn answers(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Runs one step with its output on ours; says what it was and how long it took.
pub(crate) fn step(name: &str, command: &mut Command) -> anyhow::Result<()> {
    let begin = Instant::now();
    let status = command.status().with_context(|| format!("{name}: cannot start {command:?}"))?;
    let seconds = begin.elapsed().as_secs_f64();
    if !status.success() {
        bail!("{name} failed after {seconds:.1} s ({status})");
    }
    eprintln!("xtask: {name}: ok in {seconds:.1} s");
    Ok(())
}

/// Says that a step did not run, and why; not an error.
pub(crate) fn skipped(name: &str, why: &str) {
    eprintln!("xtask: {name}: skipped: {why}");
}
