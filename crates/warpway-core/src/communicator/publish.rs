//! One-sided registration: the owner of a buffer makes it known, peers map it without being asked.
//!
//! The owner publishes a registered memory under a slot; each peer imports it on a thread of its own and
//! acknowledges. Nobody has to call anything at the same time. A withdrawn buffer stays registered until
//! every peer has let go of it.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::ExchangeError;
use super::registration_table::{Acquired, Full, RegistrationTable};
use super::state::State;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::health::{Cause, Failure, lock};
use crate::memory::{MemoryRecord, RegisteredMemory};
use crate::trace::{Operation, Request};
use crate::wait::{GaveUp, WaitError, WaitSite};
use crate::wire::{ControlMessage, SlotId};

/// How late a failure without a wake-up is noticed at worst.
const SLICE: Duration = Duration::from_millis(50);

/// A buffer that peers may use, until the last clone is dropped. Publishing the same range again gives
/// another handle to the same slot.
///
/// A buffer whose region keeps its own mapping stays published for a while after that, so that publishing
/// it again costs nothing; it goes when its place is needed. Any other buffer is withdrawn at once; before
/// its memory is unmapped by hand, [`withdraw`](Self::withdraw) must have returned.
#[derive(Clone)]
pub struct Publication(Arc<Held>);

struct Held {
    state: Weak<State>,
    slot: SlotId,
    published: Arc<Published>,
    /// Withdraw when dropped, also if it could be kept.
    for_good: AtomicBool,
}

impl Publication {
    /// Under which peers find it.
    pub fn slot(&self) -> SlotId {
        self.0.slot
    }

    /// The buffer.
    pub fn memory(&self) -> &RegisteredMemory {
        &self.0.published.memory
    }

    /// Waits until every peer it was published to has mapped it (or has left the communicator).
    ///
    /// # Errors
    /// `exchange.unacknowledged` lists who has not; `exchange.import_refused` if a peer could not map it;
    /// the failure of the communicator.
    pub fn wait_acknowledged(&self, deadline: Deadline) -> Result<()> {
        let Held { state, slot, published, .. } = &*self.0;
        let state = state.upgrade().ok_or(Error::Internal {
            place: "Publication::wait_acknowledged",
            what: "the communicator has been dropped",
        })?;
        let (bytes, object) = (published.memory.size(), slot.slot);
        let request = Request { operation: Operation::Publish, peer: None, object, bytes, offset: 0 };
        let recorder = &state.context.waiter.recorder;
        let record = recorder.start(request);
        let result = published.wait(&state, *slot, deadline, |peers| {
            for (peer, progress) in peers {
                if let Progress::Refused(why) = progress {
                    let (rank, peer, slot, why) = (state.rank, *peer, slot.slot, why.clone());
                    return Err(ExchangeError::ImportRefused { rank, peer, slot, why }.into());
                }
            }
            Ok(waiting_for(peers, |progress| matches!(progress, Progress::Told)))
        });
        match &result {
            Ok(()) => recorder.complete(record),
            Err(error) => recorder.fail(record, error),
        }
        result
    }

    /// Gives the buffer up and, if this was the last handle to it, waits until no peer uses it any more.
    ///
    /// # Errors
    /// `exchange.unacknowledged` lists who still uses it (the withdrawal goes on in the background); the
    /// failure of the communicator.
    pub fn withdraw(self, deadline: Deadline) -> Result<()> {
        let (state, slot, published) = (self.0.state.upgrade(), self.0.slot, Arc::clone(&self.0.published));
        self.0.for_good.store(true, Ordering::Relaxed);
        let Some(held) = Arc::into_inner(self.0) else { return Ok(()) };
        drop(held);
        let Some(state) = state else { return Ok(()) };
        if !lock(&published.peers).withdrawing {
            return Ok(());
        }
        published.wait(&state, slot, deadline, |peers| {
            Ok(waiting_for(peers, |progress| !matches!(progress, Progress::Released)))
        })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(state) = self.state.upgrade() else { return };
        let for_good = self.for_good.load(Ordering::Relaxed);
        if let Some(published) = state.publications.table.release(self.slot, for_good) {
            state.withdraw(self.slot, &published);
        }
    }
}

impl fmt::Debug for Publication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publication").field("slot", &self.slot()).field("memory", self.memory()).finish()
    }
}

/// What this rank has published.
pub(super) struct Publications {
    table: RegistrationTable<RangeKey, Arc<Published>>,
}

/// The same bytes, registered the same way.
#[derive(Clone, PartialEq, Eq, Hash)]
struct RangeKey {
    address: u64,
    size: u64,
    transports: u32,
    access: u32,
    /// Number of the descriptor that the bytes lie in: an address may come back with another one.
    descriptor: Option<u64>,
}

pub(super) struct Published {
    memory: RegisteredMemory,
    peers: Mutex<Peers>,
    changed: Condvar,
}

#[derive(Default)]
struct Peers {
    progress: BTreeMap<u32, Progress>,
    withdrawing: bool,
}

#[derive(Clone, PartialEq, Eq)]
enum Progress {
    Told,
    Acknowledged,
    Refused(String),
    /// Does not use it any more, or has left.
    Released,
}

impl Publications {
    pub(super) fn new(capacity: usize) -> Self {
        Self { table: RegistrationTable::new(capacity) }
    }
}

impl Published {
    /// Waits until `unfinished` gives nobody.
    fn wait(
        &self,
        state: &State,
        slot: SlotId,
        deadline: Deadline,
        unfinished: impl Fn(&BTreeMap<u32, Progress>) -> Result<Vec<u32>>,
    ) -> Result<()> {
        let mut peers = lock(&self.peers);
        loop {
            let waiting = unfinished(&peers.progress)?;
            if waiting.is_empty() {
                return Ok(());
            }
            state.health().check_during(Operation::Publish)?;
            if deadline.expired() {
                let (rank, slot) = (state.rank, slot.slot);
                return Err(ExchangeError::Unacknowledged { rank, slot, waiting }.into());
            }
            if state.is_closed() {
                let (rank, peer, operation) = (state.rank, waiting[0], "publish");
                return Err(ExchangeError::Dropped { rank, peer, operation }.into());
            }
            let slice = SLICE.min(deadline.remaining().unwrap_or(SLICE));
            peers = self.changed.wait_timeout(peers, slice).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Notes what a peer has done; true if a withdrawal is complete by that.
    fn note(&self, peer: u32, progress: Progress) -> bool {
        let mut peers = lock(&self.peers);
        if let Some(noted) = peers.progress.get_mut(&peer)
            && *noted != Progress::Released
        {
            *noted = progress;
        }
        self.changed.notify_all();
        peers.is_withdrawn()
    }
}

impl Peers {
    fn is_withdrawn(&self) -> bool {
        self.withdrawing && self.progress.values().all(|progress| *progress == Progress::Released)
    }
}

fn waiting_for(peers: &BTreeMap<u32, Progress>, unfinished: impl Fn(&Progress) -> bool) -> Vec<u32> {
    peers.iter().filter(|(_, progress)| unfinished(progress)).map(|(peer, _)| *peer).collect()
}

/// The owner's side.
impl State {
    pub(super) fn publish(&self, memory: &RegisteredMemory, recipients: &[u32]) -> Result<Publication> {
        for &peer in recipients {
            self.check(Operation::Publish, peer)?;
        }
        self.health().check_during(Operation::Publish)?;
        self.require_own("publish", memory)?;
        let record = memory.record();
        let key = RangeKey {
            address: record.original_address,
            size: record.size,
            transports: record.transports.bits(),
            access: record.access.bits(),
            descriptor: record.shared.as_ref().map(|shared| shared.descriptor),
        };
        let keep_idle = memory.region().is_some_and(|region| region.owns_mapping());
        let make = || {
            let (peers, changed) = (Mutex::default(), Condvar::new());
            Arc::new(Published { memory: memory.clone(), peers, changed })
        };
        let Acquired { slot, value: published, evicted, .. } = self
            .publications
            .table
            .acquire(&key, keep_idle, make)
            .map_err(|Full { capacity }| ExchangeError::SlotsInUse { rank: self.rank, capacity })?;
        let held = Held {
            state: self.this.clone(),
            slot,
            published: Arc::clone(&published),
            for_good: AtomicBool::new(false),
        };
        if let Some((slot, published)) = evicted {
            self.withdraw(slot, &published);
        }
        let untold: Vec<u32> = {
            let mut peers = lock(&published.peers);
            let new = |peer: &&u32| {
                let known = peers.progress.contains_key(peer) || self.health().has_left(**peer);
                **peer != self.rank && !known
            };
            let untold: Vec<u32> = recipients.iter().filter(new).copied().collect();
            peers.progress.extend(untold.iter().map(|peer| (*peer, Progress::Told)));
            untold
        };
        for peer in untold {
            self.tell(peer, ControlMessage::Publish { slot, memory: published.memory.record().clone() });
            // Its departure may have been noted before it was listed.
            if self.health().has_left(peer) {
                self.released(peer, slot);
            }
        }
        Ok(Publication(Arc::new(held)))
    }

    pub(super) fn republish(&self, memory: &RegisteredMemory, slot: SlotId) -> Option<Publication> {
        let published = self.publications.table.reacquire(slot, |there| there.memory.is(memory))?;
        let (state, for_good) = (self.this.clone(), AtomicBool::new(false));
        Some(Publication(Arc::new(Held { state, slot, published, for_good })))
    }

    fn withdraw(&self, slot: SlotId, published: &Arc<Published>) {
        let (users, done) = {
            let mut peers = lock(&published.peers);
            peers.withdrawing = true;
            let users = waiting_for(&peers.progress, |progress| *progress != Progress::Released);
            (users, peers.is_withdrawn())
        };
        if done {
            self.publications.table.retire(slot);
        }
        for peer in users {
            self.tell(peer, ControlMessage::Withdraw { slot });
        }
    }

    pub(super) fn acknowledged(&self, peer: u32, slot: SlotId, refusal: Option<String>) {
        self.note(peer, slot, refusal.map_or(Progress::Acknowledged, Progress::Refused));
    }

    pub(super) fn released(&self, peer: u32, slot: SlotId) {
        self.note(peer, slot, Progress::Released);
    }

    fn note(&self, peer: u32, slot: SlotId, progress: Progress) {
        let Some(published) = self.publications.table.get(slot) else { return };
        if published.note(peer, progress) {
            self.publications.table.retire(slot);
        }
    }

    /// A rank that has left uses nothing any more.
    pub(super) fn publications_departed(&self, peer: u32) {
        for (slot, _) in self.publications.table.all() {
            self.released(peer, slot);
        }
    }

    /// Nobody will answer any more: what is being withdrawn is let go, and waits end.
    pub(super) fn publications_failed(&self) {
        for (slot, published) in self.publications.table.all() {
            self.publications.table.retire(slot);
            published.changed.notify_all();
        }
    }
}

/// What peers have published to this rank.
#[derive(Default)]
pub(super) struct Imports {
    state: Mutex<Imported>,
    changed: Condvar,
}

#[derive(Default)]
struct Imported {
    entries: HashMap<(u32, u64), Entry>,
    closed: bool,
}

struct Entry {
    generation: u64,
    memory: Mapped,
}

enum Mapped {
    Here(RegisteredMemory),
    Not(Error),
    Withdrawn,
}

impl Imports {
    pub(super) fn wake(&self) {
        self.changed.notify_all();
    }

    /// The owner has left: its buffers are no longer found. Whoever uses one keeps it.
    pub(super) fn forget(&self, owner: u32) {
        let forgotten: Vec<Entry> = {
            let mut state = lock(&self.state);
            state.entries.extract_if(|(rank, _), _| *rank == owner).map(|(_, entry)| entry).collect()
        };
        self.changed.notify_all();
        // Outside the lock: dropping tells the owner.
        drop(forgotten);
    }

    pub(super) fn close(&self) {
        let forgotten = {
            let mut state = lock(&self.state);
            state.closed = true;
            std::mem::take(&mut state.entries)
        };
        self.changed.notify_all();
        drop(forgotten);
    }

    fn put(&self, owner: u32, slot: SlotId, memory: Mapped) -> Option<Entry> {
        let mut state = lock(&self.state);
        if state.closed {
            return Some(Entry { generation: slot.generation, memory });
        }
        let old = state.entries.insert((owner, slot.slot), Entry { generation: slot.generation, memory });
        self.changed.notify_all();
        old
    }
}

/// The peers' side.
impl State {
    /// On the control plane's thread: mapping may block, so a worker does it.
    pub(super) fn publish_arrived(&self, owner: u32, slot: SlotId, record: MemoryRecord) {
        self.on_publication_strand(move |state| {
            let imported = state.import(&record, state.members[owner as usize]);
            let refusal = imported.as_ref().err().map(Error::to_string);
            let mapped = match imported {
                Ok(memory) => {
                    let witness = Witness { state: state.this.clone(), owner, slot };
                    Mapped::Here(memory.with_witness(Arc::new(witness)))
                }
                Err(error) => Mapped::Not(error),
            };
            drop(state.imports.put(owner, slot, mapped));
            state.tell(owner, ControlMessage::Acknowledge { slot, refusal });
        });
    }

    pub(super) fn withdraw_arrived(&self, owner: u32, slot: SlotId) {
        self.on_publication_strand(move |state| {
            match state.imports.put(owner, slot, Mapped::Withdrawn) {
                // The witness answers once the last user has dropped it, which may be here and now.
                Some(Entry { memory: Mapped::Here(memory), .. }) => drop(memory),
                _ => state.tell(owner, ControlMessage::Released { slot }),
            }
        });
    }

    fn on_publication_strand(&self, work: impl FnOnce(&State) + Send + 'static) {
        let state = self.this.clone();
        self.publication_strand.push(Box::new(move || {
            if let Some(state) = state.upgrade().filter(|state| !state.is_closed()) {
                work(&state);
            }
        }));
    }

    /// A buffer that `owner` has published, waiting for it if need be.
    pub(super) fn published(&self, owner: u32, slot: SlotId, deadline: Deadline) -> Result<RegisteredMemory> {
        self.check(Operation::ImportMemory, owner)?;
        let SlotId { slot: number, generation } = slot;
        let rank = self.rank;
        let withdrawn = || ExchangeError::Withdrawn { rank, peer: owner, slot: number, generation };
        if owner == rank {
            let published = self.publications.table.get(slot).ok_or_else(withdrawn)?;
            return Ok(published.memory.clone());
        }
        let mut started = None;
        let mut state = lock(&self.imports.state);
        loop {
            match state.entries.get(&(owner, number)) {
                Some(entry) if entry.generation > generation => return Err(withdrawn().into()),
                Some(Entry { generation: found, memory }) if *found == generation => match memory {
                    Mapped::Here(memory) => return Ok(memory.clone()),
                    Mapped::Not(error) => return Err(error.clone()),
                    Mapped::Withdrawn => return Err(withdrawn().into()),
                },
                _ => {}
            }
            if state.closed {
                let operation = "published";
                return Err(ExchangeError::Dropped { rank, peer: owner, operation }.into());
            }
            self.health().check_during(Operation::ImportMemory)?;
            let started = *started.get_or_insert_with(Instant::now);
            if self.health().has_departed(owner) {
                let (phase, cause) = (Operation::ImportMemory.to_string(), Cause::PeerLeft);
                return Err(Failure { rank, culprit: Some(owner), phase, cause }.into());
            }
            if deadline.expired() {
                let site = WaitSite {
                    operation: Operation::ImportMemory,
                    peer: Some(owner),
                    object: number,
                    sequence: generation,
                    expected: 1,
                };
                let (elapsed, reason) = (started.elapsed(), GaveUp::TimedOut);
                return Err(WaitError { rank, site, observed: 0, elapsed, reason }.into());
            }
            let slice = SLICE.min(deadline.remaining().unwrap_or(SLICE));
            let woken = self.imports.changed.wait_timeout(state, slice);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Dropped with the last user of an imported buffer.
struct Witness {
    state: Weak<State>,
    owner: u32,
    slot: SlotId,
}

impl Drop for Witness {
    fn drop(&mut self) {
        // Without the communicator the owner learns it from our departure.
        if let Some(state) = self.state.upgrade() {
            state.tell(self.owner, ControlMessage::Released { slot: self.slot });
        }
    }
}
