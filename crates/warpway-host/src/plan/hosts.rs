//! Which ranks are on which host, and what of a plan that rules out.

use warpway_core::communicator::Communicator;
use warpway_core::execution::{ExecutionError, StepPlace};
use warpway_core::transport::{Transport, TransportFlags};
use warpway_plan::{
    Action, ChannelType, DataOperation, Operation, Plan, RankGroup, Reference, ThreadBlock, Topology, Via,
};

/// The hosts of a communicator's ranks.
#[derive(Debug)]
pub(super) struct Hosts {
    /// By rank; equal for ranks of one host.
    hosts: Vec<u64>,
    /// Ranks on other hosts than this one, ascending.
    far: Vec<u32>,
}

impl Hosts {
    pub(super) fn of(comm: &Communicator) -> Self {
        let peers = comm.control().peers();
        let host = |member: &u32| peers.get(*member as usize).map_or(0, |peer| peer.host);
        Self::new(comm.members().iter().map(host).collect(), comm.rank())
    }

    fn new(hosts: Vec<u64>, rank: u32) -> Self {
        let own = hosts.get(rank as usize);
        let far = (0..).zip(&hosts).filter(|(_, host)| Some(*host) != own).map(|(rank, _)| rank).collect();
        Self { hosts, far }
    }

    /// Ranks that share no memory with this one, ascending.
    pub(super) fn far(&self) -> &[u32] {
        &self.far
    }

    pub(super) fn is_far(&self, rank: u32) -> bool {
        // On one host the list is empty.
        self.far.binary_search(&rank).is_ok()
    }

    /// What leads to a rank.
    pub(super) fn transport_to(&self, rank: u32) -> Transport {
        if self.is_far(rank) { Transport::Ethernet } else { Transport::SharedMemory }
    }

    /// What leads to all ranks: how memory is registered that any of them may use.
    pub(super) fn transports(&self) -> TransportFlags {
        let shared = TransportFlags::from(Transport::SharedMemory);
        if self.far.is_empty() { shared } else { shared | Transport::Ethernet }
    }

    /// The first operation, of whatever rank, that loads from or stores to memory of a rank on another host: the
    /// same on all ranks.
    ///
    /// # Errors
    /// `plan.other_host`; `plan.refused` for a memory channel that leads there, though no operation uses it.
    pub(super) fn check(&self, plan: &Plan) -> Result<(), ExecutionError> {
        if self.far.is_empty() {
            return Ok(());
        }
        let topology = Topology::new(plan);
        for (rank, entry) in (0..).zip(&plan.ranks) {
            for (number, block) in (0..).zip(&entry.blocks) {
                for (position, operation) in (0..).zip(&block.operations) {
                    let body = match &operation.action {
                        Action::Pipeline(pipeline) => &pipeline.body[..],
                        _ => &[],
                    };
                    let inner = (0..).zip(body).map(|(inner, operation)| (Some(inner), operation));
                    for (inner, operation) in std::iter::once((None, operation)).chain(inner) {
                        let user = User { topology: &topology, rank, block };
                        let Some((peer, by)) = self.beyond(&user, operation) else { continue };
                        let name = operation.action.name();
                        let place =
                            StepPlace { block: number, operation: position, inner, name, iteration: 0 };
                        return Err(ExecutionError::OtherHost {
                            plan: plan.name.clone(),
                            rank,
                            peer,
                            place,
                            by,
                        });
                    }
                }
            }
            let links = topology.rank(rank).map_or(&[][..], |channels| &channels.memory);
            if let Some(link) = links.iter().find(|link| self.apart(rank, link.peer)) {
                let why = format!(
                    "rank {rank} has a memory channel to rank {}, which is on another host",
                    link.peer
                );
                return Err(ExecutionError::Refused { plan: plan.name.clone(), why });
            }
        }
        Ok(())
    }

    /// Whether two ranks are on different hosts.
    fn apart(&self, one: u32, other: u32) -> bool {
        self.hosts.get(one as usize) != self.hosts.get(other as usize)
    }

    /// The rank on another host that an operation would have to map, and what leads to it.
    fn beyond(&self, user: &User<'_>, operation: &Operation) -> Option<(u32, &'static str)> {
        let far = |peer: &u32| self.apart(user.rank, *peer);
        let memory = "a memory channel";
        match &operation.action {
            Action::Signal { via: Via::Memory, channels, .. }
            | Action::Wait { via: Via::Memory, channels, .. } => {
                user.peers(Via::Memory, channels).find(far).map(|peer| (peer, memory))
            }
            Action::Data(data) => match data.channel_type {
                // A proxy's copy promises nothing about the words of a packet.
                Some(ChannelType::Port) if data.kind.uses_packets() => {
                    user.peers(Via::Port, &data.channels).find(far).map(|peer| (peer, "packets"))
                }
                Some(ChannelType::Port) => None,
                _ => {
                    let mapped = user.mapped(data).find(far).map(|peer| (peer, memory));
                    mapped.or_else(|| {
                        let member = user.groups(data).flat_map(|group| &group.ranks).copied().find(far)?;
                        Some((member, "a switch channel"))
                    })
                }
            },
            _ => None,
        }
    }
}

/// A block of a rank, whose operations name channels and buffers by their position.
struct User<'p> {
    topology: &'p Topology<'p>,
    rank: u32,
    block: &'p ThreadBlock,
}

impl<'p> User<'p> {
    /// Ranks at the other ends of channels.
    fn peers<'c>(&'c self, via: Via, channels: &'c [u32]) -> impl Iterator<Item = u32> + 'c {
        let channel_type = match via {
            Via::Memory => ChannelType::Memory,
            Via::Port => ChannelType::Port,
        };
        channels.iter().filter_map(move |position| {
            let channel = self.topology.channel_at(self.block, channel_type, *position)?;
            Some(self.topology.link(self.rank, via, channel)?.peer)
        })
    }

    /// Ranks whose memory an operation loads from or stores to, or whose channels it signals.
    fn mapped<'c>(&'c self, data: &'c DataOperation) -> impl Iterator<Item = u32> + 'c {
        let owner = |reference: &Reference| match *reference {
            Reference::Remote { position, .. } => {
                let target = self.topology.remote_at(self.rank, self.block, ChannelType::Memory, position);
                target.map(|target| target.rank)
            }
            Reference::Local { .. } | Reference::Switch { .. } => None,
        };
        let channels = match data.channel_type {
            Some(ChannelType::Memory) => &data.channels[..],
            _ => &[],
        };
        let references = data.sources.iter().chain(&data.destinations);
        references.filter_map(owner).chain(self.peers(Via::Memory, channels))
    }

    /// Groups whose memory an operation reaches at once.
    fn groups(&self, data: &'p DataOperation) -> impl Iterator<Item = &'p RankGroup> {
        data.sources.iter().chain(&data.destinations).filter_map(|reference| match *reference {
            Reference::Switch { position, .. } => {
                self.topology.switch_at(self.rank, self.block, position).map(|channel| channel.group)
            }
            Reference::Local { .. } | Reference::Remote { .. } => None,
        })
    }
}
