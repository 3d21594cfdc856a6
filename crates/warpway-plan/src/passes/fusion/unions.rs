//! Unions: several operations of one kind become one with several items, or with several sources.

use std::collections::HashMap;

use crate::ir::{BufferKind, ChannelType, DataKind, DataOperation, Reference};
use crate::passes::intervals::Intervals;
use crate::passes::{Compat, WarningKind};

/// Where an operation stores to, so that a union of n items takes n log n.
#[derive(Default)]
pub(super) struct Targets {
    /// The start of a range is its value, so that ranges of different items stay apart.
    places: HashMap<Place, Intervals<u64>>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
enum Place {
    Local(BufferKind),
    Remote(u32),
    Switch(u32),
}

/// How a range lies to those of an operation.
#[derive(PartialEq, Eq)]
enum Overlap {
    None,
    Same,
    Partial,
}

impl Targets {
    pub(super) fn of(operation: &DataOperation) -> Self {
        let mut targets = Self::default();
        operation.destinations.iter().for_each(|destination| targets.add(destination));
        targets
    }

    fn add(&mut self, reference: &Reference) {
        let range = reference.index()..reference.index().saturating_add(reference.size());
        self.places.entry(place(reference)).or_default().insert(range, reference.index());
    }

    fn overlap(&self, reference: &Reference) -> Overlap {
        let range = reference.index()..reference.index().saturating_add(reference.size());
        let Some(intervals) = self.places.get(&place(reference)) else { return Overlap::None };
        match intervals.overlapping(range.clone()).next() {
            None => Overlap::None,
            Some((found, _)) if found == range => Overlap::Same,
            Some(_) => Overlap::Partial,
        }
    }
}

fn place(reference: &Reference) -> Place {
    match *reference {
        Reference::Local { buffer, .. } => Place::Local(buffer),
        Reference::Remote { position, .. } => Place::Remote(position),
        Reference::Switch { position, .. } => Place::Switch(position),
    }
}

/// What became of a second transfer.
pub(super) enum Transfer {
    Joined,
    /// Joined, and an item of the first is overwritten as a whole.
    Overwrites(WarningKind),
    Apart,
}

/// Two gets, puts of one kind, or forwards of packets.
pub(super) fn transfers(
    current: &mut DataOperation,
    next: &mut DataOperation,
    targets: &mut Targets,
    compat: Compat,
) -> Transfer {
    use DataKind::{Get, Put, PutPackets, PutWithSignal, PutWithSignalAndFlush, ReadPutPackets};
    if current.channel_type != next.channel_type || current.group != next.group {
        return Transfer::Apart;
    }
    match current.kind {
        ReadPutPackets => {
            if current.sources != next.sources {
                return Transfer::Apart;
            }
            current.destinations.append(&mut next.destinations);
            current.channels.append(&mut next.channels);
            return Transfer::Joined;
        }
        Get | Put | PutPackets | PutWithSignal | PutWithSignalAndFlush => {}
        _ => return Transfer::Apart,
    }
    if first_size(&current.sources) != first_size(&next.sources) {
        return Transfer::Apart;
    }
    let mut overwrites = false;
    if compat == Compat::None {
        // Items on memory channels run in list order with the same threads on the same bytes, so an equal
        // destination is safe. Port items are pushed by different threads.
        let port = current.channel_type == Some(ChannelType::Port);
        // So two signals of one channel would have no order, nor would a wait know which put it has seen.
        let signals = matches!(current.kind, PutWithSignal | PutWithSignalAndFlush);
        if port && signals && next.channels.iter().any(|channel| current.channels.contains(channel)) {
            return Transfer::Apart;
        }
        for destination in &next.destinations {
            match targets.overlap(destination) {
                Overlap::None => {}
                Overlap::Same if !port => overwrites = true,
                Overlap::Same | Overlap::Partial => return Transfer::Apart,
            }
        }
        next.destinations.iter().for_each(|destination| targets.add(destination));
    }
    current.sources.append(&mut next.sources);
    current.destinations.append(&mut next.destinations);
    current.channels.append(&mut next.channels);
    if overwrites { Transfer::Overwrites(WarningKind::OverwrittenTransfer) } else { Transfer::Joined }
}

fn first_size(references: &[Reference]) -> Option<u64> {
    references.first().map(Reference::size)
}

/// What became of a second fold.
pub(super) enum Fold {
    Joined,
    Apart,
    /// The second does not read what the first has written to the same place.
    Overwritten(WarningKind),
}

/// Two folds of one kind into one chunk. Joining them keeps the result only if the chunk is the first source of the
/// second and not among its others (X1).
pub(super) fn reduces(current: &mut DataOperation, next: &mut DataOperation, compat: Compat) -> Fold {
    let joinable = matches!(current.kind, DataKind::Reduce | DataKind::ReducePackets | DataKind::ReadReduce);
    let (Some(fold), Some(next_fold)) = (&mut current.fold, &next.fold) else { return Fold::Apart };
    let same = current.sources.first() == next.sources.first()
        && current.destinations == next.destinations
        && current.channel_type == next.channel_type
        && fold.op == next_fold.op
        && current.group == next.group;
    let (Some(first), Some(result), true) =
        (next.sources.first(), next.destinations.first(), joinable && same)
    else {
        return Fold::Apart;
    };
    if compat == Compat::None {
        let reads_result = next.sources.iter().skip(1).any(|source| overlaps(source, result));
        if result != first {
            let read = reads_result || overlaps(first, result);
            return if read { Fold::Apart } else { Fold::Overwritten(WarningKind::OverwrittenReduce) };
        }
        if reads_result || next_fold.order.as_ref().is_some_and(|order| order.first() != Some(&0)) {
            return Fold::Apart;
        }
    }
    if fold.order.is_some() || next_fold.order.is_some() {
        let offset = current.sources.len() as u32 - 1;
        let count = next.sources.len() as u32;
        let listed = || (0..count).collect();
        let order = fold.order.get_or_insert_with(|| (0..=offset).collect());
        let further = next_fold.order.clone().unwrap_or_else(listed);
        order.extend(further.into_iter().skip(1).map(|position| position + offset));
    }
    current.sources.extend(next.sources.drain(1..));
    Fold::Joined
}

/// Two references with a chunk in common.
fn overlaps(a: &Reference, b: &Reference) -> bool {
    let end = |r: &Reference| r.index().saturating_add(r.size());
    place(a) == place(b) && a.index() < end(b) && b.index() < end(a)
}
