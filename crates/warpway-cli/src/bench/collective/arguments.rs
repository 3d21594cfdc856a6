//! What a user may say.

use std::path::PathBuf;

use anyhow::ensure;
use clap::{Args, Subcommand, ValueEnum};
use warpway::DataType;
use warpway::plan::ReduceOp;
use warpway_collectives::{Function, MOST_BLOCKS, find};

use super::super::sizes::Sizes;
use super::case::{Operation, Subject};
use super::programs::Rival;
use super::ranks::How;
use super::turns::Pace;

/// A benchmark for each function.
#[derive(Debug, Subcommand)]
#[command(rename_all = "snake_case")]
pub(in super::super) enum Command {
    /// Every rank gets the fold of all inputs
    AllReduce(Arguments),
    /// Every rank gets all inputs
    AllGather(Arguments),
    /// Rank r gets part r of the fold of all inputs
    ReduceScatter(Arguments),
    /// Part r of rank q's input becomes part q of rank r's output
    AllToAll(Arguments),
    /// Every rank gets the root's input
    Broadcast(Arguments),
    /// The root gets the fold of all inputs
    Reduce(Arguments),
    /// The root gets all inputs
    Gather(Arguments),
    /// Rank r gets part r of the root's input
    Scatter(Arguments),
    /// all_gather with counts that are as 1 to 2 to 3 …
    AllGatherV(Arguments),
    /// reduce_scatter with counts that are as 1 to 2 to 3 …
    ReduceScatterV(Arguments),
    /// all_to_all with counts from rank q to rank r that are as 1 + (q + r) mod n
    AllToAllV(Arguments),
    /// No rank returns before all have called it
    Barrier(Arguments),
    /// Every rank sends to the next one, and receives from the one before
    SendRecv(Arguments),
}

/// Arguments of a collective's benchmark.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Ranks are started as by `warpway launch`, unless a launcher has started this process already. Each
row is a size, that of the larger buffer: median time of a call on the slowest rank (a call is one of
a batch of many; caches are warm), size / time, bus bandwidth, and how many elements were wrong on
all ranks in a call with new data before the timed ones and in another after them (always awaited to
be 0; the exit code is 1 otherwise). The count is what nccl-tests calls so: the elements of a part in
functions that have parts, else all.

The bus bandwidth makes functions and numbers of ranks comparable, as in nccl-tests (doc/
PERFORMANCE.md): size / time × 2(n-1)/n for all_reduce, × 1 for broadcast, reduce and send_recv,
× (n-1)/n for all others.

With --vs, the peers' programs take turns with Warpway, batch by batch; ratio is their median time as
a multiple of Warpway's, more than 1 where Warpway is faster. They are built at first use and kept in
the cache folder. They run in the place that --place says, or in the only one that they have: a
broadcast of Open MPI has one buffer, so `--vs` alone compares broadcasts in place, others out of
place.

The floor, from 1 MiB on, is the time in which plain copies by all ranks at once, in the same turns,
would read and write as many bytes as the plan does; shown as a share of the median.

Examples:
  warpway bench all_reduce --type bfloat16 --max-bytes 256M --factor 4
  warpway bench all_gather -n 4 --vs mpi,gloo --plot all_gather.svg
  warpway bench reduce --root 1 --op max --algorithm flat --explain
  warpway launch -n 8 -- warpway bench all_to_all --json")]
pub(in super::super) struct Arguments {
    /// Number of ranks; by default one per core, from 2 to 8
    #[arg(short = 'n', long = "ranks", default_value_t = one_per_core(), hide_default_value = true,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) n_ranks: u32,
    #[command(flatten)]
    sizes: Sizes,
    /// Type of the elements: float32, float16, bfloat16, int32, float8_e4m3fn, …
    #[arg(long = "type", value_name = "TYPE", default_value = "float32")]
    data_type: DataType,
    /// How elements are folded
    #[arg(long, value_enum, default_value = "sum")]
    op: Op,
    /// Root of broadcast, reduce, gather and scatter
    #[arg(long, value_name = "RANK", default_value_t = 0)]
    root: u32,
    /// Two buffers, or one; by default both are measured, with --vs the one that peers have
    #[arg(long, value_enum)]
    place: Option<Place>,
    /// This algorithm instead of the selected one
    #[arg(long, value_name = "NAME")]
    algorithm: Option<String>,
    /// Blocks (threads) per rank, instead of what is selected
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_BLOCKS)))]
    blocks: Option<u32>,
    /// Plain slices instead of registered memory: calls copy them to and from a stage
    #[arg(long)]
    slices: bool,
    /// Timed batches per size at most; the median is over these
    #[arg(long, default_value = "21", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batches: u32,
    /// Calls per batch; by default as many as take two milliseconds
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    iterations: Option<u64>,
    /// Begin no further round of a size after this time, but have five at least
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    limit: f64,
    /// Compare no results
    #[arg(long)]
    no_check: bool,
    /// Also measure these, in turns
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(super) vs: Vec<Rival>,
    /// Say which algorithm was taken for each size, and why not another
    #[arg(long)]
    pub(super) explain: bool,
    /// Print one JSON document in place of the table
    #[arg(long)]
    pub(super) json: bool,
    /// Print a line of JSON per row, as `cargo xtask bench` compares them
    #[arg(long, conflicts_with = "json")]
    pub(super) contest: bool,
    /// Draw time and bus bandwidth over size
    #[arg(long, value_name = "FILE.svg")]
    pub(super) plot: Option<PathBuf>,
}

/// [`ReduceOp`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Op {
    Sum,
    Min,
    Max,
    Prod,
    Avg,
}

/// How many buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Place {
    /// Input and output apart
    Out,
    /// Input and output in one
    In,
    /// One after the other
    Both,
}

fn one_per_core() -> u32 {
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    cores.clamp(2, 8) as u32
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("`{text}` is not a number of seconds"))?;
    if (0.0..=1e6).contains(&seconds) { Ok(seconds) } else { Err(format!("`{text}` is not from 0 to 1e6")) }
}

impl Command {
    pub(super) fn parts(&self) -> (Operation, &Arguments) {
        let (function, arguments) = match self {
            Self::AllReduce(arguments) => (Function::AllReduce, arguments),
            Self::AllGather(arguments) => (Function::AllGather, arguments),
            Self::ReduceScatter(arguments) => (Function::ReduceScatter, arguments),
            Self::AllToAll(arguments) => (Function::AllToAll, arguments),
            Self::Broadcast(arguments) => (Function::Broadcast, arguments),
            Self::Reduce(arguments) => (Function::Reduce, arguments),
            Self::Gather(arguments) => (Function::Gather, arguments),
            Self::Scatter(arguments) => (Function::Scatter, arguments),
            Self::AllGatherV(arguments) => (Function::AllGatherV, arguments),
            Self::ReduceScatterV(arguments) => (Function::ReduceScatterV, arguments),
            Self::AllToAllV(arguments) => (Function::AllToAllV, arguments),
            Self::Barrier(arguments) => (Function::Barrier, arguments),
            Self::SendRecv(arguments) => return (Operation::SendRecv, arguments),
        };
        (function.into(), arguments)
    }
}

impl Arguments {
    /// An error for what cannot be measured, before any rank is started.
    pub(super) fn check(&self, operation: Operation) -> anyhow::Result<()> {
        self.sizes.check()?;
        let Some(function) = operation.collective() else {
            let no =
                |option: &str| format!("{option}: send_recv moves data from one buffer to another as it is");
            ensure!(self.algorithm.is_none(), no("--algorithm"));
            ensure!(self.blocks.is_none(), no("--blocks"));
            ensure!(!self.explain, no("--explain"));
            ensure!(matches!(self.place, None | Some(Place::Out)), no("--place"));
            return Ok(());
        };
        if let Some(name) = &self.algorithm {
            let known: Vec<&str> = warpway_collectives::catalogue()
                .filter(|algorithm| algorithm.function == function)
                .map(|algorithm| algorithm.name)
                .collect();
            ensure!(
                find(function, name).is_some(),
                "--algorithm {name}: {function} has {}",
                if known.is_empty() { "none".to_owned() } else { known.join(", ") }
            );
        }
        Ok(())
    }

    pub(super) fn subject(&self, operation: Operation, n_ranks: u32) -> Subject {
        let op = match self.op {
            Op::Sum => ReduceOp::Sum,
            Op::Min => ReduceOp::Min,
            Op::Max => ReduceOp::Max,
            Op::Prod => ReduceOp::Prod,
            Op::Avg => ReduceOp::Avg,
        };
        Subject { operation, data_type: self.data_type, op, root: self.root, n_ranks }
    }

    pub(super) fn how(&self) -> How {
        How { algorithm: self.algorithm.clone(), blocks: self.blocks, plain: self.slices }
    }

    pub(super) fn pace(&self) -> Pace {
        Pace { batches: self.batches, calls: self.iterations, seconds: self.limit, check: !self.no_check }
    }

    /// A barrier has none.
    pub(super) fn sizes(&self, subject: &Subject) -> Vec<u64> {
        if subject.operation.is_barrier() { vec![0] } else { self.sizes.of(subject.granule()) }
    }

    /// Out of place (false) and in place, as far as they are measured.
    pub(super) fn places(&self, operation: Operation) -> impl Iterator<Item = bool> + use<> {
        let chosen = self.place.unwrap_or(match operation {
            Operation::Collective(Function::Barrier) | Operation::SendRecv => Place::Out,
            Operation::Collective(Function::Broadcast) if !self.vs.is_empty() => Place::In,
            _ if !self.vs.is_empty() => Place::Out,
            _ => Place::Both,
        });
        [false, true].into_iter().filter(move |in_place| match chosen {
            Place::Both => true,
            Place::In => *in_place,
            Place::Out => !in_place,
        })
    }

    /// Registered memory, or slices.
    pub(super) fn memory(&self) -> &'static str {
        if self.slices { "slices" } else { "registered memory" }
    }
}
