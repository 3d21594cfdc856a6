//! How long a move takes by itself, and what it takes of memory and cores.

use std::collections::{BTreeMap, BTreeSet};

use super::caches::{Caches, Place};
use super::flows::ResourceId;
use super::hosts::Hosts;
use super::machine::{Machine, MemoryLevel};
use super::program::{Kind, Move, Operand, Program};
use crate::data_type::DataType;
use crate::ir::{BufferKind, Form};

/// What a transfer asks for: see `flows.rs`.
#[derive(Debug)]
pub(super) struct Price {
    /// Bytes.
    pub(super) amount: f64,
    /// Bytes per nanosecond, at most.
    pub(super) limit: f64,
    pub(super) uses: Vec<(ResourceId, f64)>,
}

/// See the module's page.
pub(super) struct Cost<'a> {
    machine: &'a Machine,
    fold_rate: f64,
    /// By block.
    levels: Vec<MemoryLevel>,
    ranks: Vec<u32>,
    double_scratch: bool,
    /// Rates depend on who holds what.
    tracks: bool,
}

impl Move {
    /// Bytes of data of one item, within a slice.
    pub(super) fn bytes(&self, slice: Option<(u64, u64)>) -> u64 {
        self.stretches(slice).map(|stretch| stretch.bytes).sum()
    }

    /// True if some destination holds packets.
    pub(super) fn writes_packets(&self) -> bool {
        self.destinations().iter().any(|operand| operand.form == Form::Packets)
    }

    /// True if some operand holds packets.
    pub(super) fn touches_packets(&self) -> bool {
        self.operands.iter().any(|operand| operand.form == Form::Packets)
    }

    /// Bytes that a proxy sends: packets take twice their data.
    pub(super) fn wire_bytes(&self, slice: Option<(u64, u64)>) -> u64 {
        match self.destinations().first().map(|operand| operand.form) {
            Some(Form::Packets) => self.stretches(slice).map(|stretch| 2 * stretch.cover).sum(),
            _ => self.bytes(slice),
        }
    }
}

impl<'a> Cost<'a> {
    pub(super) fn new(
        machine: &'a Machine,
        program: &Program,
        hosts: &Hosts,
        data_type: DataType,
        double_scratch: bool,
    ) -> Self {
        let footprints = footprints(program, hosts, double_scratch);
        let levels: Vec<MemoryLevel> = program
            .blocks
            .iter()
            .map(|block| {
                let bytes = footprints.get(&hosts.host_of(block.rank)).copied().unwrap_or(0);
                hosts.kind(block.rank).level(bytes)
            })
            .collect();
        let differs = |level: &MemoryLevel| {
            let rates = [level.from_peer, level.to_peer, level.fold_from_peer, level.fold_to_peer];
            rates.iter().any(|rate| *rate != level.copy)
        };
        let kinds = program.blocks.iter().map(|block| hosts.kind(block.rank));
        let tracks = machine.costs.line_ns > 0.0 || kinds.flat_map(|kind| &kind.memory).any(differs);
        Self {
            machine,
            fold_rate: machine.fold_rate(data_type),
            levels,
            ranks: program.blocks.iter().map(|block| block.rank).collect(),
            double_scratch,
            tracks,
        }
    }

    /// Bytes of data per nanosecond that a block reads right behind the writer of packets.
    pub(super) fn packet_stream(&self, block: usize) -> f64 {
        self.levels[block].packet_stream
    }

    /// Of a move by a block in a launch. The caches change as the move changes them.
    pub(super) fn of_move(
        &self,
        caches: &mut Caches,
        hosts: &Hosts,
        (block, round): (usize, u32),
        work: &Move,
        slice: Option<(u64, u64)>,
    ) -> Price {
        let (rank, level) = (self.ranks[block], self.levels[block]);
        let (bytes, cover) = work
            .stretches(slice)
            .fold((0, 0), |(bytes, cover), stretch| (bytes + stretch.bytes, cover + stretch.cover));
        let (bytes, cover) = (bytes as f64, cover as f64);
        if work.awaits {
            let time = bytes / level.packet_read;
            return Price { amount: time, limit: 1.0, uses: Vec::new() };
        }
        let count = |operands: &[Operand], form| {
            operands.iter().filter(|operand| operand.form == form).count() as f64
        };
        let (raw_in, packets_in) = (count(work.sources(), Form::Raw), count(work.sources(), Form::Packets));
        let (raw_out, packets_out) =
            (count(work.destinations(), Form::Raw), count(work.destinations(), Form::Packets));
        // How often the bytes are read or written. A fold goes over all of them at once; a copy to several destinations is
        // a copy to each.
        let passes = match (work.folds, raw_in, raw_out) {
            (true, ..) => raw_in + raw_out,
            (false, 0.0, _) => raw_out,
            (false, _, 0.0) => raw_in,
            (false, ..) => 2.0 * raw_out,
        };
        // A copy passes twice, the fold of one source into another three times.
        let (memory, traffic, arithmetic) = match work.folds {
            true => (
                bytes * passes / 3.0 / level.fold,
                bytes * passes / 3.0 / level.fold_all_cores,
                bytes * (raw_in + packets_in - 1.0).max(0.0) / self.fold_rate,
            ),
            false => (bytes * passes / 2.0 / level.copy, bytes * passes / 2.0 / level.all_cores, 0.0),
        };
        let foreign = match self.tracks {
            true => self.foreign(caches, hosts, (block, round), work, slice),
            false => 0.0,
        };
        let packets = cover * packets_in / level.packet_read + cover * packets_out / level.packet_write;
        let time = memory.max(arithmetic) + foreign + packets;
        let traffic = traffic + (packets_in + packets_out) * cover / level.all_cores;
        let amount = bytes.max(1.0);
        let (memory_of_host, cores) = hosts.shared(rank);
        // While it runs alone, a transfer takes one core, and of the memory what its bytes take of all cores' rate.
        let mut uses = vec![(memory_of_host, traffic / amount), (cores, time / amount)];
        self.links(hosts, rank, work, bytes / amount, &mut uses);
        Price { amount, limit: if time > 0.0 { amount / time } else { f64::INFINITY }, uses }
    }

    /// What crosses the links of ranks within their host.
    fn links(&self, hosts: &Hosts, rank: u32, work: &Move, share: f64, uses: &mut Vec<(ResourceId, f64)>) {
        let mut add =
            |resource: ResourceId, bytes: f64| match uses.iter_mut().find(|(other, _)| *other == resource) {
                Some((_, sum)) => *sum += bytes,
                None => uses.push((resource, bytes)),
            };
        for (number, operand) in work.operands.iter().enumerate().filter(|(_, operand)| operand.rank != rank)
        {
            let bytes = if operand.form == Form::Packets { 2.0 * share } else { share };
            let is_read = number < work.n_sources;
            let (from, to) = if is_read { (operand.rank, rank) } else { (rank, operand.rank) };
            for (end, direction) in [(from, 0), (to, 1)] {
                if let Some(link) = hosts.rank_link(end) {
                    add(link[direction], bytes);
                }
            }
        }
    }

    /// The time that raw bytes cost more because they lie in other blocks' caches. Their rates are those of a move of so many
    /// bytes: what follows it has its first lines to wait for again.
    fn foreign(
        &self,
        caches: &mut Caches,
        hosts: &Hosts,
        (block, round): (usize, u32),
        work: &Move,
        slice: Option<(u64, u64)>,
    ) -> f64 {
        let (mut read, mut written) = (0, 0);
        for (number, operand) in
            work.operands.iter().enumerate().filter(|(_, operand)| operand.form == Form::Raw)
        {
            let half = self.double_scratch && operand.buffer == BufferKind::Scratch && round % 2 == 1;
            let place: Place = (operand.rank, operand.buffer, operand.form, half);
            for stretch in work.stretches(slice) {
                let start = stretch.offset(number);
                match number < work.n_sources {
                    true => read += caches.read(place, start, stretch.bytes, block),
                    false => written += caches.write(place, start, stretch.bytes, block),
                }
            }
        }
        let (kind, own) = (hosts.kind(self.ranks[block]), self.levels[block].copy);
        let of_move = |bytes: u64| kind.level(bytes.saturating_mul(2));
        let (from, to) = (of_move(read), of_move(written));
        let (from, to) = match work.folds {
            true => (from.fold_from_peer, to.fold_to_peer),
            false => (from.from_peer, to.to_peer),
        };
        let more = |bytes: u64, rate: f64| bytes as f64 * (1.0 / rate - 1.0 / own).max(0.0);
        let first = if read > 0 { self.machine.costs.line_ns } else { 0.0 };
        first + more(read, from) + more(written, to)
    }
}

/// By host: distinct bytes that its blocks touch in a launch, divided among those that move any. What two blocks touch is in
/// the caches once.
fn footprints(program: &Program, hosts: &Hosts, double_scratch: bool) -> BTreeMap<usize, u64> {
    let mut touched: BTreeMap<(usize, Operand), BTreeSet<(u64, u64)>> = BTreeMap::new();
    let mut movers: BTreeMap<usize, u64> = BTreeMap::new();
    for block in &program.blocks {
        let host = hosts.host_of(block.rank);
        let moves = block.steps.iter().filter_map(|step| match &step.kind {
            Kind::Move(work) => Some(work),
            _ => None,
        });
        let mut is_mover = false;
        for work in moves {
            is_mover = true;
            for (number, operand) in work.operands.iter().enumerate() {
                let ranges = touched.entry((host, *operand)).or_default();
                ranges.extend(work.stretches(None).map(|s| (s.offset(number), s.offset(number) + s.bytes)));
            }
        }
        *movers.entry(host).or_default() += u64::from(is_mover);
    }
    let mut totals: BTreeMap<usize, u64> = BTreeMap::new();
    for ((host, operand), ranges) in touched {
        let (mut bytes, mut reached) = (0u64, 0u64);
        for (start, end) in ranges {
            bytes += end.saturating_sub(start.max(reached));
            reached = reached.max(end);
        }
        let halves = if double_scratch && operand.buffer == BufferKind::Scratch { 2 } else { 1 };
        let factor = if operand.form == Form::Packets { 2 } else { 1 };
        let total = totals.entry(host).or_default();
        *total = total.saturating_add(bytes.saturating_mul(halves * factor));
    }
    for (host, total) in &mut totals {
        *total /= movers.get(host).copied().unwrap_or(1).max(1);
    }
    totals
}
