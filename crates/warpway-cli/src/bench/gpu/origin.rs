//! Where figures come from: machine, GPUs, driver, date and commit.

use std::fmt;
use std::fs;

use serde::Serialize;
use warpway_cuda::{Driver, GpuInfo};

use crate::origin;

/// What a figure must be read with.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Origin {
    date: String,
    commit: String,
    machine: Machine,
}

#[derive(Debug, Clone, Serialize)]
struct Machine {
    #[serde(flatten)]
    host: origin::Machine,
    gpus: Vec<Gpu>,
    /// Of the driver's module; `unknown` where it does not say.
    driver: String,
    cuda: String,
}

#[derive(Debug, Clone, Serialize)]
struct Gpu {
    name: String,
    architecture: String,
    multiprocessors: u32,
    memory: u64,
    pci: String,
}

impl Origin {
    pub(super) fn find(driver: &Driver, devices: [i32; 2], commit: Option<&str>) -> anyhow::Result<Self> {
        let gpus =
            devices.iter().map(|device| driver.device(*device).map(Gpu::from)).collect::<Result<_, _>>()?;
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let unknown = || "unknown".to_owned();
        let version = driver.version();
        Ok(Self {
            date: crate::date::now_utc(),
            commit: commit.map(str::to_owned).or_else(origin::commit_of_folder).unwrap_or_else(unknown),
            machine: Machine {
                host: origin::Machine::this(),
                gpus,
                driver: module_version(&read("/proc/driver/nvidia/version")).unwrap_or_else(unknown),
                cuda: format!("{}.{}", version / 1000, version % 1000 / 10),
            },
        })
    }
}

impl From<GpuInfo> for Gpu {
    fn from(info: GpuInfo) -> Self {
        Self {
            name: info.name,
            architecture: info.architecture.to_string(),
            multiprocessors: info.multiprocessors,
            memory: info.memory,
            pci: info.pci.0,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { gpus, driver, cuda, .. } = &self.machine;
        let names: Vec<&str> = gpus.iter().map(|gpu| gpu.name.as_str()).collect();
        write!(
            f,
            "{}; driver {driver}, CUDA {cuda}; {}; commit {}",
            names.join(" and "),
            self.date,
            self.commit
        )
    }
}

/// `580.159.04` of the line that the driver's kernel module shows.
fn module_version(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("NVRM version:"))?;
    let is_version =
        |word: &&str| word.contains('.') && word.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    line.split_whitespace().find(is_version).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernels_files_say() {
        let text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (x)  Mon\nGCC version:  gcc 12.3.0\n";
        assert_eq!(module_version(text).as_deref(), Some("580.159.04"));
        assert_eq!(module_version("something else"), None);
    }
}
