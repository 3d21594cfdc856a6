//! What a caller asks for, and the same once it has been checked.

use std::ptr::NonNull;

use warpway_core::bootstrap::BootstrapError;
use warpway_core::memory::RegisteredMemory;
use warpway_core::point_to_point::PointToPointError;
use warpway_core::trace::Operation;
use warpway_core::{Error, Result};

use super::element::ElementType;
use crate::plan::BufferView;

/// Which way a message goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// From this rank.
    Send,
    /// To this rank.
    Receive,
}

impl Direction {
    pub(super) fn operation(self) -> Operation {
        match self {
            Self::Send => Operation::Send,
            Self::Receive => Operation::Recv,
        }
    }
}

/// One send, or one receive.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    /// Which.
    pub direction: Direction,
    /// The rank at the other end.
    pub peer: u32,
    /// The bytes; of a receive, bytes that may be written.
    pub data: BufferView<'a>,
    /// What they are.
    pub element: ElementType,
}

/// A message that has been checked: its bytes are there as long as the call lasts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Checked<'a> {
    pub(super) direction: Direction,
    pub(super) peer: u32,
    pub(super) first: NonNull<u8>,
    pub(super) bytes: u64,
    pub(super) element: ElementType,
    /// The registered memory that they lie in, and where.
    pub(super) registered: Option<(&'a RegisteredMemory, u64)>,
}

impl<'a> Message<'a> {
    /// # Errors
    /// `bootstrap.peer`; `mem.bounds` for a part outside of its buffer; `mem.device`; `p2p.read_only`.
    pub(super) fn check(&self, rank: u32, n_ranks: u32) -> Result<Checked<'a>> {
        let Self { direction, peer, data, element } = *self;
        let operation = direction.operation();
        if peer >= n_ranks {
            return Err(BootstrapError::NoSuchPeer { operation, peer, n_ranks }.into());
        }
        let bytes = data.bytes();
        let there = data.check(operation.name())?;
        let first = match data.memory() {
            _ if bytes == 0 => NonNull::dangling(),
            Some(memory) => memory.pointer(operation.name(), data.offset, bytes)?,
            None => data.slice().filter(|_| there).ok_or(Error::Internal {
                place: "message",
                what: "a view with bytes is of a memory or of a slice",
            })?,
        };
        if direction == Direction::Receive && bytes > 0 && data.is_read_only() {
            return Err(PointToPointError::ReadOnly { rank, peer, bytes }.into());
        }
        let registered = data.memory().map(|memory| (memory, data.offset));
        Ok(Checked { direction, peer, first, bytes, element, registered })
    }
}

impl Checked<'_> {
    /// Bytes and type, for people.
    pub(super) fn text(&self) -> String {
        describe(self.bytes, self.element)
    }

    fn start(&self) -> u64 {
        self.first.as_ptr() as u64
    }
}

pub(super) fn describe(bytes: u64, element: ElementType) -> String {
    format!("{bytes} bytes of {element}")
}

/// # Errors
/// `p2p.overlap` if a member receives into bytes that another one uses.
pub(super) fn check_disjoint(rank: u32, members: &[Checked<'_>]) -> Result<()> {
    let mut order: Vec<usize> = (0..members.len()).filter(|at| members[*at].bytes > 0).collect();
    order.sort_unstable_by_key(|at| members[*at].start());
    // In the order of their beginnings, a member overlaps an earlier one exactly if it begins before the latest end. Kept
    // for all members and for those that receive.
    let mut latest: [Option<(u64, usize)>; 2] = [None; 2];
    for at in order {
        let member = &members[at];
        let (start, end) = (member.start(), member.start() + member.bytes);
        let receives = member.direction == Direction::Receive;
        if let Some((other_end, other)) = latest[usize::from(!receives)]
            && start < other_end
        {
            let (first, second) = (other.min(at), other.max(at));
            let shared = other_end.min(end) - start;
            return Err(PointToPointError::Overlap { rank, first, second, shared }.into());
        }
        let later = |known: Option<(u64, usize)>| match known {
            Some((known_end, _)) if known_end >= end => known,
            _ => Some((end, at)),
        };
        latest[0] = later(latest[0]);
        if receives {
            latest[1] = later(latest[1]);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn member(direction: Direction, start: u64, bytes: u64) -> Checked<'static> {
        let first = NonNull::new(std::ptr::without_provenance_mut::<u8>(start as usize)).unwrap();
        let element = ElementType::of::<u8>();
        Checked { direction, peer: 0, first, bytes, element, registered: None }
    }

    proptest! {
        /// Against all pairs.
        #[test]
        fn overlaps_are_found_exactly_where_a_receive_shares_bytes(
            members in prop::collection::vec((any::<bool>(), 1u64..60, 0u64..9), 0..12)
        ) {
            let direction = |receives| if receives { Direction::Receive } else { Direction::Send };
            let members: Vec<_> =
                members.into_iter().map(|(receives, start, bytes)| member(direction(receives), start, bytes)).collect();
            let shared = |a: &Checked<'_>, b: &Checked<'_>| {
                (a.start() + a.bytes).min(b.start() + b.bytes).saturating_sub(a.start().max(b.start()))
            };
            let receives = |a: &Checked<'_>| a.direction == Direction::Receive;
            let conflict = |a: usize, b: usize| {
                let (a, b) = (&members[a], &members[b]);
                (receives(a) || receives(b)) && a.bytes > 0 && b.bytes > 0 && shared(a, b) > 0
            };
            let expected = (0..members.len()).any(|b| (0..b).any(|a| conflict(a, b)));
            match check_disjoint(3, &members) {
                Ok(()) => prop_assert!(!expected),
                Err(Error::PointToPoint(PointToPointError::Overlap { rank: 3, first, second, shared: found })) => {
                    prop_assert!(first < second && conflict(first, second));
                    prop_assert_eq!(found, shared(&members[first], &members[second]));
                }
                Err(error) => prop_assert!(false, "{}", error),
            }
        }
    }
}
