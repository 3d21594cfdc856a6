//! GPUs: the driver, the devices, how they reach each other, and the compiler of kernels.
//!
//! Contexts are made and small allocations tried, since a container or a driver's settings may forbid what attributes
//! promise; all is given back. Multicast objects are never made, not even to try them.

mod devices;
mod driver;
mod exports;
mod jit;
mod links;

use serde::Serialize;
use warpway::{Config, Environment};
use warpway_core::Unavailable;
use warpway_core::channel::check_multicast;
use warpway_cuda::Context;

use super::report::{Area, Report, Status};

/// What was found, as data; the member `gpu` of `--json`.
#[derive(Debug, Default, Serialize)]
pub(super) struct Gpus {
    driver: Option<driver::DriverJson>,
    devices: Vec<devices::DeviceJson>,
    /// How the first reaches the second, for each ordered pair.
    links: Vec<links::LinkJson>,
    nvrtc: Option<jit::NvrtcJson>,
    cache: Option<jit::CacheJson>,
}

impl Gpus {
    /// How many devices have memory that another process of this host can map.
    pub(super) fn sharing(&self) -> usize {
        self.devices.iter().filter(|device| device.can_share()).count()
    }

    /// How many devices there are.
    pub(super) fn count(&self) -> usize {
        self.devices.len()
    }
}

pub(super) fn check(report: &mut Report, config: &Config, environment: &Environment) -> Gpus {
    let mut gpus = Gpus::default();
    let mut contexts = Vec::new();
    let mut area = report.area("gpu");
    if let Some(driver) = driver::check(&mut area, &mut gpus, config) {
        contexts = devices::check(&mut area, &mut gpus, &driver);
        links::check(&mut area, &mut gpus, &driver, &contexts);
        multicast(&mut area, &gpus, config);
    }
    jit::check(report, &mut gpus, &contexts, config, environment);
    gpus
}

/// What the hardware says it has, and whether it may be used. Nothing is tried.
fn multicast(area: &mut Area<'_>, gpus: &Gpus, config: &Config) {
    let able =
        list(gpus.devices.iter().filter(|device| device.multicast_hardware).map(|device| device.ordinal));
    let Err(Unavailable { why, .. }) = check_multicast(config) else {
        return area.ok("switch channels", format!("allowed; GPUs with multicast: {able}"));
    };
    let wanted = config.enable_multicast && !config.force_disable_nvls;
    area.add(
        "switch channels",
        Status::warn_if(wanted),
        format!("not available: {why}; GPUs with multicast: {able}"),
        if wanted { "unset WARPWAY_ENABLE_MULTICAST; memory channels reach each peer's memory" } else { "" },
    );
}

/// `0 and 1`, `0, 1 and 2`: the ordinals of devices.
fn ordinals<'a>(contexts: impl IntoIterator<Item = &'a Context>) -> String {
    list(contexts.into_iter().map(Context::ordinal))
}

/// `0 and 1`, `0, 1 and 2`.
fn list(numbers: impl IntoIterator<Item = i32>) -> String {
    let mut words: Vec<String> = numbers.into_iter().map(|number| number.to_string()).collect();
    match words.pop() {
        Some(last) if words.is_empty() => last,
        Some(last) => format!("{} and {last}", words.join(", ")),
        None => "none".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::list;

    #[test]
    fn numbers_are_listed_as_people_do() {
        let lists = [0, 1, 2, 3].map(|count| list(0..count));
        assert_eq!(lists, ["none", "0", "0 and 1", "0, 1 and 2"]);
    }
}
