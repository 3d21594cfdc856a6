//! Sized chunks: bytes and places of chunks from a table that each launch brings.

use std::collections::BTreeMap;

use super::{Extent, LayoutError};
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

    /// An error if two chunks of `buffer` that are not empty share bytes, or one ends beyond `limit`.
    ///
    /// # Errors
    /// The first such chunk.
    pub fn check_disjoint(&self, rank: u32, buffer: BufferKind, limit: u64) -> Result<(), LayoutError> {
        let mut order: Vec<(u64, &Extent)> =
            (0..).zip(self.list(buffer)).filter(|(_, e)| e.bytes > 0).collect();
        order.sort_by_key(|(_, extent)| extent.offset);
        let mut end = 0;
        for (chunk, extent) in order {
            let why = match () {
                () if extent.offset < end => "it overlaps another chunk",
                () if extent.offset.saturating_add(extent.bytes) > limit => "it reaches beyond its buffer",
                () => {
                    end = extent.offset + extent.bytes;
                    continue;
                }
            };
            return Err(LayoutError::Row { rank, buffer, chunk, why });
        }
        Ok(())
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
        let placed = self.input.iter().chain(&self.output).map(|extent| extent.bytes);
        placed.chain(self.scratch.iter().copied()).max().unwrap_or(0)
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
