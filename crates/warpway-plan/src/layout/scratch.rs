//! The two scratch areas: raw data and packets.

use super::{Geometry, LayoutError, MessageLayout};
use crate::ir::{
    Action, BufferKind, ChannelEntry, ChannelType, DataOperation, Form, Plan, RankPlan, Reference,
    ThreadBlock,
};

/// The scratch of a plan that reuses resources, all halves and kinds together.
pub const REUSED_SCRATCH_BYTES: u64 = 64 << 20;

/// What the step between chunks is a multiple of: every element and packet.
const SCRATCH_UNIT: u64 = 64;

/// Bytes of each area of a rank: of one half, if the plan alternates between two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AreaBytes {
    /// Raw data.
    pub raw: u64,
    /// Packets, twice the data.
    pub packets: u64,
}

/// Which areas a plan touches on any rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ScratchUse {
    pub(super) raw: bool,
    pub(super) packets: bool,
}

impl ScratchUse {
    pub(super) fn of(plan: &Plan) -> Self {
        let mut found = Self::default();
        for rank in &plan.ranks {
            for block in &rank.blocks {
                for operation in &block.operations {
                    let body = match &operation.action {
                        Action::Pipeline(pipeline) => pipeline.body.as_slice(),
                        _ => std::slice::from_ref(operation),
                    };
                    for operation in body {
                        if let Action::Data(data) = &operation.action {
                            found.add(rank, block, data);
                        }
                    }
                }
            }
        }
        found
    }

    fn add(&mut self, rank: &RankPlan, block: &ThreadBlock, data: &DataOperation) {
        let sources = data.sources.iter().enumerate().map(|(at, r)| (r, data.source_form(at)));
        let destinations = data.destinations.iter().enumerate().map(|(at, r)| (r, data.destination_form(at)));
        for (reference, form) in sources.chain(destinations) {
            if is_of(rank, block, data.channel_type, reference, BufferKind::Scratch) {
                match form {
                    Form::Raw => self.raw = true,
                    Form::Packets => self.packets = true,
                }
            }
        }
    }
}

/// True if some operation stores to a buffer of that kind.
pub(super) fn writes(plan: &Plan, kind: BufferKind) -> bool {
    plan.ranks.iter().any(|rank| {
        rank.blocks.iter().any(|block| {
            block.operations.iter().any(|operation| {
                let body = match &operation.action {
                    Action::Pipeline(pipeline) => pipeline.body.as_slice(),
                    _ => std::slice::from_ref(operation),
                };
                body.iter().any(|operation| match &operation.action {
                    Action::Data(data) => {
                        data.destinations.iter().any(|to| is_of(rank, block, data.channel_type, to, kind))
                    }
                    _ => false,
                })
            })
        })
    })
}

fn is_of(
    rank: &RankPlan,
    block: &ThreadBlock,
    channel_type: Option<ChannelType>,
    reference: &Reference,
    kind: BufferKind,
) -> bool {
    match *reference {
        Reference::Local { buffer, .. } => buffer == kind,
        Reference::Remote { position, .. } => {
            let list = block.remote_buffers_of(channel_type.unwrap_or(ChannelType::Memory));
            let index = list.get(position as usize);
            let remote = index.and_then(|index| rank.remote_buffers.get(*index as usize));
            remote.is_some_and(|remote| remote.buffer == kind)
        }
        // Which channel it is costs a walk of its own; that some switch channel has the buffer is enough to know.
        Reference::Switch { .. } => rank
            .channels
            .iter()
            .any(|entry| matches!(entry, ChannelEntry::Switch { buffer, .. } if *buffer == kind)),
    }
}

impl Geometry {
    /// Cs of reuse mode: the scratch of fixed size in equal parts.
    pub(super) fn reused_chunk(&self, unit: u64) -> Result<Option<u64>, LayoutError> {
        let most = (0..self.n_ranks()).map(|rank| self.chunks(rank, BufferKind::Scratch)).max();
        let Some(chunks) = most.filter(|chunks| self.reuses_scratch() && *chunks > 0) else {
            return Ok(None);
        };
        let half = REUSED_SCRATCH_BYTES / if self.double_scratch() { 2 } else { 1 };
        half.div_ceil(chunks).checked_next_multiple_of(unit).map(Some).ok_or(LayoutError::Overflow)
    }

    /// Fixes the step from one scratch chunk to the next of a plan with sized chunks: at least `bytes`, or an equal
    /// share of [`REUSED_SCRATCH_BYTES`]. No other plan is changed.
    ///
    /// # Errors
    /// [`LayoutError::Format`] if the plan's alignment is no power of two, [`LayoutError::Overflow`].
    pub fn with_scratch_chunk(self, bytes: Option<u64>) -> Result<Self, LayoutError> {
        let most = (0..self.n_ranks()).map(|rank| self.chunks(rank, BufferKind::Scratch)).max();
        let Some(chunks) = most.filter(|chunks| self.is_sized() && *chunks > 0) else { return Ok(self) };
        let alignment = self.alignment();
        if !alignment.is_power_of_two() {
            return Err(LayoutError::Format { element: alignment, payload: 8 });
        }
        let unit = alignment.max(SCRATCH_UNIT);
        let room = match (bytes, self.reused_chunk(unit)?) {
            (Some(bytes), _) => bytes.max(1).checked_next_multiple_of(unit).ok_or(LayoutError::Overflow)?,
            (None, Some(reused)) => reused,
            (None, None) => {
                // A power of two, which slices of pipelines divide.
                let half = REUSED_SCRATCH_BYTES / if self.double_scratch() { 2 } else { 1 };
                (half / chunks).checked_ilog2().map_or(0, |log| 1 << log).max(unit)
            }
        };
        Ok(Self { scratch_chunk: Some(room), ..self })
    }

    /// Step from one scratch chunk to the next, where it does not depend on the message.
    pub fn scratch_chunk(&self) -> Option<u64> {
        self.scratch_chunk
    }

    /// What one half of `rank`'s scratch areas needs for chunks of `chunk_bytes` bytes. `None` beyond 64 bits.
    pub fn area(&self, rank: u32, chunk_bytes: u64) -> Option<AreaBytes> {
        let uses = self.scratch();
        let data = self.chunks(rank, BufferKind::Scratch).checked_mul(chunk_bytes)?;
        let area = |used: bool, factor: u64| match used {
            // Chunks are whole units, so areas are, too. Twice, since there may be two halves.
            true => data.checked_mul(factor).filter(|bytes| bytes.checked_mul(2).is_some()),
            false => Some(0),
        };
        Some(AreaBytes { raw: area(uses.raw, 1)?, packets: area(uses.packets, 2)? })
    }
}

impl MessageLayout {
    /// Step from one scratch chunk to the next: C, less in reuse mode, and what was agreed for sized chunks.
    pub fn scratch_chunk_bytes(&self) -> u64 {
        self.reused.unwrap_or(self.chunk_bytes)
    }

    /// What one half of `rank`'s scratch areas needs.
    pub fn area(&self, rank: u32) -> AreaBytes {
        // Checked when the layout was made.
        self.checked_area(rank).unwrap_or(AreaBytes { raw: u64::MAX, packets: u64::MAX })
    }

    pub(super) fn check_scratch(&self) -> Result<(), LayoutError> {
        for rank in 0..self.geometry.n_ranks() {
            self.checked_area(rank).ok_or(LayoutError::Overflow)?;
        }
        Ok(())
    }

    fn checked_area(&self, rank: u32) -> Option<AreaBytes> {
        self.geometry.area(rank, self.scratch_chunk_bytes())
    }
}
