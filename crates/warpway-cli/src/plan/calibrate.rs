//! `warpway plan calibrate`.
use clap::Args;
/// Measure primitives
#[derive(Args)]
pub(super) struct Arguments {}
pub(super) fn run(_: &Arguments) -> anyhow::Result<u8> { Ok(0) }
