//! Plain values in device memory, many in a row.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use warpway_core::Result;

use super::arena::{Arena, Place};
use super::argument::Keeper;

/// Values in device memory, aligned to a cache line. Cheap to clone; the last clone, or the last launch that keeps it, gives the
/// memory back.
pub(crate) struct DeviceArray<T> {
    place: Arc<Place>,
    kind: PhantomData<fn() -> T>,
}

impl<T: Copy> DeviceArray<T> {
    /// Holds `content`, which has arrived.
    pub(super) fn new(arena: &Arena, content: &[T]) -> Result<Self> {
        Ok(Self { place: Arc::new(arena.place(content)?), kind: PhantomData })
    }
}

impl<T> DeviceArray<T> {
    /// Of the first value.
    pub(crate) fn address(&self) -> u64 {
        self.place.address()
    }

    /// For a launch that uses it.
    pub(crate) fn keeper(&self) -> Keeper {
        Arc::clone(&self.place) as Keeper
    }
}

impl DeviceArray<u64> {
    /// The first word, once no kernel uses it.
    #[cfg(test)]
    pub(crate) fn first(&self) -> Result<u64> {
        let [word] = self.place.read(0)?;
        Ok(word)
    }
}

impl<T> Clone for DeviceArray<T> {
    fn clone(&self) -> Self {
        Self { place: Arc::clone(&self.place), kind: PhantomData }
    }
}

impl<T> fmt::Debug for DeviceArray<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.place.fmt(f)
    }
}
