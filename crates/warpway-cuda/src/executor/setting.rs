//! What a plan is set up for, and what a launch brings.

use warpway_core::memory::Element;

use crate::gpu::GpuBuffer;
use crate::plan::KernelSetting;
use crate::stream::Stream;

/// What all ranks set a plan up for, alike but for sizes that the plan itself makes unequal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuPlanSetting {
    /// What the buffers hold, how packets look, how many threads blocks have.
    pub kernel: KernelSetting,
    /// The largest message that this rank will launch; smaller ones need less of every buffer.
    pub largest: MessageBytes,
}

/// The buffers of one rank for one message, in bytes; 0 where the plan gives the rank none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MessageBytes {
    /// Of the input.
    pub input: u64,
    /// Of the output.
    pub output: u64,
}

/// Bytes of a device, or mapped there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceRange {
    /// Of the first one.
    pub address: u64,
    /// How many.
    pub bytes: u64,
}

impl DeviceRange {
    /// Elements of a buffer, from `first` on. Beyond its end the range is empty, which launches refuse.
    pub fn of<T: Element>(buffer: &GpuBuffer<T>, first: u64, len: u64) -> Self {
        let size = size_of::<T>() as u64;
        match first.checked_add(len) {
            Some(end) if end <= buffer.len() => {
                Self { address: buffer.address() + first * size, bytes: len * size }
            }
            _ => Self::default(),
        }
    }

    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.bytes > 0
            && other.bytes > 0
            && self.address < other.address.saturating_add(other.bytes)
            && other.address < self.address.saturating_add(self.bytes)
    }
}

/// One launch of a plan.
#[derive(Debug, Clone, Copy)]
pub struct GpuLaunch<'a> {
    /// The input.
    pub input: DeviceRange,
    /// The output; of plans that work in place, the same memory by the rule of the collective.
    pub output: DeviceRange,
    /// Where the launch has its place in the order of work.
    pub stream: &'a Stream,
}
