//! Captured work, to be launched again and again.

use std::fmt;

use warpway_core::gpu::GpuError;
use warpway_cuda_sys::driver_types::{CUgraph, CUgraphExec};

use crate::context::Context;
use crate::stream::Stream;

/// Work captured from a stream. What it uses must outlive its last launch: the graph does not keep it, nor are its launches
/// known to what is dropped meanwhile ([`Kernel::launch`](crate::Kernel::launch)); who captured the work has promised that.
/// [`GpuGraph`](crate::GpuGraph) keeps it.
pub struct Graph {
    context: Context,
    raw: CUgraph,
    executable: CUgraphExec,
}

// SAFETY: graph handles may be moved between threads; launches go through `&self` and the driver's own locks.
unsafe impl Send for Graph {}

impl Graph {
    /// Takes over a captured graph.
    pub(crate) fn instantiate(context: &Context, raw: CUgraph) -> Result<Self, GpuError> {
        let mut graph = Self { context: context.clone(), raw, executable: std::ptr::null_mut() };
        let instantiate = context.driver().table().cuGraphInstantiateWithFlags;
        // SAFETY: writes one handle; the graph is ours.
        let result = unsafe { instantiate(&raw mut graph.executable, raw, 0) };
        context.check("preparing a graph", "cuGraphInstantiateWithFlags", result)?;
        Ok(graph)
    }

    /// Does the work once more, after what `stream` has been given. Keep what the work uses until the stream has been
    /// [waited for](Stream::synchronize); the graph itself may be dropped before.
    ///
    /// # Errors
    /// `gpu.driver`.
    pub fn launch(&self, stream: &Stream) -> Result<(), GpuError> {
        let _entered = self.context.enter()?;
        // SAFETY: both handles live.
        let result = unsafe { (self.context.driver().table().cuGraphLaunch)(self.executable, stream.raw()) };
        self.context.check("launching a graph", "cuGraphLaunch", result)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let table = self.context.driver().table();
        if !self.executable.is_null() {
            // SAFETY: made by `instantiate`; launches that run finish.
            let result = unsafe { (table.cuGraphExecDestroy)(self.executable) };
            self.context.note("dropping a graph", "cuGraphExecDestroy", result);
        }
        // SAFETY: taken over by `instantiate`.
        let result = unsafe { (table.cuGraphDestroy)(self.raw) };
        self.context.note("dropping a graph", "cuGraphDestroy", result);
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph").field("device", &self.context.ordinal()).finish_non_exhaustive()
    }
}
