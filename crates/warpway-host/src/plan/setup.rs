//! What a plan needs of the communicator, set up once by all ranks: channels, barriers, semaphores.

use std::collections::BTreeMap;

use warpway_core::channel::{BaseMemoryChannel, BasePortChannelHandle};
use warpway_core::communicator::Exchange;
use warpway_core::execution::ExecutionError;
use warpway_core::fifo::SemaphoreId;
use warpway_core::proxy::ProxyService;
use warpway_core::semaphore::{MemoryDevice2DeviceSemaphore, Semaphore};
use warpway_core::{Deadline, Result};
use warpway_plan::{Action, Plan, Topology, Via};

use super::barrier::BlockBarrier;
use super::executor::Shared;
use super::{MAX_IDS, TAG};
use crate::block::DeviceSemaphore;
use crate::block_channel::BlockSemaphore;

/// Channels of one rank, by channel index.
#[derive(Default)]
pub(super) struct Channels {
    pub(super) memory: Vec<BlockSemaphore>,
    pub(super) port: Vec<BasePortChannelHandle>,
    service: Option<ProxyService>,
    ids: Vec<SemaphoreId>,
    /// Partners of a peer's channels that this rank has none for.
    _unused: Vec<Semaphore>,
}

impl Drop for Channels {
    fn drop(&mut self) {
        for id in &self.ids {
            if let Some(service) = &self.service {
                // Fails only if the service is gone already.
                drop(service.remove_semaphore(*id));
            }
        }
    }
}

/// What blocks of one rank share in every launch of a plan.
#[derive(Debug)]
pub(super) struct BlockObjects {
    pub(super) semaphores: Vec<DeviceSemaphore>,
    pub(super) barriers: BTreeMap<u32, BlockBarrier>,
}

/// Pairs the k-th channel to a peer with the k-th of the peer to this rank; where one has more, the other makes the
/// missing ones after its own. Ranks of other hosts that are `told` of launches are connected, too. Collective.
pub(super) fn connect(
    shared: &Shared,
    topology: &Topology<'_>,
    told: &[u32],
    deadline: Deadline,
) -> Result<Channels> {
    let (rank, n) = (shared.comm.rank(), shared.comm.n_ranks());
    let counts = |via: Via, from: u32, to: u32| {
        let links = topology.rank(from).map_or(&[][..], |channels| channels.links(via));
        links.iter().filter(|link| link.peer == to).count()
    };
    let others: Vec<u32> = (0..n).filter(|peer| *peer != rank).collect();
    let pairs = |via, peer| counts(via, rank, peer).max(counts(via, peer, rank));
    let channels = |peer: u32| pairs(Via::Memory, peer) + pairs(Via::Port, peer) > 0;
    let messages = |peer: u32| shared.hosts.is_far(peer) && told.contains(&peer);
    let needed: Vec<u32> = others.into_iter().filter(|peer| channels(*peer) || messages(*peer)).collect();
    let connections = shared.connections(&needed, deadline)?;
    let mut found = Channels::default();
    for via in [Via::Memory, Via::Port] {
        // All exchanges are begun before the first is waited for.
        let mut pending: BTreeMap<(u32, u32), Exchange<Semaphore>> = BTreeMap::new();
        for (peer, connection) in &connections {
            for ordinal in 0..pairs(via, *peer) as u32 {
                pending.insert((*peer, ordinal), shared.comm.build_semaphore(connection, *peer, TAG)?);
            }
        }
        let links = topology.rank(rank).map_or(&[][..], |channels| channels.links(via));
        for link in links {
            let exchange = pending.remove(&(link.peer, link.ordinal));
            let missing =
                warpway_core::Error::Internal { place: "plan channels", what: "every link has a pair" };
            let semaphore = exchange.ok_or(missing)?.wait(deadline)?;
            match via {
                Via::Memory => {
                    let base = BaseMemoryChannel::new(MemoryDevice2DeviceSemaphore::new(semaphore)?);
                    found.memory.push(BlockSemaphore::new(&base.with_timeout(shared.config.device_timeout))?);
                }
                Via::Port => {
                    let service = shared.service()?;
                    let id = service.add_semaphore(&semaphore)?;
                    found.ids.push(id);
                    let channel = service.base_port_channel(id)?.with_timeout(shared.config.device_timeout);
                    found.port.push(channel.device_handle());
                    found.service = Some(service);
                }
            }
        }
        for exchange in pending.into_values() {
            found._unused.push(exchange.wait(deadline)?);
        }
    }
    Ok(found)
}

impl BlockObjects {
    /// Of `rank`.
    ///
    /// # Errors
    /// `plan.refused` for barriers whose blocks disagree about their number, and for too many of either.
    pub(super) fn new(plan: &Plan, rank: u32) -> Result<Self> {
        let refused = |why: String| ExecutionError::Refused { plan: plan.name.clone(), why };
        let mut barriers: BTreeMap<u32, (u32, BlockBarrier)> = BTreeMap::new();
        let Some(own) = plan.ranks.get(rank as usize) else {
            return Err(refused(format!("it has no rank {rank}")).into());
        };
        for operation in own.blocks.iter().flat_map(|block| &block.operations) {
            let body = match &operation.action {
                Action::Pipeline(pipeline) => pipeline.body.as_slice(),
                _ => std::slice::from_ref(operation),
            };
            for operation in body {
                let Action::Barrier { id, blocks } = operation.action else { continue };
                let entry = barriers.entry(id).or_insert_with(|| (blocks, BlockBarrier::new(id, blocks)));
                if blocks == 0 || entry.0 != blocks {
                    return Err(refused(format!(
                        "barrier {id} of rank {rank} is one of {blocks} blocks here and of {} elsewhere",
                        entry.0
                    ))
                    .into());
                }
            }
        }
        if barriers.len() > MAX_IDS || own.semaphores.len() > MAX_IDS {
            return Err(refused(format!("a rank may have {MAX_IDS} barriers and as many semaphores")).into());
        }
        let barriers = barriers.into_iter().map(|(id, (_, barrier))| (id, barrier)).collect();
        Ok(Self {
            semaphores: own.semaphores.iter().map(|units| DeviceSemaphore::new(*units)).collect(),
            barriers,
        })
    }
}
