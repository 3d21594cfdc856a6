//! The run: blocks do their steps, signals arrive, transfers end, one after the other in time.
//!
//! Each rank also has a *launcher*: what happens around its blocks. It announces the launch to the ranks that touch this
//! rank's buffers, waits for the announcements of those whose buffers it touches, lets the blocks begin, and waits for
//! their ends; then the next launch follows.

mod port;
mod steps;

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};

use super::caches::Caches;
use super::cost::Cost;
use super::flows::Flows;
use super::hosts::Hosts;
use super::machine::Machine;
use super::packets::Packets;
use super::program::{BlockProgram, Kind, Program};
use super::result::{Lane, Span, SpanId, SpanKind};
use super::{Request, SimulateError};
use port::Ports;

/// What happens at a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Event {
    /// A thread goes on.
    Thread(usize),
    /// A signal arrives at a channel's end, from that span.
    Signal(u32, Option<SpanId>),
    /// The packets of a span can be read.
    Packets(u32, u32),
    /// The proxy of a rank takes its next request, or has taken one.
    Proxy(u32),
    /// A connection may send its next message.
    Connection(usize),
    /// A message has arrived.
    Delivered(usize),
    /// The sender knows that the first requests of a channel are complete.
    Complete(u32),
}

/// A thread of the machine: the blocks, then one launcher per rank.
#[derive(Debug)]
struct Thread {
    rank: u32,
    lane: Lane,
    /// In `Run::program`, or of the launcher.
    steps: usize,
    at: usize,
    /// Header and iteration of the pipeline that it is in.
    pipeline: Option<(usize, u64)>,
    phase: Phase,
    /// When the step began, and when it no longer had to wait.
    since: f64,
    woken: f64,
    /// What ended its wait.
    cause: Option<SpanId>,
    last_span: Option<SpanId>,
    round: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Begin,
    /// Waits until somebody wakes it.
    Wait,
    /// Has what it waited for.
    Act,
    /// Moves bytes.
    Flow,
    /// Waits for the last packets.
    Tail,
    End,
}

/// A moment and its event; of equal moments the event that was planned first comes first.
#[derive(Debug, PartialEq)]
struct Planned {
    at: f64,
    number: u64,
    event: Event,
}

impl Eq for Planned {}

impl Ord for Planned {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at.total_cmp(&other.at).then(self.number.cmp(&other.number))
    }
}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The future.
#[derive(Debug, Default)]
pub(super) struct Calendar {
    planned: BinaryHeap<Reverse<Planned>>,
    count: u64,
}

impl Calendar {
    pub(super) fn at(&mut self, at: f64, event: Event) {
        self.count += 1;
        self.planned.push(Reverse(Planned { at, number: self.count, event }));
    }
}

/// One end of a channel.
#[derive(Debug, Default)]
struct Inbox {
    arrived: VecDeque<Option<SpanId>>,
    waiter: VecDeque<usize>,
}

/// See the module's page.
pub(super) struct Run<'a> {
    machine: &'a Machine,
    request: &'a Request<'a>,
    program: &'a Program,
    launchers: &'a [BlockProgram],
    cost: Cost<'a>,
    hosts: Hosts,
    flows: Flows,
    calendar: Calendar,
    caches: Caches,
    packets: Packets,
    ports: Ports<'a>,
    now: f64,
    threads: Vec<Thread>,
    inboxes: Vec<Inbox>,
    barriers: BTreeMap<(u32, u32), Vec<usize>>,
    semaphores: Vec<Vec<u64>>,
    acquiring: HashMap<(u32, u32), VecDeque<usize>>,
    flushing: HashMap<u32, Vec<usize>>,
    /// By rank: blocks that have not ended their launch.
    running: Vec<u32>,
    blocks_of: Vec<std::ops::Range<usize>>,
    spans: Vec<Span>,
    /// By rank and round: begin and end of the launch.
    launches: Vec<Vec<(f64, f64)>>,
    /// By block: how long its moves would have taken, had it had the machine to itself.
    alone: Vec<f64>,
}

/// What a run leaves.
pub(super) struct Outcome {
    pub(super) spans: Vec<Span>,
    pub(super) launches: Vec<Vec<(f64, f64)>>,
    pub(super) flows: Flows,
    pub(super) hosts: Hosts,
    pub(super) alone: Vec<f64>,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        machine: &'a Machine,
        request: &'a Request<'a>,
        (program, launchers): (&'a Program, &'a [BlockProgram]),
        (hosts, flows): (Hosts, Flows),
        semaphores: Vec<Vec<u64>>,
        double_scratch: bool,
    ) -> Self {
        let n_ranks = launchers.len();
        let thread = |steps: usize, rank: u32, lane: Lane| Thread {
            rank,
            lane,
            steps,
            at: 0,
            pipeline: None,
            phase: Phase::Begin,
            since: 0.0,
            woken: 0.0,
            cause: None,
            last_span: None,
            round: 0,
        };
        let mut threads: Vec<Thread> = Vec::new();
        let mut blocks_of = vec![0..0; n_ranks];
        for (number, block) in program.blocks.iter().enumerate() {
            threads.push(thread(number, block.rank, Lane::Block(block.block)));
            let range = &mut blocks_of[block.rank as usize];
            *range = if range.start == range.end { number..number + 1 } else { range.start..number + 1 };
        }
        threads.extend((0..n_ranks).map(|rank| thread(rank, rank as u32, Lane::Launch)));
        let inboxes = (0..program.ends.len()).map(|_| Inbox::default()).collect();
        let mut run = Self {
            cost: Cost::new(machine, program, &hosts, request.data_type, double_scratch),
            machine,
            request,
            program,
            launchers,
            ports: Ports::new(program, n_ranks),
            hosts,
            flows,
            calendar: Calendar::default(),
            caches: Caches::default(),
            packets: Packets::default(),
            now: 0.0,
            threads,
            inboxes,
            barriers: BTreeMap::new(),
            semaphores,
            acquiring: HashMap::new(),
            flushing: HashMap::new(),
            running: vec![0; n_ranks],
            blocks_of,
            spans: Vec::new(),
            alone: vec![0.0; program.blocks.len()],
            launches: vec![Vec::new(); n_ranks],
        };
        for rank in 0..n_ranks {
            let launcher = run.program.blocks.len() + rank;
            run.launches[rank].push((0.0, 0.0));
            run.calendar.at(0.0, Event::Thread(launcher));
        }
        run
    }

    /// Runs all rounds.
    ///
    /// # Errors
    /// [`SimulateError::Stuck`] if ranks wait for ever.
    pub(super) fn finish(mut self) -> Result<Outcome, SimulateError> {
        loop {
            let planned = self.calendar.planned.peek().map(|Reverse(planned)| planned.at);
            let ended = self.flows.next_end(self.now);
            match (planned, ended) {
                (Some(planned), ended) if ended.is_none_or(|ended| planned <= ended) => {
                    let Some(Reverse(next)) = self.calendar.planned.pop() else { break };
                    self.now = next.at;
                    self.happen(next.event);
                }
                (_, Some(ended)) => {
                    self.now = ended;
                    if let Some(owner) = self.flows.end_next() {
                        self.flow_ended(owner);
                    }
                }
                _ => break,
            }
        }
        let rounds = self.request.rounds.max(1);
        let stuck = self.threads.iter().find(|thread| thread.lane == Lane::Launch && thread.round < rounds);
        if let Some(launcher) = stuck {
            let of_rank = |thread: &&Thread| thread.rank == launcher.rank && thread.phase != Phase::Begin;
            let blocked = self.threads.iter().find(of_rank).unwrap_or(launcher);
            let step = self.steps(blocked).get(blocked.at);
            let what = step.map_or("nothing", |step| step.name);
            return Err(SimulateError::Stuck { rank: launcher.rank, lane: blocked.lane, what });
        }
        Ok(Outcome {
            spans: self.spans,
            launches: self.launches,
            flows: self.flows,
            hosts: self.hosts,
            alone: self.alone,
        })
    }

    fn steps(&self, thread: &Thread) -> &[super::program::Step] {
        match thread.lane {
            Lane::Launch => &self.launchers[thread.steps].steps,
            _ => &self.program.blocks[thread.steps].steps,
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Thread(thread) => self.advance(thread),
            Event::Signal(end, cause) => {
                let Some(inbox) = self.inboxes.get_mut(end as usize) else { return };
                inbox.arrived.push_back(cause);
                if let Some(waiter) = inbox.waiter.pop_front() {
                    let cause = inbox.arrived.pop_front().flatten();
                    self.wake(waiter, cause);
                }
            }
            Event::Packets(rank, round) => {
                for thread in self.packets.waiting(rank, round) {
                    self.advance(thread);
                }
            }
            Event::Proxy(rank) => self.proxy(rank),
            Event::Connection(connection) => self.connection(connection),
            Event::Delivered(connection) => self.delivered(connection),
            Event::Complete(channel) => {
                self.ports.complete(channel);
                if self.ports.is_idle(channel) {
                    for thread in self.flushing.remove(&channel).unwrap_or_default() {
                        match self.threads[thread].phase {
                            // A put that flushes has nothing else to do.
                            Phase::Tail => {
                                self.threads[thread].phase = Phase::End;
                                self.advance(thread);
                            }
                            _ => self.wake(thread, None),
                        }
                    }
                }
            }
        }
    }

    fn flow_ended(&mut self, owner: usize) {
        let n_threads = self.threads.len();
        if owner < n_threads {
            return self.advance(owner);
        }
        let n_ranks = self.launchers.len();
        match owner - n_threads {
            rank if rank < n_ranks => self.copied(rank as u32),
            connection => self.sent(connection - n_ranks),
        }
    }

    /// A thread has what it waited for.
    fn wake(&mut self, thread: usize, cause: Option<SpanId>) {
        let of = &mut self.threads[thread];
        (of.phase, of.cause, of.woken) = (Phase::Act, cause, self.now);
        self.advance(thread);
    }

    fn later(&mut self, thread: usize, nanoseconds: f64, phase: Phase) {
        self.threads[thread].phase = phase;
        let slow = self.slow(self.threads[thread].rank);
        self.calendar.at(self.now + nanoseconds * slow, Event::Thread(thread));
    }

    fn slow(&self, rank: u32) -> f64 {
        self.machine.straggler(rank).map_or(1.0, |straggler| straggler.slow_down)
    }

    /// Lets a thread go on until it has to wait for something.
    fn advance(&mut self, number: usize) {
        loop {
            let thread = &self.threads[number];
            let (program, launchers) = (self.program, self.launchers);
            let steps = match thread.lane {
                Lane::Launch => &launchers[thread.steps].steps,
                _ => &program.blocks[thread.steps].steps,
            };
            let Some(step) = steps.get(thread.at) else { return self.ended(number) };
            if thread.phase == Phase::Begin {
                let now = self.now;
                let of = &mut self.threads[number];
                (of.since, of.woken, of.cause) = (now, now, None);
            }
            let is_done = match &step.kind {
                Kind::Loop { iterations, steps, .. } => {
                    let (iterations, body) = (*iterations, *steps);
                    let of = &mut self.threads[number];
                    if iterations == 0 || body == 0 {
                        of.at += 1 + body;
                    } else {
                        of.pipeline = Some((of.at, 0));
                        of.at += 1;
                    }
                    continue;
                }
                Kind::Delay(nanoseconds) => {
                    let nanoseconds = *nanoseconds;
                    self.timed(number, nanoseconds)
                }
                Kind::Announce(end) => {
                    let partner = program.ends[*end as usize].partner;
                    let rank = self.threads[number].rank;
                    let at = self.now + self.hosts.flight(rank, self.machine.costs.signal_flight_ns);
                    self.calendar.at(at, Event::Signal(partner, self.threads[number].last_span));
                    true
                }
                Kind::Hear(end) => {
                    let end = *end;
                    self.wait(number, end, 0.0)
                }
                Kind::Blocks => self.blocks(number),
                Kind::Signal(end) => {
                    let end = *end;
                    self.signal(number, end)
                }
                Kind::Wait(end) => {
                    let end = *end;
                    self.wait(number, end, self.machine.costs.wait_ns + self.machine.costs.step_ns)
                }
                Kind::Barrier(id, blocks) => {
                    let (id, blocks) = (*id, *blocks);
                    self.barrier(number, id, blocks)
                }
                Kind::Acquire(id) => {
                    let id = *id;
                    self.acquire(number, id)
                }
                Kind::Release(id) => {
                    let id = *id;
                    self.release(number, id)
                }
                Kind::Flush(channel) => {
                    let channel = *channel;
                    self.flush(number, channel)
                }
                Kind::PortSignal(channel) => {
                    let channel = *channel;
                    self.post(number, channel, None, true, false)
                }
                Kind::Put { channel, signals, flushes, work } => {
                    let (channel, signals, flushes) = (*channel, *signals, *flushes);
                    self.post(number, channel, Some(work), signals, flushes)
                }
                Kind::Move(work) => self.transfer(number, work),
            };
            if !is_done {
                return;
            }
            self.next_step(number);
        }
    }

    /// Records the step and goes to the next one.
    fn next_step(&mut self, number: usize) {
        let thread = &self.threads[number];
        let at = thread.at;
        let (kind, bytes, name, path) = {
            let step = &self.steps(thread)[at];
            let bytes = match &step.kind {
                Kind::Move(work) | Kind::Put { work, .. } => work.bytes(self.slice(number)),
                _ => 0,
            };
            (SpanKind::of(&step.kind), bytes, step.name, step.path)
        };
        let iteration = self.threads[number].pipeline.map_or(0, |(_, iteration)| iteration);
        self.span(number, |thread, now| Span {
            rank: thread.rank,
            lane: thread.lane,
            kind,
            name,
            path,
            iteration,
            start: thread.since,
            ready: thread.woken,
            end: now,
            bytes,
            cause: thread.cause,
            before: thread.last_span,
        });
        let header = self.threads[number].pipeline;
        let mut next = (at + 1, header);
        if let Some((header, iteration)) = header
            && let Kind::Loop { iterations, steps, .. } = self.steps(&self.threads[number])[header].kind
            && at + 1 > header + steps
        {
            next = if iteration + 1 < iterations {
                (header + 1, Some((header, iteration + 1)))
            } else {
                (at + 1, None)
            };
        }
        let of = &mut self.threads[number];
        (of.at, of.pipeline) = next;
        of.phase = Phase::Begin;
    }

    /// Keeps a span if the thread is in its last round.
    fn span(&mut self, number: usize, span: impl FnOnce(&Thread, f64) -> Span) {
        let thread = &self.threads[number];
        if !self.request.record || thread.round + 1 < self.request.rounds.max(1) {
            return;
        }
        let span = span(thread, self.now);
        self.spans.push(span);
        self.threads[number].last_span = Some(self.spans.len() - 1);
    }

    fn slice(&self, number: usize) -> Option<(u64, u64)> {
        let thread = &self.threads[number];
        let (header, iteration) = thread.pipeline?;
        match self.steps(thread).get(header)?.kind {
            Kind::Loop { slice, .. } => Some((iteration.saturating_mul(slice), slice)),
            _ => None,
        }
    }

    /// Lets the blocks of a rank begin; true when all have ended.
    fn blocks(&mut self, number: usize) -> bool {
        let rank = self.threads[number].rank;
        let blocks = self.blocks_of[rank as usize].clone();
        match self.threads[number].phase {
            Phase::Begin if !blocks.is_empty() => {
                self.threads[number].phase = Phase::Wait;
                self.running[rank as usize] = blocks.len() as u32;
                let before = self.threads[number].last_span;
                for block in blocks {
                    self.threads[block].last_span = before;
                    self.calendar.at(self.now, Event::Thread(block));
                }
                false
            }
            Phase::Begin => true,
            phase => phase == Phase::Act,
        }
    }

    /// A thread has no more steps in this launch.
    fn ended(&mut self, number: usize) {
        let rank = self.threads[number].rank as usize;
        let of = &mut self.threads[number];
        (of.at, of.phase) = (0, Phase::Begin);
        of.round += 1;
        let (round, lane, last) = (of.round, of.lane, of.last_span);
        if lane != Lane::Launch {
            self.running[rank] -= 1;
            if self.running[rank] == 0 {
                let launcher = self.program.blocks.len() + rank;
                self.wake(launcher, last);
            }
            return;
        }
        if let Some(launch) = self.launches[rank].last_mut() {
            launch.1 = self.now;
        }
        self.packets.forget(rank as u32, round - 1);
        if round < self.request.rounds.max(1) {
            self.launches[rank].push((self.now, 0.0));
            self.calendar.at(self.now, Event::Thread(number));
        }
    }
}
