//! `cargo xtask docs`.

use crate::run::{cargo, step};

pub(crate) fn run() -> anyhow::Result<()> {
    step(
        "documentation",
        cargo("doc").args(["--workspace", "--no-deps", "--all-features"]).env("RUSTDOCFLAGS", "-D warnings"),
    )
}
