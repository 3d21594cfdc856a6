//! What a launch brings: buffers, type of the elements, format of packets.

use warpway_core::memory::RegisteredMemory;
use warpway_plan::{DataType, SizeRows};

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
    pub fn new(input: BufferView<'a>, output: BufferView<'a>, data_type: DataType) -> Self {
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

/// Bytes of a registered memory of this rank, or none at all.
#[derive(Debug, Clone, Copy, Default)]
pub struct BufferView<'a> {
    pub(super) memory: Option<&'a RegisteredMemory>,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

impl<'a> BufferView<'a> {
    /// No bytes.
    pub const EMPTY: Self = Self { memory: None, offset: 0, bytes: 0 };

    /// `bytes` bytes from byte `offset` on; checked at the launch.
    pub fn new(memory: &'a RegisteredMemory, offset: u64, bytes: u64) -> Self {
        Self { memory: Some(memory), offset, bytes }
    }

    /// How many bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// First byte in this process; `None` if there is none.
    pub(super) fn address(&self) -> Option<u64> {
        let data = self.memory?.data()?;
        (data.as_ptr() as u64).checked_add(self.offset)
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
