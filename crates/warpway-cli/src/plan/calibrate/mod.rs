//! `warpway plan calibrate`: what primitives cost on this machine, as a topology file.
//!
//! | file | question it answers |
//! |---|---|
//! | `rank.rs` | one rank of the measurement: how a launch is timed |
//! | `plans.rs` | which plans, of one primitive each |
//! | `primitives.rs`, `memory.rs` | what follows from their times |
//! | `placement.rs` | how far the cores were from each other meanwhile |
//! | `tcp.rs` | latency and rate of a connection between hosts, on loopback |
//! | `check.rs` | predicted against measured collectives |

mod check;
mod memory;
mod placement;
mod plans;
mod primitives;
mod rank;
mod tcp;

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use warpway_collectives::Function;
use warpway_plan::simulate::Machine;

use super::source::function;
use super::{Unreadable, complain, print};
use crate::origin::Origin;
use crate::{launch, size};
use placement::Placements;
use rank::Rank;

/// Measure what primitives cost on this machine, and write a topology file
///
/// Two ranks launch plans of one primitive each (copies, folds, signals, packets, requests), no collectives: what these
/// take is predicted from the file by `warpway plan simulate`. Takes some seconds; nothing else should run meanwhile.
#[derive(Args)]
#[command(after_long_help = "\
Between hosts the file has latency and rate of TCP on loopback; put in those of your network. For
other hosts, copy the entry of `hosts` or change its `count`.

Examples:
  warpway plan calibrate -o here.json
  warpway plan calibrate -o here.json --check accuracy.json
  warpway plan calibrate --topology here.json --check accuracy4.json -n 4")]
pub(super) struct Arguments {
    /// Where the topology file goes; without it, standard output
    #[arg(short, long, value_name = "FILE", conflicts_with = "topology")]
    output: Option<PathBuf>,
    /// Measure no primitives, use this file
    #[arg(long, value_name = "FILE", requires = "check")]
    topology: Option<PathBuf>,
    /// Then run the catalogue's collectives and write what was predicted and measured; `-` is standard output
    #[arg(long, value_name = "FILE")]
    check: Option<PathBuf>,
    /// Ranks of the check
    #[arg(short = 'n', long = "ranks", default_value_t = 2, requires = "topology", value_parser = clap::value_parser!(u32).range(2..=64))]
    n_ranks: u32,
    /// Sizes of the check; suffixes K, M, G
    #[arg(long, value_delimiter = ',', default_value = "1K,8K,64K,512K,4M,64M", value_parser = size::parse)]
    bytes: Vec<u64>,
    /// Functions of the check: all_reduce, all_gather, …; by default all
    #[arg(long, value_name = "FUNCTION", value_delimiter = ',', value_parser = function)]
    functions: Vec<Function>,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    if std::env::var_os("WARPWAY_RANK").is_none() {
        let own = std::env::current_exe().context("finding this program")?;
        let command: Vec<OsString> = std::iter::once(own.into()).chain(std::env::args_os().skip(1)).collect();
        // They take cores of their own, and measure what several threads of one do.
        return launch::run(launch::Arguments::of_program(arguments.n_ranks, command).without_binding());
    }
    // Before this process keeps to one core.
    let origin = Origin::of_process();
    let rank = Rank::join()?;
    measure(arguments, &rank, &origin).inspect_err(|error| rank.comm().abort(format!("{error:#}")))?;
    rank.leave()?;
    Ok(0)
}

fn measure(arguments: &Arguments, rank: &Rank, origin: &Origin) -> anyhow::Result<()> {
    let mut placements = match &arguments.topology {
        Some(path) => {
            let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
            let machine = Machine::from_json(&text)
                .map_err(|error| Unreadable(format!("{}: {error}", path.display())))?;
            Placements::of_file(machine, rank.comm().n_ranks() == 2)
        }
        None => {
            let mut placements = Placements::of_this_machine();
            let machine = placements.calibrate(rank)?;
            if rank.is_first() {
                write(arguments.output.as_ref(), &machine.to_json())?;
            }
            placements
        }
    };
    if let Some(path) = &arguments.check {
        let found = check::measure(rank, &mut placements, &arguments.functions, &arguments.bytes)?;
        if rank.is_first() {
            complain(&found.summary());
            let text = serde_json::to_string_pretty(&found.document(&placements, origin)?)? + "\n";
            write(Some(path).filter(|path| path.as_os_str() != "-"), &text)?;
        }
    }
    Ok(())
}

fn write(path: Option<&PathBuf>, text: &str) -> anyhow::Result<()> {
    match path {
        Some(path) => std::fs::write(path, text).with_context(|| path.display().to_string()),
        None => print(text),
    }
}
