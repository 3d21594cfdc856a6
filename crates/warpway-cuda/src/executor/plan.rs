//! A plan that is set up, and its launches.

use std::fmt;
use std::sync::{Arc, Mutex};

use warpway_core::Result;

use super::areas::Scratch;
use super::channels::{Channels, Objects};
use super::check::Checked;
use super::kernels::Kernels;
use super::meeting::Meeting;
use super::ready::{Ready, Sizes};
use super::setting::{DeviceRange, GpuLaunch, GpuPlanSetting, MessageBytes};
use crate::context::lock;
use crate::gpu::{Gpu, Keeper};

/// A plan that all ranks have set up on their GPUs. Cheap to clone.
///
/// All ranks launch the same plans in the same order, whatever streams they give them to.
#[derive(Clone)]
pub struct GpuPlan {
    gpu: Gpu,
    prepared: Arc<Prepared>,
}

/// What does not change from launch to launch, and what is known of sizes.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) checked: Checked,
    pub(super) kernels: Kernels,
    pub(super) scratch: Scratch,
    pub(super) channels: Channels,
    pub(super) objects: Objects,
    /// What launches keep of all this.
    pub(super) keepers: Arc<Vec<Keeper>>,
    pub(super) sizes: Mutex<Sizes>,
    /// Unless no plan so far has scratch.
    pub(super) meeting: Option<Arc<Meeting>>,
}

impl GpuPlan {
    pub(super) fn new(gpu: &Gpu, prepared: Prepared) -> Self {
        Self { gpu: gpu.clone(), prepared: Arc::new(prepared) }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.prepared.checked.name
    }

    /// What it is set up for.
    pub fn setting(&self) -> GpuPlanSetting {
        self.prepared.checked.setting
    }

    /// Gives the plan to the stream once. In a stream that is captured it becomes part of the graph, which may be replayed any
    /// number of times, as long as all ranks replay and launch in the same order.
    ///
    /// The result is there when the stream has come as far; [`Gpu::synchronize`] tells what has gone wrong.
    ///
    /// # Errors
    /// `plan.launch` for sizes and buffers that the plan does not take, those of [`Gpu::launch`]. Nothing was launched then.
    ///
    /// # Safety
    /// The ranges must be memory that the device reaches, and nothing else may write to them, or read what is written, until
    /// the kernel has ended; of a launch that is captured: until the graph is gone and its last launch has ended.
    pub unsafe fn launch(&self, launch: &GpuLaunch<'_>) -> Result<()> {
        let prepared = &*self.prepared;
        let GpuLaunch { input, output, stream } = *launch;
        let mut sizes = lock(&prepared.sizes);
        let message = MessageBytes { input: input.bytes, output: output.bytes };
        let ready = sizes.find(prepared, &self.gpu, message)?;
        prepared.check_places(ready, [input, output])?;
        if let (Some(meeting), true) = (&prepared.meeting, ready.meets) {
            meeting.launch(&self.gpu, stream)?;
        }
        ready.inputs.iter().for_each(|at| ready.words[*at] = input.address);
        ready.outputs.iter().for_each(|at| ready.words[*at] = output.address);
        let with = (&ready.words[..], Arc::clone(&ready.keeper));
        // SAFETY: the words are those of the plan's kernel; scratch and objects are kept, and pieces lie within their buffers
        // (`Ready::new`); the caller answers for the buffers.
        unsafe { self.gpu.launch_words(&ready.kernel, prepared.kernels.shape, with, stream) }
    }

    #[cfg(test)]
    pub(super) fn prepared(&self) -> &Prepared {
        &self.prepared
    }
}

impl Prepared {
    /// Buffers must be aligned to elements, and lie in each other exactly as the plan says, or be apart.
    fn check_places(&self, ready: &Ready, [input, output]: [DeviceRange; 2]) -> Result<()> {
        let element = self.checked.setting.kernel.data_type.bytes();
        for (name, range) in [("input", input), ("output", output)] {
            if range.bytes > 0 && (range.address == 0 || !range.address.is_multiple_of(element)) {
                let why = format!(
                    "the {name} begins at {:#x}, which is no multiple of the {element} bytes of an element",
                    range.address
                );
                return Err(self.usage(why));
            }
        }
        if input.bytes == 0 || output.bytes == 0 {
            return Ok(());
        }
        match ready.alias {
            Some(alias)
                if input.address.wrapping_add(alias.input) != output.address.wrapping_add(alias.output) =>
            {
                Err(self.usage(format!(
                    "it works in place, so byte {} of the input must be byte {} of the output",
                    alias.input, alias.output
                )))
            }
            None if input.overlaps(&output) => {
                Err(self.usage("input and output overlap, and it does not work in place".into()))
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for GpuPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GpuPlan")
            .field("name", &self.prepared.checked.name)
            .field("rank", &self.prepared.checked.rank)
            .finish_non_exhaustive()
    }
}
