//! The registrations of this process, so that importing one here gives the original pointer.

use std::collections::HashMap;
use std::fmt;
use std::sync::Mutex;

use super::{RegisteredMemory, WeakMemory};
use crate::health::lock;
use crate::wire::JobNonce;

/// Live registrations by owner and range. An address from the wire is only a key here: what comes out is
/// a registration that lives in this process, or nothing.
///
/// Communicators of one process that are to give each other original pointers (ranks as threads) share
/// one value; a communicator always shares it with itself and with what it is split into.
#[derive(Default)]
pub struct LocalMemories(Mutex<Table>);

#[derive(Default)]
struct Table {
    memories: HashMap<Key, Vec<WeakMemory>>,
    /// Entries after the last sweep; the next is due at twice as many.
    swept: usize,
}

#[derive(PartialEq, Eq, Hash)]
struct Key {
    job: JobNonce,
    owner: u32,
    address: u64,
    size: u64,
}

impl LocalMemories {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a local registration findable while it lives.
    pub fn insert(&self, job: JobNonce, memory: &RegisteredMemory) {
        let mut table = lock(&self.0);
        if table.memories.len() >= 2 * table.swept.max(32) {
            table.memories.retain(|_, found| found.iter().any(|weak| weak.upgrade().is_some()));
            table.swept = table.memories.len();
        }
        let same_range = table.memories.entry(Key::of(job, memory)).or_default();
        same_range.retain(|weak| weak.upgrade().is_some());
        same_range.push(memory.downgrade());
    }

    /// A live registration with the owner and range of `record`.
    pub fn find(&self, job: JobNonce, record: &super::MemoryRecord) -> Option<RegisteredMemory> {
        let key = Key { job, owner: record.owner, address: record.original_address, size: record.size };
        let table = lock(&self.0);
        // The same range may have been registered several times, for different transports.
        let live = || table.memories.get(&key).into_iter().flatten().rev().filter_map(WeakMemory::upgrade);
        live().find(|memory| memory.record() == record).or_else(|| live().next())
    }
}

impl Key {
    fn of(job: JobNonce, memory: &RegisteredMemory) -> Self {
        Self { job, owner: memory.owner(), address: memory.original_address(), size: memory.size() }
    }
}

impl fmt::Debug for LocalMemories {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalMemories").finish_non_exhaustive()
    }
}
