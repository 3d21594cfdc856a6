//! Numbered objects that come and go while a proxy runs.

use std::collections::VecDeque;
use std::sync::{PoisonError, RwLock, RwLockWriteGuard};

use super::ProxyError;

const INDEX_BITS: u32 = 24;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;

/// Entries of a registry at most.
pub(super) const LIMIT: u32 = 1 << INDEX_BITS;

/// Maps ids (24 bits of index, 8 of generation) to objects.
///
/// A place that becomes free gets the next generation and is used again after all others that are free;
/// one whose generations are used up is retired. So an id never names a second object.
pub(super) struct Registry<T> {
    kind: &'static str,
    limit: u32,
    inner: RwLock<Inner<T>>,
}

struct Inner<T> {
    slots: Vec<Slot<T>>,
    free: VecDeque<u32>,
}

struct Slot<T> {
    generation: u8,
    content: Content<T>,
}

enum Content<T> {
    Free,
    Reserved,
    Held(T),
    /// Named by requests that are still to be carried out, and by nobody else.
    Leaving(T),
    Retired,
}

impl<T: Clone> Registry<T> {
    pub(super) fn new(kind: &'static str, limit: u32) -> Self {
        let inner = RwLock::new(Inner { slots: Vec::new(), free: VecDeque::new() });
        Self { kind, limit: limit.min(LIMIT), inner }
    }

    /// Adds an object under a new id.
    pub(super) fn add(&self, object: T) -> Result<u32, ProxyError> {
        let mut inner = self.write();
        let index = match inner.free.pop_front() {
            Some(index) => index,
            None => self.grow(&mut inner, 1)?,
        };
        let slot = &mut inner.slots[index as usize];
        slot.content = Content::Held(object);
        Ok(id(index, slot.generation))
    }

    /// Sets `count` consecutive ids aside, which only [`fill`](Self::fill) uses, and returns the first.
    pub(super) fn reserve(&self, count: u32) -> Result<u32, ProxyError> {
        let mut inner = self.write();
        // Places never used share generation 0; only when they run out is a run of used ones worth a search.
        let first = match self.grow(&mut inner, count) {
            Ok(first) => first,
            Err(full) => {
                let first = inner.free_run(count).ok_or(full)?;
                inner.free.retain(|index| !(first..first + count).contains(index));
                first
            }
        };
        for slot in &mut inner.slots[first as usize..(first + count) as usize] {
            slot.content = Content::Reserved;
        }
        Ok(id(first, inner.slots[first as usize].generation))
    }

    /// Puts an object under a reserved id.
    pub(super) fn fill(&self, id: u32, object: T) -> Result<(), ProxyError> {
        let mut inner = self.write();
        match inner.slot_mut(id) {
            Some(slot) if matches!(slot.content, Content::Reserved) => slot.content = Content::Held(object),
            Some(_) => {
                return Err(ProxyError::Usage {
                    operation: "filling a reserved id",
                    why: "the id already has its object; remove it first",
                });
            }
            None => return Err(self.stale(id)),
        }
        Ok(())
    }

    /// An object's id names nothing from now on, except for those who look for what is [leaving](Self::get_leaving). True
    /// if the object is still to be [removed](Self::remove); a reservation is gone at once.
    pub(super) fn retire(&self, id: u32) -> Result<bool, ProxyError> {
        let mut inner = self.write();
        let slot = inner.slot_mut(id).ok_or_else(|| self.stale(id))?;
        match std::mem::replace(&mut slot.content, Content::Reserved) {
            Content::Held(object) => {
                slot.content = Content::Leaving(object);
                Ok(true)
            }
            _ => {
                inner.release(id);
                Ok(false)
            }
        }
    }

    /// Takes an object that has been [retired](Self::retire), or any other, out.
    pub(super) fn remove(&self, id: u32) -> Result<Option<T>, ProxyError> {
        let mut inner = self.write();
        let content = inner.release(id).ok_or_else(|| self.stale(id))?;
        // The object is returned so that it is dropped outside the lock.
        Ok(match content {
            Content::Held(object) | Content::Leaving(object) => Some(object),
            _ => None,
        })
    }

    /// The object of an id.
    pub(super) fn get(&self, id: u32) -> Result<T, ProxyError> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        match lookup(&inner, id) {
            Some(Content::Held(object)) => Ok(object.clone()),
            _ => Err(self.stale(id)),
        }
    }

    /// The same for a request that may have been made before the object was retired.
    pub(super) fn get_leaving(&self, id: u32) -> Result<T, ProxyError> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        match lookup(&inner, id) {
            Some(Content::Held(object) | Content::Leaving(object)) => Ok(object.clone()),
            _ => Err(self.stale(id)),
        }
    }

    fn grow(&self, inner: &mut Inner<T>, count: u32) -> Result<u32, ProxyError> {
        let first = inner.slots.len() as u32;
        if count > self.limit - first {
            return Err(ProxyError::Full { kind: self.kind, limit: u64::from(self.limit) });
        }
        inner.slots.extend((0..count).map(|_| Slot { generation: 0, content: Content::Free }));
        Ok(first)
    }

    fn stale(&self, id: u32) -> ProxyError {
        ProxyError::StaleId { kind: self.kind, id }
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner<T>> {
        // Nothing in here panics between two statements that belong together.
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lookup<T>(inner: &Inner<T>, id: u32) -> Option<&Content<T>> {
    let slot = inner.slots.get((id & INDEX_MASK) as usize)?;
    (slot.generation == (id >> INDEX_BITS) as u8).then_some(&slot.content)
}

impl<T> Inner<T> {
    /// Frees the place that an id names, for the next generation. What was there.
    fn release(&mut self, id: u32) -> Option<Content<T>> {
        let slot = self.slots.get_mut((id & INDEX_MASK) as usize)?;
        let named = slot.generation == (id >> INDEX_BITS) as u8;
        if !named || matches!(slot.content, Content::Free | Content::Retired) {
            return None;
        }
        let (next, content) = match slot.generation.checked_add(1) {
            Some(next) => (next, Content::Free),
            None => (slot.generation, Content::Retired),
        };
        slot.generation = next;
        let reusable = matches!(content, Content::Free);
        let content = std::mem::replace(&mut slot.content, content);
        if reusable {
            self.free.push_back(id & INDEX_MASK);
        }
        Some(content)
    }

    /// The live or reserved place that an id names.
    fn slot_mut(&mut self, id: u32) -> Option<&mut Slot<T>> {
        self.slots
            .get_mut((id & INDEX_MASK) as usize)
            .filter(|slot| slot.generation == (id >> INDEX_BITS) as u8)
            .filter(|slot| matches!(slot.content, Content::Held(_) | Content::Reserved))
    }

    /// The first of `count` neighbouring free places of one generation.
    fn free_run(&self, count: u32) -> Option<u32> {
        let mut length = 0;
        for (index, slot) in self.slots.iter().enumerate() {
            let fits = matches!(slot.content, Content::Free);
            let joins = length > 0 && self.slots[index - 1].generation == slot.generation;
            length = match (fits, joins) {
                (false, _) => 0,
                (true, true) => length + 1,
                (true, false) => 1,
            };
            if length == count {
                return Some(index as u32 + 1 - count);
            }
        }
        None
    }
}

fn id(index: u32, generation: u8) -> u32 {
    u32::from(generation) << INDEX_BITS | index
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::{HashMap, HashSet};

    use proptest::prelude::*;

    use super::*;

    fn registry(limit: u32) -> Registry<u64> {
        Registry::new("memory", limit)
    }

    /// N29: more than 512 memories, and an id never names a second object, also after 256 generations.
    #[test]
    fn n29_an_id_never_names_a_second_object() {
        let registry = registry(3);
        let mut given = HashSet::new();
        for n in 0..3 * 256 {
            let id = registry.add(n).unwrap();
            assert!(given.insert(id), "id {id:#x} was given twice");
            assert_eq!(registry.get(id).unwrap(), n);
            assert_eq!(registry.remove(id).unwrap(), Some(n));
            assert_eq!(registry.get(id).unwrap_err().id(), "proxy.stale_id");
            assert_eq!(registry.remove(id).unwrap_err().id(), "proxy.stale_id");
        }
        assert_eq!(registry.add(0).unwrap_err().id(), "proxy.full");
        let large = Registry::new("memory", LIMIT);
        for n in 0..100_000u64 {
            assert_eq!(u64::from(large.add(n).unwrap()), n);
        }
        assert_eq!(large.get(99_999).unwrap(), 99_999);
    }

    /// N37: ids that were set aside are given to nobody else.
    #[test]
    fn n37_reserved_ids_stay_reserved() {
        let registry = registry(10);
        let before = registry.add(1).unwrap();
        let first = registry.reserve(4).unwrap();
        let after: Vec<_> = (0..5).map(|n| registry.add(n).unwrap()).collect();
        assert!((first..first + 4).all(|id| id != before && !after.contains(&id)));
        assert_eq!(registry.add(0).unwrap_err().id(), "proxy.full");
        assert_eq!(
            registry.get(first).unwrap_err().id(),
            "proxy.stale_id",
            "reserved, but nothing there yet"
        );
        registry.fill(first + 3, 33).unwrap();
        assert_eq!(registry.get(first + 3).unwrap(), 33);
        assert_eq!(registry.fill(first + 3, 34).unwrap_err().id(), "proxy.usage");
        assert_eq!(registry.fill(after[0], 35).unwrap_err().id(), "proxy.usage");
        // A reservation that is given up can be used again, and as a run.
        for id in first..first + 4 {
            registry.remove(id).unwrap();
        }
        assert_eq!(registry.fill(first, 1).unwrap_err().id(), "proxy.stale_id");
        assert_eq!(registry.reserve(4).unwrap(), 1 << 24 | first);
    }

    proptest! {
        /// Against a map: whatever comes and goes, an id finds its object or nothing.
        #[test]
        fn behaves_like_a_map(steps in proptest::collection::vec((0u8..4, any::<u32>()), 0..200)) {
            let registry = registry(8);
            let (mut live, mut gone) = (HashMap::new(), Vec::new());
            for (n, (step, pick)) in steps.into_iter().enumerate() {
                let chosen = live.keys().copied().nth(pick as usize % live.len().max(1));
                match (step, chosen) {
                    (0 | 1, _) => match registry.add(n as u64) {
                        Ok(id) => prop_assert!(live.insert(id, n as u64).is_none() && !gone.contains(&id)),
                        Err(_) => prop_assert_eq!(live.len(), 8),
                    },
                    (2, Some(id)) => {
                        prop_assert_eq!(registry.remove(id).unwrap(), live.remove(&id));
                        gone.push(id);
                    }
                    _ => {}
                }
                for (id, object) in &live {
                    prop_assert_eq!(registry.get(*id).unwrap(), *object);
                }
                for id in &gone {
                    prop_assert!(registry.get(*id).is_err());
                }
            }
        }
    }

    /// N30: adding and removing while others look up.
    #[test]
    fn n30_concurrent_use() {
        let registry = registry(64);
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let (registry, stop) = (&registry, &stop);
                scope.spawn(move || {
                    for n in 0..5_000 {
                        let value = thread << 32 | n;
                        let Ok(id) = registry.add(value) else { continue };
                        assert_eq!(registry.get(id).unwrap(), value);
                        assert_eq!(registry.remove(id).unwrap(), Some(value));
                    }
                    stop.store(true, std::sync::atomic::Ordering::Relaxed);
                });
            }
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = registry.get(5);
            }
        });
    }
}
