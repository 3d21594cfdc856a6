//! Which addresses are alive, what is behind them, and who may touch them.

use std::collections::BTreeMap;
use std::sync::Arc;

use warpway_cuda_sys::driver_types::{CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CUDA_ERROR_INVALID_VALUE};

use super::arena::{Arena, GRANULARITY};
use super::call::Answer;
use super::physical::{Identity, Physical};

/// Of host memory.
const PAGE: u64 = 4096;

/// A range of addresses that are alive.
#[derive(Debug)]
pub(super) struct Region {
    pub(super) start: u64,
    pub(super) size: u64,
    /// The driver's number for it, never used again.
    pub(super) buffer: u64,
    /// The ordinal of the device whose memory it is, or whose context pinned it.
    pub(super) device: usize,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    /// cuMemAlloc.
    Allocation(Arc<Physical>),
    /// A variable of a module.
    Global(Arc<Physical>),
    /// cuMemMap, with the access of each ordinal.
    Mapping { memory: Arc<Physical>, access: BTreeMap<usize, u32> },
    /// cuIpcOpenMemHandle by a context, so many times.
    Opened { memory: Arc<Physical>, by: usize, count: u64 },
    /// cuMemHostAlloc.
    Pinned,
    /// cuMemHostRegister.
    Registered,
}

impl Region {
    pub(super) fn is_host(&self) -> bool {
        matches!(self.kind, Kind::Pinned | Kind::Registered)
    }

    pub(super) fn end(&self) -> u64 {
        self.start + self.size
    }

    pub(super) fn memory(&self) -> Option<&Arc<Physical>> {
        match &self.kind {
            Kind::Allocation(memory)
            | Kind::Global(memory)
            | Kind::Mapping { memory, .. }
            | Kind::Opened { memory, .. } => Some(memory),
            Kind::Pinned | Kind::Registered => None,
        }
    }

    /// The address at which the fake finds the bytes.
    fn bytes(&self, address: u64) -> u64 {
        if self.is_host() { address } else { Arena::bytes(address) }
    }

    /// The access bits of a device. Peer access of kernels is asked elsewhere.
    pub(super) fn access_of(&self, device: usize) -> u32 {
        match &self.kind {
            Kind::Mapping { access, .. } => access.get(&device).copied().unwrap_or_default(),
            _ => CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        }
    }

    /// Whether work of a device may touch it.
    fn open_to(&self, device: usize) -> bool {
        self.access_of(device) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    }

    /// First address and size of what the driver has mapped for it: whole granules of its own memory, pages of the
    /// host's.
    pub(super) fn mapped(&self) -> (u64, u64) {
        let unit = if matches!(self.kind, Kind::Registered) { PAGE } else { GRANULARITY };
        let start = self.start - self.start % unit;
        (start, (self.end() - start).next_multiple_of(unit))
    }
}

/// All regions, by their first address.
#[derive(Debug, Default)]
pub(super) struct Regions(BTreeMap<u64, Region>);

impl Regions {
    pub(super) fn insert(&mut self, region: Region) {
        self.0.insert(region.start, region);
    }

    pub(super) fn remove(&mut self, start: u64) -> Option<Region> {
        self.0.remove(&start)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Region> {
        self.0.values()
    }

    pub(super) fn starting_at(&mut self, start: u64) -> Option<&mut Region> {
        self.0.get_mut(&start)
    }

    /// The region that an address lies in.
    pub(super) fn of(&self, address: u64) -> Option<&Region> {
        let (_, region) = self.0.range(..=address).next_back()?;
        (address < region.end()).then_some(region)
    }

    /// The regions that overlap a range, in order.
    pub(super) fn within(&self, start: u64, end: u64) -> impl Iterator<Item = &Region> {
        let first = self.of(start).map_or(start, |region| region.start);
        self.0.range(first..end).map(|(_, region)| region)
    }

    /// Memory that the context of a device has opened by IPC.
    pub(super) fn opened(&mut self, wanted: &Identity, device: usize) -> Option<&mut Region> {
        self.0.values_mut().find(|region| {
            matches!(&region.kind, Kind::Opened { memory, by, .. } if memory.identity == *wanted && *by == device)
        })
    }

    /// Where the bytes of a range are, if all of it is alive and open to work of a device. Mappings that follow each
    /// other make one range, as they do for kernels.
    pub(super) fn resolve(&self, start: u64, size: u64, device: usize) -> Answer<u64> {
        let end = start.checked_add(size).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let first = self.of(start).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let mut reached = start;
        while reached < end {
            let region =
                self.of(reached).filter(|region| region.open_to(device)).ok_or(CUDA_ERROR_INVALID_VALUE)?;
            reached = region.end();
        }
        Ok(first.bytes(start))
    }
}
