//! Many device handles for one kernel.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use warpway_core::Result;
use warpway_core::channel::DeviceHandle;

use super::arena::{Arena, Place};
use super::argument::{Keeper, KernelArgument};

/// Handles in device memory, in the order in which they were given; as an argument of a launch it is the address of the
/// first. Cheap to clone; the last clone, or the last launch that uses it, lets go of the channels.
pub struct HandleArray<H, C> {
    shared: Arc<Shared<C>>,
    len: u64,
    handle: PhantomData<fn() -> H>,
}

struct Shared<C> {
    place: Place,
    _channels: Vec<C>,
}

impl<H: Copy, C: Clone> HandleArray<H, C> {
    pub(super) fn new(arena: &Arena, handles: &[DeviceHandle<H, C>]) -> Result<Self> {
        let plain: Vec<H> = handles.iter().map(|handle| **handle).collect();
        let channels = handles.iter().map(|handle| handle.channel().clone()).collect();
        let shared = Arc::new(Shared { place: arena.place(&plain)?, _channels: channels });
        Ok(Self { shared, len: handles.len() as u64, handle: PhantomData })
    }
}

impl<H, C> HandleArray<H, C> {
    /// Device address of the first handle.
    pub fn address(&self) -> u64 {
        self.shared.place.address()
    }

    /// Handles.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<H: 'static, C: Send + Sync + 'static> KernelArgument for &HandleArray<H, C> {
    type Value = u64;

    fn value(&self) -> u64 {
        self.address()
    }

    fn keep(&self, kept: &mut Vec<Keeper>) {
        kept.push(Arc::clone(&self.shared) as Keeper);
    }
}

impl<H, C> Clone for HandleArray<H, C> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), len: self.len, handle: PhantomData }
    }
}

impl<H, C> fmt::Debug for HandleArray<H, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandleArray").field("place", &self.shared.place).field("len", &self.len).finish()
    }
}
