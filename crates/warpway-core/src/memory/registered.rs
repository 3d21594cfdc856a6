//! The handle: a local registration or an import.

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use super::region::check_range;
use super::{Access, EthernetExport, GpuExport, MemoryError, MemoryRecord, Region};
use crate::token::{TOKEN_BYTES, Token};
use crate::transport::{Device, DeviceKind, Transport, TransportFlags};

/// What one engine gave for a local region.
#[derive(Clone)]
pub struct Export {
    /// The transport.
    pub transport: Transport,
    /// For TCP: the number of the region in the engine's table.
    pub ethernet: Option<EthernetExport>,
    /// For a GPU: what the engine found out about the region.
    pub gpu: Option<GpuPlacement>,
    /// Undoes the export when dropped.
    pub guard: Option<Arc<dyn Any + Send + Sync>>,
}

impl Export {
    /// By `transport`, without anything that only some transports need.
    pub fn new(transport: Transport) -> Self {
        Self { transport, ethernet: None, gpu: None, guard: None }
    }
}

/// Where a region of a GPU lies, and how peers open the allocation it lies in.
#[derive(Debug, Clone)]
pub struct GpuPlacement {
    /// UUID of the GPU, the same in all processes.
    pub device_uuid: [u8; 16],
    /// Offset of the region in its allocation.
    pub offset: u64,
    /// Size of the allocation, `>= offset + size`.
    pub allocation_size: u64,
    /// The allocation as a descriptor, which the core offers to peers.
    pub descriptor: Option<Arc<OwnedFd>>,
    /// Another way to open it.
    pub export: Option<GpuExport>,
}

/// What one engine made of a peer's record.
#[derive(Clone)]
pub struct Import {
    /// The transport.
    pub transport: Transport,
    /// The mapped bytes, for transports that map.
    pub region: Option<Region>,
}

/// One line of an [`ImportReport`].
#[derive(Debug, Clone)]
pub struct ImportAttempt {
    /// The transport tried.
    pub transport: Transport,
    /// `None` if it works, otherwise why not.
    pub problem: Option<String>,
}

/// Which transports work for an imported memory and why others do not.
#[derive(Debug, Clone, Default)]
pub struct ImportReport(pub Vec<ImportAttempt>);

impl fmt::Display for ImportReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, ImportAttempt { transport, problem }) in self.0.iter().enumerate() {
            let separator = if i == 0 { "" } else { "; " };
            write!(f, "{separator}{transport}: {}", problem.as_deref().unwrap_or("works"))?;
        }
        Ok(())
    }
}

/// A local registration, or a peer's memory. Cheap to clone; the last clone releases the registration
/// or the mapping. A registration does not own the memory unless the region's keeper does.
#[derive(Clone)]
pub struct RegisteredMemory(Arc<Inner>);

/// Fields in the order in which they are dropped: the mapping before what witnesses its end.
struct Inner {
    /// The record as sent, or as it would be sent (without a descriptor number).
    record: MemoryRecord,
    /// Local bytes or the mapping; `None` if only reachable through the network.
    region: Option<Region>,
    /// The owner's rank in the communicator that registered or imported it.
    owner_rank: u32,
    side: Side,
}

enum Side {
    /// Kept for what their guards do when dropped.
    Local { _exports: Vec<Export> },
    Imported {
        transports: TransportFlags,
        report: ImportReport,
        /// Told by being dropped, after the mapping.
        _witness: Option<Arc<dyn Any + Send + Sync>>,
    },
}

/// A registration that may be gone.
#[derive(Debug, Clone)]
pub struct WeakMemory(Weak<Inner>);

impl WeakMemory {
    /// True if it is this very registration. Its place is not given to another one while `self` lives.
    #[inline]
    pub fn is(&self, memory: &RegisteredMemory) -> bool {
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(&memory.0))
    }

    /// The memory, while some clone of it lives.
    pub fn upgrade(&self) -> Option<RegisteredMemory> {
        self.0.upgrade().map(RegisteredMemory)
    }
}

impl RegisteredMemory {
    /// A local registration; `record.transports` must be what `exports` hold.
    pub fn local(record: MemoryRecord, region: Region, exports: Vec<Export>) -> Self {
        let owner_rank = record.owner;
        let side = Side::Local { _exports: exports };
        Self(Arc::new(Inner { record, region: Some(region), owner_rank, side }))
    }

    /// A peer's memory; `transports` are those that work here.
    pub fn imported(
        record: MemoryRecord,
        region: Option<Region>,
        transports: TransportFlags,
        report: ImportReport,
    ) -> Self {
        let side = Side::Imported { transports, report, _witness: None };
        let owner_rank = record.owner;
        Self(Arc::new(Inner { record, region, owner_rank, side }))
    }

    /// The same, and errors call the owner `rank`, as the communicator does. No effect once the memory has been
    /// cloned.
    pub fn with_owner_rank(mut self, rank: u32) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.owner_rank = rank;
        }
        self
    }

    /// The same memory as a value of its own, with a witness that is dropped once the last clone of that
    /// value is gone. A local registration is returned as it is.
    pub fn with_witness(&self, witness: Arc<dyn Any + Send + Sync>) -> Self {
        let Side::Imported { transports, report, .. } = &self.0.side else { return self.clone() };
        let side =
            Side::Imported { transports: *transports, report: report.clone(), _witness: Some(witness) };
        let Inner { record, region, owner_rank, .. } = &*self.0;
        let (record, region, owner_rank) = (record.clone(), region.clone(), *owner_rank);
        Self(Arc::new(Inner { record, region, owner_rank, side }))
    }

    /// True for clones of one registration or import.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Does not keep the memory.
    pub fn downgrade(&self) -> WeakMemory {
        WeakMemory(Arc::downgrade(&self.0))
    }

    /// First byte, local or mapped; `None` if only reachable through the network. An address of
    /// [`device`](Self::device): of a GPU's memory it is nothing for the CPU to touch.
    pub fn data(&self) -> Option<NonNull<u8>> {
        self.0.region.as_ref().map(Region::address)
    }

    /// The local or mapped region.
    pub fn region(&self) -> Option<&Region> {
        self.0.region.as_ref()
    }

    /// Address in the exporting process.
    pub fn original_address(&self) -> u64 {
        self.0.record.original_address
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.0.record.size
    }

    /// Local: what it was registered for. Imported: what works.
    pub fn transports(&self) -> TransportFlags {
        match &self.0.side {
            Side::Local { .. } => self.0.record.transports,
            Side::Imported { transports, .. } => *transports,
        }
    }

    /// Rank of the owner in the job.
    pub fn owner(&self) -> u32 {
        self.0.record.owner
    }

    /// Rank of the owner in the communicator that registered or imported the memory.
    pub fn owner_rank(&self) -> u32 {
        self.0.owner_rank
    }

    /// True for a registration made here.
    pub fn is_local(&self) -> bool {
        matches!(self.0.side, Side::Local { .. })
    }

    /// What peers may do.
    pub fn access(&self) -> Access {
        self.0.record.access
    }

    /// Where the memory lives.
    pub fn device(&self) -> Device {
        self.0.record.device
    }

    /// Everything a peer needs to know.
    pub fn record(&self) -> &MemoryRecord {
        &self.0.record
    }

    /// Which transports work and why others do not; empty for local memory.
    pub fn import_report(&self) -> ImportReport {
        match &self.0.side {
            Side::Local { .. } => ImportReport::default(),
            Side::Imported { report, .. } => report.clone(),
        }
    }

    /// An error unless `transport` reaches the memory.
    pub fn require(&self, operation: &'static str, transport: Transport) -> Result<(), MemoryError> {
        let available = self.transports();
        if available.has(transport) {
            return Ok(());
        }
        let why = match &self.0.side {
            Side::Local { .. } => "register it for that transport".to_owned(),
            Side::Imported { report, .. } => report.to_string(),
        };
        Err(MemoryError::NoTransport { operation, transport, available, why })
    }

    /// An error unless the owner permits `access`.
    pub fn require_access(&self, operation: &'static str, access: Access) -> Result<(), MemoryError> {
        if self.0.record.access.contains(access) {
            return Ok(());
        }
        let missing = |bit| access.contains(bit) && !self.0.record.access.contains(bit);
        let needed = match () {
            () if missing(Access::READ) => "read",
            () if missing(Access::WRITE) => "write",
            () => "atomic",
        };
        Err(MemoryError::Access { operation, owner: self.owner_rank(), needed })
    }

    /// An error unless `offset..offset + size` lies inside the memory.
    pub fn check_range(&self, operation: &'static str, offset: u64, size: u64) -> Result<(), MemoryError> {
        check_range(operation, offset, size, self.size())
    }

    /// An error unless there is a whole, aligned 64-bit word at `offset`.
    pub fn check_word(&self, operation: &'static str, offset: u64) -> Result<(), MemoryError> {
        self.check_range(operation, offset, 8)?;
        let base = self.0.record.original_address;
        if !base.wrapping_add(offset).is_multiple_of(8) {
            return Err(MemoryError::Misaligned { operation, offset, alignment: 8 });
        }
        Ok(())
    }

    /// Pointer to byte `offset` for the CPU, of a range that is checked here.
    ///
    /// # Errors
    /// If the range is outside, the memory has no address here, or is on a GPU (`mem.device`).
    pub fn pointer(
        &self,
        operation: &'static str,
        offset: u64,
        size: u64,
    ) -> Result<NonNull<u8>, MemoryError> {
        let region = self.reachable(operation, offset, size)?;
        if region.device().kind != DeviceKind::Cpu {
            let hint = "copy it to host memory first, or let a kernel or the GPU's copy engine do it";
            return Err(MemoryError::OnDevice { operation, device: region.device().id, hint });
        }
        // SAFETY: offset <= size of the live region (just checked; regions are as long as their record).
        Ok(unsafe { region.address().add(offset as usize) })
    }

    /// Address of byte `offset`, of a range that is checked here: the CPU's, or that of the GPU that the memory is on.
    ///
    /// # Errors
    /// If the range is outside, or the memory has no address here.
    pub fn address(&self, operation: &'static str, offset: u64, size: u64) -> Result<u64, MemoryError> {
        let region = self.reachable(operation, offset, size)?;
        // Cannot wrap: the end of a region does not.
        Ok(region.address().as_ptr() as u64 + offset)
    }

    /// The region, if it holds `size` bytes at `offset`.
    fn reachable(&self, operation: &'static str, offset: u64, size: u64) -> Result<&Region, MemoryError> {
        self.check_range(operation, offset, size)?;
        self.0.region.as_ref().ok_or_else(|| MemoryError::NoTransport {
            operation,
            transport: Transport::SharedMemory,
            available: self.transports(),
            why: "the memory has no address in this process".into(),
        })
    }

    /// The token at `offset` for the CPU, of memories registered with [`Access::TOKENS`].
    ///
    /// # Errors
    /// If the memory is no token memory, the offset no multiple of 64, there is no address here, or the memory is on
    /// a GPU (`mem.device`).
    pub fn token(&self, operation: &'static str, offset: u64) -> Result<&Token, MemoryError> {
        self.token_address(operation, offset)?;
        let pointer = self.pointer(operation, offset, TOKEN_BYTES)?;
        // SAFETY: in bounds and aligned (checked above); the memory stays mapped while `self` lives; a
        // token consists of atomics only, for which every bit pattern is valid and concurrent access by
        // other processes is allowed.
        Ok(unsafe { pointer.cast::<Token>().as_ref() })
    }
}

impl RegisteredMemory {
    /// Address of the token at `offset`, for the CPU or for the GPU that the memory is on.
    ///
    /// # Errors
    /// If the memory is no token memory, the offset no multiple of 64, or there is no address here.
    pub fn token_address(&self, operation: &'static str, offset: u64) -> Result<u64, MemoryError> {
        if !self.access().contains(Access::TOKENS) {
            return Err(MemoryError::WrongSide { operation, what: "the memory is not a token memory" });
        }
        let address = self.address(operation, offset, TOKEN_BYTES)?;
        if !address.is_multiple_of(TOKEN_BYTES) {
            return Err(MemoryError::Misaligned { operation, offset, alignment: TOKEN_BYTES });
        }
        Ok(address)
    }
}

/// A token whose checks are done: it stays mapped as long as this lives.
#[derive(Debug, Clone)]
pub struct MappedToken {
    token: NonNull<Token>,
    /// Keeps the mapping.
    _memory: RegisteredMemory,
}

// SAFETY: a token consists of atomics, which any thread may use; the pointer itself never changes.
unsafe impl Send for MappedToken {}
// SAFETY: as above.
unsafe impl Sync for MappedToken {}

impl Deref for MappedToken {
    type Target = Token;

    #[inline]
    fn deref(&self) -> &Token {
        // SAFETY: `RegisteredMemory::mapped_token` got the pointer from a checked reference, and `_memory`
        // keeps the bytes mapped.
        unsafe { self.token.as_ref() }
    }
}

impl AsRef<Self> for RegisteredMemory {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl RegisteredMemory {
    /// The token at `offset`, checked once for many uses.
    ///
    /// # Errors
    /// As [`token`](Self::token).
    pub fn mapped_token(&self, operation: &'static str, offset: u64) -> Result<MappedToken, MemoryError> {
        let token = NonNull::from(self.token(operation, offset)?);
        Ok(MappedToken { token, _memory: self.clone() })
    }
}

impl fmt::Debug for RegisteredMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegisteredMemory")
            .field("owner", &self.owner())
            .field("local", &self.is_local())
            .field("size", &self.size())
            .field("transports", &self.transports())
            .finish_non_exhaustive()
    }
}
