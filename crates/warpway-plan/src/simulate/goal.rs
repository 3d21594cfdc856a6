//! A plan as a GOAL schedule, the input language of LogGOPSim (T. Hoefler, T. Schneider, A. Lumsdaine, *LogGOPSim:
//! Simulating Large-Scale Applications in the LogGOPS Model*, 2010), so that another simulator can check it.
//!
//! | plan | schedule |
//! |---|---|
//! | puts, then the signal that announces them | one `send` of their bytes; of one byte if there are none |
//! | wait | the `recv` of that message |
//! | packets | a `send` where they are written, a `recv` where they are read |
//! | a read from a peer | a `send` by the peer, behind the signal that allowed it, and a `recv` |
//! | local copies and folds | `calc` of the nanoseconds that the machine takes |
//! | barriers, semaphores | dependencies |
//!
//! Blocks are CPUs of their rank; reads from a rank occupy a CPU of their own there. Launches are left out.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;

use super::caches::Caches;
use super::cost::Cost;
use super::flows::Flows;
use super::hosts::Hosts;
use super::machine::Machine;
use super::program::{self, Kind, Move, Program, Step};
use super::result::Lane;
use super::{Request, SimulateError};
use crate::ir::{Form, Plan};

/// The schedule of one launch.
///
/// # Errors
/// As [`simulate`](super::simulate).
pub fn goal(plan: &Plan, machine: &Machine, request: &Request<'_>) -> Result<String, SimulateError> {
    let program = program::compile(plan, &request.layout(plan)?)?;
    let mut flows = Flows::default();
    let blocks: Vec<u32> = plan.ranks.iter().map(|rank| rank.blocks.len().max(1) as u32).collect();
    let hosts = Hosts::new(machine, request.ranks_per_host.as_deref(), &blocks, &mut flows)?;
    let n_ranks = blocks.len();
    let mut writer = Writer {
        cost: Cost::new(machine, &program, &hosts, request.data_type, plan.double_scratch),
        hosts,
        caches: Caches::default(),
        cursors: program.blocks.iter().map(|_| Cursor::default()).collect(),
        program: &program,
        operations: vec![Vec::new(); n_ranks],
        requires: vec![Vec::new(); n_ranks],
        arriving: program.ends.iter().map(|_| VecDeque::new()).collect(),
        packets: vec![BTreeMap::new(); n_ranks],
        unannounced: BTreeMap::new(),
        allowed: BTreeMap::new(),
        barriers: BTreeMap::new(),
        semaphores: plan.ranks.iter().map(|rank| rank.semaphores.clone()).collect(),
        releases: BTreeMap::new(),
        blocks,
        packet_tags: program.ends.len() as u64,
    };
    writer.walk()?;
    Ok(writer.text())
}

/// A label of a rank's operation.
type Label = usize;

/// What somebody will receive.
#[derive(Debug, Clone, Copy)]
struct Message {
    bytes: u64,
    from: u32,
    tag: u64,
    /// Of the send, at the sender.
    label: Label,
}

/// Where a block stands.
#[derive(Debug, Default)]
struct Cursor {
    at: usize,
    pipeline: Option<(usize, u64)>,
    last: Option<Label>,
    /// Its arrival at the barrier it stands at: which passage.
    arrived: Option<usize>,
}

struct Writer<'p> {
    program: &'p Program,
    cost: Cost<'p>,
    hosts: Hosts,
    caches: Caches,
    cursors: Vec<Cursor>,
    /// By rank: lines of operations, and dependencies.
    operations: Vec<Vec<String>>,
    requires: Vec<Vec<(Label, Label)>>,
    /// By channel end: what arrives there, in order.
    arriving: Vec<VecDeque<Message>>,
    /// By rank: packets in its scratch by their first byte, with one past their last.
    packets: Vec<BTreeMap<u64, (u64, Message)>>,
    /// By sender and receiver: bytes put that no signal has announced.
    unannounced: BTreeMap<(u32, u32), u64>,
    /// By owner and reader: the owner's last signal that the reader has taken.
    allowed: BTreeMap<(u32, u32), Label>,
    /// By rank and barrier: the arrivals of each passage.
    barriers: BTreeMap<(u32, u32), Vec<Vec<Label>>>,
    semaphores: Vec<Vec<u64>>,
    releases: BTreeMap<(u32, u32), VecDeque<Label>>,
    blocks: Vec<u32>,
    packet_tags: u64,
}

impl Writer<'_> {
    /// Walks all blocks, each as far as what it waits for has been written.
    fn walk(&mut self) -> Result<(), SimulateError> {
        loop {
            let (mut moved, mut open) = (false, None);
            for block in 0..self.program.blocks.len() {
                while let Some(step) = self.program.blocks[block].steps.get(self.cursors[block].at) {
                    if !self.step(block, step) {
                        open = Some((block, step.name));
                        break;
                    }
                    moved = true;
                }
            }
            match open {
                None => return Ok(()),
                Some((block, what)) if !moved => {
                    let of = &self.program.blocks[block];
                    return Err(SimulateError::Stuck { rank: of.rank, lane: Lane::Block(of.block), what });
                }
                Some(_) => {}
            }
        }
    }

    /// Writes an operation of a block, behind its last one.
    fn emit(&mut self, block: usize, text: &str) -> Label {
        let of = &self.program.blocks[block];
        let label = self.line(of.rank, &format!("{text} cpu {}", of.block));
        if let Some(last) = self.cursors[block].last.replace(label) {
            self.requires[of.rank as usize].push((label, last));
        }
        label
    }

    fn line(&mut self, rank: u32, text: &str) -> Label {
        let operations = &mut self.operations[rank as usize];
        let label = operations.len() + 1;
        operations.push(format!("l{label}: {text}"));
        label
    }

    /// One step; false if what it waits for is not there yet.
    fn step(&mut self, block: usize, step: &Step) -> bool {
        let rank = self.program.blocks[block].rank;
        match &step.kind {
            Kind::Loop { iterations, steps, .. } => {
                let cursor = &mut self.cursors[block];
                match *iterations {
                    0 => cursor.at += 1 + steps,
                    _ => (cursor.pipeline, cursor.at) = (Some((cursor.at, 0)), cursor.at + 1),
                }
                return true;
            }
            Kind::Signal(end) | Kind::PortSignal(end) => self.signal(block, *end, 0),
            Kind::Put { channel, signals, work, .. } => {
                let bytes = work.wire_bytes(self.slice(block));
                match signals {
                    true => self.signal(block, *channel, bytes),
                    false => {
                        *self
                            .unannounced
                            .entry((rank, self.program.ends[*channel as usize].peer))
                            .or_default() += bytes
                    }
                }
            }
            Kind::Wait(end) => {
                let Some(message) = self.arriving[*end as usize].pop_front() else { return false };
                self.receive(block, message);
            }
            Kind::Barrier(id, blocks) => {
                if !self.barrier(block, (rank, *id), *blocks as usize) {
                    return false;
                }
            }
            Kind::Acquire(id) => {
                let value = self.semaphores[rank as usize].get_mut(*id as usize);
                if let Some(value) = value.filter(|value| **value > 0) {
                    *value -= 1;
                } else {
                    let released = self.releases.get_mut(&(rank, *id)).and_then(VecDeque::pop_front);
                    let Some(released) = released else { return false };
                    let label = self.emit(block, "calc 0");
                    self.requires[rank as usize].push((label, released));
                }
            }
            Kind::Release(id) => {
                let label = self.emit(block, "calc 0");
                self.releases.entry((rank, *id)).or_default().push_back(label);
            }
            Kind::Move(work) => {
                if !self.transfer(block, work) {
                    return false;
                }
            }
            // A flush waits for nobody's messages; launches are left out.
            Kind::Flush(_) | Kind::Delay(_) | Kind::Announce(_) | Kind::Hear(_) | Kind::Blocks => {}
        }
        self.go_on(block);
        true
    }

    fn go_on(&mut self, block: usize) {
        let steps = &self.program.blocks[block].steps;
        let cursor = &mut self.cursors[block];
        cursor.at += 1;
        let Some((header, iteration)) = cursor.pipeline else { return };
        if let Kind::Loop { iterations, steps, .. } = steps[header].kind
            && cursor.at > header + steps
        {
            (cursor.at, cursor.pipeline) = match iteration + 1 < iterations {
                true => (header + 1, Some((header, iteration + 1))),
                false => (cursor.at, None),
            };
        }
    }

    fn slice(&self, block: usize) -> Option<(u64, u64)> {
        let (header, iteration) = self.cursors[block].pipeline?;
        match self.program.blocks[block].steps[header].kind {
            Kind::Loop { slice, .. } => Some((iteration.saturating_mul(slice), slice)),
            _ => None,
        }
    }

    /// The message of a signal, with what has been put before it.
    fn signal(&mut self, block: usize, end: u32, bytes: u64) {
        let end = self.program.ends[end as usize];
        let rank = self.program.blocks[block].rank;
        let bytes = (bytes + self.unannounced.remove(&(rank, end.peer)).unwrap_or(0)).max(1);
        let tag = u64::from(end.partner);
        let label = self.emit(block, &format!("send {bytes}b to {} tag {tag}", end.peer));
        if let Some(arriving) = self.arriving.get_mut(end.partner as usize) {
            arriving.push_back(Message { bytes, from: rank, tag, label });
        }
    }

    fn receive(&mut self, block: usize, message: Message) {
        let Message { bytes, from, tag, label } = message;
        self.emit(block, &format!("recv {bytes}b from {from} tag {tag}"));
        self.allowed.insert((from, self.program.blocks[block].rank), label);
    }

    fn barrier(&mut self, block: usize, key: (u32, u32), blocks: usize) -> bool {
        if self.cursors[block].arrived.is_none() {
            let label = self.emit(block, "calc 0");
            let passages = self.barriers.entry(key).or_default();
            if passages.last().is_none_or(|passage| passage.len() == blocks) {
                passages.push(Vec::new());
            }
            let number = passages.len() - 1;
            passages[number].push(label);
            self.cursors[block].arrived = Some(number);
        }
        let Some(number) = self.cursors[block].arrived else { return false };
        let arrivals = self.barriers[&key][number].clone();
        if arrivals.len() < blocks {
            return false;
        }
        self.cursors[block].arrived = None;
        let own = self.cursors[block].last;
        let label = self.emit(block, "calc 0");
        let others = arrivals.into_iter().filter(|arrival| Some(*arrival) != own);
        self.requires[key.0 as usize].extend(others.map(|arrival| (label, arrival)));
        true
    }

    /// Loads and stores: packets and reads are messages, puts wait for their signal, the rest is computation.
    fn transfer(&mut self, block: usize, work: &Move) -> bool {
        let (rank, slice) = (self.program.blocks[block].rank, self.slice(block));
        let mut messages: Vec<Message> = Vec::new();
        for (number, operand) in work.sources().iter().enumerate().filter(|(_, o)| o.form == Form::Packets) {
            for stretch in work.stretches(slice).filter(|stretch| stretch.bytes > 0) {
                let (mut at, end) = (stretch.offset(number), stretch.offset(number) + stretch.bytes);
                while at < end {
                    let found = self.packets[operand.rank as usize].range(..=at).next_back();
                    let Some((_, (until, message))) = found.filter(|(_, (until, _))| *until > at) else {
                        return false;
                    };
                    at = *until;
                    let is_new =
                        messages.iter().all(|other| (other.from, other.tag) != (message.from, message.tag));
                    if message.from != rank && is_new {
                        messages.push(*message);
                    }
                }
            }
        }
        messages.into_iter().for_each(|message| self.receive(block, message));
        let bytes = work.bytes(slice);
        for source in work.sources().iter().filter(|s| s.rank != rank && s.form == Form::Raw && bytes > 0) {
            self.packet_tags += 1;
            let (tag, cpu) = (self.packet_tags, self.blocks[source.rank as usize]);
            let label = self.line(source.rank, &format!("send {bytes}b to {rank} tag {tag} cpu {cpu}"));
            if let Some(allowed) = self.allowed.get(&(source.rank, rank)) {
                self.requires[source.rank as usize].push((label, *allowed));
            }
            let allowed = self.allowed.get(&(source.rank, rank)).copied();
            self.emit(block, &format!("recv {bytes}b from {} tag {tag}", source.rank));
            if let Some(allowed) = allowed {
                self.allowed.insert((source.rank, rank), allowed);
            }
        }
        if work.folds || work.destinations().iter().any(|to| to.rank == rank) {
            let price = self.cost.of_move(&mut self.caches, &self.hosts, (block, 0), work, slice);
            self.emit(block, &format!("calc {:.0}", price.amount / price.limit));
        }
        for (number, operand) in (work.n_sources..).zip(work.destinations()) {
            let to = operand.rank;
            match operand.form {
                Form::Raw if to != rank => *self.unannounced.entry((rank, to)).or_default() += bytes,
                Form::Raw => {}
                Form::Packets => {
                    self.packet_tags += 1;
                    let tag = self.packet_tags;
                    let wire: u64 = work.stretches(slice).map(|stretch| 2 * stretch.cover).sum();
                    let label = match to == rank {
                        true => self.cursors[block].last.unwrap_or(0),
                        false => self.emit(block, &format!("send {}b to {to} tag {tag}", wire.max(1))),
                    };
                    let message = Message { bytes: wire.max(1), from: rank, tag, label };
                    let ranges =
                        work.stretches(slice).map(|s| (s.offset(number), s.offset(number) + s.cover));
                    self.packets[to as usize].extend(ranges.map(|(start, end)| (start, (end, message))));
                }
            }
        }
        true
    }

    fn text(&self) -> String {
        let mut text = format!("num_ranks {}\n", self.operations.len());
        for (rank, operations) in self.operations.iter().enumerate() {
            // Writing into a string does not fail.
            let _ = writeln!(text, "\nrank {rank} {{");
            operations.iter().for_each(|line| text.extend([line, "\n"]));
            for (label, needed) in &self.requires[rank] {
                let _ = writeln!(text, "l{label} requires l{needed}");
            }
            text.push_str("}\n");
        }
        text
    }
}
