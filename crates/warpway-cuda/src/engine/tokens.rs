//! Tokens in memory of a GPU.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use warpway_core::Result;
use warpway_core::deadline::Deadline;
use warpway_core::gpu::GpuError;
use warpway_core::memory::{Region, RegisteredMemory, TokenMemory};
use warpway_core::token::TOKEN_BYTES;

use super::cuda_engine::CudaEngine;
use crate::capture::RelaxedCapture;
use crate::context::lock;
use crate::memory::{DeviceMemory, fill};
use crate::stream::Stream;

/// A token of a GPU is all zero when it is fresh: the counter at 0 that peers raise, and at 32 how many signals waits of
/// the device have drawn.
pub struct GpuTokens(Arc<Inner>);

struct Inner {
    engine: CudaEngine,
    pages: Mutex<Option<Pages>>,
}

/// Allocations are large (2 MiB); pages are parts of one, which peers then map once.
struct Pages {
    stream: Stream,
    block: Region,
    used: u64,
}

/// Bytes of a block, unless a page is longer.
const BLOCK: u64 = 2 << 20;

/// Writing zeroes takes microseconds, on a device that does anything at all.
const PATIENCE: Duration = Duration::from_secs(10);

impl GpuTokens {
    pub(super) fn new(engine: CudaEngine) -> Self {
        Self(Arc::new(Inner { engine, pages: Mutex::default() }))
    }
}

impl TokenMemory for GpuTokens {
    fn allocate(&self, bytes: u64) -> Result<Region> {
        let context = self.0.engine.context()?;
        let _relaxed = RelaxedCapture::begin(&context)?;
        let mut pages = lock(&self.0.pages);
        let fits = |pages: &Pages| pages.used + bytes <= pages.block.size();
        if !pages.as_ref().is_some_and(fits) {
            let memory = DeviceMemory::allocate(&context, bytes.max(BLOCK), &[])?;
            let block = memory.region()?;
            let stream = Stream::new(&context)?;
            // SAFETY: all of a live allocation that nobody knows yet; kept until the fill is done, below.
            unsafe { fill(&stream, memory.address(), 0, block.size())? };
            if let Err(error) = stream.settle(Deadline::after(PATIENCE)) {
                if matches!(error, GpuError::Timeout { .. }) {
                    // It may be written to yet.
                    std::mem::forget(memory);
                }
                return Err(error.into());
            }
            *pages = Some(Pages { stream, block, used: 0 });
        }
        let broken = warpway_core::Error::Internal { place: "GpuTokens", what: "a block has just been made" };
        let pages = pages.as_mut().ok_or(broken)?;
        let page = pages.block.slice(pages.used, bytes)?;
        pages.used += bytes.next_multiple_of(TOKEN_BYTES);
        Ok(page)
    }

    fn reset(&self, page: &RegisteredMemory, offset: u64) -> Result<()> {
        let address = page.token_address("lease", offset)?;
        let context = self.0.engine.context()?;
        let _relaxed = RelaxedCapture::begin(&context)?;
        let pages = lock(&self.0.pages);
        let broken = warpway_core::Error::Internal { place: "GpuTokens", what: "a token comes from a page" };
        let stream = &pages.as_ref().ok_or(broken)?.stream;
        // SAFETY: a whole token (checked by `token_address`) of a page that `page` keeps, which nobody uses.
        unsafe { fill(stream, address, 0, TOKEN_BYTES)? };
        Ok(stream.settle(Deadline::after(PATIENCE))?)
    }
}

impl fmt::Debug for GpuTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GpuTokens").field("engine", &self.0.engine).finish_non_exhaustive()
    }
}
