//! Points in a stream.

use std::fmt;
use std::time::Duration;

use warpway_core::gpu::GpuError;
use warpway_cuda_sys::driver_types::{
    CU_EVENT_DEFAULT, CU_EVENT_DISABLE_TIMING, CUDA_ERROR_NOT_READY, CUDA_SUCCESS, CUevent,
};

use crate::context::Context;
use crate::stream::Stream;

/// A point in a stream that others can wait for; with a time if it was made for that.
pub struct Event {
    context: Context,
    raw: CUevent,
}

// SAFETY: event handles may be used by any thread.
unsafe impl Send for Event {}
// SAFETY: as above; the driver synchronises its calls.
unsafe impl Sync for Event {}

impl Event {
    /// For order only.
    ///
    /// # Errors
    /// `gpu.driver`.
    pub fn new(context: &Context) -> Result<Self, GpuError> {
        Self::with_flags(context, CU_EVENT_DISABLE_TIMING)
    }

    /// For measuring.
    ///
    /// # Errors
    /// `gpu.driver`.
    pub fn timed(context: &Context) -> Result<Self, GpuError> {
        Self::with_flags(context, CU_EVENT_DEFAULT)
    }

    fn with_flags(context: &Context, flags: u32) -> Result<Self, GpuError> {
        let _entered = context.enter()?;
        let mut raw: CUevent = std::ptr::null_mut();
        // SAFETY: writes one handle; the context is current.
        let result = unsafe { (context.driver().table().cuEventCreate)(&raw mut raw, flags) };
        context.check("making an event", "cuEventCreate", result)?;
        Ok(Self { context: context.clone(), raw })
    }

    /// The point after all work given to `stream` so far.
    ///
    /// # Errors
    /// `gpu.driver`.
    pub fn record(&self, stream: &Stream) -> Result<(), GpuError> {
        let _entered = self.context.enter()?;
        // SAFETY: both handles live.
        let result = unsafe { (self.context.driver().table().cuEventRecord)(self.raw, stream.raw()) };
        self.context.check("recording an event", "cuEventRecord", result)
    }

    /// True once the recorded point is reached, and before anything is recorded.
    ///
    /// # Errors
    /// `gpu.driver`, also for a failure of earlier work on the device.
    pub fn is_done(&self) -> Result<bool, GpuError> {
        // SAFETY: the handle lives.
        match unsafe { (self.context.driver().table().cuEventQuery)(self.raw) } {
            CUDA_SUCCESS => Ok(true),
            CUDA_ERROR_NOT_READY => Ok(false),
            result => {
                let what = "asking for an event";
                self.context.check(what, "cuEventQuery", result).map(|()| true)
            }
        }
    }

    /// Time from this event to a later one, both timed and done; to half a microsecond.
    ///
    /// # Errors
    /// `gpu.driver`.
    pub fn until(&self, later: &Self) -> Result<Duration, GpuError> {
        let mut milliseconds = 0.0;
        // SAFETY: writes one number; both handles live.
        let result = unsafe {
            (self.context.driver().table().cuEventElapsedTime)(&raw mut milliseconds, self.raw, later.raw)
        };
        self.context.check("measuring", "cuEventElapsedTime", result)?;
        Ok(Duration::from_secs_f64(f64::from(milliseconds).max(0.0) / 1e3))
    }

    pub(crate) fn raw(&self) -> CUevent {
        self.raw
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: made by `with_flags`; work that waits for it keeps what it needs.
        let result = unsafe { (self.context.driver().table().cuEventDestroy)(self.raw) };
        self.context.note("dropping an event", "cuEventDestroy", result);
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("device", &self.context.ordinal()).finish_non_exhaustive()
    }
}
