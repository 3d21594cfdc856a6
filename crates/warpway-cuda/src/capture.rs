//! Calls beside somebody's stream capture.

use std::cell::RefCell;

use warpway_core::gpu::GpuError;
use warpway_cuda_sys::driver_types::{CU_STREAM_CAPTURE_MODE_RELAXED, CUstreamCaptureMode_enum};

use crate::context::Context;
use crate::driver::{Driver, WeakDriver};

thread_local! {
    /// The driver that [`leave_captures_alone`] has been called for on this thread.
    static LEFT_ALONE: RefCell<Option<WeakDriver>> = const { RefCell::new(None) };
}

/// From here on calls of this thread are allowed, and harmless, while other threads capture streams: for threads of our
/// own, which never give work to a stream that is captured.
pub(crate) fn leave_captures_alone(driver: &Driver) {
    let mut mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    match exchange(driver, &mut mode) {
        // The driver keeps it for the thread, and so do we: no call of it needs a `RelaxedCapture` any more.
        Ok(()) => LEFT_ALONE.with_borrow_mut(|left| *left = Some(driver.downgrade())),
        Err(error) => tracing::warn!(target: "warpway::gpu", "{error}"),
    }
}

/// While it lives, calls of this thread neither fail because another thread captures a stream in global mode, nor end
/// that capture. For work on streams of our own, which nobody captures.
pub(crate) struct RelaxedCapture<'c> {
    driver: &'c Driver,
    /// The thread's mode otherwise; `None` where it is always this one.
    before: Option<CUstreamCaptureMode_enum>,
}

impl<'c> RelaxedCapture<'c> {
    /// # Errors
    /// `gpu.driver`.
    pub(crate) fn begin(context: &'c Context) -> Result<Self, GpuError> {
        let driver = context.driver();
        let left_alone =
            |left: &RefCell<Option<WeakDriver>>| left.borrow().as_ref().is_some_and(|it| it.is(driver));
        // A thread that is ending may have dropped it.
        if LEFT_ALONE.try_with(left_alone).unwrap_or(false) {
            return Ok(Self { driver, before: None });
        }
        let mut mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        exchange(driver, &mut mode)?;
        Ok(Self { driver, before: Some(mode) })
    }
}

impl Drop for RelaxedCapture<'_> {
    fn drop(&mut self) {
        let Some(mut mode) = self.before else { return };
        // The driver takes any mode that it gave; were it to fail, only later mistakes of this thread would go unseen.
        if let Err(error) = exchange(self.driver, &mut mode) {
            tracing::warn!(target: "warpway::gpu", "{error}");
        }
    }
}

/// Swaps the calling thread's mode with `mode`.
fn exchange(driver: &Driver, mode: &mut CUstreamCaptureMode_enum) -> Result<(), GpuError> {
    // SAFETY: reads and writes one number.
    let result = unsafe { (driver.table().cuThreadExchangeStreamCaptureMode)(mode) };
    driver.check("changing the thread's mode of captures", "cuThreadExchangeStreamCaptureMode", result)
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
