//! Closed forms that no run of the plan can beat on the machine: its bytes over the busiest resource, and its longest
//! chain of messages.

use super::machine::{Machine, MemoryLevel};

/// Lower bounds of a launch's time.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Bound {
    /// The greatest load of a resource (bytes over its rate) or of a block (its steps one after the other).
    pub busiest_ns: f64,
    /// Which it is.
    pub busiest: String,
    /// Messages (signals, packets, transfers between hosts) that follow each other on the longest chain.
    pub hops: u32,
    /// What these hops take by latency alone.
    pub latency_ns: f64,
}

impl Bound {
    /// The greater of the two.
    pub fn ns(&self) -> f64 {
        self.busiest_ns.max(self.latency_ns)
    }
}

/// The machine with nothing but its latencies: what a run on it takes is the longest chain.
pub(super) fn latencies_only(machine: &Machine) -> Machine {
    let mut bare = machine.clone();
    let costs = &mut bare.costs;
    let all = [
        &mut costs.launch_ns,
        &mut costs.announce_ns,
        &mut costs.blocks_ns,
        &mut costs.handshake_ns,
        &mut costs.step_ns,
        &mut costs.signal_ns,
        &mut costs.wait_ns,
        &mut costs.barrier_ns,
        &mut costs.line_ns,
        &mut costs.request_ns,
        &mut costs.proxy_ns,
        &mut costs.switch_ns,
    ];
    all.into_iter().for_each(|cost| *cost = 0.0);
    costs.fold.values_mut().for_each(|rate| *rate = f64::INFINITY);
    for host in &mut bare.hosts {
        host.memory = vec![MemoryLevel::FREE];
        host.cores = u32::MAX;
        host.rank_link = None;
        host.nics
            .iter_mut()
            .for_each(|nic| (nic.rate, nic.message_ns, nic.in_turn) = (f64::INFINITY, 0.0, false));
    }
    bare.links.iter_mut().for_each(|link| link.rate = f64::INFINITY);
    bare.stragglers.clear();
    bare
}

/// The same with every latency one nanosecond: what a run on it takes is the number of hops.
pub(super) fn hops_only(machine: &Machine) -> Machine {
    let mut bare = latencies_only(machine);
    (bare.costs.signal_flight_ns, bare.costs.packet_flight_ns, bare.wire_latency_ns) = (1.0, 1.0, 1.0);
    bare.links.iter_mut().for_each(|link| link.latency_ns = 0.0);
    bare
}
