//! `warpway plan simulate`.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use warpway_plan::Notation;
use warpway_plan::draw::chrome_trace;
use warpway_plan::simulate::{self, Lane, Machine, Simulation};

use super::source::{Planned, Source};
use super::{Unreadable, print, print_json};
use crate::size;

/// Predict how long a plan takes on a machine, and what it waits for
///
/// Every operation of every block is executed in simulated time on the machine of a topology file: docs/simulator.md.
#[derive(Args)]
#[command(after_long_help = "\
`time` is from one end to the next of launches that follow each other; `bound` is what no schedule
of the plan's bytes and messages can beat on that machine. Times are predictions.

Exit code: 0, or 3 for a plan, topology or arguments that make no sense.

Examples:
  warpway plan calibrate -o here.json
  warpway plan simulate --collective all_reduce --algorithm two_shot -n 2 --topology here.json
  warpway plan simulate allreduce.json --bytes 1M --critical --trace trace.json
  warpway plan simulate --example > topology.json
  warpway plan simulate --collective all_reduce --algorithm hierarchical -n 16384 --hosts 2048 \\
      --topology topology.json --estimate")]
pub(super) struct Arguments {
    #[command(flatten)]
    source: Source,
    /// Bytes of the larger buffer of a rank; suffixes K, M, G
    #[arg(long, value_delimiter = ',', default_value = "1K,64K,1M,16M", value_parser = size::parse)]
    bytes: Vec<u64>,
    /// For worlds too large for a plan: follow a typical rank of an algorithm of the catalogue instead
    #[arg(long, requires = "collective", requires = "algorithm", conflicts_with_all = ["critical", "trace", "goal"])]
    estimate: bool,
    /// List what the end of the last message waited for
    #[arg(long)]
    critical: bool,
    /// Write the last message as a Chrome trace, which ui.perfetto.dev opens
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write the last message as a GOAL schedule, the input of LogGOPSim
    #[arg(long, value_name = "FILE")]
    goal: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let Arguments { source, bytes, estimate, critical, trace, goal, json } = arguments;
    if source.prints()? {
        return Ok(0);
    }
    let machine = source.machine()?;
    if *estimate {
        return run_estimate(arguments, &machine);
    }
    let planned = source.plan()?;
    let mut simulations = Vec::new();
    for &size in bytes {
        let found = simulate::simulate(&planned.plan, &machine, &source.request(&planned, size));
        simulations.push((size, found.map_err(|error| Unreadable(error.to_string()))?));
    }
    if *json {
        print_json(&document(&planned, &machine.name, &simulations))?;
    } else {
        print(&table(&planned, &machine.name, &simulations))?;
    }
    let Some((size, last)) = simulations.last() else { return Ok(0) };
    if *critical && !json {
        print(&critical_path(&planned, last))?;
    }
    if let Some(path) = trace {
        let title = format!("{}, {size} bytes", planned.name);
        let text = serde_json::to_string(&chrome_trace(last, &title))?;
        std::fs::write(path, text).map_err(|error| Unreadable(format!("{}: {error}", path.display())))?;
    }
    if let Some(path) = goal {
        let text = simulate::goal(&planned.plan, &machine, &source.request(&planned, *size));
        let text = text.map_err(|error| Unreadable(error.to_string()))?;
        std::fs::write(path, text).map_err(|error| Unreadable(format!("{}: {error}", path.display())))?;
    }
    Ok(0)
}

fn run_estimate(arguments: &Arguments, machine: &Machine) -> anyhow::Result<u8> {
    let Arguments { source, bytes, json, .. } = arguments;
    let mut times = Vec::new();
    for &size in bytes {
        times.push((size, source.estimate(machine, size)?));
    }
    if *json {
        let message = |(bytes, time): &(u64, f64)| json!({"bytes": bytes, "time_us": time / 1e3});
        let messages: Vec<Value> = times.iter().map(message).collect();
        print_json(&json!({"estimate": source.title(), "topology": machine.name, "messages": messages}))?;
        return Ok(0);
    }
    let mut text =
        format!("{}; {}\n{:>12}  {:>12}  {:>8}\n", source.title(), machine.name, "bytes", "time us", "GB/s");
    for (bytes, time) in times {
        // Writing into a string does not fail.
        let _ = writeln!(text, "{bytes:>12}  {:>12.2}  {:>8.2}", time / 1e3, bytes as f64 / time);
    }
    print(&text)?;
    Ok(0)
}

fn table(planned: &Planned, machine: &str, simulations: &[(u64, Simulation)]) -> String {
    let hosts = simulations.first().map_or(1, |(_, s)| s.host_of.iter().max().map_or(1, |last| last + 1));
    let mut text =
        format!("{}: {} ranks on {hosts} hosts; {machine}\n", planned.name, planned.plan.n_ranks());
    // Writing into a string does not fail.
    let _ = writeln!(
        text,
        "{:>12}  {:>10}  {:>8}  {:>10}  {:>5}  busiest",
        "bytes", "time us", "GB/s", "bound us", "hops"
    );
    for (bytes, simulation) in simulations {
        let bound = &simulation.bound;
        let busiest =
            simulation.loads.first().map(|load| format!("{} {:.0} %", load.name, 100.0 * load.busy));
        let _ = writeln!(
            text,
            "{bytes:>12}  {:>10.2}  {:>8.2}  {:>10.2}  {:>5}  {}",
            simulation.total_ns / 1e3,
            simulation.algorithm_rate(*bytes),
            bound.ns() / 1e3,
            bound.hops,
            busiest.unwrap_or_default()
        );
    }
    text
}

fn document(planned: &Planned, machine: &str, simulations: &[(u64, Simulation)]) -> Value {
    let message = |(bytes, simulation): &(u64, Simulation)| {
        let Simulation { total_ns, bound, ranks, loads, .. } = simulation;
        json!({
            "bytes": bytes,
            "time_us": total_ns / 1e3,
            "gigabytes_per_second": simulation.algorithm_rate(*bytes),
            "bound": {"busiest_us": bound.busiest_ns / 1e3, "busiest": bound.busiest,
                "hops": bound.hops, "latency_us": bound.latency_ns / 1e3},
            "ranks": ranks.iter().map(|rank| json!({"start_us": rank.start_ns / 1e3, "end_us": rank.end_ns / 1e3,
                "busy_us": rank.busy_ns / 1e3, "waiting_us": rank.waiting_ns / 1e3})).collect::<Vec<_>>(),
            "loads": loads.iter().map(|load| json!({"name": load.name, "bytes": load.bytes, "busy": load.busy}))
                .collect::<Vec<_>>(),
            "critical_path": simulation.critical_path.iter().map(|id| {
                let span = &simulation.spans[*id];
                json!({"rank": span.rank, "lane": lane(span.lane), "operation": span.path.to_string(), "name": span.name,
                    "start_us": span.start / 1e3, "ready_us": span.ready / 1e3, "end_us": span.end / 1e3})
            }).collect::<Vec<_>>(),
        })
    };
    json!({
        "plan": planned.name,
        "identity": planned.plan.identity().to_string(),
        "ranks": planned.plan.n_ranks(),
        "topology": machine,
        "messages": simulations.iter().map(message).collect::<Vec<_>>(),
    })
}

fn lane(lane: Lane) -> String {
    match lane {
        Lane::Launch => "launch".into(),
        Lane::Block(block) => format!("block {block}"),
        Lane::Proxy => "proxy".into(),
        Lane::Wire(to) => format!("wire to rank {to}"),
    }
}

/// The steps that the end waited for, each with the time that it adds.
fn critical_path(planned: &Planned, simulation: &Simulation) -> String {
    let notation = Notation::new(&planned.plan);
    let mut text = String::from("\nthe end waited for\n       to us      adds\n");
    let mut before = 0.0;
    for id in &simulation.critical_path {
        let span = &simulation.spans[*id];
        let what = match span.lane {
            Lane::Block(block) => {
                let operation = notation.operation(span.rank, block, span.path);
                let of = notation.block(span.rank, block);
                let line = operation.zip(of).map(|(operation, of)| notation.line(span.rank, of, operation));
                line.unwrap_or_else(|| span.name.to_owned())
            }
            _ => span.name.to_owned(),
        };
        let _ = writeln!(
            text,
            "  {:>10.3} {:>9.3}  rank {} {:<10} {what}",
            span.end / 1e3,
            (span.end - before) / 1e3,
            span.rank,
            lane(span.lane)
        );
        before = span.end;
    }
    text
}
