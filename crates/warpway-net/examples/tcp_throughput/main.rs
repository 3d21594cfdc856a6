//! Throughput and latency of the TCP engine between two processes of this machine, and the same with iperf3.
//!
//! ```text
//! cargo run --release -p warpway-net --example tcp_throughput -- --iperf --json result.json
//! cargo run --release -p warpway-net --example tcp_throughput -- --size 4832100352 --verify
//! ```
//!
//! With `--iperf`, runs alternate between the two, so that a disturbance of the machine hits both alike.

mod peer;
mod report;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;

/// What to measure.
#[derive(Parser)]
struct Arguments {
    /// Bytes of one write.
    #[arg(long, default_value_t = 256 << 20)]
    size: u64,
    /// Writes per run; each is flushed.
    #[arg(long, default_value_t = 8)]
    writes: u32,
    /// Runs; with `--iperf`, pairs of runs.
    #[arg(long, default_value_t = 11)]
    runs: u32,
    /// Round trips of the latency measurement.
    #[arg(long, default_value_t = 20_000)]
    round_trips: u32,
    /// Alternate with iperf3 (one stream, as many bytes).
    #[arg(long)]
    iperf: bool,
    /// Check that every byte has arrived.
    #[arg(long)]
    verify: bool,
    /// Write the result to this file.
    #[arg(long)]
    json: Option<std::path::PathBuf>,
    /// The process at the other end; started by the first one.
    #[arg(long, hide = true)]
    serve: bool,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if arguments.serve {
        return peer::serve();
    }
    let size = arguments.size;
    let client = peer::Client::start(size, arguments.verify)?;
    let mut results = report::Results::default();
    client.fill()?;
    write_run(&client, size, 1)?;
    for _ in 0..arguments.runs {
        let gbits = write_run(&client, size, arguments.writes)?;
        let iperf = arguments.iperf.then(|| iperf(size * u64::from(arguments.writes))).transpose()?;
        match iperf {
            Some(iperf) => {
                println!("write {gbits:6.2} Gbit/s   iperf3 {iperf:6.2} Gbit/s   ratio {:.3}", gbits / iperf)
            }
            None => println!("write {gbits:6.2} Gbit/s"),
        }
        results.write_gbits.push(gbits);
        results.iperf_gbits.extend(iperf);
    }
    if arguments.verify {
        ensure!(client.verify()?, "the bytes at the peer differ from those written");
        results.verified_bytes = size / 8 * 8;
        println!("verified {} bytes at the peer", results.verified_bytes);
    }
    if arguments.round_trips > 0 {
        results.one_way_us = client.ping(arguments.round_trips)?;
        results.flushed_write_us = flushed_writes(&client, arguments.round_trips / 4)?;
    }
    results.print();
    if let Some(path) = &arguments.json {
        std::fs::write(path, results.json(size, arguments.writes)?).context("writing the result")?;
    }
    Ok(())
}

/// Gbit/s of flushed writes, one at a time.
fn write_run(client: &peer::Client, size: u64, writes: u32) -> Result<f64> {
    let begin = Instant::now();
    for _ in 0..writes {
        client.write(size)?;
    }
    Ok((size * u64::from(writes)) as f64 * 8e-9 / begin.elapsed().as_secs_f64())
}

/// Times of an 8-byte write with its flush.
fn flushed_writes(client: &peer::Client, count: u32) -> Result<Vec<f64>> {
    let mut times = Vec::new();
    for _ in 0..count {
        let begin = Instant::now();
        client.write(8)?;
        times.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    Ok(times)
}

/// Gbit/s that iperf3 receives over one stream on loopback.
fn iperf(bytes: u64) -> Result<f64> {
    use std::process::{Command, Stdio};
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
    let mut server = Command::new("iperf3")
        .args(["-s", "-1", "-p", &port])
        .stdout(Stdio::null())
        .spawn()
        .context("starting iperf3; is it installed?")?;
    let mut last = None;
    for _ in 0..50 {
        std::thread::sleep(Duration::from_millis(20));
        let output = Command::new("iperf3")
            .args(["-c", "127.0.0.1", "-p", &port, "-J", "-n", &bytes.to_string()])
            .output()?;
        if output.status.success() {
            last = Some(output.stdout);
            break;
        }
    }
    server.wait()?;
    let report: serde_json::Value = serde_json::from_slice(&last.context("iperf3 did not connect")?)?;
    let rate = report["end"]["sum_received"]["bits_per_second"].as_f64();
    Ok(rate.context("iperf3 reports no rate")? * 1e-9)
}
