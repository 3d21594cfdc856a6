//! Calls beside somebody's stream capture.

use warpway_core::gpu::GpuError;
use warpway_cuda_sys::driver_types::{
    CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_SUCCESS, CUstreamCaptureMode_enum,
};

use crate::context::Context;

/// While it lives, calls of this thread neither fail because another thread captures a stream in global mode, nor end
/// that capture. For work on streams of our own, which nobody captures.
pub(crate) struct RelaxedCapture<'c> {
    context: &'c Context,
    before: CUstreamCaptureMode_enum,
}

impl<'c> RelaxedCapture<'c> {
    /// # Errors
    /// `gpu.driver`.
    pub(crate) fn begin(context: &'c Context) -> Result<Self, GpuError> {
        let mut mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        exchange(context, &mut mode, "changing the thread's mode of captures")?;
        Ok(Self { context, before: mode })
    }
}

impl Drop for RelaxedCapture<'_> {
    fn drop(&mut self) {
        let mut mode = self.before;
        // The driver takes any mode that it gave; were it to fail, only later mistakes of this thread would go unseen.
        if let Err(error) = exchange(self.context, &mut mode, "giving the thread's mode of captures back") {
            tracing::warn!(target: "warpway::gpu", "{error}");
        }
    }
}

fn exchange(context: &Context, mode: &mut CUstreamCaptureMode_enum, what: &str) -> Result<(), GpuError> {
    // SAFETY: reads and writes one number.
    let result = unsafe { (context.driver().table().cuThreadExchangeStreamCaptureMode)(mode) };
    if result == CUDA_SUCCESS {
        return Ok(());
    }
    context.driver().check(context.doing(what), "cuThreadExchangeStreamCaptureMode", result)
}
