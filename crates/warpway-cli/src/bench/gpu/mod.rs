//! `warpway bench gpu`: device headers, driver and communicators between two GPUs, each figure beside its floor.
//!
//! | file | question it answers |
//! |---|---|
//! | `bandwidth.rs` | put, get, bulk, copy_engine: how fast a buffer crosses |
//! | `flight.rs` | flight, guard: how long a message between kernels takes |
//! | `host.rs` | fifo: from a kernel to the host and back |
//! | `port.rs`, `ranks.rs` | port: port channels between two ranks; ranks that measure when they are told to |
//! | `start.rs`, `first_exchange.rs` | start: what the first use of everything takes |
//! | `turns.rs` | how contestants alternate, and what is kept of their samples |
//! | `figure.rs` | a figure, its comparisons and its target |
//! | `report.rs`, `origin.rs` | table, document, and where the figures come from |

mod bandwidth;
mod figure;
mod first_exchange;
mod flight;
mod host;
mod origin;
mod port;
mod ranks;
mod report;
mod start;
mod turns;

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use clap::{Args, ValueEnum};
use warpway::{Config, Environment};
use warpway_cuda::Driver;
use warpway_cuda::bench::Pair;
use warpway_cuda::jit::Compiler;

use report::Report;

/// Measure device headers and driver between two GPUs, each figure beside its floor, and check every word
///
/// One process drives two GPUs that reach each other's memory. Contestants of one case run
/// in turns, so that both have the same machine; a figure is the median over the rounds, a ratio the median of the
/// rounds' ratios. Buffers are refilled before each run and compared word by word after it.
#[derive(Args)]
#[command(after_long_help = "\
What is measured:
  put          memory channel against plain stores: 8 blocks, one and two per multiprocessor
  get          memory channel against plain loads
  bulk         bulk copies (TMA) of the headers against a plain bulk kernel; sm_90
  copy_engine  copies by the driver, pushed and pulled
  flight       one-way latency by ping-pong: flags, packets, lines, signals; with and without
               deadlines
  guard        what the look at the poison word costs puts and signals
  fifo         a kernel's request to the host, and the ways in which the host can raise a
               peer's word
  port         port channels of two ranks: 8 bytes and a signal, and messages both ways, against
               the same steps with nothing around them and the copy engine alone; by TCP against
               host memory
  start        processes from the first call on: driver, contexts, memory, compiler; and a
               communicator of two ranks until both have exchanged data by a kernel, with an empty
               cache and a warm one
  all          everything, in about a minute and a half (--quick: in half of one)

Floors are plain kernels in several forms; the best one counts. GB/s is per direction, of the slower
one where both are busy. Targets are judged by PASS and MISS lines at the end. A miss is a result:
the exit code is 1 only if a word was wrong or a measurement failed.

Kernels wait 5 s at most, the host 20 s.

Examples:
  warpway bench gpu flight fifo
  warpway bench gpu put --bytes 256M --blocks 8,132
  warpway bench gpu all --quick --json gpu.json")]
pub(super) struct Arguments {
    /// What to measure
    #[arg(required = true, value_enum)]
    what: Vec<What>,
    /// The two GPUs, by the driver's numbers; the same one twice measures a device against itself
    #[arg(long, value_name = "A,B", default_value = "0,1", value_parser = devices)]
    devices: [i32; 2],
    /// Runs of each contestant; default 7, with --quick 3
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Sizes of put, get, bulk, copy_engine and port; suffixes K, M, G. Default: 1K to 256M
    #[arg(long, value_delimiter = ',', value_parser = transfer_bytes)]
    bytes: Vec<u64>,
    /// Blocks of put, get and bulk. Default: 8, and one and two per multiprocessor
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=65_535))]
    blocks: Vec<u32>,
    /// Fewer rounds and sizes
    #[arg(long)]
    quick: bool,
    /// Write everything, the figure of each round included, to a file; `-` prints it as one line after the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The commit that this program was built from, for the file; by default what git says of the current folder
    #[arg(long, value_name = "HASH")]
    commit: Option<String>,
    /// One process's start; the parent asks for it
    #[arg(long, hide = true, value_enum)]
    once: Option<start::Once>,
}

/// One benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum What {
    Start,
    #[value(alias = "copy-engine")]
    CopyEngine,
    Put,
    Get,
    Bulk,
    Flight,
    Guard,
    Fifo,
    Port,
    All,
}

impl What {
    /// In this order: what starts first must find everything cold, and what a driver may take amiss comes last.
    const ORDER: [Self; 9] = [
        Self::Start,
        Self::CopyEngine,
        Self::Put,
        Self::Get,
        Self::Bulk,
        Self::Flight,
        Self::Guard,
        Self::Fifo,
        Self::Port,
    ];

    /// As users write it.
    fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::CopyEngine => "copy_engine",
            Self::Put => "put",
            Self::Get => "get",
            Self::Bulk => "bulk",
            Self::Flight => "flight",
            Self::Guard => "guard",
            Self::Fifo => "fifo",
            Self::Port => "port",
            Self::All => "all",
        }
    }

    /// Whether it moves buffers of `--bytes`.
    fn moves_buffers(self) -> bool {
        matches!(self, Self::CopyEngine | Self::Put | Self::Get | Self::Bulk | Self::Port)
    }
}

/// Measures, prints, writes.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let environment = Environment::of_process()?;
    let loaded = Config::read(&environment)?;
    tracing::subscriber::set_global_default(warpway::log_subscriber(&loaded.config)?)?;
    loaded.notices.iter().for_each(warpway::core::config::Notice::log);
    if let Some(once) = arguments.once {
        return start::child(once, arguments.devices, &loaded.config);
    }
    let driver = Driver::open(&loaded.config.cuda_driver)?;
    check_devices(&driver, arguments.devices)?;
    let compiler = Compiler::new(&loaded.config, &environment);
    let mut report = Report::new();
    // What has been measured is shown even if something else cannot be.
    measure(arguments, &driver, &compiler, &mut report);
    let origin = origin::Origin::find(&driver, arguments.devices, arguments.commit.as_deref())?;
    let code = report.print(&origin);
    if let Some(file) = &arguments.json {
        let command: Vec<String> = std::env::args().collect();
        if file.as_os_str() == "-" {
            println!("{}", report.line(&origin, &command)?);
        } else {
            let text = report.document(&origin, &command)?;
            std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
        }
    }
    Ok(code)
}

fn measure(arguments: &Arguments, driver: &Driver, compiler: &Compiler, report: &mut Report) {
    let chosen = arguments.chosen();
    let mut pair = None;
    for &what in &chosen {
        let measured = match (what, &pair) {
            (What::Start, _) => start::run(arguments, report),
            (_, Some(pair)) => measure_between(pair, what, arguments, report),
            (_, None) => {
                let opened = Pair::open(driver, compiler, arguments.devices, arguments.most_bytes(&chosen));
                opened
                    .map_err(anyhow::Error::from)
                    .and_then(|opened| measure_between(pair.insert(opened), what, arguments, report))
            }
        };
        if let Err(error) = measured {
            report.fail(what.name(), &format!("{error:#}"));
        }
    }
}

fn measure_between(
    pair: &Pair,
    what: What,
    arguments: &Arguments,
    report: &mut Report,
) -> anyhow::Result<()> {
    match what {
        What::Start | What::All => {}
        What::CopyEngine | What::Put | What::Get | What::Bulk => {
            bandwidth::run(what, pair, arguments, report)?;
        }
        What::Flight => flight::run(pair, arguments, report),
        What::Guard => flight::guard(pair, arguments, report)?,
        What::Fifo => host::run(pair, arguments, report),
        What::Port => port::run(pair, arguments, report)?,
    }
    Ok(())
}

/// Says what is missing before anything is measured.
fn check_devices(driver: &Driver, [first, second]: [i32; 2]) -> anyhow::Result<()> {
    let count = driver.device_count()?;
    for device in [first, second] {
        ensure!(
            (0..count).contains(&device),
            "there is no GPU {device}: {count} visible; see --devices and CUDA_VISIBLE_DEVICES"
        );
    }
    for (from, to) in [(first, second), (second, first)] {
        let link = driver.peer_link(from, to)?;
        ensure!(
            link.access && link.atomics,
            "GPU {from} does not reach the memory of GPU {to} with atomic operations: nothing here can be measured"
        );
    }
    Ok(())
}

impl Arguments {
    fn chosen(&self) -> Vec<What> {
        let wanted = |what: &What| self.what.contains(what) || self.what.contains(&What::All);
        What::ORDER.into_iter().filter(wanted).collect()
    }

    fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.quick { 3 } else { 7 })
    }

    /// Sizes of a benchmark that moves buffers, ascending.
    fn sizes(&self, what: What) -> Vec<u64> {
        let default: &[u64] = match (what, self.quick) {
            (What::Put | What::Port, false) => &[1 << 10, 16 << 10, 256 << 10, 4 << 20, 32 << 20, 256 << 20],
            (What::Put | What::Port, true) => &[1 << 10, 256 << 10, 256 << 20],
            (_, false) => &[256 << 10, 4 << 20, 32 << 20, 256 << 20],
            (_, true) => &[4 << 20, 256 << 20],
        };
        let mut sizes = if self.bytes.is_empty() { default.to_vec() } else { self.bytes.clone() };
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    fn most_bytes(&self, chosen: &[What]) -> u64 {
        let moving = chosen.iter().filter(|what| what.moves_buffers());
        moving.flat_map(|what| self.sizes(*what)).max().unwrap_or(0).max(flight::GUARDED_BYTES)
    }
}

fn devices(text: &str) -> Result<[i32; 2], String> {
    let mut numbers = text.split(',').map(|part| part.trim().parse::<u16>());
    match (numbers.next(), numbers.next(), numbers.next()) {
        (Some(Ok(first)), Some(Ok(second)), None) => Ok([first.into(), second.into()]),
        _ => Err(format!("`{text}` is not two numbers such as 0,1")),
    }
}

/// Of a buffer that kernels copy in vectors.
fn transfer_bytes(text: &str) -> Result<u64, String> {
    let bytes = super::bytes(text)?;
    if bytes >= 16 && bytes.is_multiple_of(16) && bytes <= 16 << 30 {
        Ok(bytes)
    } else {
        Err(format!("`{text}`: a multiple of 16 of at most 16G"))
    }
}
