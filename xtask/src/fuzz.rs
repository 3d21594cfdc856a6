//! `cargo xtask fuzz`.

use anyhow::Context as _;
use clap::Args;

use crate::run::{answers, nightly_cargo, root, skipped, step};

/// What to fuzz, and for how long.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Only this target (may be repeated); all of `fuzz/fuzz_targets` without
    #[arg(short, long)]
    target: Vec<String>,
    /// Time for each target
    #[arg(short, long, default_value_t = 60)]
    seconds: u32,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Some(mut probe) = nightly_cargo("fuzz") else {
        skipped("fuzz", "no nightly toolchain (rustup toolchain install nightly)");
        return Ok(());
    };
    if !answers(probe.arg("--version")) {
        skipped("fuzz", "cargo-fuzz is not installed (cargo install --locked cargo-fuzz)");
        return Ok(());
    }
    let targets = if arguments.target.is_empty() { all_targets()? } else { arguments.target.clone() };
    for target in targets {
        let Some(mut command) = nightly_cargo("fuzz") else { continue };
        command.args([
            "run",
            &target,
            "--",
            "-print_final_stats=1",
            "-verbosity=0",
            "-timeout=10",
            "-rss_limit_mb=1024",
        ]);
        command.arg(format!("-max_total_time={}", arguments.seconds));
        step(&format!("fuzz {target}"), &mut command)?;
    }
    Ok(())
}

fn all_targets() -> anyhow::Result<Vec<String>> {
    let folder = root().join("fuzz/fuzz_targets");
    if !folder.is_dir() {
        skipped("fuzz", "there are no targets yet");
        return Ok(Vec::new());
    }
    let mut targets = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs")
            && let Some(name) = path.file_stem()
        {
            targets.push(name.to_string_lossy().into_owned());
        }
    }
    targets.sort();
    Ok(targets)
}
