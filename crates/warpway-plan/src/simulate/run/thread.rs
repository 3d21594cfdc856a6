//! Threads of the machine: where each is in its program, and how it goes from one step to the next.

use super::super::program::{Kind, Step};
use super::super::result::{Lane, Span, SpanId, SpanKind};
use super::{Event, Run};

/// The blocks, then one launcher per rank.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) rank: u32,
    pub(super) lane: Lane,
    /// In `Run::program`, or of the launcher.
    pub(super) steps: usize,
    pub(super) at: usize,
    /// Header and iteration of the pipeline that it is in.
    pub(super) pipeline: Option<(usize, u64)>,
    pub(super) phase: Phase,
    /// When the step began, and when it no longer had to wait.
    pub(super) since: f64,
    pub(super) woken: f64,
    /// What ended its wait.
    pub(super) cause: Option<SpanId>,
    pub(super) last_span: Option<SpanId>,
    pub(super) round: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
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

impl Thread {
    /// Before its first launch. `steps` says where its program is.
    pub(super) fn new(steps: usize, rank: u32, lane: Lane) -> Self {
        Self {
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
        }
    }
}

impl Run<'_> {
    pub(super) fn steps(&self, thread: &Thread) -> &[Step] {
        match thread.lane {
            Lane::Launch => &self.launchers[thread.steps].steps,
            _ => &self.program.blocks[thread.steps].steps,
        }
    }

    /// A thread has what it waited for.
    pub(super) fn wake(&mut self, thread: usize, cause: Option<SpanId>) {
        let of = &mut self.threads[thread];
        (of.phase, of.cause, of.woken) = (Phase::Act, cause, self.now);
        self.advance(thread);
    }

    pub(super) fn later(&mut self, thread: usize, nanoseconds: f64, phase: Phase) {
        self.threads[thread].phase = phase;
        let slow = self.slow(self.threads[thread].rank);
        self.calendar.at(self.now + nanoseconds * slow, Event::Thread(thread));
    }

    pub(super) fn slow(&self, rank: u32) -> f64 {
        self.machine.straggler(rank).map_or(1.0, |straggler| straggler.slow_down)
    }

    /// Lets a thread go on until it has to wait for something.
    pub(super) fn advance(&mut self, number: usize) {
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

    pub(super) fn slice(&self, number: usize) -> Option<(u64, u64)> {
        let thread = &self.threads[number];
        let (header, iteration) = thread.pipeline?;
        match self.steps(thread).get(header)?.kind {
            Kind::Loop { slice, .. } => Some((iteration.saturating_mul(slice), slice)),
            _ => None,
        }
    }
}
