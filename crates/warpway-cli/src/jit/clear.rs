//! `warpway jit clear`.

use clap::Args;
use serde::Serialize;
use warpway_cuda::jit::Compiler;

use super::{images, print, print_json};

/// Remove all compiled kernels from the folder
///
/// Nothing else is touched, and processes that have loaded a kernel keep it.
#[derive(Args)]
pub(super) struct Arguments {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The form of `--json`.
#[derive(Serialize)]
struct Document {
    removed: u64,
    bytes: u64,
}

pub(super) fn run(arguments: &Arguments, compiler: &Compiler) -> anyhow::Result<u8> {
    let (removed, bytes) = compiler.clear_cache()?;
    if arguments.json {
        print_json(&Document { removed, bytes })?;
    } else {
        print(&format!("{} removed, {bytes} bytes\n", images(removed)))?;
    }
    Ok(0)
}
