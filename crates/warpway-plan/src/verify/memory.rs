//! The contents of one buffer during the symbolic run.
//!
//! Positions inside chunks are not numbers: where a piece of a group or of a pipeline ends depends on the size. A
//! [`Partition`] says how an item is cut, a label which of its pieces is meant. A piece has a part in *every* chunk
//! of its item, because sizes exist for which it has. Pieces of one partition are told apart; whoever reads in
//! another partition must find the same value in all pieces ([`Value::MIXED`] otherwise).

use std::ops::Range;
use std::rc::Rc;

use super::range_map::{Coalesce, RangeMap};
use super::values::Value;

/// How an item is cut into pieces. Equal partitions have equal pieces, at every size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Partition {
    /// First chunk and number of chunks of the item; both 0 if every chunk is cut by itself (sized plans).
    pub(super) item: (u64, u64),
    /// Members of the group.
    pub(super) members: u32,
    /// Units of a slice; 0 outside of pipelines.
    pub(super) slice: u64,
    /// Slices of the greatest share.
    pub(super) slices: u64,
}

impl Partition {
    /// Number of pieces.
    pub(super) fn pieces(&self) -> u64 {
        u64::from(self.members).saturating_mul(self.slices)
    }
}

/// A piece of an item, or all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) partition: Partition,
    /// Which piece: members in order, of each its slices in order.
    pub(super) label: u64,
}

impl Piece {
    fn is_whole(&self) -> bool {
        self.partition.pieces() <= 1
    }
}

/// What chunks hold.
#[derive(Debug, Clone)]
pub(super) enum Content {
    /// The same in all pieces, however cut.
    Whole(Value),
    /// By piece.
    Parts(Rc<Parts>),
}

/// Values by label.
#[derive(Debug, Clone)]
pub(super) struct Parts {
    partition: Partition,
    values: RangeMap<Value>,
}

impl Coalesce for Content {
    fn coalesces(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Whole(a), Self::Whole(b)) => a == b,
            (Self::Parts(a), Self::Parts(b)) => Rc::ptr_eq(a, b),
            _ => false,
        }
    }
}

impl Content {
    /// The values of all pieces.
    pub(super) fn values(&self) -> impl Iterator<Item = Value> + '_ {
        let (whole, parts) = match self {
            Self::Whole(value) => (Some(*value), None),
            Self::Parts(parts) => (None, Some(parts)),
        };
        let parts = parts.into_iter().flat_map(|p| p.values.segments(0..p.partition.pieces()));
        whole.into_iter().chain(parts.map(|(_, value)| *value))
    }

    /// True if every position holds the same, as far as can be told, where chunks of `self` are counted as in
    /// `other`.
    pub(super) fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Whole(a), Self::Whole(b)) => a == b,
            (Self::Parts(a), Self::Parts(b)) => {
                let pieces = 0..a.partition.pieces();
                Rc::ptr_eq(a, b)
                    || a.partition == b.partition
                        && a.values.len() == b.values.len()
                        && a.values.segments(pieces.clone()).eq(b.values.segments(pieces))
            }
            _ => false,
        }
    }

    fn read(&self, piece: &Piece) -> Value {
        match self {
            Self::Whole(value) => *value,
            Self::Parts(parts) if parts.partition == piece.partition => {
                let label = piece.label;
                parts.values.segments(label..label.saturating_add(1)).next().map_or(Value::MIXED, |(_, v)| *v)
            }
            Self::Parts(_) => Value::MIXED,
        }
    }

    /// The content after `piece` was overwritten, and what that cost.
    fn written(self, piece: &Piece, new: Value) -> (Self, u64) {
        let (partition, label) = (piece.partition, piece.label);
        let (mut parts, cost) = match self {
            Self::Whole(old) if old == new => return (Self::Whole(old), 1),
            Self::Parts(parts) if parts.partition == partition => {
                let cost = if Rc::strong_count(&parts) > 1 { parts.values.len() as u64 } else { 1 };
                (parts, cost)
            }
            other => {
                // Which positions of a foreign partition are overwritten depends on the size.
                let old = if let Self::Whole(old) = other { old } else { Value::MIXED };
                let mut values = RangeMap::new(old);
                values.set(0..partition.pieces(), old);
                (Rc::new(Parts { partition, values }), 1)
            }
        };
        Rc::make_mut(&mut parts).values.set(label..label.saturating_add(1), new);
        match parts.values.len() {
            0 | 1 => (Self::Whole(new), cost),
            _ => (Self::Parts(parts), cost),
        }
    }
}

/// Consecutive chunks and what each piece of them holds.
pub(super) type Run = (Range<u64>, Value);

/// See the module's page.
#[derive(Debug, Clone)]
pub(super) struct Memory(RangeMap<Content>);

impl Memory {
    /// Nothing written yet.
    pub(super) fn undefined() -> Self {
        Self(RangeMap::new(Content::Whole(Value::UNDEFINED)))
    }

    /// Fills whole chunks.
    pub(super) fn fill(&mut self, chunks: Range<u64>, value: Value) {
        self.0.set(chunks, Content::Whole(value));
    }

    /// What `chunks` hold, in order and without holes.
    pub(super) fn contents(&self, chunks: Range<u64>) -> impl Iterator<Item = (Range<u64>, &Content)> {
        self.0.segments(chunks)
    }

    /// Appends what one piece of an item holds, its chunks counted from the item's first. Returns the cost.
    pub(super) fn read(&self, item: Range<u64>, piece: &Piece, out: &mut Vec<Run>) -> u64 {
        let before = out.len();
        for (chunks, content) in self.0.segments(item.clone()) {
            let value = content.read(piece).shifted(item.start);
            out.push((chunks.start - item.start..chunks.end - item.start, value));
        }
        (out.len() - before) as u64
    }

    /// Overwrites one piece of the item that begins at `first`. Returns the cost.
    pub(super) fn write(&mut self, first: u64, piece: &Piece, runs: &[Run]) -> u64 {
        let mut cost = 0;
        for (chunks, value) in runs {
            let value = value.shifted(0_u64.wrapping_sub(first));
            let chunks = first.saturating_add(chunks.start)..first.saturating_add(chunks.end);
            if piece.is_whole() {
                self.0.set(chunks, Content::Whole(value));
                cost += 1;
            } else {
                self.0.update(chunks, |_, old| {
                    let (new, more) = old.written(piece, value);
                    cost += more;
                    new
                });
            }
        }
        cost
    }
}
