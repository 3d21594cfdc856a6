//! Memory of this rank that all ranks can reach.

use std::ops::Deref;

use warpway_core::memory::RegisteredMemory;
use warpway_host::HostBuffer;

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
