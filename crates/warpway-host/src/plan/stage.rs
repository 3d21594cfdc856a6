//! Plain memory of the caller, which peers cannot map: where they use it, a launch works on a copy in memory that they
//! can.
//!
//! An executor has one stage for inputs and one for outputs. They grow to the largest message, and are published
//! like a user's buffer: once, as long as they do not grow. Launches of an executor follow each other, and when one has
//! ended no peer touches its buffers, so the next may have the stages.

use std::ptr::NonNull;

use warpway_core::Result;
use warpway_core::communicator::Communicator;
use warpway_core::memory::{Access, RegisteredMemory};
use warpway_core::transport::TransportFlags;

use super::NO_REGION;
use super::request::{BufferView, PlanLaunch};
use crate::buffer::SharedBuffer;
use crate::copy::copy;

/// The least size of a stage.
const LEAST: u64 = 1 << 16;

/// The stages of one executor.
#[derive(Debug)]
pub(super) struct Stages {
    /// For the input, for the output.
    memories: [Option<RegisteredMemory>; 2],
    /// By which peers use them.
    transports: TransportFlags,
}

/// Bytes of the caller.
#[derive(Debug, Clone, Copy)]
struct Plain {
    first: NonNull<u8>,
    bytes: u64,
}

impl Plain {
    fn of(view: &BufferView<'_>) -> Option<Self> {
        let first = view.slice()?;
        (view.bytes > 0).then_some(Self { first, bytes: view.bytes })
    }

    fn address(self) -> u64 {
        self.first.as_ptr() as u64
    }

    fn end(self) -> u64 {
        self.address().saturating_add(self.bytes)
    }

    fn overlaps(self, other: Self) -> bool {
        self.address() < other.end() && other.address() < self.end()
    }
}

impl Stages {
    pub(super) fn new(transports: TransportFlags) -> Self {
        Self { memories: [None, None], transports }
    }

    /// The launch, with stages in place of plain memory: of the input, of the output, as far as they are `needed`. Slices
    /// that share bytes share a stage in the same way. `keeps_output` says that the plan may leave bytes of the output
    /// as they are.
    ///
    /// # Errors
    /// Of allocating and registering memory.
    pub(super) fn enter<'s>(
        &'s mut self,
        comm: &Communicator,
        launch: &PlanLaunch<'s>,
        needed: [bool; 2],
        keeps_output: bool,
    ) -> Result<PlanLaunch<'s>> {
        let mut plain = [Plain::of(&launch.input), Plain::of(&launch.output)];
        if !needed.contains(&true) || plain.iter().all(Option::is_none) {
            return Ok(*launch);
        }
        let shared = matches!(plain, [Some(input), Some(output)] if input.overlaps(output));
        for (plain, needed) in plain.iter_mut().zip(needed) {
            plain.take_if(|_| !needed && !shared);
        }
        // Number of the stage and first byte there, by buffer; bytes of each stage.
        let (places, needs) = match plain {
            [Some(input), Some(output)] if shared => {
                let first = input.address().min(output.address());
                let bytes = input.end().max(output.end()) - first;
                ([(0, input.address() - first), (0, output.address() - first)], [bytes, 0])
            }
            _ => ([(0, 0), (1, 0)], plain.map(|plain| plain.map_or(0, |plain| plain.bytes))),
        };
        for (stage, need) in self.memories.iter_mut().zip(needs) {
            if stage.as_ref().is_some_and(|stage| stage.size() >= need) || need == 0 {
                continue;
            }
            let bytes = need.max(LEAST).checked_next_power_of_two().unwrap_or(need);
            let region = SharedBuffer::allocate(bytes)?.region().cloned().ok_or(NO_REGION)?;
            *stage = Some(comm.register_memory(region, self.transports, Access::ALL)?);
        }
        let stages = &self.memories;
        let view = |number: usize, view: BufferView<'s>| -> Result<BufferView<'s>> {
            let (stage, offset) = places[number];
            let (Some(plain), Some(memory)) = (plain[number], &stages[stage]) else { return Ok(view) };
            let there = memory.pointer("plan stage", offset, plain.bytes)?;
            if number == 0 || keeps_output {
                // SAFETY: `pointer` has checked the stage's range. The slice is borrowed by the view, and no part of
                // the stage, to which there are no references.
                unsafe { copy(there, plain.first, plain.bytes) };
            }
            Ok(BufferView::new(memory, offset, plain.bytes))
        };
        // The input last: where it is the output, it is what counts.
        let output = view(1, launch.output)?;
        Ok(PlanLaunch { input: view(0, launch.input)?, output, ..*launch })
    }
}

/// Copies a result back to where the caller wants it. `staged` is what [`Stages::enter`] has made of `view`.
///
/// # Errors
/// None for such a view.
pub(super) fn leave(view: &BufferView<'_>, staged: &BufferView<'_>) -> Result<()> {
    let (Some(plain), Some(memory)) = (Plain::of(view), staged.memory()) else { return Ok(()) };
    let there = memory.pointer("plan stage", staged.offset, plain.bytes)?;
    // SAFETY: as in `enter`; the launch has refused slices that the caller has not borrowed mutably.
    unsafe { copy(plain.first, there, plain.bytes) };
    Ok(())
}
