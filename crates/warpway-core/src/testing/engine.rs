//! An engine without a network: maps what ranks of a [`LocalJob`](super::LocalJob) offer.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};

use crate::connection::{Position, RawConnection, Span};
use crate::deadline::Deadline;
use crate::endpoint::{Endpoint, EndpointConfig};
use crate::engine::{Engine, EngineContext};
use crate::error::{Error, Result, SystemError};
use crate::memory::{Access, Backing, Export, Import, MemoryError, MemoryRecord, Region};
use crate::token::Token;
use crate::transport::{Device, Transport};

/// Zeroed shared memory of `size` bytes (a memfd).
///
/// # Errors
/// Those of the system calls.
pub fn allocate(size: u64) -> Result<Region> {
    allocate_as(Device::CPU, size)
}

/// The same, said to be on `device`, to see what the core does with memory that the CPU cannot touch.
///
/// # Errors
/// Those of the system calls.
pub fn allocate_as(device: Device, size: u64) -> Result<Region> {
    let file = rustix::fs::memfd_create("warpway-testing", MemfdFlags::CLOEXEC)
        .map_err(|e| SystemError::new("memfd_create", e))?;
    rustix::fs::ftruncate(&file, size).map_err(|e| SystemError::new("ftruncate", e))?;
    let backing = Backing { descriptor: Arc::new(file), offset: 0, allocation_size: size };
    map(backing, device, size)
}

fn map(backing: Backing, device: Device, size: u64) -> Result<Region> {
    let length = backing.allocation_size as usize;
    // SAFETY: a new mapping of a file that is at least `allocation_size` long: `allocate` has just made
    // it so, `import` has checked it.
    let base = unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            length,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            &backing.descriptor,
            0,
        )
    };
    let base = base.map_err(|e| SystemError::new(format!("mmap of {length} bytes"), e))?;
    let base = NonNull::new(base.cast::<u8>())
        .ok_or(Error::Internal { place: "testing::map", what: "mmap returned null" })?;
    let mapping = Arc::new(Mapping { base, length });
    // SAFETY: offset + size <= allocation_size (checked by both callers), so the pointer is in the mapping.
    let address = unsafe { base.add(backing.offset as usize) };
    // SAFETY: the mapping is the region's keeper.
    Ok(unsafe { Region::new(address, size, device, Some(backing), Some(mapping)) }?)
}

struct Mapping {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: an address and a length; only `drop` uses them.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: base and length are those of one mmap, and the last user of the mapping is gone.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.length) };
    }
}

/// Provides one transport by mapping memory and copying bytes in the calling thread.
pub struct LocalEngine {
    transport: Transport,
    next_endpoint: AtomicU64,
    imports: AtomicU64,
}

impl LocalEngine {
    /// An engine for `transport`, which is a name only.
    pub fn new(transport: Transport) -> Self {
        Self { transport, next_endpoint: AtomicU64::new(1), imports: AtomicU64::new(0) }
    }

    /// How many memories it has mapped.
    pub fn imports(&self) -> u64 {
        self.imports.load(Ordering::SeqCst)
    }
}

impl Engine for LocalEngine {
    fn transport(&self) -> Transport {
        self.transport
    }

    fn export(&self, _context: &EngineContext, region: &Region, _access: Access) -> Result<Export> {
        if region.backing().is_none() {
            return Err(MemoryError::NotExportable {
                address: region.address().as_ptr() as u64,
                size: region.size(),
                transport: self.transport,
                why: "it has no descriptor; use testing::allocate",
            }
            .into());
        }
        Ok(Export::new(self.transport))
    }

    fn import(&self, context: &EngineContext, record: &MemoryRecord, deadline: Deadline) -> Result<Import> {
        let refuse =
            |why: &str| MemoryError::Import { owner: record.owner, size: record.size, why: why.into() };
        let shared = record.shared.as_ref().ok_or_else(|| refuse("the record names no descriptor"))?;
        let file = context.control.fetch_descriptor(record.owner, shared.descriptor, deadline)?;
        let length = rustix::fs::fstat(&file).map_err(|e| SystemError::new("fstat", e))?.st_size;
        if u64::try_from(length).is_ok_and(|length| length < record.allocation_size) {
            return Err(refuse("the file is shorter than the record says").into());
        }
        self.imports.fetch_add(1, Ordering::SeqCst);
        let (offset, allocation_size) = (record.offset, record.allocation_size);
        let backing = Backing { descriptor: Arc::new(file), offset, allocation_size };
        Ok(Import { transport: self.transport, region: Some(map(backing, record.device, record.size)?) })
    }

    fn endpoint(&self, _context: &EngineContext, config: &EndpointConfig) -> Result<Endpoint> {
        let id = self.next_endpoint.fetch_add(1, Ordering::Relaxed);
        Ok(Endpoint::new(config.transport, config.device, config, id))
    }

    fn connect(
        &self,
        _context: &EngineContext,
        _local: &Endpoint,
        _remote: &Endpoint,
        _deadline: Deadline,
    ) -> Result<Box<dyn RawConnection>> {
        Ok(Box::new(LocalConnection { posted: AtomicU64::new(0) }))
    }
}

struct LocalConnection {
    posted: AtomicU64,
}

impl LocalConnection {
    fn next(&self) -> Position {
        Position(1 + self.posted.fetch_add(1, Ordering::SeqCst))
    }
}

impl RawConnection for LocalConnection {
    fn write(&self, destination: Span<'_>, source: Span<'_>, size: u64) -> Result<Position> {
        let to = destination.memory.pointer("write", destination.offset, size)?;
        let from = source.memory.pointer("write", source.offset, size)?;
        // SAFETY: both ranges lie in live memories (checked by `pointer`); they may overlap.
        unsafe { std::ptr::copy(from.as_ptr(), to.as_ptr(), size as usize) };
        Ok(self.next())
    }

    fn store(&self, destination: Span<'_>, value: u64) -> Result<Position> {
        word(destination, |token| token.store(value), |word| word.store(value, Ordering::SeqCst))?;
        Ok(self.next())
    }

    fn add(&self, destination: Span<'_>, delta: i64) -> Result<Position> {
        let delta = delta as u64;
        word(destination, |token| token.add(delta), |word| _ = word.fetch_add(delta, Ordering::SeqCst))?;
        Ok(self.next())
    }

    fn completed(&self) -> Result<Position> {
        Ok(self.posted())
    }

    fn flush(&self, _position: Position, _deadline: Deadline) -> Result<()> {
        Ok(())
    }

    fn posted(&self) -> Position {
        Position(self.posted.load(Ordering::SeqCst))
    }

    fn max_write_queue_size(&self) -> u64 {
        u64::MAX
    }
}

fn word(span: Span<'_>, token: impl FnOnce(&Token), plain: impl FnOnce(&AtomicU64)) -> Result<()> {
    if span.memory.access().contains(Access::TOKENS) && span.offset.is_multiple_of(64) {
        token(span.memory.token("word", span.offset)?);
        return Ok(());
    }
    let pointer = span.memory.pointer("word", span.offset, 8)?;
    // SAFETY: in bounds and 8-byte aligned (`Connection` has checked), mapped while the memory lives, and
    // every access to it by this engine is atomic.
    plain(unsafe { AtomicU64::from_ptr(pointer.as_ptr().cast()) });
    Ok(())
}
