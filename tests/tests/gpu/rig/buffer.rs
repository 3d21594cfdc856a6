//! Memory for kernels, between canaries.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, AtomicU64};

use warpway_core::Deadline;
use warpway_cuda::{DeviceMemory, PinnedMemory, Stream, copy_from_host, copy_to_host};

use super::gpu::{Gpu, PATIENCE, under_a_tool};

/// Bytes before and behind the values that nobody may write. None under a tool: it knows where allocations end, and
/// notices reads too.
fn guard() -> usize {
    if under_a_tool() { 0 } else { 4096 }
}

/// What the guards hold at a distance from their beginning: no two neighbours alike, so that shifted writes show.
fn canary(at: usize) -> u8 {
    (at * 29 + at / 256 + 0x5c) as u8
}

/// Values in device memory, aligned to 256 bytes. Whoever reads them back learns of writes beside them.
pub(crate) struct Buffer<T> {
    memory: DeviceMemory,
    /// Of the owner's, for copies.
    stream: Stream,
    count: usize,
    values: PhantomData<T>,
}

impl<T: Copy> Buffer<T> {
    pub(super) fn new(gpu: &Gpu, values: &[T], peers: &[&warpway_cuda::Context]) -> Self {
        let bytes = size_of_val(values);
        let room = (bytes + 2 * guard()).max(1) as u64;
        // Allocations by mapping end at 2 MiB, plain ones where they end.
        let allocate = if under_a_tool() { DeviceMemory::plain } else { DeviceMemory::allocate };
        let memory = allocate(&gpu.context, room, peers).unwrap();
        let stream = Stream::new(&gpu.context).unwrap();
        let buffer = Self { memory, stream, count: values.len(), values: PhantomData };
        let canaries: Vec<u8> = (0..guard()).map(canary).collect();
        buffer.copy_in(buffer.memory.address(), &canaries);
        buffer.copy_in(buffer.address() + bytes as u64, &canaries);
        buffer.write(values);
        buffer
    }

    /// Of the first value.
    pub(crate) fn address(&self) -> u64 {
        self.memory.address() + guard() as u64
    }

    /// Of a value.
    pub(crate) fn at(&self, index: usize) -> u64 {
        assert!(index <= self.count);
        self.address() + (index * size_of::<T>()) as u64
    }

    /// Replaces all values.
    pub(crate) fn write(&self, values: &[T]) {
        assert_eq!(values.len(), self.count);
        self.copy_in(self.address(), values);
    }

    /// The values, once everything that writes them has ended. Panics if a guard has changed.
    pub(crate) fn read(&self) -> Vec<T> {
        let bytes = self.count * size_of::<T>();
        for (place, at) in [("before", self.memory.address()), ("behind", self.address() + bytes as u64)] {
            let found = self.copy_out::<u8>(at, guard());
            let wrong: Vec<usize> = (0..guard()).filter(|i| found[*i] != canary(*i)).collect();
            assert!(
                wrong.is_empty(),
                "{} bytes {place} a buffer of {bytes} bytes were written, the first at {} of {}",
                wrong.len(),
                wrong[0],
                guard()
            );
        }
        self.copy_out(self.address(), self.count)
    }

    fn copy_in<U: Copy>(&self, to: u64, values: &[U]) {
        if values.is_empty() {
            return;
        }
        // SAFETY: callers stay within the memory; the copy ends before this returns.
        unsafe { copy_from_host(&self.stream, to, values) }.unwrap();
        self.stream.synchronize(Deadline::after(PATIENCE)).unwrap();
    }

    fn copy_out<U: Copy>(&self, from: u64, count: usize) -> Vec<U> {
        let mut values: Vec<U> = Vec::with_capacity(count);
        if count == 0 {
            return values;
        }
        // SAFETY: callers stay within the memory, which `copy_in` has filled; all types used here take any bytes that were
        // written as such; the copy ends before the length says that the values are there.
        unsafe {
            let room = std::slice::from_raw_parts_mut(values.as_mut_ptr(), count);
            copy_to_host(&self.stream, room, from).unwrap();
            self.stream.synchronize(Deadline::after(PATIENCE)).unwrap();
            values.set_len(count);
        }
        values
    }
}

/// Values in pinned host memory, zeros at first, that kernels and the test touch at the same time.
pub(crate) struct Pinned<T> {
    memory: PinnedMemory,
    count: usize,
    values: PhantomData<T>,
}

impl<T: Copy> Pinned<T> {
    pub(super) fn new(gpu: &Gpu, count: usize) -> Self {
        let memory = PinnedMemory::allocate(&gpu.context, (count * size_of::<T>()) as u64).unwrap();
        Self { memory, count, values: PhantomData }
    }

    /// Of the first value, for kernels.
    pub(crate) fn address(&self) -> u64 {
        self.memory.address()
    }

    /// For the host.
    fn pointer(&self, index: usize) -> *mut T {
        assert!(index < self.count);
        // SAFETY: within the allocation.
        unsafe { self.memory.host().cast::<T>().as_ptr().add(index) }
    }

    /// A value as it is now.
    pub(crate) fn read(&self, index: usize) -> T {
        // SAFETY: mapped and aligned to pages; what a kernel writes meanwhile may be seen in part, and any bytes are a value of
        // the types used here.
        unsafe { self.pointer(index).read_volatile() }
    }

    /// Replaces a value.
    pub(crate) fn write(&self, index: usize, value: T) {
        // SAFETY: as for `read`.
        unsafe { self.pointer(index).write_volatile(value) }
    }
}

impl Pinned<u64> {
    /// A word for ordered access.
    pub(crate) fn word(&self, index: usize) -> &AtomicU64 {
        // SAFETY: mapped as long as `self`, aligned; everybody accesses it atomically.
        unsafe { AtomicU64::from_ptr(self.pointer(index)) }
    }
}

impl<T: Copy> Pinned<T> {
    /// The 32-bit word at a byte of a value, for ordered access.
    pub(crate) fn word_at(&self, index: usize, byte: usize) -> &AtomicU32 {
        assert!(byte.is_multiple_of(4) && byte + 4 <= size_of::<T>());
        // SAFETY: mapped as long as `self`, aligned; everybody accesses it atomically.
        unsafe { AtomicU32::from_ptr(self.pointer(index).cast::<u8>().add(byte).cast()) }
    }
}
