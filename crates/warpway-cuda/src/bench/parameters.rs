//! Arguments of the kernels, laid out as in `device/bench`.

use crate::handle::{FifoHandle, MemoryChannelDeviceHandle, MemoryDevice2DeviceSemaphoreHandle, Site};

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct ChannelTransfer {
    pub(super) channel: MemoryChannelDeviceHandle,
    pub(super) bytes: u64,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct PlainTransfer {
    pub(super) to: u64,
    pub(super) from: u64,
    pub(super) vectors: u64,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Pattern {
    pub(super) words: u64,
    pub(super) count: u64,
    pub(super) seed: u64,
    pub(super) wrong: u64,
    pub(super) canaries: u64,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Gate {
    pub(super) word: u64,
    pub(super) value: u64,
    pub(super) site: Site,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct BulkTransfer {
    pub(super) to: u64,
    pub(super) from: u64,
    pub(super) bytes: u64,
    pub(super) site: Site,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct FlightArguments {
    pub(super) semaphore: MemoryDevice2DeviceSemaphoreHandle,
    pub(super) flag: u64,
    pub(super) remote_flag: u64,
    pub(super) slot: u64,
    pub(super) remote_slot: u64,
    pub(super) warm_up: u64,
    pub(super) rounds: u64,
    pub(super) result: u64,
    pub(super) begins: u32,
    pub(super) dither: u32,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Echo {
    pub(super) inbound: u64,
    pub(super) reply: u64,
    pub(super) rounds: u64,
    pub(super) site: Site,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Pushes {
    pub(super) fifo: FifoHandle,
    pub(super) inbound: u64,
    pub(super) rounds: u64,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Stamps {
    pub(super) clock: u64,
    pub(super) stamp: u64,
    pub(super) inbound: u64,
    pub(super) rounds: u64,
    pub(super) read_cycles: u64,
    pub(super) read_ns: u64,
    pub(super) site: Site,
}

// The device says the same of its own structures.
const _: () = assert!(size_of::<ChannelTransfer>() == 112);
const _: () = assert!(size_of::<PlainTransfer>() == 24);
const _: () = assert!(size_of::<Pattern>() == 40);
const _: () = assert!(size_of::<Gate>() == 32);
const _: () = assert!(size_of::<BulkTransfer>() == 40);
const _: () = assert!(size_of::<FlightArguments>() == 104);
const _: () = assert!(size_of::<Echo>() == 40);
const _: () = assert!(size_of::<Pushes>() == 72);
const _: () = assert!(size_of::<Stamps>() == 64);
