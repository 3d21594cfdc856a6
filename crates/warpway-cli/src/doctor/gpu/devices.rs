//! Each device, and whether it can be used.

use serde::Serialize;
use warpway_cuda::{Context, Driver, GpuInfo};

use super::Gpus;
use super::exports::{self, ExportsJson};
use crate::doctor::report::{Area, Status, bytes};

#[derive(Debug, Serialize)]
pub(super) struct DeviceJson {
    pub(super) ordinal: i32,
    name: String,
    uuid: String,
    pci: String,
    /// `9.0`.
    compute_capability: String,
    multiprocessors: u32,
    copy_engines: u32,
    memory_bytes: u64,
    /// Unknown if no context could be made.
    free_bytes: Option<u64>,
    shared_memory_per_block_bytes: u64,
    /// The hardware has multicast. Nothing was tried.
    pub(super) multicast_hardware: bool,
    /// What was tried; unknown if no context could be made.
    exports: Option<ExportsJson>,
}

impl DeviceJson {
    pub(super) fn can_share(&self) -> bool {
        self.exports.as_ref().is_some_and(ExportsJson::within_host)
    }
}

/// Adds all devices; the contexts of those that can be used.
pub(super) fn check(area: &mut Area<'_>, gpus: &mut Gpus, driver: &Driver) -> Vec<Context> {
    let count = match driver.device_count() {
        Ok(count) => count,
        Err(error) => {
            area.add("devices", Status::Warn, format!("unknown: {error}"), "see nvidia-smi");
            return Vec::new();
        }
    };
    if count == 0 {
        area.add("devices", Status::Warn, "none is visible", "look at CUDA_VISIBLE_DEVICES and nvidia-smi");
    }
    (0..count).filter_map(|ordinal| device(area, gpus, driver, ordinal)).collect()
}

fn device(area: &mut Area<'_>, gpus: &mut Gpus, driver: &Driver, ordinal: i32) -> Option<Context> {
    let name = format!("GPU {ordinal}");
    let info = match driver.device(ordinal) {
        Ok(info) => info,
        Err(error) => {
            area.add(name, Status::Warn, error.to_string(), "see nvidia-smi");
            return None;
        }
    };
    let mut found = describe(&info);
    let context = match Context::primary(driver, ordinal) {
        Ok(context) => context,
        Err(error) => {
            area.add(
                name,
                Status::Warn,
                format!("{}; cannot be used: {error}", line(&found)),
                "another process may have its memory, or all of it (exclusive mode): see nvidia-smi",
            );
            gpus.devices.push(found);
            return None;
        }
    };
    match context.free_memory() {
        Ok(free) => {
            found.free_bytes = Some(free);
            area.ok(&name, line(&found));
        }
        Err(error) => area.add(&name, Status::Warn, format!("{}; {error}", line(&found)), "see nvidia-smi"),
    }
    found.exports = Some(exports::check(area, &context));
    gpus.devices.push(found);
    Some(context)
}

fn describe(info: &GpuInfo) -> DeviceJson {
    DeviceJson {
        ordinal: info.ordinal,
        name: info.name.clone(),
        uuid: uuid(info.uuid),
        pci: info.pci.0.clone(),
        compute_capability: format!("{}.{}", info.architecture.major, info.architecture.minor),
        multiprocessors: info.multiprocessors,
        copy_engines: info.copy_engines,
        memory_bytes: info.memory,
        free_bytes: None,
        shared_memory_per_block_bytes: info.shared_memory,
        multicast_hardware: info.multicast,
        exports: None,
    }
}

fn line(device: &DeviceJson) -> String {
    let free = device.free_bytes.map_or(String::new(), |free| format!(" ({} free)", bytes(free)));
    format!(
        "{}, compute capability {}, {} SMs, {} copy engines, {}{free}, at {}, {}",
        device.name,
        device.compute_capability,
        device.multiprocessors,
        device.copy_engines,
        bytes(device.memory_bytes),
        device.pci,
        device.uuid
    )
}

/// As nvidia-smi and `CUDA_VISIBLE_DEVICES` have it: `GPU-` and 8-4-4-4-12 digits.
fn uuid(bytes: [u8; 16]) -> String {
    let mut text = String::from("GPU");
    for (at, byte) in bytes.iter().enumerate() {
        let dash = if matches!(at, 0 | 4 | 6 | 8 | 10) { "-" } else { "" };
        text += &format!("{dash}{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::uuid;

    #[test]
    fn uuids_are_written_as_nvidia_smi_does() {
        let bytes = std::array::from_fn(|at| at as u8 * 17);
        assert_eq!(uuid(bytes), "GPU-00112233-4455-6677-8899-aabbccddeeff");
    }
}
