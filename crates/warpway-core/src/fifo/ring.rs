//! The ring itself: positions, slots and who sleeps. No time, no health; model-checked as it is.

use crossbeam_utils::CachePadded;

use super::MAX_FIFO_SIZE;
use super::slot::Slot;
use super::trigger::EncodedTrigger;
use crate::proxy::ProxyError;
use crate::sync::{AtomicU64, Ordering};
use crate::wait::EventCount;

/// Set in the head while the ring is closed.
const CLOSED: u64 = 1 << 63;

/// How many slots ahead a producer asks for the cache line that it will write.
const PREFETCH: u64 = 8;

/// Why an element was not pushed. Nothing has been changed then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// The slot of the next position is still occupied.
    Full {
        /// The next position.
        position: u64,
        /// Elements consumed.
        tail: u64,
    },
    /// The ring is closed.
    Closed {
        /// The position it would have had.
        position: u64,
    },
}

pub(super) struct Ring {
    slots: Box<[Slot]>,
    /// Positions taken, and [`CLOSED`].
    head: CachePadded<AtomicU64>,
    /// A value that the tail has had; spares producers the consumer's line.
    cached_tail: CachePadded<AtomicU64>,
    /// Elements consumed. Written by the consumer only.
    tail: CachePadded<AtomicU64>,
    /// Where the consumer sleeps while the ring is empty.
    pushed: CachePadded<EventCount>,
    /// Where producers sleep while the ring is full, and whoever waits for an element to be consumed.
    popped: CachePadded<EventCount>,
}

impl Ring {
    pub(super) fn new(size: u64) -> Result<Self, ProxyError> {
        let refused = ProxyError::FifoSize { size };
        let slots = match usize::try_from(size) {
            Ok(slots) if size.is_power_of_two() && (2..=MAX_FIFO_SIZE).contains(&size) => slots,
            _ => return Err(refused),
        };
        Ok(Self {
            slots: (0..slots).map(|_| Slot::default()).collect(),
            head: CachePadded::new(AtomicU64::new(0)),
            cached_tail: CachePadded::new(AtomicU64::new(0)),
            tail: CachePadded::new(AtomicU64::new(0)),
            pushed: CachePadded::new(EventCount::new()),
            popped: CachePadded::new(EventCount::new()),
        })
    }

    pub(super) fn size(&self) -> u64 {
        self.slots.len() as u64
    }

    /// Elements consumed.
    #[inline]
    pub(super) fn tail(&self) -> u64 {
        // Pairs with `pop`.
        self.tail.load(Ordering::Acquire)
    }

    /// Positions taken.
    #[inline]
    pub(super) fn head(&self) -> u64 {
        self.head.load(Ordering::SeqCst) & !CLOSED
    }

    pub(super) fn is_closed(&self) -> bool {
        self.head.load(Ordering::SeqCst) & CLOSED != 0
    }

    /// From now on every push is refused; positions taken before are still written.
    pub(super) fn close(&self) {
        self.head.fetch_or(CLOSED, Ordering::SeqCst);
        self.pushed.notify_after_rmw();
        self.popped.notify_after_rmw();
    }

    /// Accepts pushes again.
    pub(super) fn open(&self) {
        self.head.fetch_and(!CLOSED, Ordering::SeqCst);
    }

    /// What a producer or a waiter for consumption sleeps on.
    pub(super) fn popped(&self) -> &EventCount {
        &self.popped
    }

    /// What the consumer sleeps on.
    pub(super) fn pushed(&self) -> &EventCount {
        &self.pushed
    }

    /// Publishes one element and returns its position.
    #[inline]
    pub(super) fn try_push(&self, element: &EncodedTrigger) -> Result<u64, Refused> {
        let size = self.size();
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            if head & CLOSED != 0 {
                return Err(Refused::Closed { position: head & !CLOSED });
            }
            // Acquire, with the Release below: what one producer learnt of the consumer's reads counts for
            // the others, too.
            if head >= size + self.cached_tail.load(Ordering::Acquire) {
                // Pairs with `pop`: the consumer has read the slot before we overwrite it.
                let tail = self.tail.load(Ordering::Acquire);
                // May replace a newer value; that costs a needless look at the tail, nothing else.
                self.cached_tail.store(tail, Ordering::Release);
                if head >= size + tail {
                    let now = self.head.load(Ordering::Relaxed);
                    if now == head {
                        return Err(Refused::Full { position: head, tail });
                    }
                    head = now;
                    continue;
                }
            }
            // SeqCst: with the look at the sleepers below, see there.
            match self.head.compare_exchange_weak(head, head + 1, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        // The consumer announces its sleep before it compares head and tail. Either it sees our position
        // and stays awake until the element is there, or we see it here: no fence after the stores.
        #[cfg(loom)]
        crate::sync::fence(Ordering::SeqCst); // loom takes SeqCst accesses for AcqRel
        let sleeping = self.pushed.has_sleepers();
        self.prefetch(head + PREFETCH);
        self.slot(head).write(head, size, element);
        if sleeping {
            self.pushed.ring();
        }
        Ok(head)
    }

    /// The element at `tail`, if all of it is there. Consumer only.
    #[inline]
    pub(super) fn front(&self, tail: u64) -> Option<EncodedTrigger> {
        self.slot(tail).read(tail, self.size())
    }

    /// Frees the slot at `tail`. Consumer only, after [`front`](Self::front).
    #[inline]
    pub(super) fn pop(&self, tail: u64) {
        // A read-modify-write instead of a store and a fence: releases the slot (pairs with the Acquire
        // loads of the tail) and orders it before the look at the sleepers.
        self.tail.swap(tail + 1, Ordering::SeqCst);
        #[cfg(loom)]
        crate::sync::fence(Ordering::SeqCst); // as above
        self.popped.notify_after_rmw();
    }

    fn slot(&self, position: u64) -> &Slot {
        // The size is a power of two and fits usize.
        &self.slots[(position & (self.size() - 1)) as usize]
    }

    #[inline]
    fn prefetch(&self, position: u64) {
        #[cfg(all(target_arch = "x86_64", not(loom)))]
        {
            use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
            let slot: *const Slot = self.slot(position);
            // SAFETY: a hint; it accesses no memory as far as the program is concerned.
            unsafe { _mm_prefetch::<_MM_HINT_ET0>(slot.cast()) };
        }
        #[cfg(not(all(target_arch = "x86_64", not(loom))))]
        let _ = position;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn element(n: u64) -> EncodedTrigger {
        EncodedTrigger([[n, 1], [!n, 2], [n << 7, 3], [n.rotate_left(40), 0]])
    }

    #[test]
    fn sizes_are_powers_of_two() {
        for size in [0, 1, 3, 511, 513, u64::MAX, 1 << 21, 1 << 33, 1 << 63] {
            assert_eq!(Ring::new(size).err().map(|e| e.id()), Some("fifo.size"), "{size}");
        }
        for size in [2, 4, 512] {
            assert_eq!(Ring::new(size).unwrap().size(), size);
        }
    }

    #[test]
    fn parity_over_many_laps() {
        for size in [2u64, 4, 8] {
            let ring = Ring::new(size).unwrap();
            let mut tail = 0;
            assert_eq!(ring.front(0), None, "a zeroed ring is empty");
            for lap in 0..7 {
                for i in 0..size {
                    assert_eq!(ring.try_push(&element(lap * size + i)), Ok(lap * size + i));
                }
                let position = (lap + 1) * size;
                assert_eq!(ring.try_push(&element(99)), Err(Refused::Full { position, tail }));
                for i in 0..size {
                    assert_eq!(ring.front(tail), Some(element(lap * size + i)));
                    ring.pop(tail);
                    tail += 1;
                }
                assert_eq!(ring.front(tail), None, "empty after lap {lap}");
            }
        }
    }

    #[test]
    fn a_closed_ring_takes_nothing_and_keeps_what_it_has() {
        let ring = Ring::new(2).unwrap();
        assert_eq!(ring.try_push(&element(1)), Ok(0));
        ring.close();
        assert_eq!(ring.try_push(&element(2)), Err(Refused::Closed { position: 1 }));
        assert_eq!((ring.head(), ring.is_closed()), (1, true));
        assert_eq!(ring.front(0), Some(element(1)));
        ring.pop(0);
        assert_eq!(ring.front(1), None);
        ring.open();
        assert_eq!(ring.try_push(&element(3)), Ok(1));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    fn element(n: u64) -> EncodedTrigger {
        EncodedTrigger([[n, 1], [n + 1, 2], [n + 2, 3], [n + 3, 0]])
    }

    fn push(ring: &Ring, n: u64) -> u64 {
        loop {
            match ring.try_push(&element(n)) {
                Ok(position) => return position,
                Err(_) => thread::yield_now(),
            }
        }
    }

    fn take(ring: &Ring, tail: u64) -> u64 {
        loop {
            if let Some(found) = ring.front(tail) {
                assert_eq!(found, element(found.0[0][0]), "torn");
                ring.pop(tail);
                return found.0[0][0];
            }
            thread::yield_now();
        }
    }

    fn model(body: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(body);
    }

    #[test]
    fn loom_two_producers_one_item_each() {
        model(|| {
            let ring = Arc::new(Ring::new(2).unwrap());
            let other = Arc::clone(&ring);
            let producer = thread::spawn(move || (push(&other, 10), 10));
            let second = Arc::clone(&ring);
            let producer2 = thread::spawn(move || (push(&second, 20), 20));
            let taken = [take(&ring, 0), take(&ring, 1)];
            for (position, value) in [producer.join().unwrap(), producer2.join().unwrap()] {
                assert_eq!(taken[position as usize], value);
            }
        });
    }

    #[test]
    fn loom_full_ring_and_lap_wrap() {
        model(|| {
            let ring = Arc::new(Ring::new(2).unwrap());
            assert_eq!((push(&ring, 10), push(&ring, 20)), (0, 1));
            let other = Arc::clone(&ring);
            let producer = thread::spawn(move || push(&other, 30));
            assert_eq!([take(&ring, 0), take(&ring, 1), take(&ring, 2)], [10, 20, 30]);
            assert_eq!(producer.join().unwrap(), 2);
        });
    }

    #[test]
    fn loom_close_lets_nothing_slip_through() {
        model(|| {
            let ring = Arc::new(Ring::new(2).unwrap());
            let other = Arc::clone(&ring);
            let producer = thread::spawn(move || other.try_push(&element(10)).is_ok());
            ring.close();
            let taken = ring.head();
            // Whatever had a position when the ring closed arrives, and nothing else.
            if taken == 1 {
                assert_eq!(take(&ring, 0), 10);
            }
            assert_eq!(producer.join().unwrap(), taken == 1);
            assert_eq!(ring.head(), taken);
        });
    }

    #[test]
    fn loom_a_push_wakes_the_sleeping_consumer() {
        model(|| {
            let ring = Arc::new(Ring::new(2).unwrap());
            let other = Arc::clone(&ring);
            let producer = thread::spawn(move || push(&other, 10));
            ring.pushed().sleep_unless(std::time::Duration::MAX, || ring.head() != 0);
            assert_eq!(take(&ring, 0), 10);
            producer.join().unwrap();
        });
    }

    #[test]
    fn loom_a_pop_wakes_the_producer_of_a_full_ring() {
        model(|| {
            let ring = Arc::new(Ring::new(2).unwrap());
            assert_eq!((push(&ring, 10), push(&ring, 20)), (0, 1));
            let other = Arc::clone(&ring);
            let producer = thread::spawn(move || {
                let mut pushed = None;
                other.popped().sleep_unless(std::time::Duration::MAX, || {
                    pushed = other.try_push(&element(30)).ok();
                    pushed.is_some()
                });
                pushed.unwrap_or_else(|| push(&other, 30))
            });
            assert_eq!(take(&ring, 0), 10);
            assert_eq!(producer.join().unwrap(), 2);
        });
    }
}
