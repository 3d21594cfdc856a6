//! Memory of this rank on its GPU that peers can reach.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use warpway_core::Result;
use warpway_core::gpu::GpuError;
use warpway_core::memory::{Element, MemoryError, RegisteredMemory};

use super::argument::{Keeper, KernelArgument};
use super::control::finish;
use crate::memory::{DeviceMemory, copy_from_host, copy_to_host, fill};
use crate::stream::Stream;

/// Typed memory of a GPU and its registration. Cheap to clone; the last clone, registration or launch that uses it
/// frees it.
///
/// As an argument of a launch it is the address of its first element. [`write`](Self::write) and [`read`](Self::read)
/// are for set-up and tests: they wait for the copy, and for nothing else. Whoever reads what a kernel writes
/// has waited for the kernel before.
#[derive(Clone)]
pub struct GpuBuffer<T> {
    memory: DeviceMemory,
    registered: RegisteredMemory,
    /// For copies.
    stream: Arc<Stream>,
    len: u64,
    element: PhantomData<fn() -> T>,
}

impl<T: Element> GpuBuffer<T> {
    pub(super) fn new(
        memory: DeviceMemory,
        registered: RegisteredMemory,
        stream: Arc<Stream>,
        len: u64,
    ) -> Self {
        Self { memory, registered, stream, len, element: PhantomData }
    }

    /// Elements.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Never: a buffer has elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes.
    pub fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    /// Device address of the first element.
    pub fn address(&self) -> u64 {
        self.memory.address()
    }

    /// The registration, for channels and peers.
    pub fn memory(&self) -> &RegisteredMemory {
        &self.registered
    }

    /// Copies `data` to element `offset` and on.
    ///
    /// # Errors
    /// `mem.bounds`, `gpu.driver`.
    pub fn write(&self, offset: u64, data: &[T]) -> Result<()> {
        let at = self.at("buffer write", offset, data.len() as u64)?;
        // SAFETY: the range has just been checked; peers and kernels see old and new bytes mixed.
        unsafe { copy_from_host(&self.stream, at, data)? };
        Ok(finish(&self.stream)?)
    }

    /// Sets all elements.
    ///
    /// # Errors
    /// `gpu.driver`.
    pub fn fill(&self, value: T) -> Result<()> {
        // As a host array in pieces; the driver only fills with words of at most four bytes.
        const PIECE: u64 = 1 << 20;
        let piece = vec![value; self.len.min(PIECE) as usize];
        let mut offset = 0;
        while offset < self.len {
            let n = (self.len - offset).min(PIECE);
            self.write(offset, &piece[..n as usize])?;
            offset += n;
        }
        Ok(())
    }

    /// Copies from element `offset` and on.
    ///
    /// # Errors
    /// `mem.bounds`, `gpu.driver`.
    pub fn read(&self, offset: u64, data: &mut [T]) -> Result<()> {
        let at = self.at("buffer read", offset, data.len() as u64)?;
        // Not straight to `data`: a copy that does not end would go on writing to it.
        let mut staged = data.to_vec();
        // SAFETY: the range has just been checked, and any bytes are a valid element; the staging memory is kept for
        // ever if the copy does not end.
        unsafe { copy_to_host(&self.stream, &mut staged, at)? };
        if let Err(error) = finish(&self.stream) {
            if matches!(error, GpuError::Timeout { .. }) {
                std::mem::forget(staged);
            }
            return Err(error.into());
        }
        data.copy_from_slice(&staged);
        Ok(())
    }

    /// A copy of all elements.
    ///
    /// # Errors
    /// `gpu.driver`.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        // SAFETY: any bytes are a valid element (`Element`), zeroes among them.
        let zero: T = unsafe { std::mem::zeroed() };
        let mut data = vec![zero; self.len as usize];
        self.read(0, &mut data)?;
        Ok(data)
    }

    pub(super) fn clear(memory: &DeviceMemory, stream: &Stream) -> Result<()> {
        // SAFETY: all of an allocation that nobody else knows yet.
        unsafe { fill(stream, memory.address(), 0, memory.bytes())? };
        Ok(finish(stream)?)
    }

    fn at(&self, operation: &'static str, offset: u64, count: u64) -> Result<u64, MemoryError> {
        let size = size_of::<T>() as u64;
        let end = offset.checked_add(count);
        if end.is_none_or(|end| end > self.len) {
            let (offset, size) = (offset.saturating_mul(size), count.saturating_mul(size));
            return Err(MemoryError::OutOfBounds { operation, offset, size, limit: self.bytes() });
        }
        Ok(self.address() + offset * size)
    }
}

impl<T: Element> KernelArgument for &GpuBuffer<T> {
    type Value = u64;

    fn value(&self) -> u64 {
        self.address()
    }

    fn keep(&self, kept: &mut Vec<Keeper>) {
        // The registration, too: peers may still write while the kernel waits for them.
        kept.push(Arc::new((self.memory.clone(), self.registered.clone())));
    }
}

impl<T> AsRef<RegisteredMemory> for GpuBuffer<T> {
    fn as_ref(&self) -> &RegisteredMemory {
        &self.registered
    }
}

impl<T> fmt::Debug for GpuBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GpuBuffer")
            .field("memory", &self.memory)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}
