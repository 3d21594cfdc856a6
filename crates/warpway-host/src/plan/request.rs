//! What a launch brings: buffers, type of the elements, format of packets.

use std::marker::PhantomData;
use std::ptr::NonNull;

use warpway_core::memory::{Element, MemoryError, RegisteredMemory, WeakMemory};
use warpway_plan::{DataType, SizeRows};

use super::launch_bases::Place;

/// One launch of a prepared plan.
#[derive(Debug, Clone, Copy)]
pub struct PlanLaunch<'a> {
    /// The input.
    pub input: BufferView<'a>,
    /// The output; of plans that work in place, the same memory by the rule of the collective.
    pub output: BufferView<'a>,
    /// What the buffers hold.
    pub data_type: DataType,
    /// How packets look, in plans with packets.
    pub packets: PacketFormat,
    /// Sizes and places of this rank's chunks, for plans with sized chunks and no others.
    pub sizes: Option<&'a SizeRows>,
}

impl<'a> PlanLaunch<'a> {
    /// With packets of 8 bytes of data.
    pub fn new(
        input: impl Into<BufferView<'a>>,
        output: impl Into<BufferView<'a>>,
        data_type: DataType,
    ) -> Self {
        let (input, output) = (input.into(), output.into());
        Self { input, output, data_type, packets: PacketFormat::Ll16, sizes: None }
    }

    /// The same with other packets.
    pub fn with_packets(self, packets: PacketFormat) -> Self {
        Self { packets, ..self }
    }

    /// The same for a plan with sized chunks.
    pub fn with_sizes(self, sizes: &'a SizeRows) -> Self {
        Self { sizes: Some(sizes), ..self }
    }
}

/// Bytes of this rank: of a registered memory, which peers map; of a slice, which a launch of a plan whose peers use it
/// copies to a stage before it begins and, if it is the output, from there when it has ended; or none at all. Ranks
/// need not choose alike.
#[derive(Debug, Clone, Copy, Default)]
pub struct BufferView<'a> {
    source: Source<'a>,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

#[derive(Debug, Clone, Copy, Default)]
enum Source<'a> {
    #[default]
    None,
    Memory(&'a RegisteredMemory),
    /// Copies of a view are copies of its address. What they do with it is ordered: a view stays in its thread,
    /// since the address does.
    Slice {
        first: NonNull<u8>,
        bytes: u64,
        writable: bool,
        borrowed: PhantomData<&'a mut [u8]>,
    },
}

impl<'a> BufferView<'a> {
    /// No bytes.
    pub const EMPTY: Self = Self { source: Source::None, offset: 0, bytes: 0 };

    /// `bytes` bytes from byte `offset` on; checked at the launch.
    pub fn new(memory: &'a RegisteredMemory, offset: u64, bytes: u64) -> Self {
        Self { source: Source::Memory(memory), offset, bytes }
    }

    /// `bytes` bytes from byte `offset` of this view on; checked at the launch. For plans that work in place.
    pub fn part(self, offset: u64, bytes: u64) -> Self {
        // Beyond this view, though perhaps within its memory: too many bytes for any.
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        let offset = self.offset.saturating_add(offset);
        Self { offset, bytes: if inside { bytes } else { u64::MAX }, ..self }
    }

    /// How many bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn memory(&self) -> Option<&'a RegisteredMemory> {
        match self.source {
            Source::Memory(memory) => Some(memory),
            Source::None | Source::Slice { .. } => None,
        }
    }

    /// The first byte, if it is plain memory. Mapped for the view's bytes, once they have been checked.
    pub(crate) fn slice(&self) -> Option<NonNull<u8>> {
        match self.source {
            // Wrapping: whether the offset is inside is known only when it has been checked.
            Source::Slice { first, .. } => NonNull::new(first.as_ptr().wrapping_add(self.offset as usize)),
            Source::None | Source::Memory(_) => None,
        }
    }

    /// For a launch that has checked it.
    pub(super) fn place(&self) -> Option<Place> {
        match self.source {
            Source::Memory(memory) => {
                Some(Place::Memory { memory: memory.clone(), offset: self.offset, id: None })
            }
            Source::Slice { .. } => self.slice().map(|first| Place::Plain { first, bytes: self.bytes }),
            Source::None => None,
        }
    }

    /// This view as a later launch may bring it again.
    pub(super) fn seen(&self) -> SeenView {
        let source = match self.source {
            Source::Memory(memory) => Seen::Memory(memory.downgrade()),
            Source::Slice { first, bytes, writable, .. } => Seen::Slice(first, bytes, writable),
            Source::None => Seen::None,
        };
        SeenView { source, offset: self.offset, bytes: self.bytes }
    }

    /// True for slices that may only be read.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(self.source, Source::Slice { writable: false, .. })
    }

    /// First byte in this process; `None` if there is none.
    pub(crate) fn address(&self) -> Option<u64> {
        match self.source {
            Source::Memory(memory) => (memory.data()?.as_ptr() as u64).checked_add(self.offset),
            Source::Slice { first, .. } => (first.as_ptr() as u64).checked_add(self.offset),
            Source::None => None,
        }
    }

    /// True if there is memory for every byte.
    pub(crate) fn check(&self, operation: &'static str) -> Result<bool, MemoryError> {
        let (offset, size) = (self.offset, self.bytes);
        match self.source {
            _ if size == 0 => {}
            Source::Memory(memory) => memory.check_range(operation, offset, size)?,
            Source::Slice { bytes: limit, .. } => {
                if offset.checked_add(size).is_none_or(|end| end > limit) {
                    return Err(MemoryError::OutOfBounds { operation, offset, size, limit });
                }
            }
            Source::None => return Ok(false),
        }
        Ok(true)
    }

    fn slice_of<T>(data: NonNull<[T]>, writable: bool) -> Self {
        let bytes = data.len() as u64 * size_of::<T>() as u64;
        let source = Source::Slice { first: data.cast(), bytes, writable, borrowed: PhantomData };
        Self { source, offset: 0, bytes }
    }
}

/// A view that a launch has brought. It keeps no memory, and is never taken for a view of another one.
#[derive(Debug)]
pub(super) struct SeenView {
    source: Seen,
    offset: u64,
    bytes: u64,
}

#[derive(Debug)]
enum Seen {
    None,
    Memory(WeakMemory),
    /// First byte, bytes, writable: all that there is to know of a slice.
    Slice(NonNull<u8>, u64, bool),
}

impl SeenView {
    /// True if a launch with `view` has what a launch with this one had.
    #[inline]
    pub(super) fn is(&self, view: &BufferView<'_>) -> bool {
        let same = match (&self.source, view.source) {
            (Seen::Memory(seen), Source::Memory(memory)) => seen.is(memory),
            (Seen::Slice(first, bytes, writable), Source::Slice { first: f, bytes: b, writable: w, .. }) => {
                (*first, *bytes, *writable) == (f, b, w)
            }
            (Seen::None, Source::None) => true,
            _ => false,
        };
        same && self.offset == view.offset && self.bytes == view.bytes
    }
}

/// An input.
impl<'a, T: Element> From<&'a [T]> for BufferView<'a> {
    fn from(data: &'a [T]) -> Self {
        Self::slice_of(NonNull::from(data), false)
    }
}

/// An output, or both of a plan that works in place.
impl<'a, T: Element> From<&'a mut [T]> for BufferView<'a> {
    fn from(data: &'a mut [T]) -> Self {
        Self::slice_of(NonNull::from(data), true)
    }
}

/// How packets look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PacketFormat {
    /// 16 bytes with 8 of data.
    #[default]
    Ll16,
    /// 8 bytes with 4 of data.
    Ll8,
}

impl PacketFormat {
    /// Bytes of data in one packet.
    pub fn payload(self) -> u64 {
        match self {
            Self::Ll16 => 8,
            Self::Ll8 => 4,
        }
    }
}
