//! A ring of the last N operations: sequence, operation, peer, sizes, state, times.
//!
//! A line is one cache line of atomics behind a stamp (a sequence lock), so recording takes no lock and
//! readers never hold a writer up. The stamp holds the sequence number and how far the line is written:
//!
//! ```text
//! (older line) → Writing → Started → Ending → Completed | Failed → (newer line)
//! ```
//!
//! Every step into `Writing` and `Ending` is a compare-and-swap, so a thread that was held up while the
//! ring went once round can neither tear a newer line nor end a stranger's operation.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::sync::Mutex;
use std::time::Instant;

use crossbeam_utils::CachePadded;

use super::clock::{Clock, Scale};
use super::operation::{Operation, OperationState, RecordedOperation, Request};
use crate::health::lock;
use crate::sync::{AtomicU64, Ordering, fence, spin_loop};
use crate::wait::WaitSite;

/// Names one recorded operation; its line may have been overwritten since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordId(u64);

/// See the module's page.
pub struct FlightRecorder {
    clock: Clock,
    capacity: u64,
    /// On a line of its own: every start writes it, while the other fields are only read.
    next: CachePadded<AtomicU64>,
    /// Operations that found their line still being written by a thread one lap behind.
    unrecorded: AtomicU64,
    /// A power of two, at least `capacity`.
    slots: Box<[Slot]>,
    /// Texts of failed operations by sequence; off the fast path.
    errors: Mutex<BTreeMap<u64, String>>,
}

/// More lines than this are not kept.
const MAX_CAPACITY: usize = 1 << 20;

/// Longer texts of errors are cut.
const MAX_ERROR_BYTES: usize = 1024;

/// How often a busy line is looked at again before it is given up.
const TRIES: u32 = if cfg!(loom) { 2 } else { 64 };

impl FlightRecorder {
    /// Keeps the last `capacity` operations (at least 1, at most 2^20).
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.clamp(1, MAX_CAPACITY);
        Self {
            clock: Clock::start(),
            capacity: capacity as u64,
            next: CachePadded::new(AtomicU64::new(0)),
            unrecorded: AtomicU64::new(0),
            slots: (0..capacity.next_power_of_two()).map(|_| Slot::new()).collect(),
            errors: Mutex::new(BTreeMap::new()),
        }
    }

    /// Records the beginning of an operation.
    #[inline]
    pub fn start(&self, request: Request) -> RecordId {
        // Relaxed: only divides the numbers among threads; the stamps order the lines.
        let sequence = self.next.fetch_add(1, Ordering::Relaxed);
        let slot = self.slot(sequence);
        if slot.claim(sequence) {
            slot.fill(sequence, request, self.clock.now());
        } else {
            self.unrecorded.fetch_add(1, Ordering::Relaxed);
        }
        RecordId(sequence)
    }

    /// Records a wait that is about to sleep.
    pub fn start_wait(&self, site: &WaitSite) -> RecordId {
        let WaitSite { operation, peer, object, .. } = *site;
        self.start(Request { operation, peer, object, bytes: 0, offset: 0 })
    }

    /// The operation ended well. Only the first end of an operation counts.
    #[inline]
    pub fn complete(&self, id: RecordId) {
        let slot = self.slot(id.0);
        if slot.begin_end(id.0) {
            slot.end(id.0, Phase::Completed, self.clock.now());
        }
    }

    /// The operation ended with an error. Only the first end of an operation counts.
    #[cold]
    pub fn fail(&self, id: RecordId, error: &dyn Display) {
        let slot = self.slot(id.0);
        if slot.begin_end(id.0) {
            let mut errors = lock(&self.errors);
            let oldest = self.oldest();
            while errors.first_key_value().is_some_and(|(sequence, _)| *sequence < oldest) {
                errors.pop_first();
            }
            errors.insert(id.0, shortened(error.to_string()));
            drop(errors);
            slot.end(id.0, Phase::Failed, self.clock.now());
        }
    }

    /// The lines that are still there, oldest first.
    ///
    /// Lines being begun or overwritten at this moment are left out; an operation that ends at this
    /// moment may still appear as started.
    pub fn snapshot(&self) -> Vec<RecordedOperation> {
        let end = self.recorded();
        let scale = self.clock.scale();
        (self.oldest()..end).filter_map(|sequence| self.line(sequence, scale)).collect()
    }

    /// How many operations have begun so far, also those overwritten since.
    pub fn recorded(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// How many of them were never written because their line was still being written by a thread that
    /// had been held up while the ring went once round.
    pub fn unrecorded(&self) -> u64 {
        self.unrecorded.load(Ordering::Relaxed)
    }

    /// How many lines are kept.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Wall-clock time at which the times of the lines are 0, in nanoseconds since 1970.
    pub fn epoch_unix_ns(&self) -> u64 {
        self.clock.epoch_unix_ns()
    }

    /// `instant` on the lines' scale; 0 for instants before the recorder was made.
    pub fn nanoseconds_at(&self, instant: Instant) -> u64 {
        self.clock.nanoseconds_at(instant)
    }

    fn oldest(&self) -> u64 {
        self.recorded().saturating_sub(self.capacity)
    }

    #[inline]
    fn slot(&self, sequence: u64) -> &Slot {
        // The length is a power of two that fits in usize, so masking may truncate first.
        &self.slots[sequence as usize & (self.slots.len() - 1)]
    }

    fn line(&self, sequence: u64, scale: Scale) -> Option<RecordedOperation> {
        let slot = self.slot(sequence);
        let (phase, mut line) = (0..TRIES).find_map(|_| {
            slot.read(sequence, scale).or_else(|| {
                spin_loop();
                None
            })
        })?;
        if phase == Phase::Failed {
            let text = lock(&self.errors).get(&sequence).cloned();
            line.state = OperationState::Failed(text.unwrap_or_default());
        }
        Some(line)
    }
}

impl fmt::Debug for FlightRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlightRecorder")
            .field("capacity", &self.capacity)
            .field("recorded", &self.recorded())
            .finish_non_exhaustive()
    }
}

fn shortened(mut text: String) -> String {
    if text.len() > MAX_ERROR_BYTES {
        let mut end = MAX_ERROR_BYTES;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}

/// How far a line is written. 0 is left for a line that was never written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
enum Phase {
    Writing = 1,
    Started = 2,
    Ending = 3,
    Completed = 4,
    Failed = 5,
}

const PHASE_BITS: u32 = 3;
const PHASE_MASK: u64 = (1 << PHASE_BITS) - 1;

/// 61 bits of sequence: 73 years at 10^9 operations per second.
const fn stamp(sequence: u64, phase: Phase) -> u64 {
    sequence << PHASE_BITS | phase as u64
}

const HAS_PEER: u64 = 1 << 8;
const PEER_SHIFT: u32 = 32;

#[derive(Debug)]
#[repr(align(64))]
struct Slot {
    stamp: AtomicU64,
    /// Operation in bits 0–7, `HAS_PEER`, the peer in the upper half.
    operation_and_peer: AtomicU64,
    object: AtomicU64,
    bytes: AtomicU64,
    offset: AtomicU64,
    started: AtomicU64,
    ended: AtomicU64,
}

impl Slot {
    fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            stamp: zero(),
            operation_and_peer: zero(),
            object: zero(),
            bytes: zero(),
            offset: zero(),
            started: zero(),
            ended: zero(),
        }
    }

    /// Takes the line for `sequence`; false if a newer operation has it or somebody is stuck writing it.
    #[inline]
    fn claim(&self, sequence: u64) -> bool {
        for _ in 0..TRIES {
            let seen = self.stamp.load(Ordering::Relaxed);
            let phase = seen & PHASE_MASK;
            if phase != 0 && seen >> PHASE_BITS > sequence {
                return false;
            }
            if phase != Phase::Writing as u64
                && phase != Phase::Ending as u64
                // Acquire: pairs with the Release of the last writer, whose stores come before ours.
                && self
                    .stamp
                    .compare_exchange(seen, stamp(sequence, Phase::Writing), Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                // Orders the stamp before the fields; pairs with the fence in `read`.
                fence(Ordering::Release);
                return true;
            }
            spin_loop();
        }
        false
    }

    /// Writes a claimed line and shows it.
    #[inline]
    fn fill(&self, sequence: u64, request: Request, now: u64) {
        let peer = request.peer.map_or(0, |peer| HAS_PEER | u64::from(peer) << PEER_SHIFT);
        self.operation_and_peer.store(request.operation as u64 | peer, Ordering::Relaxed);
        self.object.store(request.object, Ordering::Relaxed);
        self.bytes.store(request.bytes, Ordering::Relaxed);
        self.offset.store(request.offset, Ordering::Relaxed);
        self.started.store(now, Ordering::Relaxed);
        // Release: pairs with the Acquire load in `read`.
        self.stamp.store(stamp(sequence, Phase::Started), Ordering::Release);
    }

    /// Takes the right to end the operation; false if it has ended or its line is gone.
    #[inline]
    fn begin_end(&self, sequence: u64) -> bool {
        let (started, ending) = (stamp(sequence, Phase::Started), stamp(sequence, Phase::Ending));
        // Acquire: pairs with `fill`, possibly by another thread.
        self.stamp.compare_exchange(started, ending, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline]
    fn end(&self, sequence: u64, phase: Phase, now: u64) {
        self.ended.store(now, Ordering::Relaxed);
        // Release: pairs with the Acquire load in `read`.
        self.stamp.store(stamp(sequence, phase), Ordering::Release);
    }

    /// The line if it is `sequence`'s and was not overwritten while it was read; the caller adds the
    /// text of an error.
    fn read(&self, sequence: u64, scale: Scale) -> Option<(Phase, RecordedOperation)> {
        let before = self.stamp.load(Ordering::Acquire);
        let phase = [Phase::Started, Phase::Ending, Phase::Completed, Phase::Failed]
            .into_iter()
            .find(|phase| before == stamp(sequence, *phase))?;
        let operation_and_peer = self.operation_and_peer.load(Ordering::Relaxed);
        let object = self.object.load(Ordering::Relaxed);
        let bytes = self.bytes.load(Ordering::Relaxed);
        let offset = self.offset.load(Ordering::Relaxed);
        let started = self.started.load(Ordering::Relaxed);
        let ended = self.ended.load(Ordering::Relaxed);
        // A field of a later writer was seen: then its stamp is seen now. Pairs with the fence in `claim`.
        fence(Ordering::Acquire);
        if self.stamp.load(Ordering::Relaxed) >> PHASE_BITS != sequence {
            return None;
        }
        let is_over = matches!(phase, Phase::Completed | Phase::Failed);
        let line = RecordedOperation {
            sequence,
            operation: *Operation::ALL.get((operation_and_peer & 0xff) as usize)?,
            peer: (operation_and_peer & HAS_PEER != 0).then_some((operation_and_peer >> PEER_SHIFT) as u32),
            object,
            bytes,
            offset,
            state: if is_over { OperationState::Completed } else { OperationState::Started },
            started_ns: scale.nanoseconds(started),
            ended_ns: if is_over { scale.nanoseconds(ended).max(1) } else { 0 },
        };
        Some((phase, line))
    }
}

#[cfg(test)]
mod tests;
