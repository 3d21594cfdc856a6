//! The transports that result: which can be used here, and why the others cannot.

use std::path::Path;

use super::{
    kernel::Features,
    network::Network,
    report::{Report, Status},
};

pub(super) fn check(report: &mut Report, features: &Features, network: &Network) {
    let mut area = report.area("transports");
    if features.shared_memory {
        area.ok("SharedMemory", "available between ranks of this host");
    } else {
        area.add("SharedMemory", Status::Fail, "not available", "see what failed under kernel");
    }
    match (network.loopback, network.other_hosts) {
        (_, true) => area.ok("Ethernet", "available, also to other hosts"),
        (true, false) => area.ok("Ethernet", "available within this host"),
        (false, false) => area.add("Ethernet", Status::Fail, "not available", "see network"),
    }
    let gpu = if Path::new("/dev/nvidiactl").exists() {
        "a GPU's driver is loaded"
    } else {
        "no GPU's driver is loaded"
    };
    area.ok("CudaIpc", format!("not available: this version has no GPU engine ({gpu})"));
    let adapters = std::fs::read_dir("/sys/class/infiniband").map_or(0, Iterator::count);
    area.ok("IB", format!("not available: this version has no RDMA engine ({adapters} adapters found)"));
}
