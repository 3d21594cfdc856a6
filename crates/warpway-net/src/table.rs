//! Memory that peers may name: a table of regions under numbers that carry a generation. Bytes for memory of a device go
//! through host buffers, and are copied in the order in which they come.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use warpway_core::Error;
use warpway_core::memory::{Access, Region, StagedWriter, Staging};
use warpway_core::token::{TOKEN_BYTES, Token};
use warpway_core::transport::Device;

use crate::frame::{Kind, Reason};
use crate::job::JobId;
use crate::lock;

/// The exported regions of one engine.
#[derive(Default)]
pub(crate) struct Table {
    slots: Mutex<Slots>,
    /// One per device, so that what comes in by one link takes effect in order, whatever memories it is for.
    writers: Mutex<Writers>,
}

#[derive(Default)]
struct Writers {
    by_device: Vec<(Device, Writer)>,
    /// There is a link, so bytes may come while kernels wait: from here on writers are made at once.
    linked: bool,
}

/// What brings bytes to the memory of a device; only the receiving thread uses it, and whoever withdraws.
pub(crate) type Writer = Arc<DeviceWriter>;

/// See [`Writer`]. Made once there is a link: it takes a stream of the device and pinned memory.
pub(crate) struct DeviceWriter {
    staging: Arc<dyn Staging>,
    writer: Mutex<Option<Box<dyn StagedWriter>>>,
}

impl DeviceWriter {
    /// Calls `action` with the writer, which nobody else uses meanwhile.
    pub(crate) fn with<T, E: From<Error>>(
        &self,
        action: impl FnOnce(&mut dyn StagedWriter) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut writer = lock(&self.writer);
        match &mut *writer {
            Some(writer) => action(&mut **writer),
            none => action(&mut **none.insert(self.staging.writer()?)),
        }
    }

    /// Waits until everything has arrived.
    pub(crate) fn drain(&self) -> Result<(), Error> {
        lock(&self.writer).as_mut().map_or(Ok(()), |writer| writer.drain())
    }
}

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
    /// `None` if the CPU reaches the region by itself.
    writer: Option<Writer>,
}

impl Table {
    /// Adds a region; `None` if 2^32 regions are exported.
    ///
    /// # Errors
    /// Those of the region's device.
    pub(crate) fn add(&self, job: JobId, region: Region, access: Access) -> Result<Option<u64>, Error> {
        let writer = self.writer(&region)?;
        let exported = Exported { job, region, access, live: Mutex::new(true), writer };
        Ok(lock(&self.slots).add(Arc::new(exported)))
    }

    /// What writes into a region of a device.
    fn writer(&self, region: &Region) -> Result<Option<Writer>, Error> {
        let Some(staging) = region.staging() else { return Ok(None) };
        let mut writers = lock(&self.writers);
        let known = writers.by_device.iter().find(|(device, _)| *device == region.device());
        let writer = match known {
            Some((_, writer)) => Arc::clone(writer),
            None => Arc::new(DeviceWriter { staging: Arc::clone(staging), writer: Mutex::default() }),
        };
        if writers.linked {
            writer.with(|_| Ok::<_, Error>(()))?;
        }
        if known.is_none() {
            writers.by_device.push((region.device(), Arc::clone(&writer)));
        }
        Ok(Some(writer))
    }

    /// There is a link now.
    ///
    /// # Errors
    /// Those of the devices whose memory is exported.
    pub(crate) fn expect_bytes(&self) -> Result<(), Error> {
        let mut writers = lock(&self.writers);
        writers.linked = true;
        writers.by_device.iter().try_for_each(|(_, writer)| writer.with(|_| Ok(())))
    }

    /// Removes a region; when it returns, nobody moves bytes into it any more.
    pub(crate) fn withdraw(&self, id: u64) {
        let mut table = lock(&self.slots);
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
            if let Some(writer) = &exported.writer
                && let Err(error) = writer.drain()
            {
                tracing::warn!(%error, "withdrawing memory of a device that has failed: it is never freed");
                // Copies may still be under way.
                std::mem::forget(exported);
            }
        }
    }

    /// The region with this number, if it belongs to this job.
    pub(crate) fn find(&self, job: &JobId, id: u64) -> Result<Arc<Exported>, Reason> {
        let table = lock(&self.slots);
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

impl Slots {
    fn add(&mut self, exported: Arc<Exported>) -> Option<u64> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                let index = u32::try_from(self.slots.len()).ok()?;
                self.slots.push(Slot { generation: 1, exported: None });
                index
            }
        };
        let slot = self.slots.get_mut(index as usize)?;
        slot.exported = Some(exported);
        Some(u64::from(slot.generation) << 32 | u64::from(index))
    }
}

impl Exported {
    /// How the memory is written, if it is a device's.
    pub(crate) fn writer(&self) -> Option<&Writer> {
        self.writer.as_ref()
    }

    /// Gives the first `size` bytes of the writer's buffer to the device, in a range checked before, unless withdrawn.
    pub(crate) fn write_staged(
        &self,
        writer: &mut dyn StagedWriter,
        offset: u64,
        size: u64,
    ) -> Result<(), Problem> {
        self.while_live(|| Ok(writer.write(&self.region, offset, size)?))
    }

    /// Calls `action` unless the region is withdrawn; that waits meanwhile.
    fn while_live<T>(&self, action: impl FnOnce() -> Result<T, Problem>) -> Result<T, Problem> {
        let live = lock(&self.live);
        if *live { action() } else { Err(Reason::Withdrawn.into()) }
    }

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
    pub(crate) fn update(&self, kind: Kind, offset: u64, operand: u64) -> Result<(), Problem> {
        if !self.access.contains(Access::ATOMIC) {
            return Err(Reason::Access.into());
        }
        let tokens = self.access.contains(Access::TOKENS);
        let unit = if tokens { TOKEN_BYTES } else { 8 };
        self.check_range(offset, unit)?;
        let address = self.region.address().as_ptr() as u64;
        if !address.wrapping_add(offset).is_multiple_of(unit) || (tokens && !offset.is_multiple_of(unit)) {
            return Err(Reason::Alignment.into());
        }
        if let Some(writer) = &self.writer {
            return writer.with(|writer| {
                self.while_live(|| match kind {
                    Kind::Add => Ok(writer.add(&self.region, offset, operand)?),
                    _ => Ok(writer.store(&self.region, offset, operand)?),
                })
            });
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
        })?;
        Ok(())
    }

    fn check_range(&self, offset: u64, size: u64) -> Result<(), Reason> {
        let inside = offset.checked_add(size).is_some_and(|end| end <= self.region.size());
        if inside { Ok(()) } else { Err(Reason::Bounds) }
    }
}

/// Why an operation is not applied.
pub(crate) enum Problem {
    /// It is the sender's mistake, or the owner has withdrawn the memory.
    Refused(Reason),
    /// The device has failed.
    Device(Error),
}

impl From<Reason> for Problem {
    fn from(reason: Reason) -> Self {
        Self::Refused(reason)
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self::Device(error)
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
