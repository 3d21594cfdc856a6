//! The engine: exports, imports, endpoints, joining two endpoints.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use warpway_core::connection::{ConnectionError, RawConnection};
use warpway_core::endpoint::{Endpoint, EndpointConfig};
use warpway_core::engine::{Engine, EngineContext};
use warpway_core::memory::{Access, EthernetExport, Export, Import, MemoryError, MemoryRecord, Region};
use warpway_core::trace::Operation;
use warpway_core::transport::{Device, DeviceKind, Transport};
use warpway_core::wait::{GaveUp, WaitSite};
use warpway_core::{Deadline, Error, Result, Timeout};

use crate::connection::TcpConnection;
use crate::dial::Call;
use crate::handshake::Identity;
use crate::job::{Job, JobId};
use crate::link::{Link, LinkParts};
use crate::lock;
use crate::service::Service;
use crate::table::{ExportGuard, Table};

/// Limits of a [`TcpEngine`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TcpConfig {
    /// How long a connection to this engine may take to authenticate. Default 5 s.
    pub handshake_timeout: Duration,
    /// How long a peer's host may be silent, or accept no data, before its connections break. Default 60 s.
    pub host_timeout: Duration,
    /// How long a call waits for room in the queue of a peer that does not keep up. Default 600 s.
    pub stall_timeout: Duration,
    /// How long the end of the engine waits until peers have applied what was posted. Default 5 s.
    pub close_timeout: Duration,
    /// Operations queued per connection before a caller waits, where the endpoint does not say. Default 1024.
    pub queue_limit: u64,
}

impl Default for TcpConfig {
    fn default() -> Self {
        Self {
            handshake_timeout: Duration::from_secs(5),
            host_timeout: Duration::from_secs(60),
            stall_timeout: Duration::from_secs(600),
            close_timeout: Duration::from_secs(5),
            queue_limit: 1024,
        }
    }
}

/// Counters of a [`TcpEngine`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TcpStatistics {
    /// Connections turned away: strangers, silence, endpoints that are not here.
    pub strays: u64,
    /// Links that stand.
    pub links: u64,
}

/// TCP between the ranks of a job. Costs nothing until its first endpoint; from then on it has two threads,
/// which end when the engine and its last connection are gone.
#[derive(Default)]
pub struct TcpEngine {
    config: TcpConfig,
    table: Arc<Table>,
    service: Mutex<Option<Arc<Service>>>,
}

impl TcpEngine {
    /// An engine with default limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// An engine with these limits.
    pub fn with_config(config: TcpConfig) -> Self {
        Self { config, ..Self::default() }
    }

    /// Counters since the engine was made.
    pub fn statistics(&self) -> TcpStatistics {
        lock(&self.service).as_ref().map_or_else(TcpStatistics::default, |service| TcpStatistics {
            strays: service.shared.strays.load(Ordering::Relaxed),
            links: service.shared.links().len() as u64,
        })
    }

    fn service(&self) -> Result<Arc<Service>> {
        let mut service = lock(&self.service);
        if let Some(service) = &*service {
            return Ok(Arc::clone(service));
        }
        let started = Arc::new(Service::start(self.config, Arc::clone(&self.table))?);
        *service = Some(Arc::clone(&started));
        Ok(started)
    }
}

impl Engine for TcpEngine {
    fn transport(&self) -> Transport {
        Transport::Ethernet
    }

    fn export(&self, context: &EngineContext, region: &Region, access: Access) -> Result<Export> {
        let refuse = |why| MemoryError::NotExportable {
            address: region.address().as_ptr() as u64,
            size: region.size(),
            transport: Transport::Ethernet,
            why,
        };
        if region.device().kind != DeviceKind::Cpu && region.staging().is_none() {
            return Err(
                refuse("TCP reaches memory of a device through its engine, which offers no way").into()
            );
        }
        let id = self.table.add(JobId::of(&*context.control), region.clone(), access)?;
        let id = id.ok_or_else(|| refuse("2^32 regions are exported already"))?;
        Ok(Export {
            ethernet: Some(EthernetExport { memory_id: id }),
            guard: Some(Arc::new(ExportGuard { table: Arc::clone(&self.table), id })),
            ..Export::new(Transport::Ethernet)
        })
    }

    fn import(&self, context: &EngineContext, record: &MemoryRecord, _: Deadline) -> Result<Import> {
        if record.ethernet.is_none() {
            let why = "its owner did not export it by TCP".into();
            return Err(
                MemoryError::Import { owner: context.rank_of(record.owner), size: record.size, why }.into()
            );
        }
        // Whether the owner has the memory shows with the first operation: it checks each of them.
        Ok(Import { transport: Transport::Ethernet, region: None })
    }

    fn endpoint(&self, context: &EngineContext, config: &EndpointConfig) -> Result<Endpoint> {
        let service = self.service()?;
        let job = service.job(&*context.control)?;
        let me = context.control.peers().iter().find(|peer| peer.rank == job.id.rank);
        // Which GPU is current is not this engine's to know: kernels wait only where the caller names one.
        let device = match config.device {
            Device { kind: DeviceKind::Cpu, .. } => config.device,
            Device { kind: DeviceKind::Gpu, id: 0.. } => config.device,
            _ => Device::CPU,
        };
        Ok(Endpoint {
            owner: job.id.rank,
            host: me.map_or(0, |peer| peer.host),
            process: me.map_or(0, |peer| peer.process),
            addresses: job.addresses.clone(),
            ..Endpoint::new(Transport::Ethernet, device, config, service.new_endpoint(&job))
        })
    }

    /// The side with the smaller (owner, id) dials and returns as soon as the other engine has answered;
    /// the other side waits for it.
    fn connect(
        &self,
        context: &EngineContext,
        local: &Endpoint,
        remote: &Endpoint,
        deadline: Deadline,
    ) -> Result<Box<dyn RawConnection>> {
        let service = self.service()?;
        let job = service.job(&*context.control)?;
        let (here, there) = ((local.owner, local.id), (remote.owner, remote.id));
        let dials = here <= there;
        let (from, to) = if dials { (local, remote) } else { (remote, local) };
        let identity =
            Identity { from: from.owner, to: to.owner, from_endpoint: from.id, to_endpoint: to.id };
        let peer = context.rank_of(remote.owner);
        let joining = Joining { service: &service, job: &job, context, local, remote, peer, identity };
        let link = if dials {
            let call = Call {
                key: &job.key,
                identity,
                same_host: local.host == remote.host,
                remote,
                peer,
                health: &context.waiter.health,
                config: &self.config,
                deadline,
            };
            let link = joining.link(call.dial()?)?;
            if here == there {
                // An endpoint joined with itself: nobody else will take the other end.
                joining.link(joining.arrival(deadline)?)?.close();
            }
            link
        } else {
            joining.link(joining.arrival(deadline)?)?
        };
        Ok(Box::new(TcpConnection { link, _service: service }))
    }
}

/// Two endpoints on the way to a link.
struct Joining<'a> {
    service: &'a Service,
    job: &'a Job,
    context: &'a EngineContext,
    local: &'a Endpoint,
    remote: &'a Endpoint,
    /// Rank of its owner in the communicator.
    peer: u32,
    identity: Identity,
}

impl Joining<'_> {
    /// Waits for the socket that the other side dials.
    fn arrival(&self, deadline: Deadline) -> Result<std::os::fd::OwnedFd> {
        let started = Instant::now();
        let (arrivals, peer) = (&self.service.shared.arrivals, self.peer);
        let site = || WaitSite {
            operation: Operation::Connect,
            peer: Some(peer),
            object: self.local.id,
            sequence: 0,
            expected: 1,
        };
        let take = || arrivals.take(self.job.id, &self.identity).ok_or(0);
        let waited = self.context.waiter.wait(site, Timeout::from(deadline), Some(&arrivals.event), take);
        waited.map_err(|error| match error.reason {
            GaveUp::TimedOut => ConnectionError::Unreachable {
                peer,
                transport: Transport::Ethernet,
                elapsed: started.elapsed(),
                why: "it has not dialled this endpoint; has it called connect?".into(),
            }
            .into(),
            // The number is that of an endpoint, not of the exchange that waits for this.
            GaveUp::Failed(failure) => Error::from(*failure),
            _ => Error::Wait(error),
        })
    }

    fn link(&self, socket: std::os::fd::OwnedFd) -> Result<Arc<Link>> {
        let shared = &self.service.shared;
        // Only the engine's own threads end waits on a link: they need the core.
        let waiter = &self.context.waiter;
        let waiter = waiter.with_policy(waiter.policy.without_spinning());
        let configured = u64::try_from(self.local.max_write_queue_size).ok().filter(|n| *n > 0);
        let link = Arc::new(Link::new(LinkParts {
            key: shared.next_key(),
            socket,
            job: self.job.id,
            peer: self.peer,
            owner: self.remote.owner,
            object: self.local.id,
            waiter,
            pollers: Arc::clone(&shared.pollers),
            queue_limit: configured.unwrap_or(shared.config.queue_limit.max(1)),
            stall_timeout: shared.config.stall_timeout,
        }));
        shared.table.expect_bytes()?;
        shared.adopt(Arc::clone(&link))?;
        Ok(link)
    }
}
