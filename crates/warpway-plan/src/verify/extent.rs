//! Which units of which buffer a data operation touches, piece by piece.

use super::scale::{Cut, Scale};
use crate::ir::{BufferKind, DataOperation, Reference};

/// Units `start..end` of one buffer of one rank, cut out of an item that begins at `origin`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Extent {
    /// Owner of the buffer.
    pub(super) rank: u32,
    /// Which of its buffers.
    pub(super) buffer: BufferKind,
    /// First unit of the piece.
    pub(super) start: u64,
    /// The unit after the last; equal to `start` if the piece is empty.
    pub(super) end: u64,
    /// First unit of the item.
    pub(super) origin: u64,
    /// How the item is cut.
    pub(super) cut: Cut,
}

impl Extent {
    /// True if both may touch the same byte at some size.
    pub(super) fn meets(&self, other: &Self) -> bool {
        if (self.rank, self.buffer) != (other.rank, other.buffer) || self.is_empty() || other.is_empty() {
            return false;
        }
        if (self.origin, self.cut) == (other.origin, other.cut) {
            return self.start < other.end && other.start < self.end;
        }
        let (a, b) = (self.whole(), other.whole());
        a.0 < b.1 && b.0 < a.1
    }

    /// The units that both may touch at some size, relative to the start of this one's buffer. Exact if both cut
    /// the same item the same way, or if one is whole and holds the other's item; otherwise each counts as its
    /// whole item.
    pub(super) fn common(&self, other: &Self) -> Option<(u64, u64)> {
        if !self.meets(other) {
            return None;
        }
        let (a, b) = match (self.is_exact_with(other), self.holds(other), other.holds(self)) {
            (true, true, false) => (self.whole(), (other.start, other.end)),
            (true, false, true) => ((self.start, self.end), other.whole()),
            (true, ..) => ((self.start, self.end), (other.start, other.end)),
            (false, ..) => (self.whole(), other.whole()),
        };
        let both = (a.0.max(b.0), a.1.min(b.1));
        (both.0 < both.1).then_some(both)
    }

    /// True if the units that both touch are known for every size.
    pub(super) fn is_exact_with(&self, other: &Self) -> bool {
        (self.origin, self.cut) == (other.origin, other.cut)
            || (self.is_uncut() && other.is_uncut())
            || self.holds(other)
            || other.holds(self)
    }

    /// True if it is its whole item.
    pub(super) fn is_uncut(&self) -> bool {
        self.cut.members <= 1 && self.cut.slice == 0
    }

    /// True if it is whole and the other's item lies inside.
    fn holds(&self, other: &Self) -> bool {
        let (a, b) = (self.whole(), other.whole());
        self.is_uncut() && a.0 <= b.0 && b.1 <= a.1
    }

    /// The same somewhere else: for buffers that are one memory.
    pub(super) fn moved(self, by: u64) -> Option<Self> {
        Some(Self {
            start: self.start.checked_add(by)?,
            end: self.end.checked_add(by)?,
            origin: self.origin.checked_add(by)?,
            ..self
        })
    }

    /// True if the piece has no units.
    pub(super) fn is_empty(&self) -> bool {
        self.start >= self.end
    }

    /// The units of the item.
    pub(super) fn whole(&self) -> (u64, u64) {
        (self.origin, self.origin.saturating_add(self.cut.item))
    }

    /// The chunks that the item touches: first, and the one after the last.
    pub(super) fn chunks(&self, scale: &Scale) -> (u64, u64) {
        let (start, end) = self.whole();
        (start / scale.chunk, end.div_ceil(scale.chunk))
    }
}

/// The slice of a pipeline that a step works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Slice {
    /// Which iteration.
    pub(super) iteration: u64,
    /// Units of a slice.
    pub(super) units: u64,
}

/// The piece of `reference` that one block handles: the share of its group, of that the slice of its pipeline.
/// `owner` and `buffer` are what the reference resolves to. `None` if the numbers exceed 64 bits.
pub(super) fn piece(
    scale: &Scale,
    data: &DataOperation,
    slice: Option<Slice>,
    reference: &Reference,
    (owner, buffer): (u32, BufferKind),
) -> Option<Extent> {
    let origin = reference.index().checked_mul(scale.chunk)?;
    let item = reference.size().checked_mul(scale.chunk)?;
    let whole = origin.checked_add(item)?;
    let members = data.group.map_or(1, |g| g.size.max(1));
    let member = data.group.map_or(0, |g| g.member.min(g.size.saturating_sub(1)));
    let at = |t: u32| (u128::from(item) * u128::from(t) / u128::from(members)) as u64;
    let (mut start, mut end) = (origin + at(member), origin + at(member + 1));
    if let Some(Slice { iteration, units }) = slice {
        let offset = iteration.checked_mul(units)?;
        start = start.checked_add(offset)?.min(end);
        end = start.checked_add(units)?.min(end);
    }
    debug_assert!(end <= whole);
    let cut = Cut { item, members, slice: slice.map_or(0, |s| s.units) };
    Some(Extent { rank: owner, buffer, start, end, origin, cut })
}
