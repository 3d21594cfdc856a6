//! V6, as far as it needs no order of the steps: slots written twice, packets that nobody reads or that are none.

use std::collections::{BTreeMap, BTreeSet};

use super::accesses::{Access, Mode};
use super::extent::Extent;
use super::findings::Findings;
use super::intervals::IntervalSet;
use super::options::{Options, Target};
use super::report::{Diagnostic, Place, Region};
use super::scale::Cut;
use super::slots::Slots;
use super::trace::Trace;
use crate::ir::{Action, BufferKind, ChannelType, DataKind, Form, Protocol};

/// A packet write: where it goes, and the step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Written {
    rank: u32,
    origin: u64,
    cut: Cut,
    start: u64,
    end: u64,
    block: usize,
    step: usize,
}

impl Written {
    fn is_same_item(&self, other: &Self) -> bool {
        (self.rank, self.origin, self.cut) == (other.rank, other.origin, other.cut)
    }

    fn item_end(&self) -> u64 {
        self.origin.saturating_add(self.cut.item)
    }
}

/// What a pass over all accesses gathers.
#[derive(Default)]
struct Uses {
    written: Vec<Written>,
    /// By rank: bytes of MSCCL++'s single scratch used as packets, in units of raw data, with an operation.
    packets: BTreeMap<u32, (IntervalSet, Place)>,
    raw: Vec<(Extent, Place)>,
    /// Port puts of packets: what they read.
    forwarded: Vec<(Extent, Place)>,
    first: Option<Place>,
}

/// True if slots are written twice: then there is nothing to be said of who reads what.
pub(super) fn check(trace: &Trace<'_>, options: &Options<'_>, findings: &mut Findings) -> bool {
    let mut uses = gather(trace);
    if let Some(place) = uses.first.clone().filter(|_| trace.plan().protocol == Protocol::Simple) {
        let message = "packet operations in a plan of protocol Simple: MSCCL++ sizes its scratch too small";
        findings.push(Diagnostic::warning(607, message).at(place).hint("set the protocol to LL"));
    }
    if options.target == Target::Mscclpp {
        single_scratch(trace, &uses, findings);
    }
    uses.written.sort_unstable();
    for (extent, place) in &uses.forwarded {
        let first = uses.written.partition_point(|w| w.rank < extent.rank);
        let of_rank = uses.written[first..].iter().take_while(|w| w.rank == extent.rank);
        let (start, end) = extent.whole();
        if extent.buffer != BufferKind::Scratch
            || !of_rank.into_iter().any(|w| w.origin < end && start < w.item_end())
        {
            let message = "a port put of packets whose source holds no packets";
            let hint = "pack the data into the local scratch first (cpkt), or put it raw";
            findings.push(
                Diagnostic::error(608, message).at(place.clone()).region(region(trace, extent)).hint(hint),
            );
        }
    }
    written_twice(trace, &uses.written, findings)
}

fn gather(trace: &Trace<'_>) -> Uses {
    let mut uses = Uses::default();
    let mut accesses: Vec<Access> = Vec::new();
    for (block, of) in trace.blocks.iter().enumerate() {
        for step in of.steps.clone() {
            let Action::Data(data) = trace.steps[step].action else { continue };
            let place = || trace.place(block, step);
            if data.kind.uses_packets() && uses.first.is_none() {
                uses.first = Some(place());
            }
            let forwards = data.kind == DataKind::PutPackets && data.channel_type == Some(ChannelType::Port);
            accesses.clear();
            trace.accesses(block, &trace.steps[step], &mut accesses);
            for access in accesses.iter().filter(|a| !a.extent.is_empty()) {
                let extent = access.extent;
                match (access.form, access.mode) {
                    (Form::Packets, Mode::Read) if forwards => uses.forwarded.push((extent, place())),
                    (Form::Raw, _) if extent.buffer == BufferKind::Scratch => {
                        uses.raw.push((extent, place()))
                    }
                    (Form::Packets, mode) if extent.buffer == BufferKind::Scratch => {
                        let Extent { rank, origin, cut, start, end, .. } = extent;
                        if mode == Mode::Write {
                            uses.written.push(Written { rank, origin, cut, start, end, block, step });
                        }
                        let (from, to) = extent.whole();
                        let of_rank = uses.packets.entry(rank);
                        let (set, _) = of_rank.or_insert_with(|| (IntervalSet::default(), place()));
                        set.insert(from.saturating_mul(2), to.saturating_mul(2));
                    }
                    _ => {}
                }
            }
        }
    }
    uses
}

/// V603 and V610: what MSCCL++'s one scratch buffer does not bear.
fn single_scratch(trace: &Trace<'_>, uses: &Uses, findings: &mut Findings) {
    let mut reported = BTreeSet::new();
    for (extent, place) in &uses.raw {
        let (start, end) = extent.whole();
        let packets = uses.packets.get(&extent.rank).filter(|(set, _)| set.touches(start, end));
        if let Some((_, other)) = packets.filter(|_| reported.insert((603, extent.rank))) {
            let message =
                "raw data and packets share bytes of MSCCL++'s scratch: packet chunk k lies at 2k chunks";
            let found = Diagnostic::error(603, message).at(place.clone()).at(other.clone());
            let hint = "use other scratch chunks for one of them";
            findings.push(found.region(region(trace, extent)).hint(hint));
        }
        if trace.plan().double_scratch && reported.insert((610, extent.rank)) {
            let message = "raw scratch in a plan with double buffering: MSCCL++ shifts only packets";
            let found = Diagnostic::error(610, message).at(place.clone()).region(region(trace, extent));
            findings.push(found.hint("do not use double buffering"));
        }
    }
}

fn written_twice(trace: &Trace<'_>, written: &[Written], findings: &mut Findings) -> bool {
    let mut found = false;
    let mut report = |a: &Written, b: &Written| {
        let (a, b) = if (a.block, a.step) <= (b.block, b.step) { (a, b) } else { (b, a) };
        let chunk = trace.scale.chunk.max(1);
        let chunks = (a.origin.max(b.origin) / chunk, a.item_end().min(b.item_end()).div_ceil(chunk));
        let region = Region { rank: a.rank, buffer: BufferKind::Scratch, chunks };
        let message = "packet slots are written twice in one launch: a reader may miss the first";
        let hint = "give each write a scratch chunk of its own";
        let places = (trace.place(a.block, a.step), trace.place(b.block, b.step));
        findings.push(Diagnostic::error(601, message).at(places.0).at(places.1).region(region).hint(hint));
        found = true;
    };
    // The item that reaches furthest so far: one that is cut otherwise must begin behind it.
    let mut furthest: Option<&Written> = None;
    for (at, next) in written.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|before| written.get(before));
        if let Some(before) = before.filter(|b| b.is_same_item(next)) {
            if before.start == next.start {
                report(before, next);
            }
            continue;
        }
        if let Some(last) = furthest.filter(|last| last.rank == next.rank) {
            if next.origin < last.item_end() {
                report(last, next);
            }
            if next.item_end() <= last.item_end() {
                continue;
            }
        }
        furthest = Some(next);
    }
    found
}

/// V605: packets that nobody reads.
pub(super) fn unread(trace: &Trace<'_>, slots: &Slots, findings: &mut Findings) {
    for write in &slots.writes {
        let mut read = IntervalSet::default();
        for reader in &write.readers {
            read.insert(reader.common.0, reader.common.1);
        }
        if !read.covers(write.extent.start, write.extent.end) {
            let message = "packets are written and never read";
            let place = trace.place(write.by.block, write.by.step);
            findings.push(Diagnostic::warning(605, message).at(place).region(region(trace, &write.extent)));
        }
    }
}

/// The chunks of an extent.
pub(super) fn region(trace: &Trace<'_>, extent: &Extent) -> Region {
    Region { rank: extent.rank, buffer: extent.buffer, chunks: extent.chunks(&trace.scale) }
}
