//! Streams: what is given to one is done in order.

use std::ffi::c_void;
use std::fmt;
use std::time::{Duration, Instant};

use warpway_core::Deadline;
use warpway_core::gpu::GpuError;
use warpway_cuda_sys::driver_types::{
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_STATUS_NONE, CU_STREAM_NON_BLOCKING,
    CUDA_ERROR_NOT_READY, CUDA_SUCCESS, CUgraph, CUresult, CUstream,
};

use crate::capture::RelaxedCapture;
use crate::context::Context;
use crate::event::Event;
use crate::graph::Graph;

/// A stream of a device: our own, or another library's.
pub struct Stream {
    context: Context,
    raw: CUstream,
    owned: bool,
}

// SAFETY: stream handles may be used by any thread.
unsafe impl Send for Stream {}
// SAFETY: as above; the driver synchronises its calls.
unsafe impl Sync for Stream {}

/// How long a wait polls without giving the processor away.
const SPIN: Duration = Duration::from_micros(50);
/// Sleep between polls after that.
const NAP: Duration = Duration::from_micros(20);

impl Stream {
    /// A new stream, which does not wait for the default stream.
    ///
    /// # Errors
    /// `gpu.driver`.
    pub fn new(context: &Context) -> Result<Self, GpuError> {
        let _entered = context.enter()?;
        let mut raw: CUstream = std::ptr::null_mut();
        let create = context.driver().table().cuStreamCreateWithPriority;
        // SAFETY: writes one handle; the context is current.
        let result = unsafe { create(&raw mut raw, CU_STREAM_NON_BLOCKING, 0) };
        context.check("making a stream", "cuStreamCreateWithPriority", result)?;
        Ok(Self { context: context.clone(), raw, owned: true })
    }

    /// A stream of another library; null is the default stream.
    ///
    /// # Safety
    /// It must be a stream of `context`'s device and outlive the value.
    pub unsafe fn foreign(context: &Context, raw: *mut c_void) -> Self {
        Self { context: context.clone(), raw: raw.cast(), owned: false }
    }

    /// The context.
    pub fn context(&self) -> &Context {
        &self.context
    }

    pub(crate) fn raw(&self) -> CUstream {
        self.raw
    }

    /// What comes now waits for the event.
    ///
    /// # Errors
    /// `gpu.driver`.
    pub fn wait_for(&self, event: &Event) -> Result<(), GpuError> {
        let _entered = self.context.enter()?;
        // SAFETY: both handles live; flags must be 0.
        let result = unsafe { (self.context.driver().table().cuStreamWaitEvent)(self.raw, event.raw(), 0) };
        self.context.check("waiting for an event", "cuStreamWaitEvent", result)
    }

    /// True once everything given so far is done.
    ///
    /// # Errors
    /// `gpu.driver`, also for a failure of the work itself.
    pub fn is_idle(&self) -> Result<bool, GpuError> {
        let _entered = self.context.enter()?;
        // SAFETY: the handle lives.
        match unsafe { (self.context.driver().table().cuStreamQuery)(self.raw) } {
            CUDA_SUCCESS => Ok(true),
            CUDA_ERROR_NOT_READY => Ok(false),
            result => {
                let what = "working off a stream";
                self.context.check(what, "cuStreamQuery", result).map(|()| true)
            }
        }
    }

    /// Waits until everything given so far is done. Leaves captures of other streams alone.
    ///
    /// # Errors
    /// `gpu.driver` if the work failed, `gpu.timeout`: it goes on then.
    pub fn synchronize(&self, deadline: Deadline) -> Result<(), GpuError> {
        let _relaxed = RelaxedCapture::begin(&self.context)?;
        let begin = Instant::now();
        while !self.is_idle()? {
            if deadline.expired() {
                return Err(GpuError::Timeout {
                    what: "waiting for a stream".into(),
                    device: self.context.ordinal(),
                    elapsed: begin.elapsed(),
                });
            }
            if begin.elapsed() < SPIN {
                std::hint::spin_loop();
            } else {
                std::thread::sleep(NAP);
            }
        }
        Ok(())
    }

    /// The same before memory that the work uses is given back: one call that fails says little about the work, a
    /// context that has failed says the same each time.
    ///
    /// # Errors
    /// `gpu.timeout`: the memory must stay. `gpu.driver`: nothing is worked off any more.
    pub(crate) fn settle(&self, deadline: Deadline) -> Result<(), GpuError> {
        const ATTEMPTS: u32 = 3;
        let mut settled = self.synchronize(deadline);
        for _ in 1..ATTEMPTS {
            match settled {
                Err(GpuError::Driver { .. }) => settled = self.synchronize(deadline),
                _ => break,
            }
        }
        settled
    }

    /// True while work is recorded instead of done.
    ///
    /// # Errors
    /// `gpu.driver`.
    pub fn is_capturing(&self) -> Result<bool, GpuError> {
        let mut status = CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: writes one number; the handle lives.
        let result =
            unsafe { (self.context.driver().table().cuStreamIsCapturing)(self.raw, &raw mut status) };
        let what = "asking whether a stream is captured";
        self.context.check(what, "cuStreamIsCapturing", result)?;
        Ok(status != CU_STREAM_CAPTURE_STATUS_NONE)
    }

    /// Records what `work` gives to the stream, for many launches. Other threads may go on as they like.
    ///
    /// # Errors
    /// Those of `work`, which end the capture; `gpu.driver` for what cannot be captured.
    pub fn capture(&self, work: impl FnOnce() -> Result<(), GpuError>) -> Result<Graph, GpuError> {
        self.capture_any(work)
    }

    /// The same for work with errors of its own.
    pub(crate) fn capture_any<E: From<GpuError>>(
        &self,
        work: impl FnOnce() -> Result<(), E>,
    ) -> Result<Graph, E> {
        let _entered = self.context.enter()?;
        let table = self.context.driver().table();
        // SAFETY: the handle lives.
        let result = unsafe { (table.cuStreamBeginCapture)(self.raw, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) };
        let check = |call, result| self.context.check("capturing a stream", call, result);
        check("cuStreamBeginCapture", result)?;
        let capture = Capture { stream: self };
        let worked = work();
        let (result, raw) = capture.end();
        let ended = check("cuStreamEndCapture", result);
        // The first failure tells more, and a graph there is must not be lost.
        let graph = if raw.is_null() { None } else { Some(Graph::instantiate(&self.context, raw)) };
        worked?;
        ended?;
        let nothing = || GpuError::Device {
            what: "capturing a stream".into(),
            device: self.context.ordinal(),
            why: "nothing was captured".into(),
            hint: None,
        };
        Ok(graph.ok_or_else(nothing)??)
    }
}

/// A capture that has begun, and ends with the value: a panic must not leave the stream useless.
struct Capture<'s> {
    stream: &'s Stream,
}

impl Capture<'_> {
    /// The driver's answer, and the graph; null if there is none.
    fn end(self) -> (CUresult, CUgraph) {
        let ended = self.finish();
        std::mem::forget(self);
        ended
    }

    fn finish(&self) -> (CUresult, CUgraph) {
        let mut raw: CUgraph = std::ptr::null_mut();
        let table = self.stream.context.driver().table();
        // SAFETY: writes one handle; the capture was begun before this value was made.
        let result = unsafe { (table.cuStreamEndCapture)(self.stream.raw, &raw mut raw) };
        (result, raw)
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        let (_, raw) = self.finish();
        if !raw.is_null() {
            // SAFETY: the graph is ours, and nobody else knows it.
            let result = unsafe { (self.stream.context.driver().table().cuGraphDestroy)(raw) };
            self.stream.context.note("dropping a graph", "cuGraphDestroy", result);
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        // SAFETY: made by `new`; work given to it is still done.
        let result = unsafe { (self.context.driver().table().cuStreamDestroy)(self.raw) };
        self.context.note("dropping a stream", "cuStreamDestroy", result);
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("device", &self.context.ordinal())
            .field("owned", &self.owned)
            .finish_non_exhaustive()
    }
}
