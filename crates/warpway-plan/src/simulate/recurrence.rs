//! Very large worlds: the clocks of the ranks of one host in place of events.
//!
//! In an algorithm in which all ranks do the same, the time at which a rank has done step `k + 1` follows from those at which
//! it and its peers have done step `k`, and from what all of them ask of memory, interfaces and links at once. Hosts are
//! alike, so there is a clock for each rank of one host. A step among all ranks of a host takes time in proportion to
//! their number, and memory for a clock each: whom the last signal comes from is a maximum over the ranks before, and one
//! over those behind (max-plus algebra; Baccelli, Cohen, Olsder and Quadrat, *Synchronization and Linearity*).
//!
//! It agrees with the event simulation as far as the symmetry goes: not with stragglers, nor where steps of different kinds
//! overlap.

use super::machine::{Machine, MemoryLevel, SharedLink};
use crate::data_type::DataType;

/// Launches, of which the last half counts, as in a simulation.
const ROUNDS: u32 = 4;

/// The clocks of the ranks of a host, each with one block. See the module's page.
#[derive(Debug, Clone)]
pub struct Recurrence<'m> {
    machine: &'m Machine,
    hosts: u64,
    level: MemoryLevel,
    fold_rate: f64,
    clocks: Vec<f64>,
}

/// In which order a rank gives signals or data to the others of its host. They wait, and read, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// By number.
    Ascending,
    /// The next one first.
    FromRight,
}

/// What a fold or copy of raw data moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// Of each operand.
    pub bytes: u64,
    /// Operands that are read.
    pub sources: u64,
    /// Operands that are written.
    pub destinations: u64,
    /// Operands that another block wrote last.
    pub foreign_sources: u64,
    /// Operands where another block read or wrote last.
    pub foreign_destinations: u64,
}

/// What packets of some bytes cost, for each operation.
struct Packed {
    step: f64,
    flight: f64,
    write: f64,
    read: f64,
}

impl Moved {
    /// From one place to another, both the block's own.
    pub fn copy(bytes: u64) -> Self {
        Self { bytes, sources: 1, destinations: 1, foreign_sources: 0, foreign_destinations: 0 }
    }

    /// From so many places to so many, none in another block's cache.
    pub fn fold(bytes: u64, sources: u64, destinations: u64) -> Self {
        Self { sources, destinations, ..Self::copy(bytes) }
    }

    /// The same from so many places that another block wrote last.
    pub fn from_others(self, foreign_sources: u64) -> Self {
        Self { foreign_sources, ..self }
    }

    /// The same to so many places where another block read or wrote last.
    pub fn to_others(self, foreign_destinations: u64) -> Self {
        Self { foreign_destinations, ..self }
    }
}

impl<'m> Recurrence<'m> {
    /// Nanoseconds of a launch among `hosts` hosts of `ranks` ranks, launches following each other. `footprint` is a block's
    /// share of what the blocks of a host touch; `steps` does to the clocks what one launch does after its beginning.
    pub fn launches(
        machine: &'m Machine,
        (hosts, ranks): (u32, u32),
        (footprint, data_type): (u64, DataType),
        mut steps: impl FnMut(&mut Self),
    ) -> f64 {
        let level = machine.host(0).map_or(MemoryLevel::FREE, |host| host.level(footprint));
        let clocks = vec![0.0; ranks as usize];
        let mut all =
            Self { machine, hosts: u64::from(hosts), level, fold_rate: machine.fold_rate(data_type), clocks };
        let has_peers = u64::from(hosts) * u64::from(ranks) > 1;
        let launch = machine.costs.launch_ns + if has_peers { machine.costs.announce_ns } else { 0.0 };
        let mut half = 0.0;
        for round in 0..ROUNDS {
            if round == ROUNDS / 2 {
                half = all.latest();
            }
            all.pass(launch);
            steps(&mut all);
        }
        (all.latest() - half) / f64::from(ROUNDS - ROUNDS / 2)
    }

    /// Ranks of the host.
    pub fn ranks(&self) -> u64 {
        self.clocks.len() as u64
    }

    /// Nanoseconds on the latest clock.
    pub fn latest(&self) -> f64 {
        self.clocks.iter().copied().fold(0.0, f64::max)
    }

    /// All ranks of the host tell each other where buffers are.
    pub fn handshake(&mut self) {
        if self.clocks.len() > 1 {
            let heard = self.latest() + self.flight(self.machine.costs.signal_flight_ns);
            let costs = self.machine.costs.handshake_ns;
            self.clocks.iter_mut().for_each(|clock| *clock = heard + costs);
        }
    }

    /// Each rank tells the rank `by` before it where its buffers are.
    pub fn handshake_with(&mut self, by: usize) {
        let flight = self.flight(self.machine.costs.signal_flight_ns);
        let n = self.clocks.len();
        let before = self.clocks.clone();
        for (rank, clock) in self.clocks.iter_mut().enumerate() {
            *clock = clock.max(before[(rank + by) % n] + flight) + self.machine.costs.handshake_ns;
        }
    }

    /// The first rank tells all others where its buffers are, or all others tell it.
    pub fn handshake_with_first(&mut self, first_tells: bool) {
        let flight = self.flight(self.machine.costs.signal_flight_ns);
        if let Some((first, others)) = self.clocks.split_first_mut() {
            for other in others {
                match first_tells {
                    true => *other = other.max(*first + flight),
                    false => *first = first.max(*other + flight),
                }
            }
        }
        self.pass(self.machine.costs.handshake_ns);
    }

    /// Operations of raw data, by all ranks at once.
    pub fn moves(&mut self, times: u64, moved: Moved) {
        let (alone, memory) = self.price(moved);
        self.work(times, alone, memory);
    }

    /// A fold of raw data.
    pub fn folds(&mut self, times: u64, moved: Moved) {
        let passes = (moved.sources + moved.destinations) as f64 / 3.0 * moved.bytes as f64;
        let arithmetic = moved.bytes as f64 * moved.sources.saturating_sub(1) as f64 / self.fold_rate;
        let alone = (passes / self.level.fold).max(arithmetic) + self.foreign(moved, true);
        self.work(times, alone, passes / self.level.fold_all_cores);
    }

    /// A signal to each other rank of the host, and a wait for each.
    pub fn meet(&mut self) {
        self.meet_with(Order::Ascending, |_| ());
    }

    /// The same with signals in an order, and with what a rank does in between.
    pub fn meet_with(&mut self, order: Order, between: impl FnOnce(&mut Self)) {
        let costs = &self.machine.costs;
        let (given, taken) = (costs.step_ns + costs.signal_ns, costs.step_ns + costs.wait_ns);
        let flight = self.flight(costs.signal_flight_ns);
        let others = (self.clocks.len() - 1) as f64;
        // A signal that comes when `waits` are left ends that many waits later.
        let arrivals = self.arrivals(order, given, taken);
        self.pass(others * given);
        between(self);
        for (clock, arrival) in self.clocks.iter_mut().zip(arrivals) {
            *clock = (*clock + others * taken).max(arrival + given + flight);
        }
    }

    /// Every rank but the first gives it a signal, and it waits for them, after what it does in between.
    pub fn gather_signals(&mut self, between: impl FnOnce(&mut Self)) {
        let costs = &self.machine.costs;
        let (given, taken) = (costs.step_ns + costs.signal_ns, costs.step_ns + costs.wait_ns);
        let flight = self.flight(costs.signal_flight_ns);
        self.clocks.iter_mut().skip(1).for_each(|clock| *clock += given);
        let signals: Vec<f64> = self.clocks.iter().skip(1).map(|clock| clock + flight).collect();
        between(self);
        if let Some(first) = self.clocks.first_mut() {
            *first = signals.iter().fold(*first, |clock, signal| clock.max(*signal) + taken);
        }
    }

    /// The first rank gives every other one a signal, and they wait for it.
    pub fn scatter_signals(&mut self) {
        let costs = &self.machine.costs;
        let (given, taken) = (costs.step_ns + costs.signal_ns, costs.step_ns + costs.wait_ns);
        let flight = self.flight(costs.signal_flight_ns);
        let Some((first, others)) = self.clocks.split_first_mut() else { return };
        for clock in others {
            *first += given;
            *clock = clock.max(*first + flight) + taken;
        }
    }

    /// Copies by the first rank alone.
    pub fn first_moves(&mut self, times: u64, moved: Moved) {
        let (alone, memory) = self.price(moved);
        let lasts = times as f64 * (self.machine.costs.step_ns + alone.max(memory));
        self.clocks.iter_mut().take(1).for_each(|clock| *clock += lasts);
    }

    /// Packets of so many bytes from the first rank to each other one, which takes them. The first copies `own` besides.
    pub fn first_packets(&mut self, bytes: u64, own: Moved) {
        let (step, data) = (self.machine.costs.step_ns, bytes as f64);
        let flight = self.flight(self.machine.costs.packet_flight_ns);
        let raw = data / 2.0 / self.level.copy;
        let (write, read) = (raw + data / self.level.packet_write, raw + data / self.level.packet_read);
        // A reader that is as fast as the writer is right behind it: both wait for every line.
        let write = if read <= write { write.max(data / self.level.packet_stream) } else { write };
        let Some((first, others)) = self.clocks.split_first_mut() else { return };
        for clock in others {
            let begun = (*clock + step).max(*first + step + flight);
            *first += step + write;
            *clock = (begun + read).max(*first + flight);
        }
        self.first_moves(1, own);
    }

    /// `pieces` pieces go from the first rank to the next, and from each on to the one behind it, which has told and greeted
    /// the one before.
    pub fn chain(&mut self, pieces: u64, first: Moved, further: Moved) {
        let costs = &self.machine.costs;
        let (given, taken) = (costs.step_ns + costs.signal_ns, costs.step_ns + costs.wait_ns);
        let flight = self.flight(costs.signal_flight_ns);
        let n = self.clocks.len();
        let mut greeted = None;
        for (rank, clock) in self.clocks.iter_mut().enumerate().rev() {
            let begun = *clock;
            if let Some((told, _)) = greeted {
                *clock = clock.max(told + flight);
            }
            *clock += costs.handshake_ns + if rank > 0 { given } else { 0.0 };
            let greets = *clock;
            if let Some((_, greets)) = greeted {
                *clock = clock.max(greets + flight) + taken;
            }
            greeted = Some((begun, greets));
        }
        // All but the last copy at the same time.
        let copy = |moved| {
            let (alone, memory) = self.price(moved);
            costs.step_ns + self.shared_by(n.saturating_sub(1) as f64, alone, memory) + given
        };
        let (first, further) = (copy(first), copy(further));
        for _ in 0..pieces {
            let mut sent = f64::NEG_INFINITY;
            for (rank, clock) in self.clocks.iter_mut().enumerate() {
                if rank > 0 {
                    *clock = clock.max(sent + flight) + taken;
                }
                if rank + 1 < n {
                    *clock += if rank == 0 { first } else { further };
                }
                sent = *clock;
            }
        }
    }

    /// A signal to the rank `by` behind, and a wait for the one as far before.
    pub fn shift(&mut self, by: usize) {
        let costs = &self.machine.costs;
        let (given, taken) = (costs.step_ns + costs.signal_ns, costs.step_ns + costs.wait_ns);
        let flight = self.flight(costs.signal_flight_ns);
        let n = self.clocks.len();
        let before: Vec<f64> = self.clocks.iter().map(|clock| clock + given).collect();
        for (rank, clock) in self.clocks.iter_mut().enumerate() {
            *clock = before[rank].max(before[(rank + n - by % n) % n] + flight) + taken;
        }
    }

    /// Packets of so many bytes from each rank to each other one, which takes them one after the other. `between` is what
    /// a rank does after it has written.
    pub fn packets(&mut self, bytes: u64, between: impl FnOnce(&mut Self)) {
        let Packed { step, flight, write, read } = self.packed(bytes);
        let (written, taken) = (step + write, step + read);
        let others = (self.clocks.len() - 1) as f64;
        let arrivals = self.arrivals(Order::Ascending, written, taken);
        self.pass(others * written);
        between(self);
        for (clock, arrival) in self.clocks.iter_mut().zip(arrivals) {
            // Those that come last end when they are written, or a read after their first has come.
            let last = arrival - taken + step + flight + write.max(read);
            *clock = (*clock + others * taken).max(last);
        }
    }

    /// Packets of so many bytes from each rank to each other one, which folds all with its own. With `sends` it sends the
    /// result to all in the same operation, and takes theirs.
    pub fn fold_packets(&mut self, bytes: u64, sends: bool) {
        let Packed { step, flight, write, read } = self.packed(bytes);
        let others = (self.clocks.len() - 1) as f64;
        let fold = self.packet_fold(bytes, others, if sends { others } else { 0.0 });
        let arrivals = self.arrivals(Order::Ascending, step + write, 0.0);
        self.pass(others * (step + write));
        for (clock, arrival) in self.clocks.iter_mut().zip(arrivals) {
            let begun = (*clock + step).max(arrival + step + flight);
            *clock = (begun + fold).max(arrival + step + write + flight);
        }
        if sends {
            // Whom it takes from first is done at about the same time as itself.
            let arrivals = self.arrivals(Order::Ascending, 0.0, step + read);
            for (clock, arrival) in self.clocks.iter_mut().zip(arrivals) {
                *clock = (*clock + others * (step + read)).max(arrival - step - read + flight);
            }
        }
    }

    /// Packets of so many bytes between ranks whose numbers differ in one bit, bit after bit: each folds what it gets with
    /// what it has, and sends the result on in the same operation.
    pub fn double_packets(&mut self, bytes: u64, bits: u32) {
        let Packed { step, flight, write, .. } = self.packed(bytes);
        let mut begun: Vec<f64> = self.clocks.iter().map(|clock| clock + step + flight).collect();
        self.pass(step + write);
        for bit in 0..bits {
            let fold = self.packet_fold(bytes, 1.0, f64::from(u32::from(bit + 1 < bits)));
            let (firsts, lasts) = (begun.clone(), self.clocks.clone());
            for (rank, clock) in self.clocks.iter_mut().enumerate() {
                let partner = rank ^ (1 << bit);
                let (Some(first), Some(last)) = (firsts.get(partner), lasts.get(partner)) else { continue };
                let begins = (*clock + step).max(*first);
                begun[rank] = begins + flight;
                *clock = (begins + fold).max(last + flight);
            }
        }
    }

    /// A signal to, and a wait for, the rank whose number differs in bit `bit`.
    pub fn meet_partner(&mut self, bit: u32) {
        let costs = &self.machine.costs;
        let (given, taken) = (costs.step_ns + costs.signal_ns, costs.step_ns + costs.wait_ns);
        let flight = self.flight(costs.signal_flight_ns);
        let before = self.clocks.clone();
        for (rank, clock) in self.clocks.iter_mut().enumerate() {
            let theirs = before.get(rank ^ (1 << bit)).copied().unwrap_or_default();
            *clock = (*clock + given).max(theirs + given + flight) + taken;
        }
    }

    /// Requests `messages` messages of so many bytes to ranks of other hosts, in which all ranks of a host take part; by
    /// rank, when the last that comes to it has arrived.
    pub fn send(&mut self, messages: u64, bytes: u64) -> Vec<f64> {
        let costs = &self.machine.costs;
        let count = messages as f64;
        let asked = count * (costs.step_ns + costs.request_ns);
        let taken = (count - 1.0).max(0.0) * costs.proxy_ns.max(costs.step_ns + costs.request_ns);
        let ranks = self.ranks();
        let mut drained = 0.0f64;
        let mut last = 0.0f64;
        if let Some(host) = self.machine.host(0).filter(|host| !host.nics.is_empty()) {
            let nic = host.nics[0];
            let per_nic = ranks.div_ceil(host.nics.len() as u64) as f64;
            let one = bytes.max(1) as f64 / nic.rate;
            let gap = if nic.in_turn { one + nic.message_ns } else { one.max(nic.message_ns) };
            drained = per_nic * count * gap;
            last = one;
        }
        for link in &self.machine.links {
            let leaving = self.leaving(link);
            if leaving > 0.0 {
                drained = drained.max(leaving * ranks as f64 * count * bytes as f64 / link.rate);
            }
        }
        let (first, latency) = (costs.step_ns + costs.request_ns + costs.proxy_ns, self.latency());
        let arrivals = self.clocks.iter().map(|clock| clock + first + drained.max(taken + last) + latency);
        let arrivals = arrivals.collect();
        self.pass(asked);
        arrivals
    }

    /// Waits for so many messages of each rank, the last of which arrive then.
    pub fn receive(&mut self, messages: u64, arrivals: &[f64]) {
        let taken = self.machine.costs.step_ns + self.machine.costs.wait_ns;
        for (clock, arrival) in self.clocks.iter_mut().zip(arrivals) {
            *clock = (*clock + messages.saturating_sub(1) as f64 * taken).max(*arrival) + taken;
        }
    }

    /// Waits until as many messages, the last of which arrive then, are known to have arrived.
    pub fn flush(&mut self, messages: u64, arrivals: &[f64]) {
        let (latency, step) = (self.latency(), self.machine.costs.step_ns);
        for (clock, arrival) in self.clocks.iter_mut().zip(arrivals) {
            *clock = clock.max(arrival + latency) + messages as f64 * step;
        }
    }

    /// All clocks go on.
    fn pass(&mut self, nanoseconds: f64) {
        self.clocks.iter_mut().for_each(|clock| *clock += nanoseconds);
    }

    /// By rank of the host: when what the last of the others begins to give to it does so, if a rank gives in that order and
    /// each takes `given`, and if those that come before others are taken for `taken` each, with the takings of
    /// those that follow, itself included, added.
    fn arrivals(&self, order: Order, given: f64, taken: f64) -> Vec<f64> {
        let n = self.clocks.len();
        let mut latest = vec![f64::NEG_INFINITY; n];
        // Of rank i, what does not depend on who receives.
        let slope = taken + if order == Order::FromRight { given } else { 0.0 };
        let others = (n - 1) as f64;
        // Rank j is number j - 1 of the others for those before it, and number j for those behind it, which come one
        // earlier in its own order.
        let mut greatest = f64::NEG_INFINITY;
        for (j, latest) in latest.iter_mut().enumerate() {
            *latest = latest.max(greatest + (j as f64 - 1.0) * given + others * taken);
            greatest = greatest.max(self.clocks[j] - j as f64 * slope);
        }
        let mut greatest = f64::NEG_INFINITY;
        for (j, latest) in latest.iter_mut().enumerate().rev() {
            let place = match order {
                Order::Ascending => j as f64,
                Order::FromRight => (j + n) as f64 - 1.0,
            };
            *latest = latest.max(greatest + place * given + (others + 1.0) * taken);
            greatest = greatest.max(self.clocks[j] - j as f64 * slope);
        }
        latest
    }

    /// Of a copy: alone, and of all cores' memory.
    fn price(&self, moved: Moved) -> (f64, f64) {
        let passes = moved.destinations as f64 * moved.bytes as f64;
        (passes / self.level.copy + self.foreign(moved, false), passes / self.level.all_cores)
    }

    /// Packets of so many bytes that all ranks write, or read, at once; their raw form is read, or written.
    fn packed(&self, bytes: u64) -> Packed {
        let (data, raw) = (bytes as f64, bytes as f64 / 2.0 / self.level.copy);
        let memory = 1.5 * data / self.level.all_cores;
        Packed {
            step: self.machine.costs.step_ns,
            flight: self.flight(self.machine.costs.packet_flight_ns),
            write: self.shared(raw + data / self.level.packet_write, memory),
            read: self.shared(raw + data / self.level.packet_read, memory),
        }
    }

    /// The fold of packets of so many ranks with a raw value, the result of which is sent to so many as packets.
    fn packet_fold(&self, bytes: u64, sources: f64, destinations: f64) -> f64 {
        let (data, passes) = (bytes as f64, 2.0 / 3.0 * bytes as f64);
        let alone = (passes / self.level.fold).max(sources * data / self.fold_rate)
            + sources * data / self.level.packet_read
            + destinations * data / self.level.packet_write;
        let packets = (sources + destinations) * data;
        self.shared(alone, passes / self.level.fold_all_cores + packets / self.level.all_cores)
    }

    /// What bytes in other blocks' caches cost more.
    fn foreign(&self, moved: Moved, folds: bool) -> f64 {
        let Some(host) = self.machine.host(0) else { return 0.0 };
        let (read, written) = (moved.foreign_sources * moved.bytes, moved.foreign_destinations * moved.bytes);
        let (from, to) = (host.level(read.saturating_mul(2)), host.level(written.saturating_mul(2)));
        let (from, to) = match folds {
            true => (from.fold_from_peer, to.fold_to_peer),
            false => (from.from_peer, to.to_peer),
        };
        let more = |bytes: u64, rate: f64| bytes as f64 * (1.0 / rate - 1.0 / self.level.copy).max(0.0);
        let first = if read > 0 { self.machine.costs.line_ns } else { 0.0 };
        first + more(read, from) + more(written, to)
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
    fn work(&mut self, times: u64, alone: f64, memory: f64) {
        let lasts = self.machine.costs.step_ns + self.shared(alone, memory);
        self.pass(times as f64 * lasts);
    }

    /// How long something lasts that all ranks of a host do at once.
    fn shared(&self, alone: f64, memory: f64) -> f64 {
        self.shared_by(self.clocks.len() as f64, alone, memory)
    }

    /// The same of so many ranks.
    fn shared_by(&self, ranks: f64, alone: f64, memory: f64) -> f64 {
        let cores = self.machine.host(0).map_or(1, |host| host.cores.max(1));
        (alone * (ranks / f64::from(cores)).max(1.0)).max(memory * ranks)
    }

    fn flight(&self, nanoseconds: f64) -> f64 {
        let is_crowded = self.machine.host(0).is_some_and(|host| self.ranks() > u64::from(host.cores));
        nanoseconds + if is_crowded { self.machine.costs.switch_ns } else { 0.0 }
    }
}
