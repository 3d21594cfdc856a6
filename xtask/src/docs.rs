//! `cargo xtask docs`.

use clap::Args;

use crate::run::{cargo, step};
use crate::{figures, links};

/// What may be written.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Write tables and drawings anew from benchmarks/results; without, an outdated one is an error
    #[arg(long)]
    write_figures: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    figures::refresh(arguments.write_figures)?;
    links::check()?;
    step(
        "documentation",
        cargo("doc").args(["--workspace", "--no-deps", "--all-features"]).env("RUSTDOCFLAGS", "-D warnings"),
    )
}
