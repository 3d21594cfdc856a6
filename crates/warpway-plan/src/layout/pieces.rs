//! The bytes of one item: references that are processed together, cut where they stop lying side by side.

use super::grid::Grid;
use super::split::split;
use super::{Extent, LayoutError, MessageLayout};
use crate::ir::{BufferKind, Form, GroupMember};

/// A reference whose owner and buffer are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// The owner of the buffer.
    pub rank: u32,
    /// The buffer.
    pub buffer: BufferKind,
    /// First chunk.
    pub index: u64,
    /// Number of chunks.
    pub size: u64,
    /// Packets or raw data. Offsets are in bytes of data either way; packets lie at twice the offset.
    pub form: Form,
}

/// A stretch of an item that lies in one run in every reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Where it begins in the block's share of the item, or of the chunk in plans with sized chunks. Pipelines
    /// slice by it.
    pub position: u64,
    /// Bytes of data.
    pub bytes: u64,
    /// Bytes of data that written packets cover, padded with zeros beyond `bytes`; at least `bytes`.
    pub cover: u64,
}

impl Piece {
    /// The part that one slice of a pipeline handles, and how far it lies behind the beginning of the piece.
    pub fn slice(self, start: u64, bytes: u64) -> Option<(u64, Self)> {
        let end = start.saturating_add(bytes).min(self.position.saturating_add(self.cover));
        let from = start.max(self.position);
        if from >= end {
            return None;
        }
        let skipped = from - self.position;
        let cover = end - from;
        let bytes = self.bytes.saturating_sub(skipped).min(cover);
        Some((skipped, Self { position: from, bytes, cover }))
    }
}

/// The pieces of an item, in order. Meant to be kept and filled again.
#[derive(Debug, Clone, Default)]
pub struct Pieces {
    pieces: Vec<Piece>,
    offsets: Vec<u64>,
    width: usize,
}

impl Pieces {
    /// Each piece with the offset of its first byte in the buffer of each reference, in the order in which the
    /// references were given.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Piece, &[u64])> {
        let offsets = |at: usize| &self.offsets[at * self.width..(at + 1) * self.width];
        self.pieces.iter().enumerate().map(move |(at, piece)| (*piece, offsets(at)))
    }

    /// True if there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    fn clear(&mut self, width: usize) {
        self.pieces.clear();
        self.offsets.clear();
        self.width = width;
    }
}

/// How an item is divided.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Division {
    group: Option<GroupMember>,
    slice: Option<u64>,
}

impl MessageLayout {
    /// Fills `pieces` with the bytes of an item.
    ///
    /// `group` is the block's share; `slice` the bytes of a slice of the pipeline that the operation is in, where
    /// scratch chunks may be smaller than those of the message. References of unequal size (V207) give their common part.
    ///
    /// # Errors
    /// Chunks that the owner does not have; scratch chunks that are too small; offsets beyond 64 bits.
    pub fn place(
        &self,
        references: &[Placement],
        group: Option<GroupMember>,
        slice: Option<u64>,
        pieces: &mut Pieces,
    ) -> Result<(), LayoutError> {
        pieces.clear(references.len());
        for &Placement { rank, buffer, index, size, .. } in references {
            // Also what bounds the number of pieces by the message, whatever numbers the file has.
            let end = index.checked_add(size).ok_or(LayoutError::Overflow)?;
            if end > self.geometry.chunks(rank, buffer) {
                return Err(LayoutError::Reference { buffer, index, size });
            }
        }
        let division = Division { group, slice };
        let size = references.iter().map(|reference| reference.size).min().unwrap_or(0);
        if matches!(self.grid, Grid::Sized(_)) {
            return (0..size).try_for_each(|chunk| self.place_sized(references, chunk, division, pieces));
        }
        let total = size.checked_mul(self.chunk_bytes).ok_or(LayoutError::Overflow)?;
        let share = split(total, self.unit, group)?;
        let end = share.offset + share.bytes;
        let mut at = share.offset;
        while at < end {
            let (mut run, mut valid) = (end - at, u64::MAX);
            for reference in references {
                let found = self.locate(reference, at, division)?;
                pieces.offsets.push(found.offset);
                run = run.min(found.run);
                valid = valid.min(found.valid);
            }
            let position = at - share.offset;
            pieces.pieces.push(Piece { position, bytes: valid.min(run), cover: run });
            at += run;
        }
        Ok(())
    }

    fn locate(
        &self,
        reference: &Placement,
        at: u64,
        division: Division,
    ) -> Result<super::grid::Located, LayoutError> {
        if reference.buffer != BufferKind::Scratch {
            let found = self.grid.locate(reference.index, at, self.chunk_bytes);
            return found.ok_or(LayoutError::Overflow);
        }
        let Some(room) = self.reused else {
            return Grid::Even.locate(reference.index, at, self.chunk_bytes).ok_or(LayoutError::Overflow);
        };
        self.wrap(reference, at, (room, self.chunk_bytes), division)
    }

    /// A place in a scratch chunk that is smaller than the message's.
    fn wrap(
        &self,
        reference: &Placement,
        at: u64,
        (room, bytes): (u64, u64),
        Division { group, slice }: Division,
    ) -> Result<super::grid::Located, LayoutError> {
        // In reuse mode the verifier has checked the slices, and proves nothing about larger chunks. Counts come
        // unseen: packets of a later slice would look like those of an earlier one, and members of a group, which
        // begin anywhere in the chunk, would meet.
        let proven = |slice: u64| {
            let slices = self.geometry.reused_slices;
            slices.and_then(|n| slice.checked_mul(n)).is_some_and(|window| room.is_multiple_of(window))
        };
        let fits = |slice: u64| {
            let counted = matches!(self.grid, Grid::Sized(_));
            !counted || (proven(slice) && group.is_none() && reference.form == Form::Raw)
        };
        if reference.size > 1 || !slice.is_some_and(fits) {
            return Err(LayoutError::Reused { bytes, room });
        }
        let offset = reference.index.checked_mul(room).and_then(|base| base.checked_add(at % room));
        let offset = offset.ok_or(LayoutError::Overflow)?;
        Ok(super::grid::Located { offset, run: room - at % room, valid: u64::MAX })
    }

    /// One chunk of each reference, as the table says.
    fn place_sized(
        &self,
        references: &[Placement],
        chunk: u64,
        division: Division,
        pieces: &mut Pieces,
    ) -> Result<(), LayoutError> {
        let extent = |reference: &Placement| -> Result<Extent, LayoutError> {
            let &Placement { buffer, index, size, .. } = reference;
            let number = index.checked_add(chunk).ok_or(LayoutError::Overflow)?;
            let found = self.chunk(reference.rank, buffer, number);
            found.ok_or(LayoutError::Reference { buffer, index, size })
        };
        let mut bytes = u64::MAX;
        for reference in references {
            bytes = bytes.min(extent(reference)?.bytes);
        }
        let share = split(bytes, self.unit, division.group)?;
        let end = share.offset + share.bytes;
        let mut at = share.offset;
        while at < end {
            let mut run = end - at;
            for reference in references {
                let place = extent(reference)?;
                let wrapped = self.reused.filter(|_| reference.buffer == BufferKind::Scratch);
                let single = Placement { index: reference.index + chunk, size: 1, ..*reference };
                let offset = match wrapped.filter(|room| *room < bytes) {
                    Some(room) => {
                        let found = self.wrap(&single, at, (room, bytes), division)?;
                        run = run.min(found.run);
                        found.offset
                    }
                    None => place.offset.checked_add(at).ok_or(LayoutError::Overflow)?,
                };
                pieces.offsets.push(offset);
            }
            let cover = if at + run == end { run.next_multiple_of(self.payload) } else { run };
            pieces.pieces.push(Piece { position: at - share.offset, bytes: run, cover });
            at += run;
        }
        Ok(())
    }
}
