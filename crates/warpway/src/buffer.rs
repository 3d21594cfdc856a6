//! Memory of this rank that all ranks can reach.

use std::ops::Deref;

use warpway_core::memory::RegisteredMemory;
use warpway_host::HostBuffer;

/// Typed memory and its registration. Cheap to clone. Elements are copied in and out
/// ([`HostBuffer::read`], [`HostBuffer::write`]): peers may change them at any time.
#[derive(Debug, Clone)]
pub struct Buffer<T> {
    data: HostBuffer<T>,
    memory: RegisteredMemory,
}

impl<T> Buffer<T> {
    pub(crate) fn new(data: HostBuffer<T>, memory: RegisteredMemory) -> Self {
        Self { data, memory }
    }

    /// The registration, for channels and peers.
    pub fn memory(&self) -> &RegisteredMemory {
        &self.memory
    }
}

impl<T> Deref for Buffer<T> {
    type Target = HostBuffer<T>;

    fn deref(&self) -> &HostBuffer<T> {
        &self.data
    }
}

impl<T> AsRef<RegisteredMemory> for Buffer<T> {
    fn as_ref(&self) -> &RegisteredMemory {
        &self.memory
    }
}
