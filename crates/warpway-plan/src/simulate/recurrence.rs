//! Very large worlds: one rank in place of all.
//!
//! In an algorithm that is the same on every rank, ranks that begin together reach each step together, so the time at
//! which a typical one has done step `k + 1` follows from that of step `k`, and from what all of them ask of memory,
//! interfaces and links at once. That takes time and memory independent of the number of ranks, and agrees with the event
//! simulation as far as the symmetry goes: not with stragglers, nor where steps of different kinds overlap.

use super::machine::{Machine, MemoryLevel, SharedLink};
use crate::data_type::DataType;

/// The clock of a typical rank among `hosts` hosts of `ranks` ranks, each with one block.
#[derive(Debug, Clone)]
pub struct Recurrence<'m> {
    machine: &'m Machine,
    hosts: u64,
    ranks: u64,
    level: MemoryLevel,
    fold_rate: f64,
    now: f64,
}

impl<'m> Recurrence<'m> {
    /// At the beginning of a launch. `footprint` is what a block touches; `handshake` says that ranks of a host touch each
    /// other's inputs or outputs.
    pub fn new(
        machine: &'m Machine,
        (hosts, ranks): (u32, u32),
        (footprint, data_type): (u64, DataType),
        handshake: bool,
    ) -> Self {
        let level = machine.host(0).map_or(MemoryLevel::FREE, |host| host.level(footprint));
        let fold_rate = machine.fold_rate(data_type);
        let (hosts, ranks) = (u64::from(hosts), u64::from(ranks));
        let mut clock = Self { machine, hosts, ranks, level, fold_rate, now: machine.costs.launch_ns };
        if clock.hosts * clock.ranks > 1 {
            clock.now += machine.costs.announce_ns;
        }
        if handshake {
            clock.now += clock.flight(machine.costs.signal_flight_ns) + machine.costs.handshake_ns;
        }
        clock
    }

    /// Nanoseconds since the launch began.
    pub fn now(&self) -> f64 {
        self.now
    }

    /// `times` copies of so many bytes.
    pub fn copy(&mut self, times: u64, bytes: u64) {
        let (alone, all) = (self.level.copy, self.level.all_cores);
        self.moves(times, bytes as f64 / alone, bytes as f64 / all);
    }

    /// `times` folds of so many sources of so many bytes each, stored to so many places.
    pub fn fold(&mut self, times: u64, bytes: u64, sources: u64, destinations: u64) {
        let passes = (sources + destinations) as f64 / 3.0 * bytes as f64;
        let arithmetic = bytes as f64 * sources.saturating_sub(1) as f64 / self.fold_rate;
        self.moves(times, (passes / self.level.fold).max(arithmetic), passes / self.level.fold_all_cores);
    }

    /// Packets of so many bytes written to so many peers.
    pub fn write_packets(&mut self, peers: u64, bytes: u64) {
        let bytes = bytes as f64;
        let time = bytes / 2.0 / self.level.copy + bytes / self.machine.costs.packet_write;
        self.moves(peers, time, 1.5 * bytes / self.level.all_cores);
    }

    /// Signals to so many ranks of the host, and as many waits for theirs.
    pub fn meet(&mut self, peers: u64) {
        if peers == 0 {
            return;
        }
        let costs = &self.machine.costs;
        let given = peers as f64 * (costs.step_ns + costs.signal_ns);
        let taken = costs.step_ns + costs.wait_ns;
        // The last one to be taken was given last.
        self.now += given + self.flight(costs.signal_flight_ns) + taken;
    }

    /// Requests `messages` messages of so many bytes to ranks of other hosts, in which all ranks of a host take part; when
    /// the last has arrived.
    pub fn send(&mut self, messages: u64, bytes: u64) -> f64 {
        let costs = &self.machine.costs;
        let begun = self.now + costs.step_ns + costs.request_ns + costs.proxy_ns;
        let count = messages as f64;
        let asked = count * (costs.step_ns + costs.request_ns);
        let taken = (count - 1.0).max(0.0) * costs.proxy_ns.max(costs.step_ns + costs.request_ns);
        let mut drained = 0.0f64;
        let mut last = 0.0f64;
        if let Some(host) = self.machine.host(0).filter(|host| !host.nics.is_empty()) {
            let nic = host.nics[0];
            let per_nic = self.ranks.div_ceil(host.nics.len() as u64) as f64;
            let one = bytes.max(1) as f64 / nic.rate;
            let gap = if nic.in_turn { one + nic.message_ns } else { one.max(nic.message_ns) };
            drained = per_nic * count * gap;
            last = one;
        }
        for link in &self.machine.links {
            let leaving = self.leaving(link);
            if leaving > 0.0 {
                drained = drained.max(leaving * self.ranks as f64 * count * bytes as f64 / link.rate);
            }
        }
        self.now += asked;
        (begun + drained).max(begun + taken + last) + self.latency()
    }

    /// Waits for so many messages, the last of which arrives at `arrival`.
    pub fn receive(&mut self, messages: u64, arrival: f64) {
        let taken = self.machine.costs.step_ns + self.machine.costs.wait_ns;
        let earlier = self.now + messages.saturating_sub(1) as f64 * taken;
        self.now = earlier.max(arrival) + taken;
    }

    /// Waits until as many messages, the last of which arrives at `arrival`, are known to have arrived.
    pub fn flush(&mut self, messages: u64, arrival: f64) {
        self.now = self.now.max(arrival + self.latency()) + messages as f64 * self.machine.costs.step_ns;
    }

    /// Hosts inside a link, times the share of their messages that leave it.
    fn leaving(&self, link: &SharedLink) -> f64 {
        let inside = link.inside.iter().filter(|host| u64::from(**host) < self.hosts).count() as f64;
        inside * (self.hosts as f64 - inside) / self.hosts.saturating_sub(1).max(1) as f64
    }

    /// One way between hosts, for the messages that take longest.
    fn latency(&self) -> f64 {
        let crossed = self.machine.links.iter().filter(|link| self.leaving(link) > 0.0);
        self.machine.wire_latency_ns + crossed.map(|link| link.latency_ns).fold(0.0, f64::max)
    }

    /// Operations that move bytes, of all ranks of a host at once.
    fn moves(&mut self, times: u64, alone: f64, memory: f64) {
        let cores = self.machine.host(0).map_or(1, |host| host.cores.max(1));
        let crowd = (self.ranks as f64 / f64::from(cores)).max(1.0);
        let shared = (alone * crowd).max(memory * self.ranks as f64);
        self.now += times as f64 * (self.machine.costs.step_ns + shared);
    }

    fn flight(&self, nanoseconds: f64) -> f64 {
        let is_crowded = self.machine.host(0).is_some_and(|host| self.ranks > u64::from(host.cores));
        nanoseconds + if is_crowded { self.machine.costs.switch_ns } else { 0.0 }
    }
}
