//! The owner's table of published buffers: deduplicated, reference counted, evicted least recently used.
//!
//! Generic and without I/O, so that it can be model-checked. A slot goes
//! free → held ⇄ idle → withdrawing → free (next generation); only `acquire` takes an idle entry back into
//! use, and nothing held is ever withdrawn.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::PoisonError;

use crate::sync::Mutex;
use crate::wire::SlotId;

pub(super) struct RegistrationTable<K, V> {
    capacity: usize,
    state: Mutex<State<K, V>>,
}

struct State<K, V> {
    slots: Vec<Slot<K, V>>,
    by_key: HashMap<K, usize>,
    /// Entries that are held or idle.
    live: usize,
    /// Orders uses.
    clock: u64,
}

struct Slot<K, V> {
    generation: u64,
    entry: Option<Entry<K, V>>,
}

struct Entry<K, V> {
    key: K,
    value: V,
    holders: u64,
    /// Kept when nobody holds it, until its place is needed.
    keep_idle: bool,
    last_used: u64,
    withdrawing: bool,
}

/// What [`RegistrationTable::acquire`] found or made.
pub(super) struct Acquired<V> {
    pub(super) slot: SlotId,
    pub(super) value: V,
    /// An idle entry that had to go; the caller withdraws it.
    pub(super) evicted: Option<(SlotId, V)>,
}

/// Every entry is held.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full {
    pub(super) capacity: u64,
}

impl<K: Clone + Eq + Hash, V: Clone> RegistrationTable<K, V> {
    pub(super) fn new(capacity: usize) -> Self {
        let state = State { slots: Vec::new(), by_key: HashMap::new(), live: 0, clock: 0 };
        Self { capacity: capacity.max(1), state: Mutex::new(state) }
    }

    /// Holds the entry of `key`, which `make` makes if there is none. Pair with [`release`](Self::release).
    pub(super) fn acquire(
        &self,
        key: &K,
        keep_idle: bool,
        make: impl FnOnce() -> V,
    ) -> Result<Acquired<V>, Full> {
        self.with(|state| {
            state.clock += 1;
            if let Some(found) = state.hold(key) {
                return Ok(found);
            }
            let evicted = if state.live >= self.capacity {
                let idle = state.least_recently_used().ok_or(Full { capacity: self.capacity as u64 })?;
                state.withdraw(idle)
            } else {
                None
            };
            let at = state.free_slot();
            let slot = SlotId { slot: at as u64, generation: state.slots[at].generation };
            let (value, last_used) = (make(), state.clock);
            state.slots[at].entry = Some(Entry {
                key: key.clone(),
                value: value.clone(),
                holders: 1,
                keep_idle,
                last_used,
                withdrawing: false,
            });
            state.by_key.insert(key.clone(), at);
            state.live += 1;
            Ok(Acquired { slot, value, evicted })
        })
    }

    /// Holds the entry in a slot again, of this generation, if it is one that `wanted` takes and is not being
    /// withdrawn. Pair with [`release`](Self::release).
    pub(super) fn reacquire(&self, slot: SlotId, wanted: impl FnOnce(&V) -> bool) -> Option<V> {
        self.with(|state| {
            let at = state.position(slot)?;
            state.clock += 1;
            let clock = state.clock;
            let entry = state.slots[at].entry.as_mut()?;
            if entry.withdrawing || !wanted(&entry.value) {
                return None;
            }
            entry.holders += 1;
            entry.last_used = clock;
            Some(entry.value.clone())
        })
    }

    /// Gives up one hold. Returns the entry if it must be withdrawn now: nobody holds it, and it is not
    /// kept idle or `even_if_kept`.
    pub(super) fn release(&self, slot: SlotId, even_if_kept: bool) -> Option<V> {
        self.with(|state| {
            let at = state.position(slot)?;
            let entry = state.slots[at].entry.as_mut()?;
            entry.holders = entry.holders.saturating_sub(1);
            if entry.holders > 0 || entry.withdrawing || (entry.keep_idle && !even_if_kept) {
                return None;
            }
            state.withdraw(at).map(|(_, value)| value)
        })
    }

    /// The withdrawal is complete: the slot is free for the next generation.
    pub(super) fn retire(&self, slot: SlotId) -> Option<V> {
        self.with(|state| {
            let at = state.position(slot)?;
            let taken = state.slots[at].entry.take_if(|entry| entry.withdrawing)?;
            state.slots[at].generation += 1;
            Some(taken.value)
        })
    }

    /// The entry in a slot, of this generation.
    pub(super) fn get(&self, slot: SlotId) -> Option<V> {
        self.with(|state| {
            let at = state.position(slot)?;
            state.slots[at].entry.as_ref().map(|entry| entry.value.clone())
        })
    }

    /// Every entry, also those being withdrawn.
    pub(super) fn all(&self) -> Vec<(SlotId, V)> {
        self.with(|state| {
            let slots = state.slots.iter().zip(0..);
            slots
                .filter_map(|(Slot { generation, entry }, slot)| {
                    let slot = SlotId { slot, generation: *generation };
                    entry.as_ref().map(|entry| (slot, entry.value.clone()))
                })
                .collect()
        })
    }

    fn with<R>(&self, f: impl FnOnce(&mut State<K, V>) -> R) -> R {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<K: Clone + Eq + Hash, V: Clone> State<K, V> {
    fn hold(&mut self, key: &K) -> Option<Acquired<V>> {
        let at = *self.by_key.get(key)?;
        let Slot { generation, entry } = self.slots.get_mut(at)?;
        let entry = entry.as_mut()?;
        entry.holders += 1;
        entry.last_used = self.clock;
        let slot = SlotId { slot: at as u64, generation: *generation };
        Some(Acquired { slot, value: entry.value.clone(), evicted: None })
    }

    fn position(&self, slot: SlotId) -> Option<usize> {
        let at = usize::try_from(slot.slot).ok()?;
        self.slots.get(at).filter(|found| found.generation == slot.generation).map(|_| at)
    }

    fn least_recently_used(&self) -> Option<usize> {
        let idle = |entry: &&Entry<K, V>| entry.holders == 0 && !entry.withdrawing;
        let slots = self.slots.iter().enumerate();
        let used = slots.filter_map(|(at, slot)| Some((slot.entry.as_ref().filter(idle)?.last_used, at)));
        used.min().map(|(_, at)| at)
    }

    fn withdraw(&mut self, at: usize) -> Option<(SlotId, V)> {
        let Slot { generation, entry } = self.slots.get_mut(at)?;
        let entry = entry.as_mut()?;
        entry.withdrawing = true;
        self.by_key.remove(&entry.key);
        self.live -= 1;
        Some((SlotId { slot: at as u64, generation: *generation }, entry.value.clone()))
    }

    fn free_slot(&mut self) -> usize {
        if let Some(at) = self.slots.iter().position(|slot| slot.entry.is_none()) {
            return at;
        }
        self.slots.push(Slot { generation: 0, entry: None });
        self.slots.len() - 1
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn table(capacity: usize) -> RegistrationTable<&'static str, u64> {
        RegistrationTable::new(capacity)
    }

    fn id(slot: u64, generation: u64) -> SlotId {
        SlotId { slot, generation }
    }

    #[test]
    fn the_same_key_is_entered_once_and_counted() {
        let table = table(4);
        let first = table.acquire(&"a", false, || 7).unwrap();
        let again = table.acquire(&"a", false, || panic!("made twice")).unwrap();
        assert_eq!((first.slot, again.slot, again.value), (id(0, 0), id(0, 0), 7));
        assert_eq!(table.release(first.slot, false), None);
        assert_eq!(table.release(again.slot, false), Some(7));
        // Until the peers have let go the slot is not reused.
        assert_eq!(table.acquire(&"b", false, || 8).unwrap().slot, id(1, 0));
        assert_eq!(table.retire(id(0, 0)), Some(7));
        assert_eq!(table.acquire(&"a", false, || 9).unwrap().slot, id(0, 1));
        assert_eq!(table.get(id(0, 0)), None, "the old generation names nothing");
        assert_eq!(table.get(id(0, 1)), Some(9));
        assert_eq!(table.retire(id(0, 1)), None, "it is held");
    }

    #[test]
    fn an_entry_is_held_again_by_its_slot_while_it_is_there() {
        let table = table(1);
        let slot = table.acquire(&"a", true, || 7).unwrap().slot;
        assert_eq!(table.release(slot, false), None, "kept idle");
        assert_eq!(table.reacquire(slot, |value| *value == 8), None, "another one is wanted");
        assert_eq!(table.reacquire(slot, |value| *value == 7), Some(7));
        assert_eq!(table.acquire(&"b", true, || 8).err(), Some(Full { capacity: 1 }), "it is held");
        assert_eq!(table.release(slot, false), None, "kept idle");
        assert_eq!(table.acquire(&"b", true, || 8).unwrap().slot, id(1, 0));
        assert_eq!(table.reacquire(slot, |_| true), None, "it is being withdrawn");
        assert_eq!(table.retire(slot), Some(7));
        assert_eq!(table.reacquire(slot, |_| true), None, "it is gone");
        assert_eq!(table.release(id(1, 0), true), Some(8));
        assert_eq!(table.retire(id(1, 0)), Some(8));
        assert_eq!(table.acquire(&"c", true, || 9).unwrap().slot, id(0, 1));
        assert_eq!(table.reacquire(slot, |_| true), None, "the next generation is something else");
    }

    #[test]
    fn the_least_recently_used_idle_entry_is_evicted_and_nothing_held() {
        let table = table(3);
        for (key, value) in [("a", 1), ("b", 2), ("c", 3)] {
            let slot = table.acquire(&key, true, || value).unwrap().slot;
            assert_eq!(table.release(slot, false), None, "kept idle");
        }
        // Use of a makes b the oldest; c is held.
        table.release(table.acquire(&"a", true, || 0).unwrap().slot, false);
        let held = table.acquire(&"c", true, || 0).unwrap();
        let evicted = |found: Acquired<u64>| found.evicted.map(|(slot, value)| (slot.slot, value));
        assert_eq!(evicted(table.acquire(&"d", true, || 4).unwrap()), Some((1, 2)));
        assert_eq!(evicted(table.acquire(&"e", true, || 5).unwrap()), Some((0, 1)));
        assert_eq!(table.acquire(&"f", true, || 6).err(), Some(Full { capacity: 3 }));
        assert_eq!(table.release(held.slot, true), Some(3));
        assert_eq!(table.acquire(&"f", true, || 6).unwrap().slot.slot, 5);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use loom::thread;

    use super::*;

    #[derive(Default)]
    struct Buffer {
        withdrawn: AtomicBool,
        withdrawals: AtomicU32,
    }

    fn withdraw(buffer: &Buffer) {
        buffer.withdrawn.store(true, Ordering::SeqCst);
        buffer.withdrawals.fetch_add(1, Ordering::SeqCst);
    }

    /// Two users of one buffer, released for good by whoever is last: never withdrawn while held, and as
    /// often withdrawn as made.
    #[test]
    fn loom_no_holder_sees_a_withdrawn_buffer() {
        loom::model(|| {
            let table = Arc::new(RegistrationTable::<u8, Arc<Buffer>>::new(1));
            let made = Arc::new(AtomicU32::new(0));
            let withdrawn = Arc::new(AtomicU32::new(0));
            let user = |table: Arc<RegistrationTable<u8, Arc<Buffer>>>,
                        made: Arc<AtomicU32>,
                        withdrawn: Arc<AtomicU32>| {
                let Ok(found) = table.acquire(&1, false, || {
                    made.fetch_add(1, Ordering::SeqCst);
                    Arc::new(Buffer::default())
                }) else {
                    return;
                };
                assert!(!found.value.withdrawn.load(Ordering::SeqCst));
                if let Some(buffer) = table.release(found.slot, false) {
                    withdraw(&buffer);
                    assert_eq!(buffer.withdrawals.load(Ordering::SeqCst), 1);
                    withdrawn.fetch_add(1, Ordering::SeqCst);
                    assert!(table.retire(found.slot).is_some());
                }
            };
            let (t, m, w) = (Arc::clone(&table), Arc::clone(&made), Arc::clone(&withdrawn));
            let other = thread::spawn(move || user(t, m, w));
            user(Arc::clone(&table), Arc::clone(&made), Arc::clone(&withdrawn));
            other.join().unwrap();
            assert_eq!(made.load(Ordering::SeqCst), withdrawn.load(Ordering::SeqCst));
            assert!(table.all().is_empty());
        });
    }

    /// One user takes an idle buffer back while another one needs its place.
    #[test]
    fn loom_eviction_and_reuse_exclude_each_other() {
        loom::model(|| {
            let table = Arc::new(RegistrationTable::<u8, Arc<Buffer>>::new(1));
            let idle = table.acquire(&1, true, Arc::default).unwrap_or_else(|_| unreachable!());
            assert!(table.release(idle.slot, false).is_none());
            let evicting = {
                let table = Arc::clone(&table);
                thread::spawn(move || {
                    if let Ok(found) = table.acquire(&2, true, Arc::default) {
                        if let Some((_, buffer)) = found.evicted {
                            withdraw(&buffer);
                        }
                    }
                })
            };
            if let Ok(found) = table.acquire(&1, true, Arc::default) {
                assert!(!found.value.withdrawn.load(Ordering::SeqCst));
            }
            evicting.join().unwrap();
        });
    }
}
