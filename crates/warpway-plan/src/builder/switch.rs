//! Multicast: one channel over a buffer of several ranks.

use super::error::{BuildError, BuildProblem, Site};
use super::handles::{Blocks, Chunk, SwitchGroup, SwitchRegion, duplicate};
use super::program::{Context, Program};
use super::transfer::{Draft, Operand};
use crate::ir::{BufferKind, DataKind, Fold, ReduceOp};

/// A switch channel as its program knows it.
#[derive(Debug, Clone)]
pub(crate) struct Multicast {
    pub(crate) buffer: BufferKind,
    /// The members in the order of the program, each with its number of this channel.
    pub(crate) members: Vec<(u32, u32)>,
    /// The chunk after the last that an operation on scratch needs, and who needs it: the scratch may still grow
    /// after the call.
    needed: Option<(u64, Site)>,
}

impl Multicast {
    /// The number of the channel on a rank; zero if that is no member, which callers have excluded.
    pub(crate) fn number_at(&self, rank: u32) -> u32 {
        self.members.iter().find(|(member, _)| *member == rank).map_or(0, |(_, number)| *number)
    }
}

impl Program {
    /// A new multicast channel over one buffer of different ranks.
    ///
    /// # Errors
    /// [`BuildProblem::Empty`], [`BuildProblem::Duplicate`], [`BuildProblem::RankOutOfRange`].
    #[track_caller]
    pub fn switch_channel(&mut self, ranks: &[u32], buffer: BufferKind) -> Result<SwitchGroup, BuildError> {
        let at = self.context("switch_channel", ranks.first().copied().unwrap_or(0), None);
        at.require(!ranks.is_empty(), || BuildProblem::Empty { what: "ranks" })?;
        if let Some(number) = duplicate(ranks) {
            return Err(at.error(BuildProblem::Duplicate { what: "rank", number }));
        }
        ranks.iter().try_for_each(|rank| self.check_rank(&at, *rank))?;
        let number = self.multicasts.len() as u32;
        let mut members = Vec::with_capacity(ranks.len());
        for &rank in ranks {
            let list = &mut self.ranks[rank as usize].switch;
            members.push((rank, list.len() as u32));
            list.push(number);
        }
        self.multicasts.push(Multicast { buffer, members, needed: None });
        Ok(SwitchGroup { number })
    }

    /// Joins the members' copies of a region into a local chunk.
    ///
    /// # Errors
    /// [`BuildProblem::NotInGroup`], [`BuildProblem::WrongRank`], [`BuildProblem::SizeMismatch`],
    /// [`BuildProblem::BeyondBuffer`], [`BuildProblem::UnknownHandle`], [`BuildProblem::BlockOutOfRange`].
    #[track_caller]
    pub fn switch_reduce(
        &mut self,
        region: SwitchRegion,
        destination: Chunk,
        block: u32,
        op: ReduceOp,
    ) -> Result<(), BuildError> {
        let at = self.context("switch_reduce", region.rank, Some(block));
        self.check_region(&at, "destination", region, destination)?;
        self.push_data(
            &at,
            region.rank,
            Blocks::One(block),
            Draft {
                kind: DataKind::GroupLoadReduce,
                channel: None,
                sources: vec![Operand::Region(region)],
                destinations: vec![Operand::Local(destination)],
                fold: Some(Fold { op, order: None }),
                identity: destination.identity,
            },
        )
    }

    /// Stores a local chunk into every member's copy of a region.
    ///
    /// # Errors
    /// As those of [`switch_reduce`](Self::switch_reduce).
    #[track_caller]
    pub fn switch_broadcast(
        &mut self,
        region: SwitchRegion,
        source: Chunk,
        block: u32,
    ) -> Result<(), BuildError> {
        let at = self.context("switch_broadcast", region.rank, Some(block));
        self.push_broadcast(&at, DataKind::GroupStore, region, source, block)
    }

    /// Waits for packets of local scratch and stores them into every member's scratch.
    ///
    /// # Errors
    /// As those of [`switch_reduce`](Self::switch_reduce), and [`BuildProblem::NotScratch`].
    #[track_caller]
    pub fn switch_broadcast_packets(
        &mut self,
        region: SwitchRegion,
        source: Chunk,
        block: u32,
    ) -> Result<(), BuildError> {
        let at = self.context("switch_broadcast_packets", region.rank, Some(block));
        at.scratch("source", source)?;
        if let Some(multicast) = self.multicasts.get(region.channel.number as usize) {
            let (role, found) = ("buffer of the channel", multicast.buffer);
            at.require(found == BufferKind::Scratch, || BuildProblem::NotScratch { role, found })?;
        }
        self.push_broadcast(&at, DataKind::GroupStorePackets, region, source, block)
    }

    fn push_broadcast(
        &mut self,
        at: &Context,
        kind: DataKind,
        region: SwitchRegion,
        source: Chunk,
        block: u32,
    ) -> Result<(), BuildError> {
        self.check_region(at, "source", region, source)?;
        self.push_data(
            at,
            region.rank,
            Blocks::One(block),
            Draft {
                kind,
                channel: None,
                sources: vec![Operand::Local(source)],
                destinations: vec![Operand::Region(region)],
                fold: None,
                identity: source.identity,
            },
        )
    }

    /// A region that its rank can reach, and a local chunk of that rank and size.
    fn check_region(
        &mut self,
        at: &Context,
        role: &'static str,
        region: SwitchRegion,
        chunk: Chunk,
    ) -> Result<(), BuildError> {
        let SwitchRegion { channel, rank, offset, size } = region;
        let Some(multicast) = self.multicasts.get(channel.number as usize) else {
            return Err(at.error(BuildProblem::UnknownHandle { what: "switch channel" }));
        };
        let member = multicast.members.iter().any(|(member, _)| *member == rank);
        at.require(member, || BuildProblem::NotInGroup { rank })?;
        self.check_chunk(at, role, chunk, rank)?;
        let end = offset.saturating_add(size);
        if multicast.buffer == BufferKind::Scratch {
            at.require(chunk.size == size, || BuildProblem::SizeMismatch {
                role,
                expected: size,
                found: chunk.size,
            })?;
            let needed = multicast.needed.as_ref().map_or(0, |(needed, _)| *needed);
            if end > needed {
                self.multicasts[channel.number as usize].needed = Some((end, at.site()));
            }
            return Ok(());
        }
        for &(member, _) in &multicast.members {
            let buffer = multicast.buffer;
            let available = self.buffer_size(member, buffer);
            let problem = || BuildProblem::BeyondBuffer { buffer, rank: member, end, size: available };
            at.require(end <= available, problem)?;
            let copy = Chunk { rank: member, buffer, index: offset, size, identity: 0 };
            self.check_equal(at, role, chunk, copy)?;
        }
        Ok(())
    }

    /// Regions of scratch lie within what every member has in the end.
    pub(crate) fn check_scratch_regions(&self) -> Result<(), BuildError> {
        for multicast in &self.multicasts {
            let Some((end, site)) = &multicast.needed else { continue };
            for &(rank, _) in &multicast.members {
                let size = self.buffer_size(rank, BufferKind::Scratch);
                if *end > size {
                    let buffer = BufferKind::Scratch;
                    let problem = BuildProblem::BeyondBuffer { buffer, rank, end: *end, size };
                    return Err(BuildError::new(site.clone(), problem));
                }
            }
        }
        Ok(())
    }
}
