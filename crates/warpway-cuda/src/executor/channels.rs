//! Signals between the ranks of a plan, and objects of one rank's blocks.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use warpway_core::channel::BaseMemoryChannel;
use warpway_core::communicator::Exchange;
use warpway_core::connection::Connection;
use warpway_core::endpoint::EndpointConfig;
use warpway_core::semaphore::{MemoryDevice2DeviceSemaphore, Semaphore};
use warpway_core::transport::Transport;
use warpway_core::{Deadline, Error, Result};
use warpway_plan::{Plan, Topology, Via};

use super::TAG;
use crate::gpu::{DeviceArray, Gpu, GpuSignalChannel, HandleArray, Keeper};
use crate::handle::{DeviceSemaphore, DeviceSyncer, MemoryDevice2DeviceSemaphoreHandle};
use crate::plan::PlanKernel;

/// Handles of channels, by number.
pub(super) type Signals = HandleArray<MemoryDevice2DeviceSemaphoreHandle, GpuSignalChannel>;

/// Connections of a communicator's plans, by peer.
#[derive(Debug, Default)]
pub(super) struct Connections(Mutex<BTreeMap<u32, Connection>>);

impl Connections {
    /// Those to some ranks, made where there are none yet. Both ranks of each call it.
    fn to(&self, gpu: &Gpu, peers: &[u32], deadline: Deadline) -> Result<Vec<(u32, Connection)>> {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let endpoint = EndpointConfig {
            transport: Transport::CudaIpc,
            device: gpu.device(),
            ..EndpointConfig::default()
        };
        let new = peers.iter().copied().filter(|peer| !made.contains_key(peer));
        let pending: Vec<(u32, Exchange<Connection>)> = new
            .map(|peer| Ok((peer, gpu.communicator().connect(endpoint, peer, TAG)?)))
            .collect::<Result<_>>()?;
        for (peer, exchange) in pending {
            made.insert(peer, exchange.wait(deadline)?);
        }
        Ok(peers.iter().filter_map(|peer| made.get(peer).map(|found| (*peer, found.clone()))).collect())
    }

    /// Semaphores to some ranks, so many to each, in their order. Collective among them.
    pub(super) fn semaphores(
        &self,
        gpu: &Gpu,
        counts: &BTreeMap<u32, u32>,
        deadline: Deadline,
    ) -> Result<BTreeMap<(u32, u32), Semaphore>> {
        let peers: Vec<u32> = counts.iter().filter(|(_, count)| **count > 0).map(|(peer, _)| *peer).collect();
        // All exchanges are begun before the first is waited for.
        let mut pending = Vec::new();
        for (peer, connection) in self.to(gpu, &peers, deadline)? {
            for ordinal in 0..counts.get(&peer).copied().unwrap_or(0) {
                let exchange = gpu.communicator().build_semaphore(&connection, peer, TAG)?;
                pending.push(((peer, ordinal), exchange));
            }
        }
        pending.into_iter().map(|(key, exchange)| Ok((key, exchange.wait(deadline)?))).collect()
    }
}

/// What the channels of a plan need of this rank.
#[derive(Debug)]
pub(super) struct Channels {
    /// None without channels.
    signals: Option<Signals>,
    /// Partners of a peer's channels that this rank has none for.
    _unused: Vec<Semaphore>,
}

impl Channels {
    /// Pairs the k-th channel to a peer with the k-th of the peer to this rank; where one has more, the other makes the
    /// missing ones after its own. Collective.
    pub(super) fn connect(
        connections: &Connections,
        gpu: &Gpu,
        topology: &Topology<'_>,
        deadline: Deadline,
    ) -> Result<Self> {
        let (rank, n) = (gpu.communicator().rank(), gpu.communicator().n_ranks());
        let links = |rank: u32| topology.rank(rank).map_or(&[][..], |channels| channels.links(Via::Memory));
        let count = |from: u32, to: u32| links(from).iter().filter(|link| link.peer == to).count() as u32;
        let pairs = |peer: u32| (peer, count(rank, peer).max(count(peer, rank)));
        let counts = (0..n).filter(|peer| *peer != rank).map(pairs).collect();
        let mut semaphores = connections.semaphores(gpu, &counts, deadline)?;
        let mut handles = Vec::new();
        for link in links(rank) {
            let missing = Error::Internal { place: "plan channels", what: "every link has a pair" };
            let semaphore = semaphores.remove(&(link.peer, link.ordinal)).ok_or(missing)?;
            handles.push(signal(gpu, semaphore)?);
        }
        let signals = if handles.is_empty() { None } else { Some(gpu.handle_array(&handles)?) };
        Ok(Self { signals, _unused: semaphores.into_values().collect() })
    }

    /// Of the first handle; 0 without channels.
    pub(super) fn address(&self) -> u64 {
        self.signals.as_ref().map_or(0, Signals::address)
    }

    /// For launches.
    pub(super) fn keepers(&self) -> Vec<Keeper> {
        self.signals.iter().map(|signals| std::sync::Arc::new(signals.clone()) as Keeper).collect()
    }
}

/// Of one channel.
type Handle = warpway_core::channel::DeviceHandle<MemoryDevice2DeviceSemaphoreHandle, GpuSignalChannel>;

/// What kernels do with the semaphore.
pub(super) fn signal(gpu: &Gpu, semaphore: Semaphore) -> Result<Handle> {
    gpu.signal_channel(&BaseMemoryChannel::new(MemoryDevice2DeviceSemaphore::new(semaphore)?))
}

/// Barriers and semaphores of this rank's blocks, by number.
#[derive(Debug)]
pub(super) struct Objects {
    barriers: Option<DeviceArray<DeviceSyncer>>,
    semaphores: Option<DeviceArray<DeviceSemaphore>>,
}

impl Objects {
    /// # Errors
    /// `gpu.driver`.
    pub(super) fn new(gpu: &Gpu, plan: &Plan, kernel: &PlanKernel) -> Result<Self> {
        let site = |object: usize| gpu.control().site(None, object as u64);
        let barriers: Vec<DeviceSyncer> = (0..kernel.barriers() as usize)
            .map(|at| DeviceSyncer { site: site(at), ..DeviceSyncer::default() })
            .collect();
        let units = plan.ranks.get(kernel.rank() as usize).map_or(&[][..], |own| &own.semaphores);
        let semaphores: Vec<DeviceSemaphore> = units
            .iter()
            .enumerate()
            .map(|(at, units)| DeviceSemaphore { tickets: 0, units: *units, site: site(at) })
            .collect();
        Ok(Self { barriers: array(gpu, &barriers)?, semaphores: array(gpu, &semaphores)? })
    }

    /// Of the first barrier and of the first semaphore; 0 without one.
    pub(super) fn addresses(&self) -> (u64, u64) {
        let barriers = self.barriers.as_ref().map_or(0, DeviceArray::address);
        (barriers, self.semaphores.as_ref().map_or(0, DeviceArray::address))
    }

    /// For launches.
    pub(super) fn keepers(&self) -> Vec<Keeper> {
        let barriers = self.barriers.iter().map(DeviceArray::keeper);
        barriers.chain(self.semaphores.iter().map(DeviceArray::keeper)).collect()
    }
}

fn array<T: Copy>(gpu: &Gpu, content: &[T]) -> Result<Option<DeviceArray<T>>> {
    if content.is_empty() { Ok(None) } else { gpu.array(content).map(Some) }
}
