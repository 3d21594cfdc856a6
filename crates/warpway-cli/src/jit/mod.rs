//! `warpway jit`: kernels compiled ahead of time, and the folder where they are kept.

mod clear;
mod list;
mod warm;

use std::io::{self, Write as _};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use serde::Serialize;
use warpway::{Config, Environment};
use warpway_cuda::jit::{Compiler, Kernel};

/// Compile kernels ahead of time, list and clear what is kept
///
/// Kernels are compiled by NVRTC when they are first needed, which takes tens of milliseconds each, and kept in
/// WARPWAY_CACHE_DIR for all later processes of the same user. A file there counts only for the same source, headers,
/// options, architecture and version of NVRTC, and only as long as not a bit of it has changed.
#[derive(Args)]
#[command(after_long_help = "\
NVRTC is looked for in this order:
  WARPWAY_NVRTC, if set, and then nowhere else
  a library that is mapped already
  Python packages (pip install nvidia-cuda-nvrtc) of VIRTUAL_ENV, CONDA_PREFIX,
  the Python on PATH and the user
  CUDA_HOME, CUDA_PATH and /usr/local/cuda
  what the loader finds
No GPU is needed. A machine whose folder is warm needs no NVRTC.

WARPWAY_CACHE_DIR    the folder (its part for kernels is `jit`), or off
WARPWAY_CACHE_BYTES  what it may take; what was not used for longest is removed")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Warm(warm::Arguments),
    List(list::Arguments),
    Clear(clear::Arguments),
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let environment = Environment::of_process()?;
    let loaded = Config::read(&environment)?;
    // What is wrong with the folder is only logged: elsewhere it is no reason to fail.
    tracing::subscriber::set_global_default(warpway::log_subscriber(&loaded.config)?)?;
    loaded.notices.iter().for_each(warpway::core::config::Notice::log);
    let compiler = Compiler::new(&loaded.config, &environment);
    let result = match &arguments.command {
        Command::Warm(arguments) => warm::run(arguments, &compiler, &loaded.config),
        Command::List(arguments) => list::run(arguments, &compiler),
        Command::Clear(arguments) => clear::run(arguments, &compiler),
    };
    // Who closes our output has seen enough.
    result.or_else(|error| match error.downcast_ref::<io::Error>().map(io::Error::kind) {
        Some(io::ErrorKind::BrokenPipe) => Ok(0),
        _ => Err(error),
    })
}

/// A kernel and what it needs, for `--json`.
#[derive(Serialize)]
struct KernelJson {
    kernel: String,
    symbol: String,
    registers: Option<u64>,
    stack_bytes: Option<u64>,
    spill_store_bytes: Option<u64>,
    spill_load_bytes: Option<u64>,
    shared_bytes: Option<u64>,
}

impl From<&Kernel> for KernelJson {
    fn from(kernel: &Kernel) -> Self {
        let needs = kernel.resources;
        Self {
            kernel: kernel.expression.clone(),
            symbol: kernel.symbol.clone(),
            registers: needs.map(|needs| needs.registers),
            stack_bytes: needs.map(|needs| needs.stack_bytes),
            spill_store_bytes: needs.map(|needs| needs.spill_store_bytes),
            spill_load_bytes: needs.map(|needs| needs.spill_load_bytes),
            shared_bytes: needs.map(|needs| needs.shared_bytes),
        }
    }
}

/// `1 image`, `2 images`.
fn images(count: u64) -> String {
    format!("{count} image{}", if count == 1 { "" } else { "s" })
}

/// Text on standard output.
fn print(text: &str) -> anyhow::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes())?;
    output.flush()?;
    Ok(())
}

fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    print(&(serde_json::to_string_pretty(value).context("cannot write JSON")? + "\n"))
}
