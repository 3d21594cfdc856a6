//! Adding to a word in stream order: the one thing that neither the copy engine nor a stream write can do.

use std::sync::{Mutex, PoisonError};

use warpway_core::Result;

use crate::context::Context;
use crate::jit::{Compiler, add_word};
use crate::module::{Kernel, LaunchShape, Module};
use crate::residency::Residency;
use crate::stream::Stream;

const NAME: &str = "warpway_add_word";

const SHAPE: LaunchShape = LaunchShape { blocks: 1, threads: 1, shared_bytes: 0 };

/// The kernel of one device, made when it is first needed.
///
/// It waits for nobody, but others may wait for it: room for its block is claimed for good, so that kernels which wait
/// cannot fill the device.
pub(crate) struct WordAdder {
    compiler: Compiler,
    made: Mutex<Option<Made>>,
}

struct Made {
    kernel: Kernel,
    _room: Residency,
}

/// Adds to words.
pub(crate) struct AdderKernel(Kernel);

impl AdderKernel {
    /// # Safety
    /// The word must be valid until the stream has come there, aligned, and touched by atomic operations only.
    pub(super) unsafe fn add(&self, stream: &Stream, address: u64, delta: i64) -> Result<()> {
        // SAFETY: the kernel's two parameters; the caller answers for the word.
        unsafe { self.0.launch(stream, SHAPE, &(address, delta.cast_unsigned()))? };
        Ok(())
    }
}

impl WordAdder {
    pub(super) fn new(compiler: Compiler) -> Self {
        Self { compiler, made: Mutex::default() }
    }

    /// The kernel, made if there is none yet: then the driver may wait for kernels that run.
    pub(super) fn kernel(&self, context: &Context) -> Result<AdderKernel> {
        // Held while it is compiled, which ends by itself.
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = &*made {
            return Ok(AdderKernel(made.kernel.clone()));
        }
        let image = self.compiler.compile(&add_word(), context.info().architecture)?;
        let kernel = Module::load(context, image.code())?.kernel(image.symbol(NAME).unwrap_or(NAME))?;
        let room = kernel.reserve(SHAPE)?;
        *made = Some(Made { kernel: kernel.clone(), _room: room });
        Ok(AdderKernel(kernel))
    }
}
