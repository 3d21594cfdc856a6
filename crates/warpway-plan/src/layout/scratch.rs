//! The two scratch areas: raw data and packets.

use super::{Geometry, LayoutError, MessageLayout};
use crate::ir::{
    Action, BufferKind, ChannelEntry, ChannelType, DataOperation, Form, Plan, RankPlan, Reference,
    ThreadBlock,
};

/// The scratch of a plan that reuses resources, all halves and kinds together.
pub const REUSED_SCRATCH_BYTES: u64 = 64 << 20;

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
            if is_scratch(rank, block, data.channel_type, reference) {
                match form {
                    Form::Raw => self.raw = true,
                    Form::Packets => self.packets = true,
                }
            }
        }
    }
}

fn is_scratch(
    rank: &RankPlan,
    block: &ThreadBlock,
    channel_type: Option<ChannelType>,
    reference: &Reference,
) -> bool {
    match *reference {
        Reference::Local { buffer, .. } => buffer == BufferKind::Scratch,
        Reference::Remote { position, .. } => {
            let list = block.remote_buffers_of(channel_type.unwrap_or(ChannelType::Memory));
            let index = list.get(position as usize);
            let remote = index.and_then(|index| rank.remote_buffers.get(*index as usize));
            remote.is_some_and(|remote| remote.buffer == BufferKind::Scratch)
        }
        // Which channel it is costs a walk of its own; that some switch channel has scratch is enough to know.
        Reference::Switch { .. } => rank.channels.iter().any(
            |entry| matches!(entry, ChannelEntry::Switch { buffer, .. } if *buffer == BufferKind::Scratch),
        ),
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
}

impl MessageLayout {
    /// Step from one scratch chunk to the next: C, or less in reuse mode.
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
        let uses = self.geometry.scratch();
        let chunks = self.geometry.chunks(rank, BufferKind::Scratch);
        let data = chunks.checked_mul(self.scratch_chunk_bytes())?;
        let area = |used: bool, factor: u64| match used {
            // Chunks are whole units, so areas are, too. Twice, since there may be two halves.
            true => data.checked_mul(factor).filter(|bytes| bytes.checked_mul(2).is_some()),
            false => Some(0),
        };
        Some(AreaBytes { raw: area(uses.raw, 1)?, packets: area(uses.packets, 2)? })
    }
}
