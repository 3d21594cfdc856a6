//! Medians, and the result file: machine, date, commit and command beside the figures.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use serde_json::json;

/// What has been measured.
#[derive(Default)]
pub(crate) struct Results {
    pub(crate) write_gbits: Vec<f64>,
    pub(crate) iperf_gbits: Vec<f64>,
    pub(crate) one_way_us: Vec<f64>,
    pub(crate) flushed_write_us: Vec<f64>,
    /// Bytes compared at the peer with the pattern; 0 without `--verify`.
    pub(crate) verified_bytes: u64,
}

impl Results {
    pub(crate) fn print(&self) {
        println!("write, median            {:.2} Gbit/s", quantile(&self.write_gbits, 0.5));
        if !self.iperf_gbits.is_empty() {
            println!("iperf3, median           {:.2} Gbit/s", quantile(&self.iperf_gbits, 0.5));
            println!("ratio of medians         {:.3}", self.ratio());
        }
        for (name, times) in
            [("signal, half round trip", &self.one_way_us), ("8-byte write + flush", &self.flushed_write_us)]
        {
            if !times.is_empty() {
                println!("{name:24} {:.2} us, p99 {:.2} us", quantile(times, 0.5), quantile(times, 0.99));
            }
        }
    }

    fn ratio(&self) -> f64 {
        quantile(&self.write_gbits, 0.5) / quantile(&self.iperf_gbits, 0.5)
    }

    pub(crate) fn json(&self, size: u64, writes: u32) -> Result<String> {
        let times =
            |t: &[f64]| json!({ "median": quantile(t, 0.5), "p99": quantile(t, 0.99), "samples": t.len() });
        let value = json!({
            "benchmark": "tcp_throughput",
            "machine": machine(),
            "date_unix": SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs(),
            "commit": output("git", &["rev-parse", "--short", "HEAD"]),
            "command": std::env::args().skip(1).collect::<Vec<_>>().join(" "),
            "bytes_per_write": size,
            "verified_bytes": self.verified_bytes,
            "writes_per_run": writes,
            "write_gbits": self.write_gbits,
            "write_gbits_median": quantile(&self.write_gbits, 0.5),
            "iperf3_version": output("iperf3", &["--version"]).lines().next(),
            "iperf3_gbits": self.iperf_gbits,
            "iperf3_gbits_median": quantile(&self.iperf_gbits, 0.5),
            "ratio_of_medians": self.ratio(),
            "signal_half_round_trip_us": times(&self.one_way_us),
            "flushed_8_byte_write_us": times(&self.flushed_write_us),
        });
        Ok(serde_json::to_string_pretty(&value)? + "\n")
    }
}

fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let index = (sorted.len().saturating_sub(1)) as f64 * q;
    sorted.get(index.round() as usize).copied().unwrap_or(f64::NAN)
}

fn machine() -> serde_json::Value {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':').map(|(_, m)| m.trim()));
    json!({
        "cpu": model,
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "kernel": output("uname", &["-r"]),
    })
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map_or_else(|_| String::new(), |o| String::from_utf8_lossy(&o.stdout).trim().to_owned())
}
