//! A meeting of all ranks on their devices: what lies behind it in the streams begins when all ranks have come as far.
//!
//! For launches in which the plan alone does not tell ranks that scratch is free. It is a kernel of its own in front of
//! the plan's, so that graphs have it, too.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use warpway_core::{Deadline, Result};

use super::channels::{Connections, Signals, signal};
use crate::gpu::{Gpu, Keeper};
use crate::jit::Program;
use crate::module::{Kernel, LaunchShape};
use crate::stream::Stream;

const KERNEL: &str = "warpway_meeting";
const THREADS: u32 = 32;

/// The host lays the parameter out as words.
const TEXT: &str = "#include <warpway/semaphores.cuh>
using namespace warpway;
struct Meeting {
  const MemoryDevice2DeviceSemaphore* channels;
  u64 count;
};
WARPWAY_KERNEL(32) warpway_meeting(WARPWAY_CONSTANT Meeting meeting) {
  for (u64 i = thread_in_block(); i < meeting.count; i += threads_per_block()) {
    meeting.channels[i].signal<Guard::None>();
  }
  for (u64 i = thread_in_block(); i < meeting.count; i += threads_per_block()) {
    // Who gives up has said so; the kernel behind this one ends at once then.
    static_cast<void>(meeting.channels[i].wait());
  }
}
";

/// The kernel, before the ranks are connected.
#[derive(Debug)]
pub(super) struct Loaded(Kernel);

/// A meeting of one rank with all others.
pub(super) struct Meeting {
    kernel: Kernel,
    words: [u64; 2],
    keeper: Keeper,
}

pub(super) fn program() -> Program {
    Program::new("meeting.cu", TEXT).device_headers().kernel(KERNEL)
}

impl Loaded {
    /// # Errors
    /// `gpu.compile`, `gpu.driver`.
    pub(super) fn new(gpu: &Gpu) -> Result<Self> {
        let kernel = gpu.load(&program())?.kernel(KERNEL)?;
        kernel.check_words(2)?;
        Ok(Self(kernel))
    }

    /// Collective among all ranks.
    pub(super) fn connect(self, connections: &Connections, gpu: &Gpu, deadline: Deadline) -> Result<Meeting> {
        let Self(kernel) = self;
        let (rank, n) = (gpu.communicator().rank(), gpu.communicator().n_ranks());
        let others: BTreeMap<u32, u32> = (0..n).filter(|peer| *peer != rank).map(|peer| (peer, 1)).collect();
        let semaphores = connections.semaphores(gpu, &others, deadline)?;
        let handles = semaphores.into_values().map(|s| signal(gpu, s)).collect::<Result<Vec<_>>>()?;
        let signals: Signals = gpu.handle_array(&handles)?;
        let words = [signals.address(), signals.len()];
        let keeper = Arc::new((kernel.clone(), signals));
        Ok(Meeting { kernel, words, keeper })
    }
}

impl Meeting {
    /// Puts it into the stream.
    ///
    /// # Errors
    /// Those of a launch.
    pub(super) fn launch(&self, gpu: &Gpu, stream: &Stream) -> Result<()> {
        let with = (&self.words[..], Arc::clone(&self.keeper));
        // SAFETY: the parameter of `TEXT`'s kernel; the keeper holds the channels.
        unsafe { gpu.launch_words(&self.kernel, LaunchShape::new(1, THREADS), with, stream) }
    }
}

impl fmt::Debug for Meeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meeting").field("peers", &self.words[1]).finish_non_exhaustive()
    }
}
