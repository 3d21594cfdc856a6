//! Sized chunks: bytes and places of chunks from a table that each launch brings.

use std::collections::BTreeMap;

use super::{Extent, Geometry, LayoutError};
use crate::ir::{BufferKind, RankPlan};

/// What a launch gives for one rank.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SizeRows {
    /// Bytes by size id.
    pub extents: BTreeMap<u64, u64>,
    /// First byte of each chunk of the input.
    pub input: Vec<u64>,
    /// First byte of each chunk of the output.
    pub output: Vec<u64>,
}

/// The chunks of one rank, with their sizes and places.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChunkTable {
    input: Vec<Extent>,
    output: Vec<Extent>,
    pub(super) scratch: Vec<u64>,
    extents: BTreeMap<u64, u64>,
}

impl ChunkTable {
    /// Joins a launch's rows with the size ids of `rank`.
    ///
    /// # Errors
    /// A chunk without a size id or an id without an extent; an extent of half an element; displacements that
    /// are missing; chunks that reach beyond 64 bits.
    pub fn new(rank: u32, plan: &RankPlan, rows: &SizeRows, element: u64) -> Result<Self, LayoutError> {
        let ids = plan.size_ids.as_ref().ok_or(LayoutError::Table)?;
        let bytes = |buffer, chunk: usize, id: &u64| {
            let wrong = |why| LayoutError::Row { rank, buffer, chunk: chunk as u64, why };
            let bytes = *rows.extents.get(id).ok_or_else(|| wrong("its size id has no extent"))?;
            if !bytes.is_multiple_of(element.max(1)) {
                return Err(wrong("its extent is no whole number of elements"));
            }
            Ok(bytes)
        };
        let placed = |buffer, count: u64, ids: &[u64], displacements: &[u64]| {
            let wrong = |chunk: usize, why| LayoutError::Row { rank, buffer, chunk: chunk as u64, why };
            if ids.len() as u64 != count {
                return Err(wrong(ids.len(), "the plan gives it no size id"));
            }
            if displacements.len() != ids.len() {
                return Err(wrong(displacements.len(), "it has no displacement, or there is one too many"));
            }
            let chunk = |(chunk, (id, offset)): (usize, (&u64, &u64))| {
                let bytes = bytes(buffer, chunk, id)?;
                offset.checked_add(bytes).ok_or(LayoutError::Overflow)?;
                Ok(Extent { offset: *offset, bytes })
            };
            ids.iter().zip(displacements).enumerate().map(chunk).collect::<Result<Vec<_>, _>>()
        };
        let scratch = ids.scratch.iter().enumerate().map(|(at, id)| bytes(BufferKind::Scratch, at, id));
        Ok(Self {
            input: placed(BufferKind::Input, plan.input_chunks, &ids.input, &rows.input)?,
            output: placed(BufferKind::Output, plan.output_chunks, &ids.output, &rows.output)?,
            scratch: scratch.collect::<Result<_, _>>()?,
            extents: rows.extents.clone(),
        })
    }

    /// Of a rank of whose buffers only the scratch matters, by the extents of a rank that touches it: that one knows
    /// the size of every chunk that it touches.
    pub fn of_scratch(plan: &RankPlan, extents: &BTreeMap<u64, u64>) -> Self {
        let ids = plan.size_ids.iter().flat_map(|ids| &ids.scratch);
        let scratch = ids.map(|id| extents.get(id).copied().unwrap_or(0)).collect();
        Self { scratch, extents: extents.clone(), ..Self::default() }
    }

    /// Checks where the chunks lie if the buffers of `rank` have these addresses and bytes: within their buffer;
    /// without a byte in common where operations store to them; in place, exactly on each other.
    ///
    /// # Errors
    /// The first such chunk.
    pub fn check_places(
        &self,
        geometry: &Geometry,
        rank: u32,
        [input, output]: [Extent; 2],
    ) -> Result<(), LayoutError> {
        let mut placed = Vec::with_capacity(self.input.len() + self.output.len());
        for (buffer, home) in [(BufferKind::Input, input), (BufferKind::Output, output)] {
            for (chunk, extent) in (0u64..).zip(self.list(buffer)).filter(|(_, extent)| extent.bytes > 0) {
                if extent.offset.saturating_add(extent.bytes) > home.bytes {
                    let why = "it reaches beyond its buffer";
                    return Err(LayoutError::Row { rank, buffer, chunk, why });
                }
                let start = home.offset.checked_add(extent.offset).ok_or(LayoutError::Overflow)?;
                let extent = Extent { offset: start, bytes: extent.bytes };
                start.checked_add(extent.bytes).ok_or(LayoutError::Overflow)?;
                placed.push((extent, buffer, chunk));
            }
        }
        if let Some(alias) = geometry.aliased_chunks(rank) {
            for number in 0..alias.count {
                let (from, to) = (alias.input + number, alias.output + number);
                let absolute = |buffer, chunk, home: Extent| {
                    self.chunk(buffer, chunk).map(|e| (e.bytes, home.offset.saturating_add(e.offset)))
                };
                let here = absolute(BufferKind::Input, from, input);
                let there = absolute(BufferKind::Output, to, output);
                let both_empty = here.is_some_and(|e| e.0 == 0) && there.is_some_and(|e| e.0 == 0);
                if here != there && !both_empty {
                    let why =
                        "the plan works in place, and the chunk of the output that it is lies elsewhere";
                    return Err(LayoutError::Row { rank, buffer: BufferKind::Input, chunk: from, why });
                }
            }
            // They are in the list as outputs.
            placed.retain(|(_, buffer, chunk)| *buffer == BufferKind::Output || !alias.holds_input(*chunk));
        }
        placed.sort_unstable();
        // One past the last byte of what came before: all of it, and what is stored to.
        let (mut end, mut end_written) = (0, 0);
        for (extent, buffer, chunk) in placed {
            let written = geometry.writes(buffer);
            if extent.offset < end_written || (written && extent.offset < end) {
                return Err(LayoutError::Row { rank, buffer, chunk, why: "it overlaps another chunk" });
            }
            end = end.max(extent.offset + extent.bytes);
            end_written = if written { end_written.max(extent.offset + extent.bytes) } else { end_written };
        }
        Ok(())
    }

    /// Bytes of all chunks of inputs, outputs and scratch.
    pub fn sizes(&self) -> impl Iterator<Item = u64> {
        let placed = self.input.iter().chain(&self.output).map(|extent| extent.bytes);
        placed.chain(self.scratch.iter().copied())
    }

    pub(super) fn chunk(&self, buffer: BufferKind, chunk: u64) -> Option<Extent> {
        self.list(buffer).get(usize::try_from(chunk).ok()?).copied()
    }

    /// One past the last byte.
    pub(super) fn reach(&self, buffer: BufferKind) -> u64 {
        let filled = self.list(buffer).iter().filter(|extent| extent.bytes > 0);
        filled.map(|extent| extent.offset + extent.bytes).max().unwrap_or(0)
    }

    pub(super) fn largest(&self) -> u64 {
        self.sizes().max().unwrap_or(0)
    }

    pub(super) fn extent_of(&self, id: u64) -> Option<u64> {
        self.extents.get(&id).copied()
    }

    fn list(&self, buffer: BufferKind) -> &[Extent] {
        match buffer {
            BufferKind::Input => &self.input,
            BufferKind::Output => &self.output,
            BufferKind::Scratch => &[],
        }
    }
}
