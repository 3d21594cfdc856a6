//! `warpway bench`: primitives and collectives, measured and checked between real processes.
//!
//! Started by hand it launches its own ranks; started by a launcher it is one of them. Every benchmark
//! first checks that the right bytes arrive, then times batches of calls; rank 0 prints.

mod barrier;
mod collective;
mod fifo;
mod gpu;
mod memcpy;
mod numbers;
mod pattern;
mod plan;
mod point_to_point;
mod report;
mod session;
mod sizes;
mod start;
mod statistics;

use std::ffi::OsString;

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};
use warpway::Transport;

use crate::launch;
use report::{Form, Report};
use session::Session;
pub(crate) use session::is_launched;
use sizes::{Sizes, bytes};

/// Measure primitives and collectives between real processes, and check every byte
///
/// Ranks are started as by `warpway launch`, unless a launcher has started this process already.
/// Each row is one size: median, fastest and 99th percentile time of one call, bandwidth, and how many
/// elements were wrong in the checked rounds (always awaited to be 0; the exit code is 1 otherwise).
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_long_help = "\
Collectives have arguments of their own: see `warpway bench all_reduce --help`.

Examples:
  warpway bench all_gather
  warpway bench all_reduce --vs mpi,gloo --plot all_reduce.svg
  warpway bench ping_pong packets --json
  warpway bench put --transport tcp --max-bytes 256M
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
    #[command(flatten)]
    sizes: Sizes,
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
    #[command(flatten)]
    Collective(collective::Command),
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
    SemaphoreBarrier,
}

impl What {
    fn default_ranks(self) -> u32 {
        match self {
            Self::SemaphoreBarrier => 4,
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
        Some(Command::Collective(command)) => return collective::run(command),
        Some(Command::Gpu(arguments)) => return gpu::run(arguments),
        Some(Command::Plan(arguments)) => return plan::run(arguments),
        None => {}
    }
    arguments.sizes.check()?;
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
            What::SemaphoreBarrier => barrier::run(session, arguments, report)?,
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
        self.sizes.of(granule)
    }
}
