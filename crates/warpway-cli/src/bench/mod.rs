//! `warpway bench`: primitives and collectives, measured and checked between real processes.
//!
//! Started by hand it launches its own ranks; started by a launcher it is one of them. Every benchmark
//! first checks that the right bytes arrive, then times batches of calls; rank 0 prints.

mod all_gather;
mod all_reduce;
mod barrier;
mod fifo;
mod gpu;
mod links;
mod memcpy;
mod pattern;
mod plan;
mod point_to_point;
mod report;
mod session;
mod start;
mod statistics;

use std::ffi::OsString;

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};
use warpway::Transport;

use crate::{launch, size};
use report::{Form, Report};
use session::Session;

/// Measure primitives and collectives between real processes, and check every byte
///
/// Ranks are started as by `warpway launch`, unless a launcher has started this process already.
/// Each row is one size: median, fastest and 99th percentile time of one call, bandwidth, and how many
/// elements were wrong in the checked rounds (always awaited to be 0; the exit code is 1 otherwise).
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_long_help = "\
Bandwidth is bytes / median time; the bus bandwidth of a collective counts what each link carries,
as nccl-tests does: all_gather (n-1)/n, all_reduce 2(n-1)/n. Sizes are bytes of the larger buffer.

Examples:
  warpway bench all_gather
  warpway bench ping_pong packets --json
  warpway bench put --transport tcp --max-bytes 256M
  warpway launch -n 8 -- warpway bench all_reduce
  warpway bench gpu all --quick                between two GPUs; see `warpway bench gpu --help`
  warpway bench plan allreduce.json            an execution plan; see `warpway bench plan --help`")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// What to measure
    #[arg(required = true, value_enum)]
    what: Vec<What>,
    /// Number of ranks; default 4 for barrier and collectives, 2 otherwise
    #[arg(short = 'n', long = "ranks", value_parser = clap::value_parser!(u32).range(1..=1024))]
    n_ranks: Option<u32>,
    /// Smallest size, at least 1; suffixes K, M, G
    #[arg(long, default_value = "8", value_parser = bytes)]
    min_bytes: u64,
    /// Largest size, up to 1024G
    #[arg(long, default_value = "64M", value_parser = bytes)]
    max_bytes: u64,
    /// Factor between sizes
    #[arg(long, default_value = "8", value_parser = clap::value_parser!(u64).range(2..))]
    factor: u64,
    /// These sizes instead, as for `bench plan` and `bench gpu`; suffixes K, M, G
    #[arg(long, value_delimiter = ',', value_parser = bytes, conflicts_with_all = ["min_bytes", "max_bytes", "factor"])]
    bytes: Vec<u64>,
    /// How bytes travel; auto is shared memory on one host
    #[arg(long, value_enum, default_value = "auto")]
    transport: Way,
    /// Blocks (threads) per rank that share the work, where the benchmark can use several
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u32).range(1..=64))]
    blocks: u32,
    /// Timed batches per size; the median is over these
    #[arg(long, default_value = "21", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batches: u32,
    /// Producers of the FIFO benchmark
    #[arg(long, default_value = "1,4", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=256))]
    producers: Vec<u32>,
    /// Print one JSON document in place of the table
    #[arg(long)]
    json: bool,
    /// Print a line of JSON per row, as `cargo xtask bench` compares them
    #[arg(long, conflicts_with = "json")]
    contest: bool,
}

/// Benchmarks with arguments of their own.
#[derive(Subcommand)]
enum Command {
    Gpu(gpu::Arguments),
    Plan(plan::Arguments),
}

/// One benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum What {
    /// One-sided write, then flush
    Put,
    /// One-sided read (shared memory only)
    Get,
    /// Write with signal; the peer waits and answers with a signal
    PutSignal,
    /// LL16 packets there and back (shared memory only)
    Packets,
    /// 8 bytes there and back: signal and wait
    PingPong,
    /// FIFO push, poll, pop; no ranks
    Fifo,
    /// Plain copy of as many bytes between this rank's own buffers, by all ranks at once
    Memcpy,
    /// From launching the ranks until all have joined, passed a barrier and ended
    Start,
    /// Barrier on semaphores
    Barrier,
    /// Every rank's part to every rank
    AllGather,
    /// Sum of f32 over all ranks to every rank
    AllReduce,
}

impl What {
    fn default_ranks(self) -> u32 {
        match self {
            Self::Barrier | Self::AllGather | Self::AllReduce => 4,
            Self::Start => 64,
            _ => 2,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Way {
    Auto,
    Shared,
    Tcp,
}

impl Way {
    fn transport(self) -> Option<Transport> {
        match self {
            Self::Auto => None,
            Self::Shared => Some(Transport::SharedMemory),
            Self::Tcp => Some(Transport::Ethernet),
        }
    }
}

/// Runs the benchmarks, or launches the ranks that do.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    match &arguments.command {
        Some(Command::Gpu(arguments)) => return gpu::run(arguments),
        Some(Command::Plan(arguments)) => return plan::run(arguments),
        None => {}
    }
    anyhow::ensure!(arguments.min_bytes >= 1, "--min-bytes must be at least 1");
    anyhow::ensure!(!arguments.bytes.contains(&0), "--bytes: a size is at least 1");
    anyhow::ensure!(arguments.min_bytes <= arguments.max_bytes, "--min-bytes is above --max-bytes");
    if arguments.what == [What::Fifo] {
        let mut report = Report::new(0, 1, arguments.form());
        fifo::run(arguments, &mut report)?;
        return report.finish();
    }
    if !session::is_launched()? {
        return if arguments.what == [What::Start] {
            start::run(arguments)
        } else {
            launch_ranks(arguments.n_ranks())
        };
    }
    if arguments.what == [What::Start] {
        return start::rank();
    }
    let session = Session::join(arguments.transport.transport())?;
    let mut report = Report::new(session.rank(), session.n_ranks(), arguments.form());
    // The peers are to hear the reason, not only that this rank has left.
    run_all(&session, arguments, &mut report).inspect_err(|error| session.comm().abort(error.to_string()))?;
    report.finish()
}

fn run_all(session: &Session, arguments: &Arguments, report: &mut Report) -> warpway::Result<()> {
    for what in &arguments.what {
        match what {
            What::Put | What::Get | What::PutSignal | What::Packets | What::PingPong => {
                point_to_point::run(*what, session, arguments, report)?;
            }
            What::Fifo if session.rank() == 0 => fifo::run(arguments, report)?,
            What::Fifo => {}
            What::Start => {}
            What::Memcpy => memcpy::run(session, arguments, report)?,
            What::Barrier => barrier::run(session, arguments, report)?,
            What::AllGather => all_gather::run(session, arguments, report)?,
            What::AllReduce => all_reduce::run(session, arguments, report)?,
        }
        session.comm().barrier()?;
    }
    Ok(())
}

/// Starts ranks of this very command; the launcher's exit code.
fn launch_ranks(n_ranks: u32) -> anyhow::Result<u8> {
    let own = std::env::current_exe().context("finding this program")?;
    let command: Vec<OsString> = std::iter::once(own.into()).chain(std::env::args_os().skip(1)).collect();
    launch::run(launch::Arguments::of_program(n_ranks, command))
}

impl Arguments {
    fn form(&self) -> Form {
        match (self.contest, self.json) {
            (true, _) => Form::Lines,
            (_, true) => Form::Document,
            _ => Form::Table,
        }
    }

    fn n_ranks(&self) -> u32 {
        let default = || self.what.iter().map(|w| w.default_ranks()).max().unwrap_or(2);
        self.n_ranks.unwrap_or_else(default)
    }

    /// The sizes to measure, each a multiple of `granule`, ascending.
    fn sizes(&self, granule: u64) -> Vec<u64> {
        if !self.bytes.is_empty() {
            let mut sizes: Vec<u64> = self.bytes.iter().map(|size| size.next_multiple_of(granule)).collect();
            sizes.sort_unstable();
            sizes.dedup();
            return sizes;
        }
        let mut sizes = Vec::new();
        let mut size = self.min_bytes;
        loop {
            let rounded = size.next_multiple_of(granule);
            if sizes.last() != Some(&rounded) {
                sizes.push(rounded);
            }
            match size.checked_mul(self.factor) {
                Some(next) if next <= self.max_bytes => size = next,
                _ => return sizes,
            }
        }
    }
}

/// A size that benchmarks can take.
fn bytes(text: &str) -> Result<u64, String> {
    let bytes = size::parse(text)?;
    if bytes <= MAX_BYTES { Ok(bytes) } else { Err(format!("`{text}` is more than 1024G")) }
}

/// Sizes are rounded up and multiplied by small numbers on their way; up to here nothing overflows.
const MAX_BYTES: u64 = 1 << 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn sizes_are_a_list_or_a_range() {
        use clap::Parser as _;

        let line = |words: &str| Line::try_parse_from(["bench", "put"].into_iter().chain(words.split(' ')));
        let sizes =
            |words, granule| line(words).map(|line| line.arguments.sizes(granule)).map_err(|e| e.kind());
        assert_eq!(sizes("--bytes 4K,1001,1K,5", 8), Ok(vec![8, 1008, 1024, 4096]));
        assert_eq!(sizes("--bytes 1001,1K", 64), Ok(vec![1024]));
        assert_eq!(sizes("--min-bytes 10 --max-bytes 1000 --factor 10", 8), Ok(vec![16, 104, 1000]));
        assert_eq!(sizes("--bytes 1K --max-bytes 1M", 8), Err(clap::error::ErrorKind::ArgumentConflict));
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let read = |text| bytes(text).ok();
        assert_eq!(
            [read("0"), read("17"), read("4k"), read("64M")],
            [Some(0), Some(17), Some(4096), Some(64 << 20)]
        );
        assert_eq!([read("1GiB"), read("2KB"), read("9b")], [Some(1 << 30), Some(2048), Some(9)]);
        assert_eq!([read(""), read("k"), read("-1"), read("1.5M"), read("20000000000G")], [None; 5]);
        assert_eq!([read("1024G"), read("1025G"), read("18446744073709551615")], [Some(1 << 40), None, None]);
    }
}
