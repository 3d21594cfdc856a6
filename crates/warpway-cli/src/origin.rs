//! Where figures come from: machine, date, commit, command.

use std::fs;
use std::process::Command;

use serde::Serialize;

/// What a figure must be read with.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Origin {
    command: String,
    commit: String,
    date: String,
    machine: Machine,
}

/// A host, as the files of `benchmarks/results` describe it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Machine {
    cpu: String,
    cores: usize,
    kernel: String,
    /// Bytes.
    memory: u64,
}

impl Origin {
    /// Of this process, now. Its command is shown without the folders of program and files.
    pub(crate) fn of_process() -> Self {
        let words = std::env::args().map(|word| match word.starts_with('/') {
            true => word.rsplit('/').next().unwrap_or_default().to_owned(),
            false => word,
        });
        Self {
            command: words.collect::<Vec<_>>().join(" "),
            commit: commit_of_folder().unwrap_or_else(|| "unknown".to_owned()),
            date: crate::date::now_utc(),
            machine: Machine::this(),
        }
    }
}

impl Machine {
    /// This one.
    pub(crate) fn this() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let memory = field(&read("/proc/meminfo"), "MemTotal").and_then(|kilobytes| {
            kilobytes.strip_suffix(" kB").and_then(|number| number.parse::<u64>().ok())
        });
        Self {
            cpu: field(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown".to_owned()),
            cores: std::thread::available_parallelism().map_or(0, Into::into),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            memory: memory.unwrap_or(0).saturating_mul(1024),
        }
    }
}

/// What is checked out where the command was started, if that is a repository.
pub(crate) fn commit_of_folder() -> Option<String> {
    let output =
        Command::new("git").args(["rev-parse", "HEAD"]).output().ok().filter(|o| o.status.success())?;
    String::from_utf8(output.stdout).ok().map(|text| text.trim().to_owned())
}

/// The value of the first line `name : value`.
fn field(text: &str, name: &str) -> Option<String> {
    let values = text.lines().filter_map(|line| line.split_once(':'));
    values.into_iter().find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernels_files_say() {
        assert_eq!(field("a : 1\nmodel name\t: A B: C\n", "model name").as_deref(), Some("A B: C"));
        assert_eq!(field("a : 1\n", "model name"), None);
    }
}
