//! Memory of this rank that all ranks can reach.

use std::ops::Deref;

use warpway_core::memory::RegisteredMemory;
use warpway_host::{BufferView, HostBuffer};

/// Typed memory and its registration. Cheap to clone. Elements are copied in and out
/// ([`HostBuffer::read`], [`HostBuffer::write`]): peers may change them at any time.
///
/// ```
/// use warpway::{Config, Context, in_process};
///
/// # fn main() -> warpway::Result<()> {
/// in_process(1, &Context::new(Config::default()), |comm| {
///     let data = comm.alloc::<u16>(5)?;
///     data.write(1, &[7, 8])?;
///     assert_eq!(data.to_vec()?, [0, 7, 8, 0, 0]);
///     assert_eq!((data.len(), data.bytes(), data.memory().size()), (5, 10, 10));
///     Ok(())
/// })?;
/// # Ok(())
/// # }
/// ```
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

impl<T> Buffer<T> {
    /// `len` elements from element `first` on, for calls that take a buffer; checked by them.
    pub fn part(&self, first: u64, len: u64) -> Part<'_, T> {
        Part { buffer: self, first, len }
    }
}

/// Some elements of a [`Buffer`], see [`Buffer::part`].
#[derive(Debug)]
pub struct Part<'a, T> {
    buffer: &'a Buffer<T>,
    first: u64,
    len: u64,
}

impl<T> Clone for Part<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Part<'_, T> {}

impl<'a, T> From<Part<'a, T>> for BufferView<'a> {
    fn from(part: Part<'a, T>) -> Self {
        part.buffer.view_of(part.first, part.len)
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
