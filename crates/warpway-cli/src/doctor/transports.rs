//! The transports that result: which can be used here, and why the others cannot.

use super::{
    gpu::Gpus,
    kernel::Features,
    network::Network,
    report::{Report, Status},
};

pub(super) fn check(report: &mut Report, features: &Features, network: &Network, gpus: &Gpus) {
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
    area.ok("CudaIpc", cuda_ipc(gpus));
    let adapters = std::fs::read_dir("/sys/class/infiniband").map_or(0, Iterator::count);
    area.ok("IB", format!("not available: this version has no RDMA engine ({adapters} adapters found)"));
}

fn cuda_ipc(gpus: &Gpus) -> String {
    match (gpus.sharing(), gpus.count()) {
        (_, 0) => "not available: no GPU can be used".to_owned(),
        (0, _) => "not available: no GPU's memory can be shared (see gpu)".to_owned(),
        (sharing, count) => {
            format!("available between ranks of this host: memory of {sharing} of {count} GPUs can be shared")
        }
    }
}
