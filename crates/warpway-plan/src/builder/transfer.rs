//! Operations that move data, and how any operation on data gets into its blocks.

use super::error::{BuildError, BuildProblem};
use super::handles::{Blocks, Channel, Chunk, MemoryChannel, PortChannel, SwitchRegion};
use super::program::{Context, Program};
use super::step::{DataStep, Step, StepAction};
use crate::ir::{ChannelType, DataKind, DataOperation, Fold, GroupMember, Reference, Via};

/// What an operation on data needs before its blocks give it positions.
pub(crate) struct Draft {
    pub(crate) kind: DataKind,
    pub(crate) channel: Option<Channel>,
    pub(crate) sources: Vec<Operand>,
    pub(crate) destinations: Vec<Operand>,
    pub(crate) fold: Option<Fold>,
    pub(crate) identity: u64,
}

/// One operand, as its operation reaches it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Operand {
    Local(Chunk),
    Remote(Chunk),
    Region(SwitchRegion),
}

impl Program {
    /// Local to local.
    ///
    /// # Errors
    /// [`BuildProblem::WrongRank`], [`BuildProblem::SizeMismatch`], [`BuildProblem::BlockOutOfRange`].
    #[track_caller]
    pub fn copy<'g>(
        &mut self,
        destination: Chunk,
        source: Chunk,
        blocks: impl Into<Blocks<'g>>,
    ) -> Result<(), BuildError> {
        let blocks = blocks.into();
        let at = self.context("copy", destination.rank, blocks.first());
        self.push_local(&at, DataKind::Copy, destination, source, blocks)
    }

    /// Packs raw data into local scratch.
    ///
    /// # Errors
    /// As those of [`copy`](Self::copy), and [`BuildProblem::NotScratch`].
    #[track_caller]
    pub fn copy_packets<'g>(
        &mut self,
        destination: Chunk,
        source: Chunk,
        blocks: impl Into<Blocks<'g>>,
    ) -> Result<(), BuildError> {
        let blocks = blocks.into();
        let at = self.context("copy_packets", destination.rank, blocks.first());
        at.scratch("destination", destination)?;
        self.push_local(&at, DataKind::CopyPackets, destination, source, blocks)
    }

    /// Waits for packets in local scratch and unpacks them.
    ///
    /// # Errors
    /// As those of [`copy`](Self::copy), and [`BuildProblem::NotScratch`].
    #[track_caller]
    pub fn unpack_packets<'g>(
        &mut self,
        destination: Chunk,
        source: Chunk,
        blocks: impl Into<Blocks<'g>>,
    ) -> Result<(), BuildError> {
        let blocks = blocks.into();
        let at = self.context("unpack_packets", destination.rank, blocks.first());
        at.scratch("source", source)?;
        self.push_local(&at, DataKind::UnpackPackets, destination, source, blocks)
    }

    /// Local to the peer of a channel.
    ///
    /// # Errors
    /// [`BuildProblem::WrongRank`], [`BuildProblem::SizeMismatch`], [`BuildProblem::BlockOutOfRange`],
    /// [`BuildProblem::UnknownHandle`]; [`BuildProblem::GroupNotAllowed`] on a port channel.
    #[track_caller]
    pub fn put<'g>(
        &mut self,
        channel: impl Into<Channel>,
        destination: Chunk,
        source: Chunk,
        blocks: impl Into<Blocks<'g>>,
    ) -> Result<(), BuildError> {
        let (channel, blocks) = (channel.into(), blocks.into());
        let at = self.context("put", channel.owner(), blocks.first());
        self.push_to_peer(&at, DataKind::Put, channel, (destination, source), blocks)
    }

    /// [`put`](Self::put), then a signal.
    ///
    /// # Errors
    /// As those of [`put`](Self::put).
    #[track_caller]
    pub fn put_with_signal(
        &mut self,
        channel: PortChannel,
        destination: Chunk,
        source: Chunk,
        block: u32,
    ) -> Result<(), BuildError> {
        let at = self.context("put_with_signal", channel.owner, Some(block));
        let pair = (destination, source);
        self.push_to_peer(&at, DataKind::PutWithSignal, channel.into(), pair, Blocks::One(block))
    }

    /// [`put`](Self::put), a signal, then a flush.
    ///
    /// # Errors
    /// As those of [`put`](Self::put).
    #[track_caller]
    pub fn put_with_signal_and_flush(
        &mut self,
        channel: PortChannel,
        destination: Chunk,
        source: Chunk,
        block: u32,
    ) -> Result<(), BuildError> {
        let at = self.context("put_with_signal_and_flush", channel.owner, Some(block));
        let pair = (destination, source);
        self.push_to_peer(&at, DataKind::PutWithSignalAndFlush, channel.into(), pair, Blocks::One(block))
    }

    /// Packs raw data into the peer's scratch. On a port channel the source already holds packets, which are sent as
    /// they are.
    ///
    /// # Errors
    /// As those of [`put`](Self::put), and [`BuildProblem::NotScratch`].
    #[track_caller]
    pub fn put_packets<'g>(
        &mut self,
        channel: impl Into<Channel>,
        destination: Chunk,
        source: Chunk,
        blocks: impl Into<Blocks<'g>>,
    ) -> Result<(), BuildError> {
        let (channel, blocks) = (channel.into(), blocks.into());
        let at = self.context("put_packets", channel.owner(), blocks.first());
        at.scratch("destination", destination)?;
        self.push_to_peer(&at, DataKind::PutPackets, channel, (destination, source), blocks)
    }

    /// Waits for packets in local scratch and sends them on.
    ///
    /// # Errors
    /// As those of [`put`](Self::put), and [`BuildProblem::NotScratch`]; groups of blocks are possible on both types.
    #[track_caller]
    pub fn read_put_packets<'g>(
        &mut self,
        channel: impl Into<Channel>,
        destination: Chunk,
        source: Chunk,
        blocks: impl Into<Blocks<'g>>,
    ) -> Result<(), BuildError> {
        let (channel, blocks) = (channel.into(), blocks.into());
        let at = self.context("read_put_packets", channel.owner(), blocks.first());
        at.scratch("destination", destination)?;
        at.scratch("source", source)?;
        self.push_to_peer(&at, DataKind::ReadPutPackets, channel, (destination, source), blocks)
    }

    /// From the peer of a channel to local.
    ///
    /// # Errors
    /// As those of [`put`](Self::put).
    #[track_caller]
    pub fn get<'g>(
        &mut self,
        channel: MemoryChannel,
        destination: Chunk,
        source: Chunk,
        blocks: impl Into<Blocks<'g>>,
    ) -> Result<(), BuildError> {
        let blocks = blocks.into();
        let at = self.context("get", channel.owner, blocks.first());
        self.check_channel(&at, channel.into())?;
        self.check_chunk(&at, "destination", destination, channel.owner)?;
        self.check_chunk(&at, "source", source, channel.peer)?;
        self.check_equal(&at, "destination", destination, source)?;
        self.push_data(
            &at,
            channel.owner,
            blocks,
            Draft {
                kind: DataKind::Get,
                channel: Some(channel.into()),
                sources: vec![Operand::Remote(source)],
                destinations: vec![Operand::Local(destination)],
                fold: None,
                identity: 0,
            },
        )
    }

    fn push_local(
        &mut self,
        at: &Context,
        kind: DataKind,
        destination: Chunk,
        source: Chunk,
        blocks: Blocks<'_>,
    ) -> Result<(), BuildError> {
        let rank = destination.rank;
        self.check_rank(at, rank)?;
        self.check_chunk(at, "destination", destination, rank)?;
        self.check_chunk(at, "source", source, rank)?;
        self.check_equal(at, "destination", destination, source)?;
        self.push_data(
            at,
            rank,
            blocks,
            Draft {
                kind,
                channel: None,
                sources: vec![Operand::Local(source)],
                destinations: vec![Operand::Local(destination)],
                fold: None,
                identity: 0,
            },
        )
    }

    fn push_to_peer(
        &mut self,
        at: &Context,
        kind: DataKind,
        channel: Channel,
        (destination, source): (Chunk, Chunk),
        blocks: Blocks<'_>,
    ) -> Result<(), BuildError> {
        self.check_channel(at, channel)?;
        self.check_chunk(at, "source", source, channel.owner())?;
        self.check_chunk(at, "destination", destination, channel.peer())?;
        self.check_equal(at, "destination", destination, source)?;
        let alone = channel.via() == Via::Port && kind != DataKind::ReadPutPackets;
        let fits = !alone || matches!(blocks, Blocks::One(_));
        at.require(fits, || BuildProblem::GroupNotAllowed)?;
        self.push_data(
            at,
            channel.owner(),
            blocks,
            Draft {
                kind,
                channel: Some(channel),
                sources: vec![Operand::Local(source)],
                destinations: vec![Operand::Remote(destination)],
                fold: None,
                identity: 0,
            },
        )
    }

    /// Gives an operation to a block, or to every member of a group its share.
    pub(crate) fn push_data(
        &mut self,
        at: &Context,
        rank: u32,
        blocks: Blocks<'_>,
        draft: Draft,
    ) -> Result<(), BuildError> {
        self.check_blocks(at, blocks)?;
        let location = self.location(at);
        let members = match &blocks {
            Blocks::One(block) => std::slice::from_ref(block),
            Blocks::Group(group) => group.blocks(),
        };
        for (member, &block) in (0..).zip(members) {
            let group = match blocks {
                Blocks::One(_) => None,
                Blocks::Group(_) => Some(GroupMember { member, size: members.len() as u32 }),
            };
            let operation = self.place(rank, block, &draft, group);
            let step = DataStep { operation, identity: draft.identity, source_unused_later: false };
            let location = Some(location.clone());
            self.push(rank, block, Step { action: StepAction::Data(Box::new(step)), location });
        }
        Ok(())
    }

    /// The operation in the positions of one block.
    fn place(&mut self, rank: u32, block: u32, draft: &Draft, group: Option<GroupMember>) -> DataOperation {
        let mut channel_type = None;
        let mut channels = Vec::new();
        if let Some(channel) = draft.channel {
            let tables = &mut self.ranks[rank as usize].block(block).tables;
            let position = tables.channels(channel.via()).of(channel.index());
            channel_type = Some(match channel.via() {
                Via::Memory => ChannelType::Memory,
                Via::Port => ChannelType::Port,
            });
            if channel.via() == Via::Port || draft.kind == DataKind::Get {
                channels.push(position);
            }
        }
        let via = draft.channel.map_or(Via::Memory, Channel::via);
        let mut reference = |operand: &Operand| match *operand {
            Operand::Local(Chunk { buffer, index, size, .. }) => Reference::Local { buffer, index, size },
            Operand::Remote(chunk) => {
                let owner = &mut self.ranks[rank as usize];
                let number = owner.remote_buffer(chunk.rank, chunk.buffer, via);
                let position = owner.block(block).tables.remote(via).of(number);
                Reference::Remote { position, index: chunk.index, size: chunk.size }
            }
            Operand::Region(region) => {
                channel_type = Some(ChannelType::Switch);
                let number = self.multicasts[region.channel.number as usize].number_at(rank);
                let position = self.ranks[rank as usize].block(block).tables.switch.of(number);
                Reference::Switch { position, index: region.offset, size: region.size }
            }
        };
        let sources = draft.sources.iter().map(&mut reference).collect();
        let destinations = draft.destinations.iter().map(&mut reference).collect();
        DataOperation {
            kind: draft.kind,
            channel_type,
            sources,
            destinations,
            channels,
            fold: draft.fold.clone(),
            group,
        }
    }
}
