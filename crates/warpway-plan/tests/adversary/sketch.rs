//! Plans by hand, a few words per operation: channels and remote buffers are entered in the tables when they
//! are first named. Independent of the crate's builder, and without any of its passes.

use std::collections::BTreeSet;

use warpway_plan::{
    Action, BufferKind, ChannelEntry, ChannelRefs, ChannelType, Collective, DataKind, DataOperation, Fold,
    GroupMember, Pipeline, Plan, Protocol, RankGroup, RankPlan, ReduceOp, Reference, RemoteBuffer,
    RemoteBufferRefs, ThreadBlock, Via,
};

/// A plan in the making.
pub(crate) struct Sketch {
    pub(crate) plan: Plan,
}

/// Some chunks, as an operation of a block names them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At {
    pub(crate) place: Place,
    pub(crate) index: u64,
    pub(crate) size: u64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Place {
    Here(BufferKind),
    There(u32, BufferKind),
    /// All ranks' buffers, by multicast.
    Everywhere(BufferKind),
}

pub(crate) fn here(buffer: BufferKind, index: u64) -> At {
    At { place: Place::Here(buffer), index, size: 1 }
}

pub(crate) fn there(rank: u32, buffer: BufferKind, index: u64) -> At {
    At { place: Place::There(rank, buffer), index, size: 1 }
}

pub(crate) fn everywhere(buffer: BufferKind, index: u64) -> At {
    At { place: Place::Everywhere(buffer), index, size: 1 }
}

impl At {
    pub(crate) fn of(self, size: u64) -> Self {
        Self { size, ..self }
    }
}

impl Sketch {
    /// Chunks of input, output and scratch are equal on all ranks.
    pub(crate) fn new(name: &str, collective: Collective, ranks: u32, chunks: (u64, u64, u64)) -> Self {
        let (input_chunks, output_chunks, scratch_chunks) = chunks;
        let rank = RankPlan { input_chunks, output_chunks, scratch_chunks, ..RankPlan::default() };
        Self {
            plan: Plan {
                name: name.to_owned(),
                collective,
                protocol: Protocol::Simple,
                in_place: false,
                reuse_resources: false,
                double_scratch: false,
                threads_per_block: 256,
                buffer_alignment: 16,
                min_message_size: 0,
                max_message_size: u64::MAX,
                ranks: vec![rank; ranks as usize],
                extensions: BTreeSet::new(),
            },
        }
    }

    /// The block of a rank, made if it is new. `ordinal` picks among the channels to each peer.
    pub(crate) fn at(&mut self, rank: u32, block: u32) -> Spot<'_> {
        let n_ranks = self.plan.ranks.len() as u32;
        let plan = &mut self.plan.ranks[rank as usize];
        while plan.blocks.len() <= block as usize {
            plan.blocks.push(ThreadBlock::default());
        }
        Spot { plan, rank, n_ranks, block: block as usize, ordinal: block, group: None }
    }

    pub(crate) fn finish(mut self) -> Plan {
        let is = |entry: &&ChannelEntry| matches!(entry, ChannelEntry::Switch { .. });
        let entries = |rank: &RankPlan| rank.channels.iter().filter(is).cloned().collect::<Vec<_>>();
        let multicast = self.plan.ranks.iter().map(entries).find(|e| !e.is_empty()).unwrap_or_default();
        for rank in &mut self.plan.ranks {
            if !rank.channels.iter().any(|entry| is(&entry)) {
                rank.channels.extend(multicast.iter().cloned());
            }
        }
        self.plan.extensions = self.plan.used_extensions();
        let packets = self.plan.operations().any(|(_, _, o)| match &o.action {
            Action::Data(data) => data.kind.uses_packets(),
            _ => false,
        });
        if packets {
            self.plan.protocol = Protocol::LowLatency;
        }
        self.plan
    }
}

/// A block that gets operations.
pub(crate) struct Spot<'s> {
    plan: &'s mut RankPlan,
    rank: u32,
    n_ranks: u32,
    block: usize,
    ordinal: u32,
    group: Option<GroupMember>,
}

impl Spot<'_> {
    /// The following data operations are shares of a group.
    pub(crate) fn member(mut self, member: u32, size: u32) -> Self {
        self.group = (size > 1).then_some(GroupMember { member, size });
        self
    }

    pub(crate) fn push(&mut self, action: Action) -> &mut Self {
        self.plan.blocks[self.block].operations.push(action.into());
        self
    }

    pub(crate) fn nop(&mut self) -> &mut Self {
        self.push(Action::Nop)
    }

    pub(crate) fn barrier(&mut self, id: u32, blocks: u32) -> &mut Self {
        self.push(Action::Barrier { id, blocks })
    }

    pub(crate) fn signal(&mut self, via: Via, relaxed: bool, peers: &[u32]) -> &mut Self {
        let channels = peers.iter().map(|p| self.channel(via, *p)).collect();
        self.push(Action::Signal { via, relaxed, channels })
    }

    pub(crate) fn wait(&mut self, via: Via, relaxed: bool, peers: &[u32]) -> &mut Self {
        let channels = peers.iter().map(|p| self.channel(via, *p)).collect();
        self.push(Action::Wait { via, relaxed, channels })
    }

    pub(crate) fn flush(&mut self, peers: &[u32]) -> &mut Self {
        let channels = peers.iter().map(|p| self.channel(Via::Port, *p)).collect();
        self.push(Action::Flush { channels })
    }

    pub(crate) fn acquire(&mut self, semaphore: u32) -> &mut Self {
        self.push(Action::Acquire { semaphores: vec![semaphore] })
    }

    pub(crate) fn release(&mut self, semaphore: u32) -> &mut Self {
        self.push(Action::Release { semaphores: vec![semaphore] })
    }

    /// A data operation; folds sum.
    pub(crate) fn data(
        &mut self,
        kind: DataKind,
        via: Option<ChannelType>,
        sources: &[At],
        destinations: &[At],
    ) -> &mut Self {
        let mut channels = Vec::new();
        if via == Some(ChannelType::Port) {
            for at in destinations {
                if let Place::There(peer, _) = at.place {
                    channels.push(self.channel(Via::Port, peer));
                }
            }
        }
        if kind == DataKind::Get {
            for at in sources {
                if let Place::There(peer, _) = at.place {
                    channels.push(self.channel(Via::Memory, peer));
                }
            }
        }
        let access = via.unwrap_or(ChannelType::Memory);
        let sources = sources.iter().map(|at| self.reference(*at, access)).collect();
        let destinations = destinations.iter().map(|at| self.reference(*at, access)).collect();
        let folds = kind.is_fold() || kind.is_switch_fold();
        let fold = folds.then_some(Fold { op: ReduceOp::Sum, order: None });
        let group = self.group;
        self.push(Action::Data(Box::new(DataOperation {
            kind,
            channel_type: via,
            sources,
            destinations,
            channels,
            fold,
            group,
        })))
    }

    /// A put that signals, by memory.
    pub(crate) fn put_with_signal(&mut self, from: At, to: At, peer: u32) -> &mut Self {
        self.data(DataKind::PutWithSignal, Some(ChannelType::Memory), &[from], &[to]);
        let channel = self.channel(Via::Memory, peer);
        if let Some(Action::Data(data)) =
            self.plan.blocks[self.block].operations.last_mut().map(|o| &mut o.action)
        {
            data.channels.push(channel);
        }
        self
    }

    pub(crate) fn pipeline(&mut self, unit_size: u64, num_chunks: u64, body: impl FnOnce(&mut Self)) {
        let before = std::mem::take(&mut self.plan.blocks[self.block].operations);
        body(self);
        let body = std::mem::replace(&mut self.plan.blocks[self.block].operations, before);
        self.push(Action::Pipeline(Box::new(Pipeline { unit_size, num_chunks, size_id: None, body })));
    }

    fn reference(&mut self, at: At, access: ChannelType) -> Reference {
        let At { index, size, .. } = at;
        match at.place {
            Place::Here(buffer) => Reference::Local { buffer, index, size },
            Place::There(owner, buffer) => {
                Reference::Remote { position: self.remote(owner, buffer, access), index, size }
            }
            Place::Everywhere(buffer) => Reference::Switch { position: self.switch(buffer), index, size },
        }
    }

    /// Position of the block's channel to a peer.
    fn channel(&mut self, via: Via, peer: u32) -> u32 {
        let channel_type = match via {
            Via::Memory => ChannelType::Memory,
            Via::Port => ChannelType::Port,
        };
        // The channels of one block to a peer all have the same ordinal, so that partners find each other.
        let lists = |entry: &ChannelEntry| match entry {
            ChannelEntry::Memory(peers) if via == Via::Memory => peers.clone(),
            ChannelEntry::Port(peers) if via == Via::Port => peers.clone(),
            _ => Vec::new(),
        };
        loop {
            let all: Vec<u32> = self.plan.channels.iter().flat_map(lists).collect();
            let mut to_peer = (0u32..).zip(&all).filter(|(_, p)| **p == peer);
            if let Some((index, _)) = to_peer.nth(self.ordinal as usize) {
                return self.position(channel_type, index);
            }
            let more = match via {
                Via::Memory => ChannelEntry::Memory(vec![peer]),
                Via::Port => ChannelEntry::Port(vec![peer]),
            };
            self.plan.channels.push(more);
        }
    }

    fn switch(&mut self, buffer: BufferKind) -> u32 {
        let is = |entry: &ChannelEntry| matches!(entry, ChannelEntry::Switch { .. });
        let at = BufferKind::ALL.iter().position(|b| *b == buffer).unwrap_or(0);
        if !self.plan.channels.iter().any(is) {
            // All three, so that the lists of all ranks agree.
            let ranks: Vec<u32> = (0..self.n_ranks).collect();
            let group = RankGroup { size: ranks.len() as u64, ranks };
            let entry = |buffer| ChannelEntry::Switch { buffer, groups: vec![group.clone()] };
            self.plan.channels.extend(BufferKind::ALL.map(entry));
        }
        self.position(ChannelType::Switch, at as u32)
    }

    fn position(&mut self, channel_type: ChannelType, index: u32) -> u32 {
        let lists = &mut self.plan.blocks[self.block].channels;
        if !lists.iter().any(|l| l.channel_type == channel_type) {
            lists.push(ChannelRefs { channel_type, channels: Vec::new() });
        }
        let mut of_type = lists.iter_mut().filter(|l| l.channel_type == channel_type);
        let list = of_type.next().map(|l| &mut l.channels);
        list.map_or(0, |list| enter(list, index))
    }

    fn remote(&mut self, owner: u32, buffer: BufferKind, access: ChannelType) -> u32 {
        assert_ne!(owner, self.rank, "a rank reaches its own buffers directly");
        let remotes = &mut self.plan.remote_buffers;
        let known = remotes.iter().position(|r| r.rank == owner && r.buffer == buffer);
        let index = known.unwrap_or_else(|| {
            let (memory_access, port_access) = (false, false);
            remotes.push(RemoteBuffer { rank: owner, buffer, memory_access, port_access });
            remotes.len() - 1
        });
        remotes[index].memory_access |= access == ChannelType::Memory;
        remotes[index].port_access |= access == ChannelType::Port;
        let lists = &mut self.plan.blocks[self.block].remote_buffers;
        if !lists.iter().any(|l| l.access == access) {
            lists.push(RemoteBufferRefs { access, buffers: Vec::new() });
        }
        let mut of_access = lists.iter_mut().filter(|l| l.access == access);
        of_access.next().map_or(0, |list| enter(&mut list.buffers, index as u32))
    }
}

/// Position of a number in a list, at its end if it is new.
fn enter(list: &mut Vec<u32>, number: u32) -> u32 {
    if !list.contains(&number) {
        list.push(number);
    }
    list.iter().position(|n| *n == number).unwrap_or(0) as u32
}
