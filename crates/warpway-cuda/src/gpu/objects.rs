//! Objects in device memory that the blocks of one GPU share: grid barriers, counting semaphores, epochs.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use warpway_core::Result;
use warpway_core::memory::MemoryError;

use super::arena::{Arena, Place};
use super::argument::{Keeper, KernelArgument};
use crate::handle::{DeviceSemaphore, DeviceSyncer, EpochsHandle, Site};

/// An object in device memory; as an argument of a launch it is its address. Cheap to clone; the last clone, or the last
/// launch that uses it, gives the memory back.
pub struct DeviceObject<T> {
    place: Arc<Place>,
    kind: PhantomData<fn() -> T>,
}

/// A grid barrier: the kernel's parameter is `warpway::DeviceSyncer*`.
pub type GpuSyncer = DeviceObject<DeviceSyncer>;

/// A counting semaphore of the device: `warpway::DeviceSemaphore*`.
pub type GpuSemaphore = DeviceObject<DeviceSemaphore>;

impl<T: Copy> DeviceObject<T> {
    pub(super) fn new(arena: &Arena, content: T) -> Result<Self> {
        Ok(Self { place: Arc::new(arena.place(&[content])?), kind: PhantomData })
    }
}

impl<T> DeviceObject<T> {
    /// Device address.
    pub fn address(&self) -> u64 {
        self.place.address()
    }
}

impl GpuSyncer {
    pub(super) fn ready(arena: &Arena, site: Site) -> Result<Self> {
        Self::new(arena, DeviceSyncer { site, ..DeviceSyncer::default() })
    }

    /// Barriers completed, once no kernel uses it.
    ///
    /// # Errors
    /// `gpu.driver`.
    pub fn generation(&self) -> Result<u64> {
        let [generation] = self.place.read(0)?;
        Ok(generation)
    }
}

impl GpuSemaphore {
    pub(super) fn with(arena: &Arena, units: u64, site: Site) -> Result<Self> {
        Self::new(arena, DeviceSemaphore { tickets: 0, units, site })
    }

    /// Units there are, less those taken, once no kernel uses it. Negative while somebody waits for one.
    ///
    /// # Errors
    /// `gpu.driver`.
    pub fn units(&self) -> Result<i64> {
        let [tickets, units] = self.place.read::<2>(0)?;
        Ok(units.wrapping_sub(tickets).cast_signed())
    }
}

impl<T: 'static> KernelArgument for &DeviceObject<T> {
    type Value = u64;

    fn value(&self) -> u64 {
        self.address()
    }

    fn keep(&self, kept: &mut Vec<Keeper>) {
        kept.push(Arc::clone(&self.place) as Keeper);
    }
}

impl<T> Clone for DeviceObject<T> {
    fn clone(&self) -> Self {
        Self { place: Arc::clone(&self.place), kind: PhantomData }
    }
}

impl<T> fmt::Debug for DeviceObject<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.place.fmt(f)
    }
}

/// The epochs of some scratch areas; as an argument of a launch it is `warpway::Epochs`, by value. Cheap to clone.
///
/// In one allocation: the addresses of the counters, the counter of blocks that have finished, the counters.
#[derive(Clone)]
pub struct GpuEpochs {
    place: Arc<Place>,
    areas: u64,
}

impl GpuEpochs {
    /// `areas` epochs, all 0.
    pub(super) fn new(arena: &Arena, areas: u64) -> Result<Self> {
        let place = arena.place(&vec![0u64; 2 * areas as usize + 1])?;
        let epochs = Self { place: Arc::new(place), areas };
        let counters: Vec<u64> = (0..areas).map(|area| epochs.counter(area)).collect();
        epochs.place.write(0, &counters)?;
        Ok(epochs)
    }

    /// Areas.
    pub fn areas(&self) -> u64 {
        self.areas
    }

    /// The epoch of an area, once no kernel uses it.
    ///
    /// # Errors
    /// `mem.bounds`, `gpu.driver`.
    pub fn get(&self, area: u64) -> Result<u64> {
        let [value] = self.place.read(self.offset(area)?)?;
        Ok(value)
    }

    /// Sets the epoch of an area while no kernel of any rank uses it; all ranks set the same. What flags of
    /// later epochs the area holds must be cleared.
    ///
    /// # Errors
    /// `mem.bounds`, `gpu.driver`.
    pub fn set(&self, area: u64, epoch: u64) -> Result<()> {
        self.place.write(self.offset(area)?, &[epoch])
    }

    fn offset(&self, area: u64) -> Result<u64, MemoryError> {
        if area >= self.areas {
            let (offset, limit) = (area.saturating_mul(8), 8 * self.areas);
            return Err(MemoryError::OutOfBounds { operation: "epoch", offset, size: 8, limit });
        }
        Ok(self.counter(area) - self.place.address())
    }

    fn counter(&self, area: u64) -> u64 {
        self.place.address() + 8 * (self.areas + 1 + area)
    }
}

impl KernelArgument for &GpuEpochs {
    type Value = EpochsHandle;

    fn value(&self) -> EpochsHandle {
        let areas = self.place.address();
        EpochsHandle { areas, arrivals: areas + 8 * self.areas, n_areas: self.areas }
    }

    fn keep(&self, kept: &mut Vec<Keeper>) {
        kept.push(Arc::clone(&self.place) as Keeper);
    }
}

impl fmt::Debug for GpuEpochs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GpuEpochs").field("place", &self.place).field("areas", &self.areas).finish()
    }
}
