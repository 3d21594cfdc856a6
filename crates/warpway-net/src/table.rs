//! Memory that peers may name: a table of regions under numbers that carry a generation.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use warpway_core::memory::{Access, Region};
use warpway_core::token::{TOKEN_BYTES, Token};

use crate::frame::{Kind, Reason};
use crate::job::JobId;
use crate::lock;

/// The exported regions of one engine.
#[derive(Default)]
pub(crate) struct Table(Mutex<Slots>);

#[derive(Default)]
struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

struct Slot {
    /// Raised whenever the slot is emptied; a slot whose generation is used up is not used again.
    generation: u32,
    exported: Option<Arc<Exported>>,
}

/// One exported region.
pub(crate) struct Exported {
    job: JobId,
    region: Region,
    access: Access,
    /// False once withdrawn. Held while bytes are moved, so that after `Table::withdraw` nobody touches
    /// the region, which its owner may unmap then.
    live: Mutex<bool>,
}

impl Table {
    /// Adds a region; `None` if 2^32 regions are exported.
    pub(crate) fn add(&self, job: JobId, region: Region, access: Access) -> Option<u64> {
        let exported = Some(Arc::new(Exported { job, region, access, live: Mutex::new(true) }));
        let mut table = lock(&self.0);
        let index = match table.free.pop() {
            Some(index) => index,
            None => {
                let index = u32::try_from(table.slots.len()).ok()?;
                table.slots.push(Slot { generation: 1, exported: None });
                index
            }
        };
        let slot = table.slots.get_mut(index as usize)?;
        slot.exported = exported;
        Some(u64::from(slot.generation) << 32 | u64::from(index))
    }

    /// Removes a region; when it returns, nobody moves bytes into it any more.
    pub(crate) fn withdraw(&self, id: u64) {
        let mut table = lock(&self.0);
        let (index, generation) = (id as u32, (id >> 32) as u32);
        let Some(slot) = table.slots.get_mut(index as usize).filter(|s| s.generation == generation) else {
            return;
        };
        let exported = slot.exported.take();
        if let Some(next) = slot.generation.checked_add(1) {
            slot.generation = next;
            table.free.push(index);
        }
        drop(table);
        if let Some(exported) = exported {
            *lock(&exported.live) = false;
        }
    }

    /// The region with this number, if it belongs to this job.
    pub(crate) fn find(&self, job: &JobId, id: u64) -> Result<Arc<Exported>, Reason> {
        let table = lock(&self.0);
        table
            .slots
            .get(id as u32 as usize)
            .filter(|slot| u64::from(slot.generation) == id >> 32)
            .and_then(|slot| slot.exported.as_ref())
            .filter(|exported| exported.job == *job)
            .cloned()
            .ok_or(Reason::Stale)
    }
}

impl Exported {
    /// Whether `size` bytes at `offset` may be written.
    pub(crate) fn check_write(&self, offset: u64, size: u64) -> Result<(), Reason> {
        if !self.access.contains(Access::WRITE) {
            return Err(Reason::Access);
        }
        self.check_range(offset, size)
    }

    /// Calls `action` with the address of byte `offset` of a range checked before, unless withdrawn.
    pub(crate) fn with_bytes<T>(
        &self,
        offset: u64,
        action: impl FnOnce(NonNull<u8>) -> T,
    ) -> Result<T, Reason> {
        let live = lock(&self.live);
        if !*live {
            return Err(Reason::Withdrawn);
        }
        self.check_range(offset, 0)?;
        // SAFETY: offset <= size of the region (just checked), which is mapped while its export is live.
        let address = unsafe { self.region.address().add(offset as usize) };
        Ok(action(address))
    }

    /// Stores to or adds to the word at `offset`.
    pub(crate) fn update(&self, kind: Kind, offset: u64, operand: u64) -> Result<(), Reason> {
        if !self.access.contains(Access::ATOMIC) {
            return Err(Reason::Access);
        }
        let tokens = self.access.contains(Access::TOKENS);
        let unit = if tokens { TOKEN_BYTES } else { 8 };
        self.check_range(offset, unit)?;
        let address = self.region.address().as_ptr() as u64;
        if !address.wrapping_add(offset).is_multiple_of(unit) || (tokens && !offset.is_multiple_of(unit)) {
            return Err(Reason::Alignment);
        }
        self.with_bytes(offset, |pointer| {
            if tokens {
                // SAFETY: in bounds, aligned and live (checked above, kept live by `with_bytes`); a token
                // consists of atomics, for which every bit pattern is valid.
                let token = unsafe { pointer.cast::<Token>().as_ref() };
                match kind {
                    Kind::Add => token.add(operand),
                    _ => token.store(operand),
                }
            } else {
                // SAFETY: in bounds, aligned and live as above; peers and local code touch such words with
                // atomic operations only.
                let word = unsafe { AtomicU64::from_ptr(pointer.cast::<u64>().as_ptr()) };
                // Release: publishes the writes of this link, which this thread has made before.
                match kind {
                    Kind::Add => drop(word.fetch_add(operand, Ordering::Release)),
                    _ => word.store(operand, Ordering::Release),
                }
            }
        })
    }

    fn check_range(&self, offset: u64, size: u64) -> Result<(), Reason> {
        let inside = offset.checked_add(size).is_some_and(|end| end <= self.region.size());
        if inside { Ok(()) } else { Err(Reason::Bounds) }
    }
}

/// Withdraws a region when dropped.
pub(crate) struct ExportGuard {
    pub(crate) table: Arc<Table>,
    pub(crate) id: u64,
}

impl Drop for ExportGuard {
    fn drop(&mut self) {
        self.table.withdraw(self.id);
    }
}
