//! What it costs to build and write an all-to-all, for ranks and blocks given: `build_all_to_all 512 16`. Prints time and
//! the greatest resident size of the process; builds half as many ranks first, to show how both grow.
#![allow(clippy::expect_used, reason = "an example fails by panicking")]

use std::io::{self, Write};
use std::time::Instant;

use warpway_plan::{Style, testing};

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse().expect("a number"));
    let (n_ranks, blocks) = (arguments.next().unwrap_or(512), arguments.next().unwrap_or(16));
    println!(
        "{:>6} {:>6} {:>10} {:>9} {:>9} {:>9} {:>9}",
        "ranks", "blocks", "calls", "build", "write", "MB", "peak MiB"
    );
    for n_ranks in [n_ranks / 2, n_ranks] {
        measure(n_ranks, blocks);
    }
}

fn measure(n_ranks: u32, blocks: u32) {
    let started = Instant::now();
    let plan = testing::all_to_all(n_ranks, blocks).expect("a plan");
    let built = started.elapsed();
    let mut sink = Counter(0);
    plan.write_json(&mut sink, Style::Compact).expect("a counter never fails");
    let written = started.elapsed() - built;
    // Per peer: two signals, two waits, one put; per rank: one copy.
    let calls = u64::from(n_ranks) * (5 * u64::from(n_ranks - 1) + 1);
    let (build, write, megabytes) = (built.as_secs_f64(), written.as_secs_f64(), sink.0 as f64 / 1e6);
    let peak = peak_resident_kib().map_or(f64::NAN, |kib| kib as f64 / 1024.0);
    println!("{n_ranks:>6} {blocks:>6} {calls:>10} {build:>8.3}s {write:>8.3}s {megabytes:>9.1} {peak:>9.0}");
}

struct Counter(u64);

impl Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// As Linux counts it.
fn peak_resident_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
