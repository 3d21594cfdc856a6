//! The two kernels of a plan, loaded.

use warpway_core::Result;
use warpway_core::execution::ExecutionError;
use warpway_core::gpu::GpuError;

use super::check::Checked;
use crate::gpu::Gpu;
use crate::module::{Kernel, LaunchShape};
use crate::plan::KernelForm;

/// Both forms are loaded when the plan is set up: later some kernel may be running that loading would wait for.
#[derive(Debug)]
pub(super) struct Kernels {
    pub(super) fitted: Kernel,
    pub(super) listed: Kernel,
    pub(super) shape: LaunchShape,
}

impl Kernels {
    /// Compiled, or found in the cache.
    ///
    /// # Errors
    /// `gpu.compile`, `unavailable` without a compiler, `gpu.driver`; `gpu.residency` for more blocks than the device holds,
    /// `gpu.arguments` if the kernel does not take what launches bring.
    pub(super) fn load(gpu: &Gpu, checked: &Checked) -> Result<Self> {
        let Checked { name, kernel, .. } = checked;
        let shape = LaunchShape::new(kernel.blocks(), kernel.threads());
        let load = |form| -> Result<Kernel> {
            let program = kernel
                .program(form)
                .map_err(|why| ExecutionError::Refused { plan: name.clone(), why: why.to_string() })?;
            let loaded = gpu.load(&program)?.kernel(kernel.kernel_name())?;
            loaded.check_words(checked.kernel.parameter_words())?;
            let limit = loaded.resident_blocks(shape)?;
            if u64::from(shape.blocks) > limit {
                return Err(GpuError::Residency {
                    kernel: format!("plan {name:?}"),
                    device: gpu.context().ordinal(),
                    blocks: shape.blocks.into(),
                    threads: shape.threads.into(),
                    limit,
                    taken: 0,
                }
                .into());
            }
            Ok(loaded)
        };
        Ok(Self { fitted: load(KernelForm::Fitted)?, listed: load(KernelForm::Listed)?, shape })
    }
}
