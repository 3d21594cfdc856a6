//! Objects that go once the requests have been taken up that were pushed before.

use std::collections::VecDeque;
use std::sync::Mutex;

use crate::health::lock;
use crate::sync::{AtomicU64, Ordering};

/// No position has this number.
const NONE: u64 = u64::MAX;

/// What is to be removed, by the position in the FIFO before which requests may name it.
pub(super) struct Removals {
    /// That of the first, for the look that every request takes.
    first: AtomicU64,
    queue: Mutex<VecDeque<(u64, Removal)>>,
}

/// Ids of one registry or the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Removal {
    Semaphore(u32),
    Memory(u32),
}

impl Removals {
    pub(super) fn new() -> Self {
        Self { first: AtomicU64::new(NONE), queue: Mutex::default() }
    }

    /// Requests from `position` on do not name it.
    pub(super) fn add(&self, position: u64, removal: Removal) {
        let mut queue = lock(&self.queue);
        let at = queue.partition_point(|(other, _)| *other <= position);
        queue.insert(at, (position, removal));
        self.publish(&queue);
    }

    /// What goes before the request at `position` is taken up.
    pub(super) fn due(&self, position: u64) -> Vec<Removal> {
        // Whoever pushes after a removal has it happen before its request, and so before this look.
        if self.first.load(Ordering::Acquire) > position {
            return Vec::new();
        }
        let mut queue = lock(&self.queue);
        let due = queue.partition_point(|(other, _)| *other <= position);
        let due = queue.drain(..due).map(|(_, removal)| removal).collect();
        self.publish(&queue);
        due
    }

    fn publish(&self, queue: &VecDeque<(u64, Removal)>) {
        self.first.store(queue.front().map_or(NONE, |(position, _)| *position), Ordering::Release);
    }
}
