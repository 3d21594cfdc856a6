//! The control block of a communicator, made by hand.

use std::mem::offset_of;
use std::sync::atomic::Ordering;
use std::time::Duration;

use warpway_cuda::{Control, ErrorRecord, HostControl, Site};

use super::buffer::{Buffer, Pinned};
use super::gpu::Gpu;

/// What a communicator is to a device: whether it has failed, and how.
pub(crate) struct World {
    host: Pinned<HostControl>,
    control: Buffer<Control>,
}

impl World {
    /// Of rank `rank`, whose waits end after `deadline`; zero is no deadline.
    pub(crate) fn new(gpu: &Gpu, rank: u32, deadline: Duration) -> Self {
        let host = gpu.pinned::<HostControl>(1);
        let deadline_ns = deadline.as_nanos() as u64;
        let control = Control { deadline_ns, host: host.address(), rank, ..Control::default() };
        Self { control: gpu.upload(&[control]), host }
    }

    /// Part of a handle.
    pub(crate) fn site(&self, peer: u32, object: u32) -> Site {
        Site { control: self.control.address(), peer, object }
    }

    /// Address of the control block.
    pub(crate) fn address(&self) -> u64 {
        self.control.address()
    }

    /// Ends all waits.
    pub(crate) fn abort(&self, reason: u32) {
        let word = self.host.word_at(0, offset_of!(HostControl, abort_word));
        word.store(reason, Ordering::Release);
    }

    /// The first failure, `None` as long as there is none.
    pub(crate) fn record(&self) -> Option<ErrorRecord> {
        let state = self.host.word_at(0, offset_of!(HostControl, record_state));
        match state.load(Ordering::Acquire) {
            0 => None,
            2 => Some(self.host.read(0).record),
            state => panic!("the record is in state {state} after the kernel's end"),
        }
    }

    /// Nothing has failed. After the kernel's end.
    pub(crate) fn check(&self) {
        assert_eq!((self.record(), self.control.read()[0].poison), (None, 0));
    }

    /// The first failure, which poisoned the communicator. After the kernel's end.
    pub(crate) fn failure(&self) -> ErrorRecord {
        let Some(record) = self.record() else { panic!("nothing has failed") };
        let control = self.control.read()[0];
        assert_eq!((control.poison, control.claim), (1, 1));
        record
    }
}
