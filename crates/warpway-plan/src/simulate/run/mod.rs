//! The run: blocks do their steps, signals arrive, transfers end, one after the other in time.
//!
//! Each rank also has a *launcher*: what happens around its blocks. It announces the launch to the ranks that touch this
//! rank's buffers, waits for the announcements of those whose buffers it touches, lets the blocks begin, and waits for
//! their ends; then the next launch follows.
//!
//! | file | question it answers |
//! |---|---|
//! | `calendar.rs` | what is to happen next |
//! | `thread.rs` | which step a thread is at |
//! | `steps.rs` | what it does there |
//! | `port.rs` | what proxies and connections between hosts do meanwhile |
//! | `launch.rs` | how launches begin and end |

mod calendar;
mod launch;
mod port;
mod steps;
mod thread;

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::caches::Caches;
use super::cost::Cost;
use super::flows::Flows;
use super::hosts::Hosts;
use super::machine::Machine;
use super::packets::Packets;
use super::program::{BlockProgram, Program};
use super::result::{Lane, Span, SpanId};
use super::{Request, SimulateError};
use calendar::{Calendar, Event};
use port::Ports;
use thread::{Phase, Thread};

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
        let mut threads: Vec<Thread> = Vec::new();
        let mut blocks_of = vec![0..0; n_ranks];
        for (number, block) in program.blocks.iter().enumerate() {
            threads.push(Thread::new(number, block.rank, Lane::Block(block.block)));
            let range = &mut blocks_of[block.rank as usize];
            *range = if range.start == range.end { number..number + 1 } else { range.start..number + 1 };
        }
        threads.extend((0..n_ranks).map(|rank| Thread::new(rank, rank as u32, Lane::Launch)));
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
            let planned = self.calendar.next();
            let ended = self.flows.next_end(self.now);
            match (planned, ended) {
                (Some(planned), ended) if ended.is_none_or(|ended| planned <= ended) => {
                    let Some((at, event)) = self.calendar.pop() else { break };
                    self.now = at;
                    self.happen(event);
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
}
