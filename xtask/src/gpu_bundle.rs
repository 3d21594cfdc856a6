//! `cargo xtask gpu-bundle`: all that a machine with GPUs needs to test and measure this tree, in one archive.
//!
//! That machine needs no Rust and no network: programs are built here and only need its C library, a driver, NVRTC
//! and Python. `xtask/gpu-bundle` holds what runs them there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use serde::Serialize;
use serde_json::Value;

use crate::bench::machine;
use crate::run::{answers, cargo, root, step};

/// What the archive may take.
const LIMIT: u64 = 48 << 20;
/// Its name, and that of the folder in it.
const NAME: &str = "warpway-gpu";
/// What runs on the other machine, by name in the archive.
const RUNNER: [(&str, &str); 3] = [
    ("run.sh", include_str!("../gpu-bundle/run.sh")),
    ("run.py", include_str!("../gpu-bundle/run.py")),
    ("suites.json", include_str!("../gpu-bundle/suites.json")),
];

/// What to pack.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Folder for the archive, from the repository's root
    #[arg(long, value_name = "FOLDER", default_value = ".gpu")]
    out: PathBuf,
    /// Cargo's profile; figures are only good from `release`, `dev` is built sooner
    #[arg(long, default_value = "release")]
    profile: String,
}

/// Where the contents come from, for the results.
#[derive(Serialize)]
struct Origin {
    commit: String,
    /// The tree differed from the commit.
    modified: bool,
    /// When it was packed.
    date: String,
    profile: String,
    compiler: String,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let (commit, modified) = machine::commit()?;
    let profile = &arguments.profile;
    let command = build(cargo("build").args(["--package", "warpway-cli", "--profile", profile]))?;
    let tests = ["--no-run", "--package", "warpway-tests", "--test", "gpu", "--profile", profile];
    let tests = build(cargo("test").args(tests))?;
    let mut programs = Vec::new();
    for (name, built) in [("warpway", &command), ("gpu", &tests), ("rank", &tests)] {
        let found = built.iter().find(|(target, _)| target == name);
        programs.push((name, &found.with_context(|| format!("cargo has built no {name}"))?.1));
    }

    let staged = root().join("target/gpu-bundle").join(NAME);
    if staged.exists() {
        fs::remove_dir_all(&staged).with_context(|| format!("cannot remove {}", staged.display()))?;
    }
    fs::create_dir_all(staged.join("bin"))?;
    for (name, path) in programs {
        let packed = staged.join("bin").join(name);
        fs::copy(path, &packed).with_context(|| format!("cannot copy {}", path.display()))?;
        strip(&packed)?;
    }
    for (name, text) in RUNNER {
        fs::write(staged.join(name), text)?;
    }
    make_executable(&staged.join("run.sh"))?;
    let compiler = String::from_utf8(Command::new("rustc").arg("--version").output()?.stdout)?;
    let compiler = compiler.trim().to_owned();
    let origin = Origin { commit, modified, date: machine::date(), profile: profile.clone(), compiler };
    fs::write(staged.join("origin.json"), serde_json::to_string_pretty(&origin)? + "\n")?;

    let archive = pack(&staged, &root().join(&arguments.out))?;
    let bytes = fs::metadata(&archive)?.len();
    ensure!(bytes <= LIMIT, "{} has {bytes} bytes, more than {LIMIT}", archive.display());
    let shown = archive.strip_prefix(root()).unwrap_or(&archive).display();
    println!("{shown}: {:.1} MiB, commit {}", bytes as f64 / f64::from(1 << 20), origin.commit);
    println!("there: tar xf {shown} && OUT=results {NAME}/run.sh smoke");
    Ok(())
}

/// Runs cargo; gives names and paths of the executables that it has made.
fn build(command: &mut Command) -> anyhow::Result<Vec<(String, PathBuf)>> {
    command.args(["--message-format", "json-render-diagnostics"]).stderr(Stdio::inherit());
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", output.status);
    executables(&String::from_utf8(output.stdout)?)
}

fn executables(messages: &str) -> anyhow::Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for line in messages.lines() {
        let message: Value = serde_json::from_str(line).context("cargo printed something else than JSON")?;
        if let (Some(name), Some(path)) = (message["target"]["name"].as_str(), message["executable"].as_str())
        {
            found.push((name.to_owned(), PathBuf::from(path)));
        }
    }
    Ok(found)
}

/// Symbols are two thirds of a program; panics name their place without them.
fn strip(program: &Path) -> anyhow::Result<()> {
    if !answers(Command::new("strip").arg("--version")) {
        eprintln!("xtask: there is no strip (of binutils): the archive becomes large");
        return Ok(());
    }
    let status = Command::new("strip").arg(program).status()?;
    ensure!(status.success(), "strip {}: {status}", program.display());
    Ok(())
}

fn make_executable(path: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

/// An archive of a folder, in another one.
fn pack(staged: &Path, out: &Path) -> anyhow::Result<PathBuf> {
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let Some(parent) = staged.parent() else { bail!("{} has no parent", staged.display()) };
    let archive = out.join(NAME).with_extension("tar.gz");
    let mut tar = Command::new("tar");
    tar.args(["--create", "--gzip", "--owner=0", "--group=0", "--sort=name", "--file"]).arg(&archive);
    tar.arg("--directory").arg(parent).arg(NAME);
    step("packing", &mut tar)?;
    Ok(archive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executables_of_cargos_messages() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"warpway_core"},"executable":null}
{"reason":"build-script-executed","package_id":"x"}
{"reason":"compiler-artifact","target":{"name":"gpu"},"executable":"/t/deps/gpu-1"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(executables(messages).unwrap(), [("gpu".to_owned(), PathBuf::from("/t/deps/gpu-1"))]);
        assert!(executables("warning: of another program").is_err());
    }
}
