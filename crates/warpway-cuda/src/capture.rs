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

#[cfg(test)]
mod tests {
    use warpway_cuda_sys::driver_types::{CU_STREAM_CAPTURE_MODE_GLOBAL, CUgraph};

    use crate::engine::tests::{IMAGE, machine};
    use crate::memory::{DeviceMemory, PinnedMemory};
    use crate::module::Module;
    use crate::stream::Stream;

    /// As PyTorch captures: in the mode that forbids most calls everywhere in the process.
    #[test]
    fn what_is_dropped_during_a_capture_is_freed_and_does_not_end_it() {
        let (fake, devices) = machine("devices=1");
        let context = devices.context(0).unwrap();
        let stream = Stream::new(&context).unwrap();
        let before = fake.live();
        let dropped = (
            PinnedMemory::allocate(&context, 8).unwrap(),
            DeviceMemory::allocate(&context, 8, &[]).unwrap(),
            DeviceMemory::plain(&context, 8, &[]).unwrap(),
            Module::load(&context, IMAGE).unwrap(),
        );
        let table = fake.driver();
        // SAFETY: a live stream.
        assert_eq!(unsafe { (table.cuStreamBeginCapture)(stream.raw(), CU_STREAM_CAPTURE_MODE_GLOBAL) }, 0);
        drop(dropped);
        let mut graph: CUgraph = std::ptr::null_mut();
        // SAFETY: the capture was begun above.
        let ended = unsafe { (table.cuStreamEndCapture)(stream.raw(), &raw mut graph) };
        assert_eq!((ended, graph.is_null()), (0, false));
        // SAFETY: nobody else has it.
        unsafe { (table.cuGraphDestroy)(graph) };
        assert_eq!(fake.live(), before);
    }
}
