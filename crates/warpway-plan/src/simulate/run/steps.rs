//! What a thread does at each kind of step. Every function is called again when the thread goes on, and says whether the
//! step is done; what it was at is the thread's phase.

use std::collections::VecDeque;

use super::super::cost::Price;
use super::super::packets::Chase;
use super::super::program::Move;
use super::super::result::SpanId;
use super::thread::Phase;
use super::{Event, Run, port};

impl<'a> Run<'a> {
    /// A step that takes a fixed time.
    pub(super) fn timed(&mut self, number: usize, nanoseconds: f64) -> bool {
        match self.threads[number].phase {
            Phase::Begin => {
                self.later(number, nanoseconds, Phase::End);
                false
            }
            _ => true,
        }
    }

    pub(super) fn signal(&mut self, number: usize, end: u32) -> bool {
        let costs = &self.machine.costs;
        if !self.timed(number, costs.step_ns + costs.signal_ns) {
            return false;
        }
        let rank = self.threads[number].rank;
        let flight = self.hosts.flight(rank, costs.signal_flight_ns);
        // The span of the signal is the next one to be recorded.
        let cause = self.next_span(number);
        self.calendar.at(self.now + flight, Event::Signal(self.program.ends[end as usize].partner, cause));
        true
    }

    /// The number of the span that is recorded next, if it is.
    fn next_span(&self, number: usize) -> Option<SpanId> {
        let recorded = self.request.record && self.threads[number].round + 1 >= self.request.rounds.max(1);
        recorded.then_some(self.spans.len())
    }

    pub(super) fn wait(&mut self, number: usize, end: u32, nanoseconds: f64) -> bool {
        match self.threads[number].phase {
            Phase::Begin => {
                let inbox = &mut self.inboxes[end as usize];
                match inbox.arrived.pop_front() {
                    Some(_) => self.later(number, nanoseconds, Phase::End),
                    None => {
                        inbox.waiter.push_back(number);
                        self.threads[number].phase = Phase::Wait;
                    }
                }
                false
            }
            Phase::Act => {
                self.later(number, nanoseconds, Phase::End);
                false
            }
            phase => phase == Phase::End,
        }
    }

    pub(super) fn barrier(&mut self, number: usize, id: u32, blocks: u32) -> bool {
        let rank = self.threads[number].rank;
        match self.threads[number].phase {
            Phase::Begin => {
                self.threads[number].phase = Phase::Wait;
                let arrived = self.barriers.entry((rank, id)).or_default();
                arrived.push(number);
                if arrived.len() as u64 >= u64::from(blocks) {
                    let all = std::mem::take(arrived);
                    // The last one to come is what the others waited for.
                    let cause = self.threads[number].last_span;
                    for thread in all {
                        let of = &mut self.threads[thread];
                        of.woken = self.now;
                        of.cause = cause.filter(|_| thread != number);
                        self.later(thread, self.machine.costs.barrier_ns, Phase::End);
                    }
                }
                false
            }
            phase => phase == Phase::End,
        }
    }

    pub(super) fn acquire(&mut self, number: usize, id: u32) -> bool {
        let (rank, step) = (self.threads[number].rank, self.machine.costs.step_ns);
        match self.threads[number].phase {
            Phase::Begin => {
                let value = self.semaphores.get_mut(rank as usize).and_then(|list| list.get_mut(id as usize));
                match value {
                    Some(value) if *value > 0 => {
                        *value -= 1;
                        self.later(number, step, Phase::End);
                    }
                    _ => {
                        self.acquiring.entry((rank, id)).or_default().push_back(number);
                        self.threads[number].phase = Phase::Wait;
                    }
                }
                false
            }
            Phase::Act => {
                self.later(number, step, Phase::End);
                false
            }
            phase => phase == Phase::End,
        }
    }

    pub(super) fn release(&mut self, number: usize, id: u32) -> bool {
        if !self.timed(number, self.machine.costs.step_ns) {
            return false;
        }
        let rank = self.threads[number].rank;
        let cause = self.next_span(number);
        match self.acquiring.get_mut(&(rank, id)).and_then(VecDeque::pop_front) {
            Some(waiter) => {
                let of = &mut self.threads[waiter];
                (of.phase, of.cause, of.woken) = (Phase::Act, cause, self.now);
                self.calendar.at(self.now, Event::Thread(waiter));
            }
            None => {
                if let Some(value) =
                    self.semaphores.get_mut(rank as usize).and_then(|l| l.get_mut(id as usize))
                {
                    *value += 1;
                }
            }
        }
        true
    }

    /// A move by loads and stores.
    pub(super) fn transfer(&mut self, number: usize, work: &'a Move) -> bool {
        let (rank, round) = (self.threads[number].rank, self.threads[number].round);
        let slice = self.slice(number);
        loop {
            match self.threads[number].phase {
                Phase::Begin => {
                    self.later(number, self.machine.costs.step_ns, Phase::Act);
                    return false;
                }
                Phase::Act | Phase::Wait => {
                    // Packets are taken as they come: it is enough that all of them are on their way.
                    let read = self.packets.begun(rank, round, work, slice);
                    let read = match read {
                        Some(begun) if begun.at <= self.now => {
                            if self.threads[number].phase == Phase::Wait {
                                self.threads[number].woken = self.now;
                            }
                            begun
                        }
                        Some(begun) => {
                            self.threads[number].phase = Phase::Wait;
                            self.calendar.at(begun.at, Event::Thread(number));
                            return false;
                        }
                        None => {
                            self.threads[number].phase = Phase::Wait;
                            self.packets.wait(rank, round, number);
                            return false;
                        }
                    };
                    let block = self.threads[number].steps;
                    let Price { amount, limit, uses } =
                        self.cost.of_move(&mut self.caches, &self.hosts, (block, round), work, slice);
                    let slow = self.slow(rank);
                    let stream = self.cost.packet_stream(block);
                    let Chase { reader, writer } =
                        read.chase(self.now, amount / limit * slow, amount / stream * slow);
                    let flight = self.hosts.flight(rank, self.machine.costs.packet_flight_ns);
                    if let (Some(writes), Some(lasts)) = (read.writer, writer) {
                        // What it writes last is read a flight later.
                        self.flows.delay(self.now, writes, lasts - flight);
                    }
                    let limit = amount / reader * slow;
                    let done = self.now + flight + amount / limit * slow;
                    let woken = self.packets.write(
                        round,
                        work,
                        slice,
                        (self.now + flight, done),
                        (Some(number), None),
                    );
                    for reader in woken {
                        self.calendar.at(self.now, Event::Packets(reader, round));
                    }
                    self.threads[number].phase = Phase::Flow;
                    self.alone[block] += amount / limit * slow;
                    self.flows.start(self.now, amount, limit / slow, uses, number);
                    return false;
                }
                Phase::Flow => {
                    let flight = self.hosts.flight(rank, self.machine.costs.packet_flight_ns);
                    let cause = self.next_span(number);
                    let ready = self.now + flight;
                    let done = (Some(number), Some(cause));
                    for reader in self.packets.write(round, work, slice, (ready, ready), done) {
                        self.calendar.at(ready, Event::Packets(reader, round));
                    }
                    self.threads[number].phase = Phase::Tail;
                }
                Phase::Tail => {
                    let Some(ready) = self.packets.ready(rank, round, work, slice) else {
                        self.packets.wait(rank, round, number);
                        return false;
                    };
                    if ready.at >= self.now {
                        // The last packets came after everything else was done.
                        self.threads[number].cause = ready.cause;
                    }
                    if ready.at > self.now {
                        self.calendar.at(ready.at, Event::Thread(number));
                        return false;
                    }
                    return true;
                }
                Phase::End => return true,
            }
        }
    }

    /// A request to the proxy.
    pub(super) fn post(
        &mut self,
        number: usize,
        channel: u32,
        work: Option<&'a Move>,
        signals: bool,
        flushes: bool,
    ) -> bool {
        let costs = &self.machine.costs;
        match self.threads[number].phase {
            Phase::Begin => {
                self.later(number, costs.step_ns + costs.request_ns, Phase::Act);
                return false;
            }
            Phase::Act => {
                let (rank, slice) = (self.threads[number].rank, self.slice(number));
                let when = (self.threads[number].round, self.next_span(number));
                let request = port::Request::new(channel, work.map(|work| (work, slice)), signals, when);
                if self.ports.post(request) {
                    self.calendar.at(self.now, Event::Proxy(rank));
                }
                if flushes && !self.ports.is_idle(channel) {
                    self.flushing.entry(channel).or_default().push(number);
                    self.threads[number].phase = Phase::Tail;
                    return false;
                }
            }
            // Woken by the end of the flush.
            _ => {}
        }
        true
    }

    pub(super) fn flush(&mut self, number: usize, channel: u32) -> bool {
        match self.threads[number].phase {
            Phase::Begin if !self.ports.is_idle(channel) => {
                self.flushing.entry(channel).or_default().push(number);
                self.threads[number].phase = Phase::Wait;
                false
            }
            Phase::Begin | Phase::Act => {
                self.later(number, self.machine.costs.step_ns, Phase::End);
                false
            }
            _ => true,
        }
    }
}
