//! The driver: whether there is one, which, and what is in the way.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use warpway::{Config, Error};
use warpway_core::config::EngineChoice;
use warpway_cuda::Driver;

use super::Gpus;
use crate::doctor::report::{Area, Status};

#[derive(Debug, Serialize)]
pub(super) struct DriverJson {
    /// The CUDA version that it supports: `13.0`.
    cuda: String,
    /// The library.
    file: Option<PathBuf>,
    /// The version of the kernel's module: `580.159.04`.
    kernel_module: Option<String>,
}

pub(super) fn check(area: &mut Area<'_>, gpus: &mut Gpus, config: &Config) -> Option<Driver> {
    let kernel_module = fs::read_to_string("/proc/driver/nvidia/version").ok();
    let kernel_module = kernel_module.as_deref().and_then(version_of_module).map(str::to_owned);
    let driver = match Driver::open(&config.cuda_driver) {
        Ok(driver) => driver,
        Err(error) => {
            absent(area, config, kernel_module.as_deref(), &error);
            return None;
        }
    };
    let version = driver.version();
    let found = DriverJson {
        cuda: format!("{}.{}", version / 1000, version % 1000 / 10),
        file: driver.file(),
        kernel_module,
    };
    let file = found.file.as_deref().unwrap_or(&config.cuda_driver).display();
    let module =
        found.kernel_module.as_ref().map_or(String::new(), |module| format!(", kernel module {module}"));
    area.ok("driver", format!("CUDA {} ({file}){module}", found.cuda));
    gpus.driver = Some(found);
    Some(driver)
}

/// No driver is a fact on a machine without GPUs, and a fault where there is one or where the user wants one.
fn absent(area: &mut Area<'_>, config: &Config, module: Option<&str>, error: &Error) {
    let (why, hint) = match error {
        Error::Unavailable(absent) => (absent.why.clone(), absent.hint),
        other => (other.to_string(), "see nvidia-smi and the kernel's log"),
    };
    let chosen = config.cuda_driver != Config::default().cuda_driver;
    let hardware = match (controllers(Path::new("/sys/bus/pci/devices")), module) {
        (0, None) => None,
        (count, None) => Some(format!("{count} NVIDIA GPUs on the PCI bus, but no kernel module")),
        (_, Some(module)) => Some(format!("kernel module {module}")),
    };
    let status = if config.engine == EngineChoice::Cuda {
        Status::Fail
    } else {
        Status::warn_if(chosen || hardware.is_some())
    };
    let hardware = hardware.map_or(String::new(), |hardware| format!(" ({hardware})"));
    area.add("driver", status, format!("none: {why}{hardware}"), hint);
}

/// NVIDIA's controllers for graphics and computation that the bus shows, whether or not a driver has them.
fn controllers(bus: &Path) -> usize {
    let Ok(devices) = fs::read_dir(bus) else { return 0 };
    let is_gpu = |device: &Path| {
        let read = |name| fs::read_to_string(device.join(name)).unwrap_or_default();
        read("vendor").trim() == "0x10de" && read("class").starts_with("0x03")
    };
    devices.flatten().filter(|device| is_gpu(&device.path())).count()
}

/// From the text of `/proc/driver/nvidia/version`: the closed module and the open one word it differently.
fn version_of_module(text: &str) -> Option<&str> {
    let (_, rest) = text.lines().find(|line| line.starts_with("NVRM"))?.split_once("Kernel Module")?;
    let is_version =
        |word: &&str| word.contains('.') && word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    rest.split_whitespace().find(is_version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_modules_say_their_version() {
        for line in [
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Tue Mar  3 10:11:12 UTC 2026\nGCC version: 12",
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (root@host)\n",
        ] {
            assert_eq!(version_of_module(line), Some("580.159.04"), "{line}");
        }
        assert_eq!(version_of_module("GCC version: 12.2.0"), None);
    }

    #[test]
    fn only_graphics_and_computation_of_one_maker_count() {
        let bus = std::env::temp_dir().join(format!("warpway-doctor-bus-{}", std::process::id()));
        for (name, vendor, class) in [
            ("0000:17:00.0", "0x10de\n", "0x030200\n"), // computation
            ("0000:18:00.0", "0x10de\n", "0x068000\n"), // a bridge of NVLink
            ("0000:19:00.0", "0x8086\n", "0x030000\n"), // another maker's graphics
        ] {
            fs::create_dir_all(bus.join(name)).unwrap();
            fs::write(bus.join(name).join("vendor"), vendor).unwrap();
            fs::write(bus.join(name).join("class"), class).unwrap();
        }
        let count = controllers(&bus);
        fs::remove_dir_all(&bus).unwrap();
        assert_eq!(count, 1);
        assert_eq!(controllers(&bus), 0);
    }
}
