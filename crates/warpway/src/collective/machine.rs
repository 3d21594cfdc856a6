//! The machine that this process runs on, as tables of measurements name it.

use std::fs;

use warpway_collectives::Machine;

/// `cores`: how many the ranks of a host may use.
pub(super) fn this_machine(cores: u64) -> Machine {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find_map(|line| line.split_once(':').filter(|(key, _)| key.trim() == name));
        line.map(|(_, value)| value.trim().to_owned())
    };
    let processors = read("/proc/cpuinfo");
    // Arm's kernels have no model, but the number of the part.
    let cpu = field(&processors, "model name").or_else(|| field(&processors, "CPU part"));
    Machine {
        cpu: cpu.unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
        cores,
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
    }
}
