//! What a figure must be read with: machine, date and commit.

use std::fs;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use crate::run::root;

/// The machine a file was measured on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// Model name of the processor.
    pub(crate) cpu: String,
    /// Cores this process may run on.
    pub(crate) cores: usize,
    /// Release of the kernel.
    pub(crate) kernel: String,
    /// Bytes of memory.
    pub(crate) memory: u64,
}

impl Machine {
    /// This machine.
    pub(crate) fn detect() -> anyhow::Result<Self> {
        let read = |path: &str| fs::read_to_string(path).with_context(|| format!("cannot read {path}"));
        let kilobytes = field(&read("/proc/meminfo")?, "MemTotal").context("no MemTotal in /proc/meminfo")?;
        let kilobytes: u64 = kilobytes.trim_end_matches(" kB").parse()?;
        Ok(Self {
            cpu: field(&read("/proc/cpuinfo")?, "model name")
                .unwrap_or_else(|| std::env::consts::ARCH.into()),
            cores: std::thread::available_parallelism()?.get(),
            kernel: read("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            memory: kilobytes * 1024,
        })
    }
}

/// The first `name : value` line's value.
fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

/// The commit, and whether the working tree differs from it.
pub(crate) fn commit() -> anyhow::Result<(String, bool)> {
    let git = |arguments: &[&str]| -> anyhow::Result<String> {
        let output =
            Command::new("git").args(arguments).current_dir(root()).output().context("cannot run git")?;
        ensure!(output.status.success(), "git {}: {}", arguments.join(" "), output.status);
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    };
    // Result files, and what is made from them, do not change what is measured.
    let made = [":!benchmarks/results", ":!benchmarks/RESULTS.md", ":!README.md", ":!docs/collective_*.svg"];
    let changes = git(&[&["status", "--porcelain", "--", "."][..], &made].concat())?;
    Ok((git(&["rev-parse", "HEAD"])?, !changes.is_empty()))
}

/// Now, in UTC.
pub(crate) fn date() -> String {
    utc(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs())
}

/// Seconds since 1970 as `YYYY-MM-DDThh:mm:ssZ`.
fn utc(seconds: u64) -> String {
    // Years that begin in March end with the leap day, so lengths of months follow a line.
    let days = seconds / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let (month, next) = if march_month < 10 { (march_month + 3, 0) } else { (march_month - 9, 1) };
    let year = era * 400 + year_of_era + next;
    let time = seconds % 86_400;
    format!("{year}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", time / 3600, time / 60 % 60, time % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_as_date_prints_them() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_796_083_274, "2026-12-01T00:01:14Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(seconds), text);
        }
    }

    #[test]
    fn fields_of_the_kernels_files() {
        let text = "processor\t: 0\nmodel name\t: A B: C\nmodel name\t: other\n";
        assert_eq!(field(text, "model name").unwrap(), "A B: C");
        assert_eq!(field(text, "flags"), None);
        let machine = Machine::detect().unwrap();
        assert!(machine.memory > 1 << 20 && machine.cores > 0 && !machine.kernel.is_empty());
    }
}
