//! `warpway plan draw`.

use std::path::PathBuf;

use clap::Args;
use warpway_plan::draw;
use warpway_plan::simulate::simulate;

use super::source::Source;
use super::{Unreadable, print};
use crate::size;

/// Draw a plan: who does what when, or who sends how much to whom, as SVG
#[derive(Args)]
#[command(after_long_help = "\
The picture of time comes from a simulation (see `warpway plan simulate`): operations are coloured
by kind, waits are hatched, an arrow leads from what ended a wait, the critical path is framed.

Examples:
  warpway plan draw allreduce.json --bytes 1M -o allreduce.svg
  warpway plan draw --collective all_gather --algorithm push -n 8 --graph -o gather.svg")]
pub(super) struct Arguments {
    #[command(flatten)]
    source: Source,
    /// Bytes of the larger buffer of a rank; suffixes K, M, G
    #[arg(long, default_value = "64K", value_parser = size::parse)]
    bytes: u64,
    /// Draw the bytes between ranks instead of time
    #[arg(long)]
    graph: bool,
    /// Where to; without it, standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let Arguments { source, bytes, graph, output } = arguments;
    if source.prints()? {
        return Ok(0);
    }
    let planned = source.plan()?;
    let machine = source.machine()?;
    let request = source.request(&planned, *bytes);
    let unreadable = |error: warpway_plan::simulate::SimulateError| Unreadable(error.to_string());
    let simulation = simulate(&planned.plan, &machine, &request).map_err(unreadable)?;
    let title = format!("{}, {} ranks, {bytes} bytes", planned.name, planned.plan.n_ranks());
    let picture = match graph {
        true => {
            let traffic = draw::traffic(&planned.plan, &request).map_err(unreadable)?;
            draw::graph(&traffic, &simulation.host_of, &title)
        }
        false => draw::timeline(&simulation, &format!("{title} on {}", machine.name)),
    };
    match output {
        Some(path) => std::fs::write(path, picture)
            .map_err(|error| Unreadable(format!("{}: {error}", path.display())))?,
        None => print(&picture)?,
    }
    Ok(0)
}
