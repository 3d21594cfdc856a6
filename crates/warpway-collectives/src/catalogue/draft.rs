//! A program in the making: channels by what joins two ranks, blocks that share the work, and the handshakes that all
//! algorithms are made of.
//!
//! | words | meaning |
//! |---|---|
//! | near, far | on the same host, joined by memory channels; on another host, joined by port channels |
//! | greet, hear | a rank tells peers that it has begun; they may now touch its input and output |
//! | deliver, expect | a rank puts data to peers and says so; they wait for it |
//! | tell | a rank has read, or written to, what belongs to near peers |
//! | settle | what a rank has put to far peers is complete, so its sources may be used again |

use std::collections::HashMap;

use warpway_plan::{
    Blocks, BufferKind, BuildError, Channel, Chunk, CollectiveShape, DataSync, MemoryChannel, Plan,
    PortChannel, Program, ProgramOptions, Protocol, ThreadBlockGroup,
};

use crate::task::Task;

/// The block that talks to peers.
pub(super) const SPEAKER: u32 = 0;

/// See the module's page.
pub(super) struct Draft<'t> {
    pub(super) p: Program,
    pub(super) task: &'t Task,
    pub(super) crew: Crew,
    channels: HashMap<(u32, u32), Channel>,
    /// Of blocks that talk with those of the same number alone: from, to, block.
    block_channels: HashMap<(u32, u32, u32), MemoryChannel>,
}

/// Data for a peer: where to, and from where.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parcel {
    pub(super) to: Chunk,
    pub(super) from: Chunk,
}

/// The blocks of a rank that share its copies and folds.
pub(super) struct Crew {
    blocks: Option<ThreadBlockGroup>,
}

impl Crew {
    fn new(n_blocks: u32) -> Result<Self, BuildError> {
        let blocks = if n_blocks > 1 { Some(ThreadBlockGroup::new(0..n_blocks)?) } else { None };
        Ok(Self { blocks })
    }

    /// For operations on data.
    pub(super) fn blocks(&self) -> Blocks<'_> {
        self.blocks.as_ref().map_or(Blocks::One(SPEAKER), Blocks::Group)
    }

    /// All blocks of a rank meet.
    fn meet(&self, p: &mut Program, rank: u32) -> Result<(), BuildError> {
        self.blocks.as_ref().map_or(Ok(()), |group| p.barrier(rank, group.blocks()))
    }
}

impl<'t> Draft<'t> {
    /// For raw data, with as many blocks as the task asks for.
    pub(super) fn new(task: &'t Task, name: &str, shape: CollectiveShape) -> Result<Self, BuildError> {
        Self::with(task, task.n_blocks, ProgramOptions::new(name, in_place(task, shape)))
    }

    /// For raw data in a scratch of two halves, so that a place is written again only two launches later.
    pub(super) fn alternating(
        task: &'t Task,
        name: &str,
        shape: CollectiveShape,
    ) -> Result<Self, BuildError> {
        let options = ProgramOptions::new(name, in_place(task, shape));
        Self::with(task, task.n_blocks, ProgramOptions { double_scratch: true, ..options })
    }

    /// For packets: as many blocks as the task has for them, and a scratch of two halves, so that a slot is written again
    /// only two launches later, when its reader is known to have gone on. Splits go down to the payload of one packet.
    pub(super) fn packets(task: &'t Task, name: &str, shape: CollectiveShape) -> Result<Self, BuildError> {
        let options = ProgramOptions { double_scratch: true, ..packet_options(task, name, shape) };
        Self::with(task, task.packet_blocks, options)
    }

    /// For packets that nobody acknowledges: the executor sees to it that a slot is free before it is written again.
    pub(super) fn credited_packets(
        task: &'t Task,
        name: &str,
        shape: CollectiveShape,
    ) -> Result<Self, BuildError> {
        let options = ProgramOptions { scratch_credits: true, ..packet_options(task, name, shape) };
        Self::with(task, task.packet_blocks, options)
    }

    fn with(task: &'t Task, n_blocks: u32, options: ProgramOptions) -> Result<Self, BuildError> {
        let (p, crew) = (Program::new(options)?, Crew::new(n_blocks)?);
        Ok(Self { p, task, crew, channels: HashMap::new(), block_channels: HashMap::new() })
    }

    /// The plan.
    pub(super) fn finish(self) -> Result<Plan, BuildError> {
        self.p.finish()
    }

    /// Number of ranks.
    pub(super) fn n(&self) -> u32 {
        self.task.world.n_ranks()
    }

    /// All other ranks, ascending.
    pub(super) fn peers(&self, rank: u32) -> Vec<u32> {
        (0..self.n()).filter(|peer| *peer != rank).collect()
    }

    /// True for ranks of one host.
    pub(super) fn is_near(&self, a: u32, b: u32) -> bool {
        self.task.world.host(a) == self.task.world.host(b)
    }

    /// The channel from one rank to another, made when first asked for.
    pub(super) fn link(&mut self, from: u32, to: u32) -> Result<Channel, BuildError> {
        if let Some(known) = self.channels.get(&(from, to)) {
            return Ok(*known);
        }
        // Both ends together: the k-th pairs with the k-th.
        let near = self.is_near(from, to);
        for (from, to) in [(from, to), (to, from)] {
            let channel = match near {
                true => Channel::from(self.p.memory_channel(from, to)?),
                false => Channel::from(self.p.port_channel(from, to)?),
            };
            self.channels.insert((from, to), channel);
        }
        self.link(from, to)
    }

    /// The channel from a block of one rank to the same block of a near one, made when first asked for.
    pub(super) fn block_link(&mut self, from: u32, to: u32, block: u32) -> Result<MemoryChannel, BuildError> {
        if let Some(known) = self.block_channels.get(&(from, to, block)) {
            return Ok(*known);
        }
        // Both ends together: the k-th pairs with the k-th.
        let (channel, other) = (self.p.memory_channel(from, to)?, self.p.memory_channel(to, from)?);
        self.block_channels.insert((to, from, block), other);
        self.block_channels.insert((from, to, block), channel);
        Ok(channel)
    }

    /// The channels to near peers; far ones are left out.
    pub(super) fn near(&mut self, rank: u32, peers: &[u32]) -> Result<Vec<MemoryChannel>, BuildError> {
        let mut found = Vec::with_capacity(peers.len());
        for peer in peers {
            if let Channel::Memory(channel) = self.link(rank, *peer)? {
                found.push(channel);
            }
        }
        Ok(found)
    }

    /// The channels to far peers; near ones are left out.
    pub(super) fn far(&mut self, rank: u32, peers: &[u32]) -> Result<Vec<PortChannel>, BuildError> {
        let mut found = Vec::with_capacity(peers.len());
        for peer in peers {
            if let Channel::Port(channel) = self.link(rank, *peer)? {
                found.push(channel);
            }
        }
        Ok(found)
    }

    /// All blocks of a rank meet.
    pub(super) fn meet(&mut self, rank: u32) -> Result<(), BuildError> {
        self.crew.meet(&mut self.p, rank)
    }

    /// Copies within a rank; nothing if the task is in place, where the two places of a user's buffers are one.
    pub(super) fn copy_own(&mut self, to: Chunk, from: Chunk) -> Result<(), BuildError> {
        let scratch = [to, from].iter().any(|chunk| chunk.buffer() == BufferKind::Scratch);
        if self.task.in_place && !scratch {
            return Ok(());
        }
        self.p.copy(to, from, self.crew.blocks())
    }

    /// Sends data to a near peer's scratch as packets.
    pub(super) fn send_packets(&mut self, rank: u32, to: Chunk, from: Chunk) -> Result<(), BuildError> {
        let channel = self.link(rank, to.rank())?;
        self.p.put_packets(channel, to, from, self.crew.blocks())
    }

    /// Tells peers that this rank has begun.
    pub(super) fn greet(&mut self, rank: u32, peers: &[u32]) -> Result<(), BuildError> {
        for channel in self.near(rank, peers)? {
            self.p.signal_relaxed(channel, SPEAKER, DataSync::None)?;
        }
        for channel in self.far(rank, peers)? {
            self.p.signal(channel, SPEAKER, DataSync::None)?;
        }
        Ok(())
    }

    /// Waits until peers have begun.
    pub(super) fn hear(&mut self, rank: u32, peers: &[u32]) -> Result<(), BuildError> {
        for channel in self.near(rank, peers)? {
            self.p.wait_relaxed(channel, SPEAKER, DataSync::After)?;
        }
        self.expect_far(rank, peers)?;
        if peers.is_empty() { Ok(()) } else { self.crew.meet(&mut self.p, rank) }
    }

    /// Greets and hears.
    pub(super) fn open(&mut self, rank: u32, peers: &[u32]) -> Result<(), BuildError> {
        self.greet(rank, peers)?;
        self.hear(rank, peers)
    }

    /// [`open`](Self::open) for peers whose scratch is written: they have also read what the launch before has left there.
    pub(super) fn open_scratch(&mut self, rank: u32, peers: &[u32]) -> Result<(), BuildError> {
        for peer in peers {
            let channel = self.link(rank, *peer)?;
            self.p.signal(channel, SPEAKER, DataSync::None)?;
        }
        self.expect(rank, peers)
    }

    /// [`hear`](Self::hear) at the end of a launch: the other blocks have nothing left to do.
    pub(super) fn hear_last(&mut self, rank: u32, peers: &[u32]) -> Result<(), BuildError> {
        for channel in self.near(rank, peers)? {
            self.p.wait_relaxed(channel, SPEAKER, DataSync::None)?;
        }
        self.expect_far(rank, peers)
    }

    /// Puts data to peers and tells them: one parcel a peer.
    pub(super) fn deliver(&mut self, rank: u32, parcels: &[Parcel]) -> Result<(), BuildError> {
        self.send_far(rank, parcels)?;
        self.put_near(rank, parcels)?;
        let peers: Vec<u32> = parcels.iter().map(|parcel| parcel.to.rank()).collect();
        self.tell(rank, &peers)
    }

    /// Puts data to far peers and tells them. The wire works on its own, so this comes before what is near.
    pub(super) fn send_far(&mut self, rank: u32, parcels: &[Parcel]) -> Result<(), BuildError> {
        if parcels.iter().any(|parcel| !self.is_near(rank, parcel.to.rank())) {
            // One block sends what all may have made.
            self.meet(rank)?;
        }
        for Parcel { to, from } in parcels {
            if let Channel::Port(channel) = self.link(rank, to.rank())? {
                self.p.put_with_signal(channel, *to, *from, SPEAKER)?;
            }
        }
        Ok(())
    }

    /// Puts data to near peers, without a word.
    pub(super) fn put_near(&mut self, rank: u32, parcels: &[Parcel]) -> Result<(), BuildError> {
        for Parcel { to, from } in parcels {
            if let Channel::Memory(channel) = self.link(rank, to.rank())? {
                self.p.put(channel, *to, *from, self.crew.blocks())?;
            }
        }
        Ok(())
    }

    /// Tells near peers that what came before is complete.
    pub(super) fn tell(&mut self, rank: u32, peers: &[u32]) -> Result<(), BuildError> {
        let channels = self.near(rank, peers)?;
        if !channels.is_empty() {
            self.crew.meet(&mut self.p, rank)?;
        }
        for channel in channels {
            self.p.signal(channel, SPEAKER, DataSync::Before)?;
        }
        Ok(())
    }

    /// Waits for the word of peers, near and far.
    pub(super) fn expect(&mut self, rank: u32, peers: &[u32]) -> Result<(), BuildError> {
        for peer in peers {
            let channel = self.link(rank, *peer)?;
            self.p.wait(channel, SPEAKER, DataSync::After)?;
        }
        if peers.is_empty() { Ok(()) } else { self.crew.meet(&mut self.p, rank) }
    }

    /// [`expect`](Self::expect) at the end of a launch: the other blocks have nothing left to do.
    pub(super) fn expect_last(&mut self, rank: u32, peers: &[u32]) -> Result<(), BuildError> {
        for peer in peers {
            let channel = self.link(rank, *peer)?;
            self.p.wait(channel, SPEAKER, DataSync::After)?;
        }
        Ok(())
    }

    /// [`settle`](Self::settle) for those of the peers that there is a channel to.
    pub(super) fn settle_used(&mut self, rank: u32, peers: &[u32]) -> Result<(), BuildError> {
        let used = |peer: &&u32| self.channels.contains_key(&(rank, **peer));
        let used: Vec<u32> = peers.iter().filter(used).copied().collect();
        self.settle(rank, &used)
    }

    fn expect_far(&mut self, rank: u32, peers: &[u32]) -> Result<(), BuildError> {
        for channel in self.far(rank, peers)? {
            self.p.wait(channel, SPEAKER, DataSync::After)?;
        }
        Ok(())
    }

    /// Waits until what was put to far peers is complete.
    pub(super) fn settle(&mut self, rank: u32, peers: &[u32]) -> Result<(), BuildError> {
        for channel in self.far(rank, peers)? {
            // Behind the requests of all threads, and before what any of them writes next.
            self.p.flush(channel, SPEAKER, DataSync::Both)?;
        }
        Ok(())
    }
}

fn packet_options(task: &Task, name: &str, shape: CollectiveShape) -> ProgramOptions {
    let options = ProgramOptions::new(name, in_place(task, shape));
    ProgramOptions { protocol: Protocol::LowLatency, buffer_alignment: 8, ..options }
}

fn in_place(task: &Task, shape: CollectiveShape) -> CollectiveShape {
    if task.in_place { shape.in_place() } else { shape }
}
