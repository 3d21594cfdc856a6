//! Multicast results that nobody reads. A load-reduce into a local chunk followed by a multicast store of that chunk is
//! one operation of the hardware that leaves the local chunk unwritten, so they may be joined only if the chunk is not
//! read afterwards (X3).

use std::collections::BTreeMap;
use std::ops::Range;

use super::intervals::Intervals;
use crate::builder::{Alias, Block, Program, Step, StepAction};
use crate::ir::{BufferKind, ChannelType, DataKind, DataOperation, Form, Reference};

/// A place: owner, buffer under its one name, and chunks.
type Place = (u32, BufferKind, Range<u64>);

/// Who reads a range.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reader {
    /// Only this block of this rank.
    One(u32, u32),
    Several,
}

/// Marks every multicast store whose local source nothing reads later: no later operation of the block before it is
/// overwritten, no other block, no peer, and not the caller.
pub(crate) fn mark(program: &mut Program) {
    if !program.ranks.iter().flat_map(|rank| &rank.blocks).any(|block| has_load_reduce(&block.steps)) {
        return;
    }
    let readers = readers(program);
    for rank in 0..program.n_ranks() {
        let alias = program.options().shape.alias(rank);
        for number in 0..program.ranks[rank as usize].blocks.len() {
            let mut block = std::mem::take(&mut program.ranks[rank as usize].blocks[number]);
            if has_load_reduce(&block.steps) {
                let mut steps = std::mem::take(&mut block.steps);
                let view = View { program, rank, alias, block: &block };
                let mut live =
                    Live { view, number: number as u32, readers: &readers, ranges: BTreeMap::new() };
                live.walk_back(&mut steps);
                block.steps = steps;
            }
            program.ranks[rank as usize].blocks[number] = block;
        }
    }
}

fn has_load_reduce(steps: &[Step]) -> bool {
    let is = |step: &Step| match &step.action {
        StepAction::Data(data) => data.operation.kind == DataKind::GroupLoadReduce,
        _ => false,
    };
    crate::builder::flat(steps).any(is)
}

/// All raw reads of the program by place.
fn readers(program: &Program) -> BTreeMap<(u32, BufferKind), Intervals<Reader>> {
    let mut readers: BTreeMap<(u32, BufferKind), Intervals<Reader>> = BTreeMap::new();
    for (rank, entry) in (0..).zip(&program.ranks) {
        let alias = program.options().shape.alias(rank);
        for (number, block) in (0..).zip(&entry.blocks) {
            let view = View { program, rank, alias, block };
            let mut own: BTreeMap<(u32, BufferKind), Intervals<()>> = BTreeMap::new();
            for step in crate::builder::flat(&block.steps) {
                let StepAction::Data(data) = &step.action else { continue };
                for (owner, buffer, range) in view.reads(&data.operation) {
                    own.entry((owner, buffer)).or_default().insert(range, ());
                }
            }
            for (place, ranges) in own {
                let all = readers.entry(place).or_default();
                ranges.iter().for_each(|(range, ())| add_reader(all, range, Reader::One(rank, number)));
            }
        }
    }
    readers
}

/// A range that a block reads; it has not named any of it before.
fn add_reader(all: &mut Intervals<Reader>, range: Range<u64>, reader: Reader) {
    let shared: Vec<Range<u64>> = all
        .overlapping(range.clone())
        .map(|(other, _)| other.start.max(range.start)..other.end.min(range.end))
        .collect();
    all.insert(range, reader);
    shared.into_iter().for_each(|range| all.insert(range, Reader::Several));
}

/// Operations of one block, seen as places.
struct View<'p> {
    program: &'p Program,
    rank: u32,
    alias: Alias,
    block: &'p Block,
}

impl View<'_> {
    fn reads(&self, operation: &DataOperation) -> Vec<Place> {
        let raw = |(at, _): &(usize, &Reference)| operation.source_form(*at) == Form::Raw;
        let sources = operation.sources.iter().enumerate().filter(raw);
        sources.flat_map(|(_, source)| self.places(operation, source)).collect()
    }

    /// The places of one reference: a multicast region has one per member.
    fn places(&self, operation: &DataOperation, reference: &Reference) -> Vec<Place> {
        let name = |owner: u32, buffer, index: u64, size: u64| {
            let (buffer, index) = self.program.options().shape.alias(owner).resolve(buffer, index);
            (owner, buffer, index..index.saturating_add(size))
        };
        match *reference {
            Reference::Local { buffer, index, size } => vec![name(self.rank, buffer, index, size)],
            Reference::Remote { position, index, size } => {
                let access = operation.channel_type.unwrap_or(ChannelType::Memory);
                let number = self.block.tables.remote_numbers(access).get(position as usize);
                let entry = &self.program.ranks[self.rank as usize];
                let remote = number.and_then(|number| entry.remote_buffers.get(*number as usize));
                remote.map(|remote| name(remote.rank, remote.buffer, index, size)).into_iter().collect()
            }
            Reference::Switch { position, index, size } => {
                let numbers = self.block.tables.switch.numbers();
                let channels = &self.program.ranks[self.rank as usize].switch;
                let number = numbers.get(position as usize).and_then(|number| channels.get(*number as usize));
                let multicast = number.and_then(|number| self.program.multicasts.get(*number as usize));
                let members =
                    multicast.map(|m| m.members.iter().map(|(owner, _)| name(*owner, m.buffer, index, size)));
                members.into_iter().flatten().collect()
            }
        }
    }
}

/// What of the rank is still read by the block, going backwards.
struct Live<'p> {
    view: View<'p>,
    number: u32,
    readers: &'p BTreeMap<(u32, BufferKind), Intervals<Reader>>,
    ranges: BTreeMap<BufferKind, Intervals<()>>,
}

impl Live<'_> {
    fn walk_back(&mut self, steps: &mut [Step]) {
        for step in steps.iter_mut().rev() {
            match &mut step.action {
                StepAction::Data(data) => {
                    if let (DataKind::GroupStore, Some(source)) =
                        (data.operation.kind, data.operation.sources.first())
                    {
                        let places = self.view.places(&data.operation, source);
                        data.source_unused_later = !places.iter().any(|place| self.is_read(place));
                    }
                    self.pass(&data.operation);
                }
                // Slices of different iterations are different bytes, so the body is walked once.
                StepAction::Pipeline(pipeline) => self.walk_back(&mut pipeline.body),
                _ => {}
            }
        }
    }

    fn is_read(&self, (owner, buffer, range): &Place) -> bool {
        let by_caller = *buffer == BufferKind::Output
            || (self.view.alias.joins_buffers() && *buffer == BufferKind::Input);
        let me = Reader::One(self.view.rank, self.number);
        let all = self.readers.get(&(*owner, *buffer));
        let by_others =
            all.is_some_and(|all| all.overlapping(range.clone()).any(|(_, reader)| *reader != me));
        let own = self.ranges.get(buffer);
        let by_me = own.is_some_and(|own| own.overlapping(range.clone()).next().is_some());
        by_caller || by_me || by_others
    }

    fn pass(&mut self, operation: &DataOperation) {
        // Part of what a group's member "writes" is written by the others, so only whole operations end a life.
        if operation.group.is_none() {
            for destination in &operation.destinations {
                if let Reference::Local { .. } = destination {
                    for (_, buffer, range) in self.view.places(operation, destination) {
                        self.ranges.entry(buffer).or_default().remove(range);
                    }
                }
            }
        }
        for (owner, buffer, range) in self.view.reads(operation) {
            if owner == self.view.rank {
                self.ranges.entry(buffer).or_default().insert(range, ());
            }
        }
    }
}
