//! Memory that peers can map.

use std::marker::PhantomData;
use std::sync::Arc;

use warpway_core::Result;
use warpway_core::memory::{Element, MemoryError, Region};

use crate::copy::{bytes_of, copy_in, copy_out};
use crate::mapping::{Mapping, populate};

/// Zeroed shared memory, page-aligned. Cheap to clone; the last clone (or registration, or peer's mapping)
/// frees it.
#[derive(Debug, Clone, Default)]
pub struct SharedBuffer {
    region: Option<Region>,
}

impl SharedBuffer {
    /// Allocates `bytes` bytes, 0 included. Pages are taken when they are first touched.
    ///
    /// # Errors
    /// `system` if memory or descriptors are exhausted.
    pub fn allocate(bytes: u64) -> Result<Self> {
        if bytes == 0 {
            return Ok(Self::default());
        }
        let (mapping, descriptor) = Mapping::allocate(bytes)?;
        Ok(Self { region: Some(Mapping::region(&Arc::new(mapping), 0, bytes, Some(descriptor))?) })
    }

    /// Takes all pages now instead of at their first touch, which costs a fault per page, and which ends
    /// the process if there is no memory left then.
    ///
    /// # Errors
    /// `system` if memory is exhausted.
    pub fn populate(&self) -> Result<()> {
        self.region.as_ref().map_or(Ok(()), populate)
    }

    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        self.region.as_ref().map_or(0, Region::size)
    }

    /// What is to be registered; `None` for an empty buffer.
    pub fn region(&self) -> Option<&Region> {
        self.region.as_ref()
    }

    /// Copies `data` to byte `offset`. Peers that read meanwhile see old and new bytes mixed.
    ///
    /// # Errors
    /// `mem.bounds`.
    pub fn write<T: Element>(&self, offset: u64, data: &[T]) -> Result<(), MemoryError> {
        let Some(region) = self.part("buffer write", offset, size_of_val(data) as u64)? else {
            return Ok(());
        };
        // SAFETY: the part is as long as the slice and mapped while `region` lives; no reference to
        // shared memory exists, so the slice is no part of it.
        unsafe { copy_in(region.address(), data) };
        Ok(())
    }

    /// Copies from byte `offset` to `data`.
    ///
    /// # Errors
    /// `mem.bounds`.
    pub fn read<T: Element>(&self, offset: u64, data: &mut [T]) -> Result<(), MemoryError> {
        let Some(region) = self.part("buffer read", offset, size_of_val(data) as u64)? else { return Ok(()) };
        // SAFETY: as in `write`.
        unsafe { copy_out(data, region.address()) };
        Ok(())
    }

    /// A checked, non-empty part.
    fn part(&self, operation: &'static str, offset: u64, size: u64) -> Result<Option<Region>, MemoryError> {
        let limit = self.bytes();
        match (&self.region, offset.checked_add(size)) {
            (_, Some(end)) if end <= limit && size == 0 => Ok(None),
            (Some(region), Some(end)) if end <= limit => region.slice(offset, size).map(Some),
            _ => Err(MemoryError::OutOfBounds { operation, offset, size, limit }),
        }
    }
}

/// Zeroed shared memory for `len` elements. Elements are copied in and out: peers may change them at any
/// time, so there are no references to them.
#[derive(Debug, Clone)]
pub struct HostBuffer<T> {
    buffer: SharedBuffer,
    len: u64,
    element: PhantomData<fn() -> T>,
}

impl<T: Element> HostBuffer<T> {
    /// Allocates `len` elements, 0 included.
    ///
    /// # Errors
    /// `mem.bounds` if the size does not fit 64 bits, `system` if memory is exhausted.
    pub fn allocate(len: u64) -> Result<Self> {
        let bytes = bytes_of::<T>("allocate", len, u64::MAX)?;
        Ok(Self { buffer: SharedBuffer::allocate(bytes)?, len, element: PhantomData })
    }

    /// See [`SharedBuffer::populate`].
    ///
    /// # Errors
    /// `system` if memory is exhausted.
    pub fn populate(&self) -> Result<()> {
        self.buffer.populate()
    }

    /// How many elements.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        self.buffer.bytes()
    }

    /// What is to be registered; `None` for an empty buffer.
    pub fn region(&self) -> Option<&Region> {
        self.buffer.region()
    }

    /// Copies `data` to elements `index..`.
    ///
    /// # Errors
    /// `mem.bounds`.
    pub fn write(&self, index: u64, data: &[T]) -> Result<(), MemoryError> {
        self.buffer.write(bytes_of::<T>("buffer write", index, self.bytes())?, data)
    }

    /// Copies elements `index..` to `data`.
    ///
    /// # Errors
    /// `mem.bounds`.
    pub fn read(&self, index: u64, data: &mut [T]) -> Result<(), MemoryError> {
        self.buffer.read(bytes_of::<T>("buffer read", index, self.bytes())?, data)
    }

    /// Sets every element.
    pub fn fill(&self, value: T) -> Result<(), MemoryError> {
        let piece = vec![value; self.len.min(4096) as usize];
        let mut index = 0;
        while index < self.len {
            let count = (self.len - index).min(piece.len() as u64);
            self.write(index, &piece[..count as usize])?;
            index += count;
        }
        Ok(())
    }
}

impl<T: Element + Default> HostBuffer<T> {
    /// A copy of all elements.
    pub fn to_vec(&self) -> Result<Vec<T>, MemoryError> {
        let mut data = vec![T::default(); self.len as usize];
        self.read(0, &mut data)?;
        Ok(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_zeroed_and_checked_at_both_ends() {
        for len in [0u64, 1, 3, 17, 4095, 1_000_003] {
            let buffer = HostBuffer::<u32>::allocate(len).unwrap();
            assert_eq!((buffer.len(), buffer.bytes()), (len, 4 * len));
            assert_eq!(buffer.region().map_or(0, |r| r.size()), 4 * len);
            assert!(buffer.to_vec().unwrap().iter().all(|x| *x == 0));
            let data: Vec<u32> = (0..len as u32).map(|i| i.wrapping_mul(2_654_435_761)).collect();
            buffer.write(0, &data).unwrap();
            assert_eq!(buffer.to_vec().unwrap(), data);
            buffer.write(len, &[]).unwrap();
            assert_eq!(buffer.write(len, &[1]).unwrap_err().id(), "mem.bounds");
            assert_eq!(buffer.write(len + 1, &[]).unwrap_err().id(), "mem.bounds");
            assert_eq!(buffer.read(u64::MAX / 4, &mut [0]).unwrap_err().id(), "mem.bounds");
            assert_eq!(buffer.read(u64::MAX, &mut [0]).unwrap_err().id(), "mem.bounds");
            buffer.fill(9).unwrap();
            assert!(buffer.to_vec().unwrap().iter().all(|x| *x == 9));
        }
    }

    #[test]
    fn impossible_sizes_are_errors() {
        assert_eq!(HostBuffer::<u64>::allocate(u64::MAX / 4).unwrap_err().id(), "mem.bounds");
        assert_eq!(SharedBuffer::allocate(u64::MAX).unwrap_err().id(), "mem.invalid");
        // More than any address space holds: the system says no.
        assert_eq!(SharedBuffer::allocate(1 << 62).unwrap_err().id(), "system");
    }

    #[test]
    fn large_buffers_are_page_aligned_and_sliceable() {
        let buffer = SharedBuffer::allocate((5 << 20) + 1).unwrap();
        let region = buffer.region().unwrap();
        assert!((region.address().as_ptr() as u64).is_multiple_of(4096));
        let tail = region.slice(5 << 20, 1).unwrap();
        assert_eq!(tail.backing().unwrap().offset, 5 << 20);
        buffer.write(5 << 20, &[7u8]).unwrap();
        buffer.populate().unwrap();
        populate(&tail).unwrap();
        let mut byte = [0u8];
        buffer.read(5 << 20, &mut byte).unwrap();
        assert_eq!(byte, [7]);
        assert_eq!(tail.backing().unwrap().allocation_size, (5 << 20) + 1);
    }
}
