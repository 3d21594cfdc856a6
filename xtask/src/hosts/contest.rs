//! Holding the contest: iperf3 and the ranks in turns.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use super::file::{File, Round, Summary, VERSION, meaning};
use super::namespaces::Hosts;
use crate::bench::machine::{self, Machine};
use crate::figures;
use crate::run::{cargo, root, step};

const NAME: &str = "collective_two_hosts";

/// Where ranks meet, and where iperf3's server listens.
const MEETING_PORT: u16 = 29_577;
const IPERF3_PORT: u16 = 5201;

/// What one contestant of a round may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Checked calls of `warpway bench`: one before the batches, one after them.
const CHECKED: u64 = 2;

/// Measure all_reduce of two hosts (network namespaces joined by a veth pair) in turns with iperf3, and keep the figures
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Ranks of each host
    #[arg(long, default_value_t = 2)]
    ranks: u32,
    /// Size of the message
    #[arg(long, default_value = "64M")]
    bytes: String,
    /// Rounds: each contestant once
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Batches of all_reduce in a round
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u64).range(1..))]
    batches: u64,
    /// Calls of a batch; one more goes before them
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..10))]
    calls: u64,
    /// Seconds of each run of iperf3
    #[arg(long, default_value_t = 1)]
    seconds: u32,
    /// Limit the wire in each direction, in the words of tc(8): 10gbit
    #[arg(long)]
    rate: Option<String>,
    /// Congestion control of both hosts instead of the machine's: reno, cubic, bbr
    #[arg(long)]
    congestion: Option<String>,
    /// This algorithm instead of the selected one
    #[arg(long)]
    algorithm: Option<String>,
    /// Blocks (threads) per rank instead of what is selected
    #[arg(long)]
    blocks: Option<u32>,
    /// Name of the file under benchmarks/results
    #[arg(long, default_value = NAME)]
    name: String,
    /// Print the figures only, write no file
    #[arg(long)]
    dry: bool,
}

/// Measures; writes the file and the pages that show it.
pub(crate) fn hold(arguments: &Arguments) -> anyhow::Result<()> {
    step("warpway", cargo("build").args(["--release", "--package", "warpway-cli"]))?;
    let hosts = Hosts::new(arguments.rate.as_deref(), arguments.congestion.as_deref())?;
    let (mut rounds, mut last) = (Vec::new(), None);
    for number in 0..arguments.rounds {
        let (one_way, _) = iperf3(&hosts, arguments.seconds, false).context("iperf3 one way")?;
        let (both_ways, program) = iperf3(&hosts, arguments.seconds, true).context("iperf3 both ways")?;
        let exchange = ranks(&hosts, arguments, Function::AllToAll).context("all_to_all")?;
        let before = [hosts.sent(0)?, hosts.sent(1)?];
        let run = ranks(&hosts, arguments, Function::AllReduce).context("all_reduce")?;
        let sent = vec![hosts.sent(0)? - before[0], hosts.sent(1)? - before[1]];
        let round = Round {
            iperf3_one_way: one_way,
            iperf3_both_ways: both_ways,
            exchange_ms: exchange.us / 1e3,
            copies_ms: (run.moved_bytes - exchange.moved_bytes).max(0.0) / run.copy_gb_per_s / 1e6,
            all_reduce_ms: run.us / 1e3,
            all_reduce: run.bytes as f64 / run.us / 1e3,
            calls: CHECKED + arguments.batches * (1 + arguments.calls),
            sent,
        };
        eprintln!("xtask: round {number}: {}", Summary::of(std::slice::from_ref(&round), run.bytes).text());
        rounds.push(round);
        last = Some((run, program));
    }
    let (run, iperf3) = last.context("no rounds")?;
    let summary = Summary::of(&rounds, run.bytes);
    println!("{}\n{}", summary.text(), summary.verdict());
    if arguments.dry {
        return Ok(());
    }
    let (commit, modified) = machine::commit()?;
    let file = File {
        version: VERSION,
        hosts: arguments.name.clone(),
        date: machine::date(),
        commit,
        modified,
        machine: Machine::detect()?,
        command: arguments.line(),
        programs: vec![format!("warpway {}", env!("CARGO_PKG_VERSION")), iperf3],
        link: arguments.link(),
        congestion: hosts.congestion()?,
        meaning: meaning(),
        ranks: 2 * arguments.ranks,
        ranks_per_host: arguments.ranks,
        bytes: run.bytes,
        algorithm: run.algorithm,
        verdict: summary.verdict(),
        summary,
        rounds,
    };
    let path = root().join("benchmarks/results").join(format!("{}.json", file.hosts));
    fs::write(&path, serde_json::to_string_pretty(&file)? + "\n")
        .with_context(|| format!("cannot write {}", path.display()))?;
    eprintln!("xtask: wrote {}", path.display());
    figures::refresh(true)
}

impl Arguments {
    /// What makes such a file.
    fn line(&self) -> String {
        let mut line = format!(
            "cargo xtask bench hosts --ranks {} --bytes {} --rounds {} --batches {} --calls {} --seconds {}",
            self.ranks, self.bytes, self.rounds, self.batches, self.calls, self.seconds
        );
        for (name, value) in
            [("rate", &self.rate), ("congestion", &self.congestion), ("algorithm", &self.algorithm)]
        {
            if let Some(value) = value {
                line += &format!(" --{name} {value}");
            }
        }
        if let Some(blocks) = self.blocks {
            line += &format!(" --blocks {blocks}");
        }
        if self.name != NAME { format!("{line} --name {}", self.name) } else { line }
    }

    fn link(&self) -> String {
        match &self.rate {
            Some(rate) => format!("veth between two network namespaces, limited to {rate} in each direction"),
            None => "veth between two network namespaces".to_owned(),
        }
    }
}

/// What the ranks call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Function {
    AllReduce,
    /// It puts as many bytes on the wire, and folds nothing.
    AllToAll,
}

/// What `warpway bench` says of one size.
struct Figures {
    bytes: u64,
    /// Median over the batches, of the slowest rank.
    us: f64,
    algorithm: Option<String>,
    /// Bytes that the plan reads and writes on all ranks, and what plain copies of all ranks at once move.
    moved_bytes: f64,
    copy_gb_per_s: f64,
}

impl Figures {
    fn read(document: &Value) -> anyhow::Result<Self> {
        let find = |path: &str| document.pointer(path).with_context(|| format!("its document has no {path}"));
        let number = |path: &str| find(path)?.as_f64().with_context(|| format!("{path} is no number"));
        let wrong = number("/rows/0/out_of_place/wrong")?;
        ensure!(wrong == 0.0, "{wrong} elements were wrong");
        Ok(Self {
            bytes: find("/rows/0/bytes")?.as_u64().context("bytes is no number")?,
            us: number("/rows/0/out_of_place/median_us")?,
            algorithm: find("/rows/0/out_of_place/algorithm")?.as_str().map(str::to_owned),
            moved_bytes: number("/rows/0/out_of_place/floor/moved_bytes")?,
            copy_gb_per_s: number("/rows/0/out_of_place/floor/copy_gb_per_s")?,
        })
    }
}

/// Runs all ranks.
fn ranks(hosts: &Hosts, arguments: &Arguments, function: Function) -> anyhow::Result<Figures> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let token = format!("{}-{now}", std::process::id());
    let n_ranks = 2 * arguments.ranks;
    let mut ranks = Group::default();
    for rank in 0..n_ranks {
        let program = root().join("target/release/warpway");
        let host = usize::from(rank >= arguments.ranks);
        let mut command = hosts.command(host, &program.to_string_lossy());
        command
            .env("WARPWAY_COMM_ID", format!("{}:{MEETING_PORT}", hosts.address(0)))
            .env("WARPWAY_BOOTSTRAP_TOKEN", &token)
            .env("WARPWAY_RANK", rank.to_string())
            .env("WARPWAY_WORLD_SIZE", n_ranks.to_string());
        let name = if function == Function::AllReduce { "all_reduce" } else { "all_to_all" };
        command.args(["bench", name, "--json", "--place", "out"]);
        command.args(["--min-bytes", &arguments.bytes, "--max-bytes", &arguments.bytes]);
        command.args(["--batches", &arguments.batches.to_string()]);
        command.args(["--iterations", &arguments.calls.to_string(), "--limit", "1000"]);
        if function == Function::AllReduce {
            if let Some(name) = &arguments.algorithm {
                command.args(["--algorithm", name]);
            }
            if let Some(blocks) = arguments.blocks {
                command.args(["--blocks", &blocks.to_string()]);
            }
        }
        ranks.start(&mut command)?;
    }
    let document = ranks.end()?.swap_remove(0);
    Figures::read(&serde_json::from_str(&document).context("rank 0 gave no document")?)
}

/// 10^9 bytes a second in a direction, and the program's name.
fn iperf3(hosts: &Hosts, seconds: u32, both_ways: bool) -> anyhow::Result<(f64, String)> {
    let port = IPERF3_PORT.to_string();
    let mut server = Group::default();
    server.start(hosts.command(1, "iperf3").args(["-s", "-1", "-p", &port]))?;
    let until = Instant::now() + Duration::from_secs(10);
    let report = loop {
        let mut command = hosts.command(0, "iperf3");
        command.args(["-c", &hosts.address(1), "-p", &port, "-t", &seconds.to_string(), "-J"]);
        if both_ways {
            command.arg("--bidir");
        }
        let mut client = Group::default();
        client.start(&mut command)?;
        let (status, text) = client.end_one()?;
        let report: Value = serde_json::from_str(&text).context("iperf3 gave no report")?;
        match report.get("error").and_then(Value::as_str) {
            None if status => break report,
            // The server does not listen yet.
            Some(error) if error.contains("refused") && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(50));
            }
            error => bail!("iperf3: {}", error.unwrap_or("no reason given")),
        }
    };
    server.end()?;
    let rate = |name: &str| {
        let bits = report.pointer(&format!("/end/{name}/bits_per_second")).and_then(Value::as_f64);
        bits.map(|bits| bits / 8e9).with_context(|| format!("iperf3's report has no {name}"))
    };
    let version = report.pointer("/start/version").and_then(Value::as_str).unwrap_or("iperf3");
    let rate = match both_ways {
        false => rate("sum_received")?,
        true => (rate("sum_received")? + rate("sum_received_bidir_reverse")?) / 2.0,
    };
    Ok((rate, version.replace("iperf ", "iperf3 ")))
}

/// Programs that run at the same time. Dropping it ends them.
#[derive(Default)]
struct Group(Vec<Child>);

impl Group {
    fn start(&mut self, command: &mut Command) -> anyhow::Result<()> {
        command.stdout(Stdio::piped()).current_dir(root());
        self.0.push(command.spawn().with_context(|| format!("cannot start {command:?}"))?);
        Ok(())
    }

    /// What each has printed: less than a pipe holds. An error if one fails, or takes longer than [`LIMIT`].
    fn end(mut self) -> anyhow::Result<Vec<String>> {
        let until = Instant::now() + LIMIT;
        for (number, child) in self.0.iter_mut().enumerate() {
            let status = loop {
                if let Some(status) = child.try_wait()? {
                    break status;
                }
                ensure!(Instant::now() < until, "program {number} took more than {} s", LIMIT.as_secs());
                // Rare enough not to disturb.
                std::thread::sleep(Duration::from_millis(20));
            };
            ensure!(status.success(), "program {number} ended with {status}");
        }
        self.0.iter_mut().map(output).collect()
    }

    /// Whether the only one succeeds, and what it has printed.
    fn end_one(mut self) -> anyhow::Result<(bool, String)> {
        let child = self.0.last_mut().context("nothing was started")?;
        // It ends by itself: iperf3 has a time to run for, and gives up connections that fail.
        let text = output(child)?;
        Ok((child.wait()?.success(), text))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn output(child: &mut Child) -> anyhow::Result<String> {
    let pipe = child.stdout.take().context("its output is not ours")?;
    std::io::read_to_string(pipe).context("reading its output")
}
