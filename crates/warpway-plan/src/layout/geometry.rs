//! What sizes depend on in a plan, collected once.

use std::sync::Arc;

use super::grid::Grid;
use super::scratch::{ScratchUse, writes};
use super::{LayoutError, LayoutRequest, MessageLayout, MessageSizes};
use crate::ir::{Action, BufferKind, Collective, Plan};

/// Chunk counts, alignment and kinds of scratch of a plan. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Geometry {
    pub(super) facts: Arc<Facts>,
    /// Cs of plans with sized chunks, once it is agreed.
    pub(super) scratch_chunk: Option<u64>,
    /// Slices of which scratch chunks must hold a multiple if they are smaller than the message's; `None`: they must
    /// not be.
    pub(super) reused_slices: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Facts {
    collective: Collective,
    in_place: bool,
    reuse: bool,
    double: bool,
    alignment: u64,
    range: (u64, u64),
    /// By rank: input, output, scratch.
    chunks: Vec<[u64; 3]>,
    is_sized: bool,
    uses_packets: bool,
    scratch: ScratchUse,
    /// Operations store to inputs, to outputs.
    writes: [bool; 2],
}

impl Geometry {
    /// In one pass over the plan.
    pub fn new(plan: &Plan) -> Self {
        let packets = plan.operations().any(|(_, _, operation)| match &operation.action {
            Action::Data(data) => data.kind.uses_packets(),
            _ => false,
        });
        let facts = Facts {
            collective: plan.collective,
            in_place: plan.in_place,
            reuse: plan.reuse_resources,
            double: plan.double_scratch,
            alignment: plan.buffer_alignment,
            range: (plan.min_message_size, plan.max_message_size),
            chunks: plan.ranks.iter().map(|r| [r.input_chunks, r.output_chunks, r.scratch_chunks]).collect(),
            is_sized: plan.ranks.iter().any(|rank| rank.size_ids.is_some()),
            uses_packets: packets,
            scratch: ScratchUse::of(plan),
            writes: [BufferKind::Input, BufferKind::Output].map(|buffer| writes(plan, buffer)),
        };
        Self { facts: Arc::new(facts), scratch_chunk: None, reused_slices: Some(1) }
    }

    /// What has been proven of slices that share scratch: [`Report::reused_slices`](crate::verify::Report::reused_slices).
    /// Without it nothing is taken care of but that slices divide the room.
    pub fn with_reused_slices(self, slices: Option<u64>) -> Self {
        Self { reused_slices: slices, ..self }
    }

    /// The layout of one message.
    ///
    /// # Errors
    /// As [`MessageLayout::new`].
    pub fn layout(&self, request: &LayoutRequest<'_>) -> Result<MessageLayout, LayoutError> {
        let (element, payload) = (request.element_size, request.packet_payload);
        if !element.is_power_of_two() || element > 1 << 16 || !matches!(payload, 4 | 8 | 64) {
            return Err(LayoutError::Format { element, payload });
        }
        let unit = self.unit(element, payload)?;
        let (grid, chunk_bytes) = match &request.sizes {
            MessageSizes::Sized(tables) => {
                if !self.facts.is_sized || tables.len() != self.facts.chunks.len() {
                    return Err(LayoutError::Table);
                }
                let largest = tables.iter().map(super::ChunkTable::largest).max().unwrap_or(0);
                let chunk = largest.checked_next_multiple_of(unit).ok_or(LayoutError::Overflow)?;
                (Grid::Sized(tables.iter().cloned().collect()), chunk)
            }
            _ if self.facts.is_sized => return Err(LayoutError::Table),
            MessageSizes::Chunk(bytes) => {
                if !bytes.is_multiple_of(unit) {
                    let (buffer, chunks) = (BufferKind::Input, 1);
                    return Err(LayoutError::Indivisible { buffer, bytes: *bytes, chunks, unit });
                }
                (Grid::Even, *bytes)
            }
            &MessageSizes::Message { rank, input_bytes, output_bytes } => {
                for (buffer, bytes) in [(BufferKind::Input, input_bytes), (BufferKind::Output, output_bytes)]
                {
                    if self.chunks(rank, buffer) > 0 && !bytes.is_multiple_of(element) {
                        return Err(LayoutError::Element { buffer, bytes, element });
                    }
                }
                self.check_range(input_bytes, output_bytes)?;
                self.grid(rank, [input_bytes, output_bytes], unit, element)?
            }
        };
        let reused = match self.scratch_chunk.filter(|_| self.is_sized()) {
            Some(agreed) if !agreed.is_multiple_of(unit) => {
                return Err(LayoutError::Slice { slice: agreed, unit });
            }
            Some(agreed) => Some(agreed),
            None => self.reused_chunk(unit)?.filter(|room| *room < chunk_bytes),
        };
        let layout = MessageLayout { geometry: self.clone(), grid, unit, chunk_bytes, reused, payload };
        layout.check_scratch()?;
        Ok(layout)
    }

    /// Number of ranks.
    pub fn n_ranks(&self) -> u32 {
        self.facts.chunks.len() as u32
    }

    /// Chunks of a rank's buffer; 0 for a rank that does not exist.
    pub fn chunks(&self, rank: u32, buffer: BufferKind) -> u64 {
        self.facts.chunks.get(rank as usize).map_or(0, |counts| match buffer {
            BufferKind::Input => counts[0],
            BufferKind::Output => counts[1],
            BufferKind::Scratch => counts[2],
        })
    }

    /// True if no rank has a chunk of any buffer: a plan that only synchronises.
    pub(super) fn has_no_chunks(&self) -> bool {
        self.facts.chunks.iter().all(|counts| *counts == [0; 3])
    }

    /// True if any operation touches packets.
    pub fn uses_packets(&self) -> bool {
        self.facts.uses_packets
    }

    /// True if chunk sizes come from a table at launch.
    pub fn is_sized(&self) -> bool {
        self.facts.is_sized
    }

    /// True if consecutive launches alternate between two halves of the scratch.
    pub fn double_scratch(&self) -> bool {
        self.facts.double
    }

    /// True if input and output are one memory.
    pub fn in_place(&self) -> bool {
        self.facts.in_place
    }

    /// What the plan computes.
    pub fn collective(&self) -> Collective {
        self.facts.collective
    }

    /// True if operations store to inputs, or outputs, of some rank. In place, what is stored to one is to both.
    pub fn writes(&self, buffer: BufferKind) -> bool {
        let [input, output] = self.facts.writes;
        match buffer {
            _ if self.in_place() => input || output,
            BufferKind::Input => input,
            BufferKind::Output => output,
            BufferKind::Scratch => true,
        }
    }

    /// A of the file.
    pub(super) fn alignment(&self) -> u64 {
        self.facts.alignment
    }

    pub(super) fn scratch(&self) -> ScratchUse {
        self.facts.scratch
    }

    pub(super) fn reuses_scratch(&self) -> bool {
        self.facts.reuse
    }

    /// A.
    fn unit(&self, element: u64, payload: u64) -> Result<u64, LayoutError> {
        let alignment = self.facts.alignment;
        if !alignment.is_power_of_two() {
            return Err(LayoutError::Format { element: alignment, payload });
        }
        // Powers of two all: the greatest is the least common multiple.
        Ok(alignment.max(element).max(if self.facts.uses_packets { payload } else { 1 }))
    }

    fn check_range(&self, input: u64, output: u64) -> Result<(), LayoutError> {
        let bytes = if self.facts.collective == Collective::AllGather { output } else { input };
        let (min, max) = self.facts.range;
        if bytes < min || bytes > max {
            return Err(LayoutError::Range { bytes, min, max });
        }
        Ok(())
    }
}
