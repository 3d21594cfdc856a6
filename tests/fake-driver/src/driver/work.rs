//! What streams do, in order, each on a thread of its own.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use warpway_cuda_sys::driver_types::{
    CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_TIMEOUT, CUDA_ERROR_UNKNOWN, CUhostFn,
};

use super::call::{Answer, lock};
use super::event::Event;
use super::kernel;
use super::launch::Launch;
use super::state::{State, state};

/// Nothing here waits longer. The real driver would wait for ever; a test must end.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// One step of a stream or a graph.
#[derive(Debug, Clone)]
pub(super) enum Work {
    Copy {
        to: u64,
        from: Source,
        bytes: u64,
    },
    /// The lowest `width` bytes of the value, `count` times.
    Fill {
        to: u64,
        value: u32,
        width: u64,
        count: u64,
    },
    /// A function of the host and its argument.
    Host(CUhostFn, usize),
    Kernel(Arc<Launch>),
    Record(Arc<Event>, u64),
    Wait(Arc<Event>, u64),
    /// Another stream has come this far.
    Join(Arc<Queue>, u64),
}

/// Where copied bytes come from.
#[derive(Debug, Clone)]
pub(super) enum Source {
    /// An address of a device, of pinned or of ordinary memory.
    Address(u64),
    /// The bytes of ordinary memory, which the driver has read before the call returned.
    Taken(Arc<[u8]>),
}

/// The work of one stream.
#[derive(Debug)]
pub(super) struct Queue {
    device: usize,
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    pending: VecDeque<Work>,
    submitted: u64,
    done: u64,
    closed: bool,
    running: bool,
}

impl Queue {
    pub(super) fn new(device: usize) -> Arc<Self> {
        Arc::new(Self { device, inner: Mutex::default(), changed: Condvar::new() })
    }

    /// Adds work, and starts the thread with the first.
    pub(super) fn submit(self: &Arc<Self>, work: impl IntoIterator<Item = Work>) {
        let mut inner = lock(&self.inner);
        for step in work {
            inner.pending.push_back(step);
            inner.submitted += 1;
        }
        if !inner.running && inner.submitted > 0 {
            inner.running = true;
            let queue = Arc::clone(self);
            let named = std::thread::Builder::new().name("fake-cuda-stream".into());
            named.spawn(move || queue.run()).expect("a thread for a stream");
        }
        self.changed.notify_all();
    }

    /// How much has been submitted.
    pub(super) fn position(&self) -> u64 {
        lock(&self.inner).submitted
    }

    /// Whether so much has been done.
    pub(super) fn reached(&self, position: u64) -> bool {
        lock(&self.inner).done >= position
    }

    /// Waits until so much has been done.
    pub(super) fn wait(&self, position: u64) -> Answer {
        let waiting = |inner: &mut Inner| inner.done < position;
        let waited = self.changed.wait_timeout_while(lock(&self.inner), PATIENCE, waiting);
        let timed_out = waited.unwrap_or_else(PoisonError::into_inner).1.timed_out();
        if timed_out { Err(CUDA_ERROR_LAUNCH_TIMEOUT) } else { Ok(()) }
    }

    /// The thread ends when what was submitted is done.
    pub(super) fn close(&self) {
        lock(&self.inner).closed = true;
        self.changed.notify_all();
    }

    fn run(&self) {
        loop {
            let mut inner = lock(&self.inner);
            while inner.pending.is_empty() {
                if inner.closed {
                    return;
                }
                inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
            }
            let work = inner.pending.pop_front();
            drop(inner);
            let step = || work.map_or(Ok(()), |work| self.perform(work));
            let result = catch_unwind(AssertUnwindSafe(step)).unwrap_or(Err(CUDA_ERROR_UNKNOWN));
            if let Err(error) = result {
                state().poison(self.device, error);
            }
            lock(&self.inner).done += 1;
            self.changed.notify_all();
        }
    }

    fn perform(&self, work: Work) -> Answer {
        match work {
            Work::Record(event, point) => {
                event.pass(point);
                return Ok(());
            }
            Work::Wait(event, point) => {
                return if event.wait(point, PATIENCE) { Ok(()) } else { Err(CUDA_ERROR_LAUNCH_TIMEOUT) };
            }
            Work::Join(queue, position) => return queue.wait(position),
            _ => {}
        }
        // After a failure a context does nothing more.
        state().healthy(self.device)?;
        match work {
            Work::Copy { to, from, bytes } => copy(&state(), to, &from, bytes, self.device),
            Work::Fill { to, value, width, count } => fill(&state(), to, value, width, count, self.device),
            Work::Host(function, argument) => {
                if let Some(function) = function {
                    // SAFETY: the caller of cuLaunchHostFunc vouches for function and argument.
                    unsafe { function(argument as *mut c_void) };
                }
                Ok(())
            }
            Work::Kernel(launch) => {
                let written = launch.written(self.device);
                state().launches.push(written);
                kernel::run(&launch, self.device)
            }
            Work::Record(..) | Work::Wait(..) | Work::Join(..) => Ok(()),
        }
    }
}

/// Where the fake finds the bytes of an address; ordinary host memory is where it is.
pub(super) fn locate(state: &State, address: u64, bytes: u64, device: usize) -> Answer<u64> {
    if state.arena.contains(address) {
        return state.regions.resolve(address, bytes, device).map_err(|_| CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    Ok(address)
}

/// The state is locked, so that nobody frees the memory meanwhile.
fn copy(state: &State, to: u64, from: &Source, bytes: u64, device: usize) -> Answer {
    let to = locate(state, to, bytes, device)? as *mut u8;
    let from = match from {
        Source::Address(address) => locate(state, *address, bytes, device)? as *const u8,
        Source::Taken(bytes) => bytes.as_ptr(),
    };
    // SAFETY: device and pinned ranges are alive, `locate` says; ordinary host memory is valid until the stream has
    // done its work, says the caller of the copy. `copy` allows overlap.
    unsafe { std::ptr::copy(from, to, bytes as usize) };
    Ok(())
}

fn fill(state: &State, to: u64, value: u32, width: u64, count: u64, device: usize) -> Answer {
    let to = locate(state, to, width * count, device)? as *mut u8;
    let pattern = value.to_ne_bytes();
    for at in 0..count * width {
        // SAFETY: as in `copy`; the range has width × count bytes.
        unsafe { to.add(at as usize).write_volatile(pattern[(at % width) as usize]) };
    }
    Ok(())
}
