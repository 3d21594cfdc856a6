//! `warpway tune`: which algorithm is the fastest on this machine, and why a call takes the one it takes.

mod explain;
mod measure;

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use warpway::{DataType, Function, ReduceOp};
use warpway_collectives::MOST_BLOCKS;

use crate::{bench, launch, size};

/// Measure all algorithms of collectives, and write the table by which calls choose
///
/// Ranks are started as by `warpway launch`, unless a launcher has started this process already. Programs use the table
/// if WARPWAY_TUNING_FILE names it, on the machine and with the library that it was measured on.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Sizes are bytes of the larger one of a rank's buffers. Measurements of other functions, ranks, types and
buffers that the file has already are kept, if they come from this machine and library.

Examples:
  warpway tune
  warpway tune all_reduce all_gather -n 4 --type bfloat16 -o tuning.json
  warpway launch -n 8 -- warpway tune all_reduce
  warpway tune --explain all_reduce --bytes 1M --ranks 8 --hosts 2
  warpway tune --explain broadcast --bytes 4K --table tuning.json --json")]
pub(crate) struct Arguments {
    /// all_reduce, all_gather, …; default all
    #[arg(value_parser = function)]
    functions: Vec<Function>,
    /// Number of ranks
    #[arg(short = 'n', long = "ranks", default_value = "2", value_parser = clap::value_parser!(u32).range(1..=1024))]
    n_ranks: u32,
    /// Smallest size; suffixes K, M, G
    #[arg(long, default_value = "8", value_parser = size::parse)]
    min_bytes: u64,
    /// Largest size
    #[arg(long, default_value = "16M", value_parser = size::parse)]
    max_bytes: u64,
    /// Factor between sizes
    #[arg(long, default_value = "4", value_parser = clap::value_parser!(u64).range(2..))]
    factor: u64,
    /// These sizes instead
    #[arg(long, value_delimiter = ',', value_parser = size::parse, conflicts_with_all = ["min_bytes", "max_bytes", "factor"])]
    bytes: Vec<u64>,
    /// Type of the elements: float32, float16, bfloat16, int32, float8_e4m3fn, …
    #[arg(long = "type", value_name = "TYPE", default_value = "float32")]
    data_type: DataType,
    /// How elements are folded: sum, min, max, prod, avg
    #[arg(long, default_value = "sum", value_parser = operator)]
    op: ReduceOp,
    /// Root of broadcast, reduce, gather and scatter
    #[arg(long, value_name = "RANK", default_value_t = 0)]
    root: u32,
    /// Only in place
    #[arg(long, conflicts_with = "out_of_place")]
    in_place: bool,
    /// Only out of place
    #[arg(long)]
    out_of_place: bool,
    /// Blocks (threads) per rank to try
    #[arg(long, value_delimiter = ',', default_value = "1", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_BLOCKS)))]
    blocks: Vec<u32>,
    /// Timed batches; the median is over these
    #[arg(long, default_value = "11", value_parser = clap::value_parser!(u32).range(1..=1000))]
    batches: u32,
    /// The file to write, and to add to
    #[arg(short, long, value_name = "FILE", default_value = "warpway-tuning.json")]
    output: PathBuf,
    /// Measure nothing: say which algorithm each call takes, and why no other
    #[arg(long)]
    explain: bool,
    /// Hosts that the ranks are spread over evenly, for --explain
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1024), requires = "explain")]
    hosts: u32,
    /// Blocks that a rank has processors for, for --explain
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_BLOCKS)), requires = "explain")]
    room: u32,
    /// The table to choose by, for --explain
    #[arg(long, value_name = "FILE", requires = "explain")]
    table: Option<PathBuf>,
    /// The algorithm that the call wants, for --explain
    #[arg(long, value_name = "NAME", requires = "explain")]
    algorithm: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn function(name: &str) -> Result<Function, String> {
    let known = || Function::NAMED.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(", ");
    Function::from_name(name).ok_or_else(|| format!("there is no function `{name}`; there is {}", known()))
}

fn operator(name: &str) -> Result<ReduceOp, String> {
    let found = ReduceOp::NAMED.iter().find(|(_, other)| *other == name);
    found
        .map(|(op, _)| *op)
        .ok_or_else(|| format!("there is no operator `{name}`; there is sum, min, max, prod, avg"))
}

/// The exit code.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    anyhow::ensure!(arguments.min_bytes <= arguments.max_bytes, "--min-bytes is above --max-bytes");
    if arguments.explain {
        return explain::run(arguments);
    }
    if bench::is_launched()? {
        return measure::run(arguments);
    }
    let own = std::env::current_exe().context("finding this program")?;
    let command: Vec<OsString> = std::iter::once(own.into()).chain(std::env::args_os().skip(1)).collect();
    launch::run(launch::Arguments::of_program(arguments.n_ranks, command))
}

impl Arguments {
    fn functions(&self) -> Vec<Function> {
        match self.functions.is_empty() {
            true => Function::NAMED.iter().map(|(function, _)| *function).collect(),
            false => self.functions.clone(),
        }
    }

    /// Ascending, each once, whole shares of whole elements of `n` ranks.
    fn sizes(&self, n: u32) -> Vec<u64> {
        let granule = u64::from(n) * self.data_type.bytes();
        let mut sizes = self.bytes.clone();
        let mut size = self.min_bytes;
        while sizes.is_empty() || (self.bytes.is_empty() && size <= self.max_bytes) {
            sizes.push(size);
            match size.max(1).checked_mul(self.factor) {
                Some(next) if next <= self.max_bytes => size = next,
                _ => break,
            }
        }
        sizes.iter_mut().for_each(|size| *size = size.next_multiple_of(granule));
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// Out of place, in place.
    fn places(&self) -> Vec<bool> {
        [false, true]
            .into_iter()
            .filter(|place| !(if *place { self.out_of_place } else { self.in_place }))
            .collect()
    }
}
