//! Carrying out requests: per connection in order, connections independent of each other.
//!
//! A request whose connection has its write queue full is parked, and so are the later ones of that
//! connection; all others go on. A flush is remembered with the position it waits for on its connection.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::ProxyError;
use super::handler::{Flow, Handler, Progress, guarded};
use super::lane::{Entry, Lane};
use super::lanes::Lanes;
use super::registry::Registry;
use super::removals::{Removal, Removals};
use crate::connection::{Position, Put, Span};
use crate::error::{Error, Result};
use crate::fifo::{SemaphoreId, Trigger, TriggerKind};
use crate::memory::RegisteredMemory;
use crate::trace::{Operation, Request};

/// What ids name.
pub(super) struct Registries {
    pub(super) semaphores: Registry<Arc<Entry>>,
    pub(super) memories: Registry<RegisteredMemory>,
    pub(super) removals: Removals,
}

pub(super) struct Dispatcher {
    registries: Arc<Registries>,
    lanes: Arc<Lanes>,
    /// What is left to do, by connection.
    backlogs: HashMap<usize, Backlog>,
    /// Requests parked on all lanes.
    parked: usize,
    max_parked: usize,
    /// Position of the next request.
    next: u64,
}

/// What is left to do on one lane.
struct Backlog {
    lane: Arc<Lane>,
    parked: VecDeque<Work>,
    flushes: VecDeque<Flush>,
}

/// A request with the objects that its ids named when it was taken up.
struct Work {
    position: u64,
    trigger: Trigger,
    entry: Arc<Entry>,
    destination: Option<RegisteredMemory>,
    source: Option<RegisteredMemory>,
    /// Parts that are still to be posted.
    remaining: TriggerKind,
}

struct Flush {
    /// In the FIFO.
    position: u64,
    /// On the connection.
    wanted: Position,
}

enum Outcome {
    Done(Option<Flush>),
    /// The connection has its write queue full.
    Blocked,
}

impl Dispatcher {
    pub(super) fn new(registries: Arc<Registries>, lanes: Arc<Lanes>, max_parked: usize) -> Self {
        Self {
            registries,
            lanes,
            backlogs: HashMap::new(),
            parked: 0,
            max_parked: max_parked.max(1),
            next: 0,
        }
    }

    fn resolve(&self, position: u64, trigger: Trigger, entry: &Arc<Entry>) -> Result<Work> {
        let memory = |id: u32| self.registries.memories.get_leaving(id);
        let data = trigger.kind.contains(TriggerKind::DATA);
        let addressed = data || trigger.kind.contains(TriggerKind::ATOMIC_ADD);
        Ok(Work {
            position,
            trigger,
            entry: Arc::clone(entry),
            destination: addressed.then(|| memory(trigger.destination.bits())).transpose()?,
            source: data.then(|| memory(trigger.source.bits())).transpose()?,
            remaining: trigger.kind,
        })
    }

    fn take_up(&mut self, position: u64, trigger: Trigger, entry: &Arc<Entry>) -> Result<()> {
        let lane = &entry.lane;
        let key = lane.connection().key();
        let mut work = self.resolve(position, trigger, entry)?;
        let backlog = self.backlogs.get_mut(&key);
        let outcome = match &backlog {
            Some(backlog) if !backlog.parked.is_empty() => Outcome::Blocked,
            _ => work.carry_out()?,
        };
        let flush = match outcome {
            Outcome::Done(None) => return Ok(()),
            // The common case where everything is complete at once, such as in shared memory.
            Outcome::Done(Some(flush))
                if backlog.is_none() && lane.connection().completed()? >= flush.wanted =>
            {
                lane.flushes().complete(flush.position);
                return Ok(());
            }
            Outcome::Done(Some(flush)) => Some(flush),
            Outcome::Blocked => None,
        };
        let backlog = self.backlogs.entry(key).or_insert_with(|| Backlog::new(lane));
        match flush {
            Some(flush) => backlog.flushes.push_back(flush),
            None => {
                backlog.parked.push_back(work);
                self.parked += 1;
            }
        }
        Ok(())
    }
}

impl Dispatcher {
    /// Ends a lane with what it has left to do.
    fn give_up_on(&mut self, lane: &Lane, trigger: &Trigger, error: Error) {
        if let Some(backlog) = self.backlogs.remove(&lane.connection().key()) {
            self.parked -= backlog.parked.len();
        }
        break_lane(lane, trigger, error);
    }
}

impl Handler for Dispatcher {
    fn handle(&mut self, position: u64, trigger: Trigger) -> Result<Flow> {
        self.registries.expire(position);
        self.next = position + 1;
        // An id that names no semaphore names no connection either: the service's health takes it.
        let entry = self.registries.semaphores.get_leaving(trigger.semaphore.bits())?;
        // After a failure nothing of that connection counts any more; its waiters have its health.
        if !entry.lane.is_broken()
            && let Err(error) = guarded(|| self.take_up(position, trigger, &entry))
        {
            self.give_up_on(&entry.lane, &trigger, error);
        }
        Ok(Flow::Continue)
    }

    fn progress(&mut self) -> Result<Progress> {
        self.registries.expire(self.next);
        let mut busy = false;
        let parked = &mut self.parked;
        self.backlogs.retain(|_, backlog| {
            let before = backlog.parked.len();
            let result = guarded(|| backlog.advance());
            *parked -= before - backlog.parked.len();
            match result {
                Ok(advanced) => {
                    busy |= advanced;
                    !backlog.is_empty()
                }
                Err(error) => {
                    *parked -= backlog.parked.len();
                    let front = backlog.parked.front().map(|work| work.trigger);
                    let sync = || Trigger::new(TriggerKind::SYNC, SemaphoreId::default());
                    break_lane(&backlog.lane, &front.unwrap_or_else(sync), error);
                    false
                }
            }
        });
        Ok(match () {
            () if busy => Progress::Busy,
            () if self.backlogs.is_empty() => Progress::Idle,
            () if self.backlogs.values().all(|backlog| backlog.lane.is_watched()) => Progress::Notified,
            () => Progress::Waiting,
        })
    }

    fn rest(&mut self) -> Result<bool> {
        let mut settled = true;
        for lane in self.lanes.all() {
            if lane.is_broken() {
                continue;
            }
            match guarded(|| lane.connection().let_go()) {
                Ok(done) => settled &= done,
                Err(error) => {
                    self.give_up_on(&lane, &Trigger::new(TriggerKind::SYNC, SemaphoreId::default()), error);
                }
            }
        }
        Ok(settled)
    }

    fn accepts(&self) -> bool {
        self.parked < self.max_parked
    }

    fn start(&mut self) {
        self.lanes.resume();
    }

    fn failed(&mut self) {
        self.lanes.fail();
    }

    fn reject(&mut self, position: u64, trigger: Trigger) {
        self.registries.expire(position);
        self.next = position + 1;
        if let Ok(entry) = self.registries.semaphores.get_leaving(trigger.semaphore.bits()) {
            entry.lane.lose(position, trigger.kind);
        }
    }

    fn give_up(&mut self) -> u64 {
        self.registries.expire(self.next);
        self.parked = 0;
        let mut count = 0;
        for (_, Backlog { lane, parked, flushes }) in self.backlogs.drain() {
            lane.expect_nothing();
            count += (parked.len() + flushes.len()) as u64;
            for flush in flushes {
                lane.lose(flush.position, TriggerKind::SYNC);
            }
            for work in parked {
                lane.lose(work.position, work.remaining);
            }
        }
        self.lanes.stop();
        count
    }
}

impl Backlog {
    fn new(lane: &Arc<Lane>) -> Self {
        Self { lane: Arc::clone(lane), parked: VecDeque::new(), flushes: VecDeque::new() }
    }

    fn is_empty(&self) -> bool {
        self.parked.is_empty() && self.flushes.is_empty()
    }

    /// Goes on as far as possible. True if anything moved; else the bell will ring, if the lane is watched.
    fn advance(&mut self) -> Result<bool> {
        // Nothing completes any more once the communicator has failed.
        self.lane.connection().waiter().health.check_during(Operation::ProxyRequest)?;
        let seen = self.lane.connection().completed()?;
        let advanced = self.advance_once()?;
        if self.is_empty() {
            self.lane.expect_nothing();
            return Ok(advanced);
        }
        if advanced || !self.lane.is_watched() {
            return Ok(advanced);
        }
        // What is parked waits for room, so for any completion; a flush for its own.
        let flush = self.flushes.front().filter(|_| self.parked.is_empty());
        self.lane.expect(flush.map_or(seen.0 + 1, |flush| flush.wanted.0));
        self.advance_once()
    }

    /// Posts what the write queue has room for and completes flushes. True if anything moved.
    fn advance_once(&mut self) -> Result<bool> {
        let connection = self.lane.connection();
        let mut advanced = false;
        while let Some(work) = self.parked.front_mut() {
            let before = work.remaining;
            match work.carry_out()? {
                Outcome::Done(flush) => {
                    self.flushes.extend(flush);
                    self.parked.pop_front();
                    advanced = true;
                }
                Outcome::Blocked => {
                    advanced |= work.remaining != before;
                    break;
                }
            }
        }
        if self.flushes.is_empty() {
            return Ok(advanced);
        }
        let completed = connection.completed()?;
        while let Some(flush) = self.flushes.pop_front_if(|flush| flush.wanted <= completed) {
            self.lane.flushes().complete(flush.position);
            advanced = true;
        }
        Ok(advanced)
    }
}

impl Work {
    /// Posts the remaining parts in their order: data, flag, addition, flush. Each is posted once, also
    /// where the queue fills up between two of them.
    fn carry_out(&mut self) -> Result<Outcome> {
        let lane = &self.entry.lane;
        let connection = lane.connection();
        let Trigger { destination_offset, source_offset, size, value, .. } = self.trigger;
        let limit = connection.max_write_queue_size().max(1);
        let no_memory = || Error::Internal { place: "proxy", what: "a request's memories were looked up" };
        let put = || {
            let destination = self.destination.as_ref().ok_or_else(no_memory)?;
            let source = self.source.as_ref().ok_or_else(no_memory)?;
            let destination = Span { memory: destination, offset: destination_offset };
            let source = Span { memory: source, offset: source_offset };
            Ok::<_, Error>(Put { destination, source, size })
        };
        let both = TriggerKind::DATA | TriggerKind::FLAG;
        // The most frequent request, at which whoever waits is delayed by all that happens here.
        if self.remaining.contains(both) && connection.in_flight()? + 2 <= limit {
            self.entry.semaphore.write_and_signal(put()?)?;
            self.remaining = self.remaining.without(both);
        }
        for part in [TriggerKind::DATA, TriggerKind::FLAG, TriggerKind::ATOMIC_ADD] {
            if !self.remaining.contains(part) {
                continue;
            }
            if connection.in_flight()? >= limit {
                return Ok(Outcome::Blocked);
            }
            match part {
                TriggerKind::DATA => {
                    let Put { destination, source, size } = put()?;
                    connection.write(
                        destination.memory,
                        destination.offset,
                        source.memory,
                        source.offset,
                        size,
                    )?;
                }
                TriggerKind::FLAG => self.entry.semaphore.signal()?,
                _ => {
                    let destination = self.destination.as_ref().ok_or_else(no_memory)?;
                    connection.atomic_add(destination, destination_offset, value)?;
                }
            }
            self.remaining = self.remaining.without(part);
        }
        if !self.remaining.contains(TriggerKind::SYNC) {
            return Ok(Outcome::Done(None));
        }
        self.remaining = self.remaining.without(TriggerKind::SYNC);
        if lane.take_loss() {
            // Requests before this one were rejected by a stop: "everything before is complete" is not true.
            lane.flushes().give_up(self.position);
            return Ok(Outcome::Done(None));
        }
        Ok(Outcome::Done(Some(Flush { position: self.position, wanted: connection.try_flush() })))
    }
}

/// Ends a lane: its waiters leave through the health of its communicator.
fn break_lane(lane: &Lane, trigger: &Trigger, error: Error) {
    lane.break_down();
    let connection = lane.connection();
    let waiter = connection.waiter();
    let record = waiter.recorder.start(Request {
        operation: Operation::ProxyRequest,
        peer: Some(connection.peer()),
        object: u64::from(trigger.semaphore.bits()),
        bytes: trigger.size,
        offset: trigger.destination_offset,
    });
    waiter.recorder.fail(record, &error);
    waiter.health.fail_local("proxy request", Some(connection.peer()), error);
    // After the health: a kernel that leaves now reports a consequence, not the cause.
    lane.flushes().stop();
}

/// The registries of one service.
impl Registries {
    pub(super) fn new() -> Self {
        use super::registry::LIMIT;
        let (semaphores, memories) = (Registry::new("semaphore", LIMIT), Registry::new("memory", LIMIT));
        Self { semaphores, memories, removals: Removals::new() }
    }

    /// The entry of a semaphore id.
    pub(super) fn entry(&self, id: u32) -> Result<Arc<Entry>, ProxyError> {
        self.semaphores.get(id)
    }

    /// Removes what goes before the request at `position` is taken up.
    pub(super) fn expire(&self, position: u64) {
        for removal in self.removals.due(position) {
            // Each was retired once, and is removed once.
            match removal {
                Removal::Semaphore(id) => drop(self.semaphores.remove(id)),
                Removal::Memory(id) => drop(self.memories.remove(id)),
            }
        }
    }
}
