//! The machine that a plan is simulated on: hosts, links, and what primitives cost. Read from a *topology file*.
//!
//! Durations are nanoseconds, rates gigabytes (10^9 bytes) per second, which is bytes per nanosecond.

mod example;
mod read;
mod schema;
mod text;
mod write;

use std::collections::BTreeMap;

pub use read::MachineError;
pub use schema::machine_schema;

use crate::data_type::DataType;

/// What a plan runs on. See `docs/simulator.md` for the file and for how each number enters.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// For people.
    pub name: String,
    /// In order; ranks fill them in order.
    pub hosts: Vec<HostKind>,
    /// How hosts reach each other: one-way latency between any two network interfaces.
    pub wire_latency_ns: f64,
    /// What traffic between hosts crosses besides the interfaces.
    pub links: Vec<SharedLink>,
    /// What primitives cost.
    pub costs: Costs,
    /// Ranks that are slower, or later, than the others.
    pub stragglers: Vec<Straggler>,
}

/// A number of equal hosts.
#[derive(Debug, Clone, PartialEq)]
pub struct HostKind {
    /// How many.
    pub count: u32,
    /// Ranks on each.
    pub ranks: u32,
    /// Blocks that run at the same time on one host; more share them.
    pub cores: u32,
    /// How fast blocks move bytes, by what they touch in one launch; ascending by `up_to_bytes`.
    pub memory: Vec<MemoryLevel>,
    /// Rank `i` of a host uses interface `i` modulo their number.
    pub nics: Vec<Nic>,
    /// What a rank's loads and stores to the other ranks of the host cross, in each direction (NVLink, PCIe). On host
    /// memory there is none.
    pub rank_link: Option<f64>,
}

/// How fast a block moves bytes while it touches up to so many in one launch. Rates between two levels are
/// interpolated over the logarithm of the bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MemoryLevel {
    /// Bytes that the block touches: of what several blocks of a host touch, its share.
    pub up_to_bytes: u64,
    /// One block copies what it alone touches, in GB/s of data.
    pub copy: f64,
    /// The same of all cores at once, together: what blocks of a host share.
    pub all_cores: f64,
    /// One block folds one source into another, in GB/s of one of them: reads two, writes one, by ordinary loads and stores.
    pub fold: f64,
    /// The same of all cores together.
    pub fold_all_cores: f64,
    /// A block copies to itself what another block wrote last; by the bytes of the move, not of the launch.
    pub from_peer: f64,
    /// A block writes where another block read or wrote last; by the bytes of the move.
    pub to_peer: f64,
    /// A block folds what another block wrote last. Loads that wait for arithmetic fetch fewer lines at once than copies do.
    pub fold_from_peer: f64,
    /// A block stores the results of a fold where another block read or wrote last. Stores wait until a line is
    /// theirs; string copies need not.
    pub fold_to_peer: f64,
    /// Data written as packets to a peer.
    pub packet_write: f64,
    /// Data read from packets of a peer.
    pub packet_read: f64,
    /// Data through packets where the reader is right behind the writer: both wait for every line, which goes back and
    /// forth between their caches.
    pub packet_stream: f64,
}

/// A network interface, full duplex.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Nic {
    /// In each direction.
    pub rate: f64,
    /// Between the starts of two messages at least: LogGP's g.
    pub message_ns: f64,
    /// Messages leave one after the other, as LogGP has it; else they share the rate.
    pub in_turn: bool,
}

/// A link that several hosts share when they talk to the others, full duplex.
#[derive(Debug, Clone, PartialEq)]
pub struct SharedLink {
    /// For people.
    pub name: String,
    /// Hosts on one side of it. All others are on the other side.
    pub inside: Vec<u32>,
    /// In each direction.
    pub rate: f64,
    /// Added to the wire's.
    pub latency_ns: f64,
}

/// What primitives cost, apart from moving bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Costs {
    /// A launch, without any operation.
    pub launch_ns: f64,
    /// More for a launch of a rank with peers, which hear of it.
    pub announce_ns: f64,
    /// More for a launch of more than one block.
    pub blocks_ns: f64,
    /// More for a launch that tells its peers, and hears from them, where buffers are.
    pub handshake_ns: f64,
    /// Each operation, whatever it does.
    pub step_ns: f64,
    /// A signal, for the block that gives it.
    pub signal_ns: f64,
    /// From the signal's end until the peer's wait sees it.
    pub signal_flight_ns: f64,
    /// More for each flight on a host with more blocks than cores, where whoever waits has to be let run first.
    pub switch_ns: f64,
    /// A wait whose signal is there, and the end of one that had to wait.
    pub wait_ns: f64,
    /// A barrier of blocks of one rank, from the last arrival on.
    pub barrier_ns: f64,
    /// A read of what another block wrote last, until its first line is there; the rest follows at `from_peer`.
    pub line_ns: f64,
    /// From the store of a packet until the peer sees it.
    pub packet_flight_ns: f64,
    /// A request to the proxy, for the block.
    pub request_ns: f64,
    /// A request, for the proxy; from then on the transfer runs.
    pub proxy_ns: f64,
    /// Bytes of one source folded into another, per second, by type; in cache.
    pub fold: BTreeMap<DataType, f64>,
}

/// A rank that is slower, or later.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Straggler {
    /// Which.
    pub rank: u32,
    /// Everything it does takes so many times as long.
    pub slow_down: f64,
    /// It begins each launch so much later.
    pub start_ns: f64,
}

impl Machine {
    /// A machine to start from: two hosts, all keys in use.
    pub fn example() -> Self {
        example::example()
    }

    /// One host of so many ranks, with a core each, for tests and teaching: round numbers, no caches.
    pub fn plain(ranks: u32) -> Self {
        example::plain(ranks)
    }

    /// Reads a topology file.
    ///
    /// # Errors
    /// The first thing wrong with it, with its line and key.
    pub fn from_json(text: &str) -> Result<Self, MachineError> {
        read::machine(text)
    }

    /// The topology file.
    pub fn to_json(&self) -> String {
        write::machine(self)
    }

    /// Ranks of each host, as the file says.
    pub fn ranks_per_host(&self) -> Vec<u32> {
        let ranks = |kind: &HostKind| std::iter::repeat_n(kind.ranks, kind.count as usize);
        self.hosts.iter().flat_map(ranks).collect()
    }

    /// The kind of a host; hosts beyond the file's are like the last one.
    pub(super) fn host(&self, host: usize) -> Option<&HostKind> {
        let mut before = 0;
        for kind in &self.hosts {
            before += kind.count as usize;
            if host < before {
                return Some(kind);
            }
        }
        self.hosts.last()
    }

    /// Rate of folding a type: its own, else that of the slowest type in the file.
    pub(super) fn fold_rate(&self, data_type: DataType) -> f64 {
        let slowest = || self.costs.fold.values().copied().reduce(f64::min);
        self.costs.fold.get(&data_type).copied().or_else(slowest).unwrap_or(f64::INFINITY)
    }

    pub(super) fn straggler(&self, rank: u32) -> Option<&Straggler> {
        self.stragglers.iter().find(|straggler| straggler.rank == rank)
    }
}

impl HostKind {
    /// The rates for a block that touches so many bytes.
    pub(super) fn level(&self, bytes: u64) -> MemoryLevel {
        let above = self.memory.iter().position(|level| bytes <= level.up_to_bytes);
        let last = self.memory.len().saturating_sub(1);
        let at = above.unwrap_or(last);
        let Some(high) = self.memory.get(at).copied() else { return MemoryLevel::FREE };
        if above.is_none() || at == 0 {
            return MemoryLevel { up_to_bytes: bytes, ..high };
        }
        let low = self.memory[at - 1];
        let log = |bytes: u64| (bytes.max(1) as f64).ln();
        let way = (log(bytes) - log(low.up_to_bytes)) / (log(high.up_to_bytes) - log(low.up_to_bytes));
        // Times are interpolated: they add up.
        let between = |from: f64, to: f64| 1.0 / ((1.0 - way) / from + way / to);
        MemoryLevel {
            up_to_bytes: bytes,
            copy: between(low.copy, high.copy),
            all_cores: between(low.all_cores, high.all_cores),
            fold: between(low.fold, high.fold),
            fold_all_cores: between(low.fold_all_cores, high.fold_all_cores),
            from_peer: between(low.from_peer, high.from_peer),
            to_peer: between(low.to_peer, high.to_peer),
            fold_from_peer: between(low.fold_from_peer, high.fold_from_peer),
            fold_to_peer: between(low.fold_to_peer, high.fold_to_peer),
            packet_write: between(low.packet_write, high.packet_write),
            packet_read: between(low.packet_read, high.packet_read),
            packet_stream: between(low.packet_stream, high.packet_stream),
        }
    }
}

impl MemoryLevel {
    /// Of a host without levels: moving bytes takes no time.
    pub(in crate::simulate) const FREE: Self = Self {
        up_to_bytes: u64::MAX,
        copy: f64::INFINITY,
        all_cores: f64::INFINITY,
        fold: f64::INFINITY,
        fold_all_cores: f64::INFINITY,
        from_peer: f64::INFINITY,
        to_peer: f64::INFINITY,
        fold_from_peer: f64::INFINITY,
        fold_to_peer: f64::INFINITY,
        packet_write: f64::INFINITY,
        packet_read: f64::INFINITY,
        packet_stream: f64::INFINITY,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_between_levels_are_those_of_times_over_the_logarithm() {
        let level = |up_to_bytes, rate| MemoryLevel {
            up_to_bytes,
            copy: rate,
            all_cores: 2.0 * rate,
            fold: rate,
            fold_all_cores: rate,
            from_peer: rate / 2.0,
            to_peer: rate / 4.0,
            ..MemoryLevel::FREE
        };
        let mut host = Machine::plain(2).hosts[0].clone();
        host.memory = vec![level(1 << 10, 40.0), level(1 << 20, 10.0)];
        assert_eq!(host.level(1).copy, 40.0);
        assert_eq!(host.level(1 << 10).copy, 40.0);
        // Half way: 1 / ((1/40 + 1/10) / 2).
        assert!((host.level(1 << 15).copy - 16.0).abs() < 1e-9);
        assert!((host.level(1 << 15).to_peer - 4.0).abs() < 1e-9);
        assert_eq!(host.level(1 << 30).copy, 10.0);
        host.memory.clear();
        assert_eq!(host.level(7).copy, f64::INFINITY);
    }
}
