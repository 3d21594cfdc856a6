//! What the numbers of a plan mean: channel indices to peers and partners, positions to buffers.
//!
//! The k-th memory (port) channel from `a` to `b` pairs with the k-th memory (port) channel from `b` to `a`
//! (`ordinal` is that k). The k-th switch channel of a rank over the same members and buffer pairs with the
//! k-th of every other member.

use std::collections::HashMap;

use crate::ir::{BufferKind, ChannelEntry, ChannelType, Plan, RankGroup, ThreadBlock, Via};

/// One memory or port channel, as its owner sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Link {
    /// The rank at the other end. May be out of range in a plan that has not been verified.
    pub peer: u32,
    /// Among the owner's channels of that type to `peer`, from 0.
    pub ordinal: u32,
}

/// One switch channel, as one member sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwitchChannel<'p> {
    /// The buffer of each member.
    pub buffer: BufferKind,
    /// The members.
    pub group: &'p RankGroup,
    /// Among the rank's switch channels with the same buffer and members, from 0.
    pub ordinal: u32,
}

/// The channels of one rank, concatenated per type.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RankChannels<'p> {
    /// Memory channels, by channel index.
    pub memory: Vec<Link>,
    /// Port channels, by channel index.
    pub port: Vec<Link>,
    /// Switch channels, by channel index.
    pub switch: Vec<SwitchChannel<'p>>,
}

impl RankChannels<'_> {
    /// Channels of one of the two types that carry signals, by channel index.
    pub fn links(&self, via: Via) -> &[Link] {
        match via {
            Via::Memory => &self.memory,
            Via::Port => &self.port,
        }
    }
}

/// A peer's buffer, after resolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RemoteTarget {
    /// Owner.
    pub rank: u32,
    /// Which of its buffers.
    pub buffer: BufferKind,
}

/// See the module's page. Built in one pass over the channel lists; every look-up takes constant time and answers
/// `None` for a number that means nothing.
#[derive(Debug, Clone)]
pub struct Topology<'p> {
    plan: &'p Plan,
    ranks: Vec<RankChannels<'p>>,
    /// Channel index by owner, type, peer and ordinal.
    index: HashMap<(u32, Via, u32, u32), u32>,
}

impl<'p> Topology<'p> {
    /// Of a plan, right or wrong.
    pub fn new(plan: &'p Plan) -> Self {
        let mut topology = Self { plan, ranks: Vec::with_capacity(plan.ranks.len()), index: HashMap::new() };
        for (owner, rank) in (0..).zip(&plan.ranks) {
            let mut channels = RankChannels::default();
            let mut counts: HashMap<(Via, u32), u32> = HashMap::new();
            let mut groups: HashMap<(BufferKind, &[u32]), u32> = HashMap::new();
            for entry in &rank.channels {
                match entry {
                    ChannelEntry::Memory(peers) | ChannelEntry::Port(peers) => {
                        let (via, list) = match entry {
                            ChannelEntry::Port(_) => (Via::Port, &mut channels.port),
                            _ => (Via::Memory, &mut channels.memory),
                        };
                        for &peer in peers {
                            let count = counts.entry((via, peer)).or_default();
                            let link = Link { peer, ordinal: *count };
                            *count += 1;
                            topology.index.insert((owner, via, peer, link.ordinal), list.len() as u32);
                            list.push(link);
                        }
                    }
                    ChannelEntry::Switch { buffer, groups: entries } => {
                        for group in entries {
                            let count = groups.entry((*buffer, &group.ranks)).or_default();
                            channels.switch.push(SwitchChannel { buffer: *buffer, group, ordinal: *count });
                            *count += 1;
                        }
                    }
                }
            }
            topology.ranks.push(channels);
        }
        topology
    }

    /// The plan it was made of.
    pub fn plan(&self) -> &'p Plan {
        self.plan
    }

    /// The channels of a rank.
    pub fn rank(&self, rank: u32) -> Option<&RankChannels<'p>> {
        self.ranks.get(rank as usize)
    }

    /// The memory or port channel of `rank` with that channel index.
    pub fn link(&self, rank: u32, via: Via, channel: u32) -> Option<Link> {
        self.rank(rank)?.links(via).get(channel as usize).copied()
    }

    /// The channel index at the peer of the partner of a channel of `rank`; `None` if the peer's list has none.
    pub fn partner(&self, rank: u32, via: Via, channel: u32) -> Option<u32> {
        let Link { peer, ordinal } = self.link(rank, via, channel)?;
        self.index.get(&(peer, via, rank, ordinal)).copied()
    }

    /// The channel index of `owner`'s channel to `peer` of that ordinal.
    pub fn channel_to(&self, owner: u32, via: Via, peer: u32, ordinal: u32) -> Option<u32> {
        self.index.get(&(owner, via, peer, ordinal)).copied()
    }

    /// Channel index of a position in a block's list.
    pub fn channel_at(&self, block: &ThreadBlock, channel_type: ChannelType, position: u32) -> Option<u32> {
        block.channels_of(channel_type).get(position as usize).copied()
    }

    /// The switch channel of `rank` at a position in a block's list.
    pub fn switch_at(&self, rank: u32, block: &ThreadBlock, position: u32) -> Option<&SwitchChannel<'p>> {
        let channel = self.channel_at(block, ChannelType::Switch, position)?;
        self.rank(rank)?.switch.get(channel as usize)
    }

    /// The remote buffer at a position in a block's list, if its entry allows that access and its owner exists.
    pub fn remote_at(
        &self,
        rank: u32,
        block: &ThreadBlock,
        access: ChannelType,
        position: u32,
    ) -> Option<RemoteTarget> {
        let index = *block.remote_buffers_of(access).get(position as usize)?;
        let remote = self.plan.ranks.get(rank as usize)?.remote_buffers.get(index as usize)?;
        let allowed = match access {
            ChannelType::Memory => remote.memory_access,
            ChannelType::Port => remote.port_access,
            ChannelType::Switch => false,
        };
        let exists = (remote.rank as usize) < self.plan.ranks.len();
        (allowed && exists).then_some(RemoteTarget { rank: remote.rank, buffer: remote.buffer })
    }
}
