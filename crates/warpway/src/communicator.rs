//! The communicator as programs see it.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use warpway_core::bootstrap::{Rendezvous, TcpBootstrap, ThisHost};
use warpway_core::channel::{BaseMemoryChannel, MemoryChannel};
use warpway_core::communicator::{Communicator as Core, Exchange, ExchangeError};
use warpway_core::config::{Config, Environment};
use warpway_core::endpoint::EndpointConfig;
use warpway_core::memory::{Access, Element, RegisteredMemory};
use warpway_core::proxy::{ProxyService, ProxyServiceConfig};
use warpway_core::trace::{DumpConfig, DumpIdentity, DumpService, DumpSource, FlightDump};
use warpway_core::transport::{Transport, TransportFlags};
use warpway_core::{Deadline, Error, Result, Timeout, Unavailable};
use warpway_cuda::{CudaEngine, Gpu};
use warpway_host::{Block, BlockChannel, BlockSemaphore, HostBuffer, Launcher, PlanExecutor, PointToPoint};

use crate::barrier::Barrier;
use crate::buffer::Buffer;
use crate::collective::Collectives;
use crate::context::Context;
use crate::peer::Peer;

/// The ranks that work together, seen from one of them. Cheap to clone, `Send + Sync`.
///
/// Calls that block give up at the configured timeouts (`WARPWAY_SETUP_TIMEOUT_S`,
/// `WARPWAY_BOOTSTRAP_TIMEOUT_S`, `WARPWAY_DEVICE_TIMEOUT_MS`) and at once when a rank dies or
/// [`abort`](Self::abort) is called anywhere; the error names the rank. Dropping the last clone leaves
/// the communicator in good order.
#[derive(Clone)]
pub struct Communicator(Arc<Inner>);

struct Inner {
    // Dropped in this order: dumps, blocks and kernels before what they look at, the job last.
    dumps: DumpService,
    collectives: OnceLock<Collectives>,
    executor: OnceLock<PlanExecutor>,
    /// Held while the executor is made: the ranks make one together, and threads of a rank must not make two.
    making_executor: Mutex<()>,
    point_to_point: OnceLock<PointToPoint>,
    gpu: Mutex<Option<Gpu>>,
    launcher: Launcher,
    core: Core,
    bootstrap: Arc<TcpBootstrap>,
    cuda: Option<CudaEngine>,
    context: Context,
}

impl Communicator {
    /// Joins the job that the environment describes: `warpway launch`, torchrun, Open MPI, MPICH, Slurm,
    /// or `WARPWAY_COMM_ID` with `WARPWAY_RANK` and `WARPWAY_WORLD_SIZE`. Blocks until all ranks have joined.
    /// Log lines are shown as [`Context::from_env`] says.
    ///
    /// # Errors
    /// `config.*` naming the variable; those of [`TcpBootstrap::initialize_plan`].
    pub fn from_env() -> Result<Self> {
        let environment = Environment::of_process()?;
        let context = Context::from_environment(&environment)?;
        let rendezvous = Rendezvous::find(&environment, context.config(), &ThisHost::new(context.config()))?;
        context.join_plan(&rendezvous.plan)
    }

    pub(crate) fn on(
        core: Core,
        bootstrap: Arc<TcpBootstrap>,
        context: Context,
        cuda: Option<CudaEngine>,
    ) -> Result<Self> {
        let identity = DumpIdentity {
            job: core.control().job_nonce(),
            scope: core.scope(),
            rank: core.rank(),
            n_ranks: core.n_ranks(),
            job_rank: core.control().job_rank(),
        };
        let source = DumpSource::new(identity, Arc::clone(core.flight_recorder()), Arc::clone(core.health()));
        let dumps = DumpService::start(source, DumpConfig::from(context.config()))?;
        let launcher = Launcher::new(core.waiter().clone()).with_timeout(context.config().device_timeout);
        Ok(Self(Arc::new(Inner {
            dumps,
            collectives: OnceLock::new(),
            executor: OnceLock::new(),
            making_executor: Mutex::default(),
            point_to_point: OnceLock::new(),
            gpu: Mutex::default(),
            launcher,
            core,
            bootstrap,
            cuda,
            context,
        })))
    }

    /// This rank.
    pub fn rank(&self) -> u32 {
        self.0.core.rank()
    }

    /// How many ranks there are.
    pub fn n_ranks(&self) -> u32 {
        self.0.core.n_ranks()
    }

    /// The configuration it was made with.
    pub fn config(&self) -> &Config {
        self.0.context.config()
    }

    /// The bootstrap of the job: messages between all its ranks.
    pub fn bootstrap(&self) -> &TcpBootstrap {
        &self.0.bootstrap
    }

    /// When a call of the [`bootstrap`](Self::bootstrap) that starts now is to give up
    /// (`WARPWAY_BOOTSTRAP_TIMEOUT_S`).
    pub fn bootstrap_deadline(&self) -> Deadline {
        self.config().bootstrap_timeout.start()
    }

    /// The context it was made in.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// The engine of this rank's GPU, which chooses and opens it when it is first used; `None` where `WARPWAY_ENGINE` is
    /// `host`. Communicators split from one another use the same GPU.
    pub fn cuda(&self) -> Option<&CudaEngine> {
        self.0.cuda.as_ref()
    }

    /// What the flight recorder holds now.
    pub fn flight_dump(&self) -> FlightDump {
        self.0.dumps.capture()
    }

    /// The communicator of the core: exchanges with tags, publications, health, flight recorder.
    pub fn core(&self) -> &Core {
        &self.0.core
    }

    /// Divides the ranks: those that give the same `color` form a new communicator, ordered by `key`, then
    /// by rank here. `color` −1: none for this rank. All ranks call it.
    ///
    /// ```
    /// use warpway::{Config, Context, in_process};
    ///
    /// # fn main() -> warpway::Result<()> {
    /// let places = in_process(4, &Context::new(Config::default()), |comm| {
    ///     let half = comm.split((comm.rank() / 2) as i32, 0)?;
    ///     comm.barrier()?;
    ///     Ok(half.map(|half| (half.rank(), half.n_ranks())))
    /// })?;
    /// assert_eq!(places, [Some((0, 2)), Some((1, 2)), Some((0, 2)), Some((1, 2))]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `exchange.argument` for other negative colours, or while exchanges are under way.
    pub fn split(&self, color: i32, key: i32) -> Result<Option<Self>> {
        let child = self.0.core.split(color, key, self.setup_deadline())?;
        let Inner { bootstrap, context, cuda, .. } = &*self.0;
        child.map(|core| Self::on(core, Arc::clone(bootstrap), context.clone(), cuda.clone())).transpose()
    }

    /// Allocates `len` zeroed elements that every rank can reach by every transport.
    ///
    /// # Errors
    /// `mem.invalid` for zero elements, `system` if memory or descriptors are exhausted.
    pub fn alloc<T: Element>(&self, len: u64) -> Result<Buffer<T>> {
        let data = self.0.context.host().allocate::<T>(len)?;
        let memory = self.register(&data)?;
        Ok(Buffer::new(data, memory))
    }

    /// Makes memory known to all transports of the host.
    ///
    /// # Errors
    /// `mem.invalid` for zero elements; those of the engines.
    pub fn register<T: Element>(&self, data: &HostBuffer<T>) -> Result<RegisteredMemory> {
        let empty =
            || warpway_core::memory::MemoryError::Invalid { address: 0, size: 0, why: "the size is zero" };
        let region = data.region().cloned().ok_or_else(empty)?;
        self.0.core.register_memory(region, TransportFlags::HOST, Access::ALL)
    }

    /// Connects with `peer` (itself included): by shared memory on one host, by TCP otherwise. Both ranks
    /// call it, each pair in the same order. It waits for the peer: a circle of ranks that each connect with
    /// the next one first never closes, so use [`connect_all`](Self::connect_all) there.
    ///
    /// # Errors
    /// `conn.*` naming the peer.
    #[track_caller]
    pub fn connect(&self, peer: u32) -> Result<Peer> {
        self.wait_for(peer, self.endpoint(peer, None)?)
    }

    /// The same by a transport of the caller's choice, the same on both sides.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    #[track_caller]
    pub fn connect_by(&self, peer: u32, transport: Transport) -> Result<Peer> {
        self.wait_for(peer, self.endpoint(peer, Some(transport))?)
    }

    /// The same by an endpoint of the caller's choice: by TCP from a GPU, whose kernels then wait for the peer's signals.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    #[track_caller]
    pub fn connect_endpoint(&self, peer: u32, endpoint: EndpointConfig) -> Result<Peer> {
        self.wait_for(peer, endpoint)
    }

    #[track_caller]
    fn wait_for(&self, peer: u32, endpoint: EndpointConfig) -> Result<Peer> {
        let connection = self.0.core.connect(endpoint, peer, Peer::TAG)?;
        Ok(Peer::new(self.clone(), peer, connection.wait(self.setup_deadline())?))
    }

    /// Connects with every rank, itself included, in an order that cannot deadlock; `peers[r]` is rank r.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    #[track_caller]
    pub fn connect_all(&self, transport: Option<Transport>) -> Result<Vec<Peer>> {
        // No closure: an exchange that does not match names the caller's line.
        let mut pending = Vec::with_capacity(self.n_ranks() as usize);
        for peer in 0..self.n_ranks() {
            pending.push(self.0.core.connect(self.endpoint(peer, transport)?, peer, Peer::TAG)?);
        }
        let deadline = self.setup_deadline();
        let connected = |(peer, exchange): (u32, Exchange<_>)| {
            Ok(Peer::new(self.clone(), peer, exchange.wait(deadline)?))
        };
        (0..).zip(pending).map(connected).collect()
    }

    /// Runs `kernel` once per block, each block on its own thread; returns when all have ended.
    ///
    /// # Errors
    /// The first error or panic of a block; the communicator has failed then.
    pub fn launch(&self, blocks: u32, kernel: impl Fn(&Block<'_>) -> Result<()> + Sync) -> Result<()> {
        self.0.launcher.launch(blocks, kernel)
    }

    /// What a kernel does with a memory channel.
    ///
    /// # Errors
    /// `mem.transport` if the peer's memory is not mapped.
    pub fn block_channel(&self, channel: &MemoryChannel) -> Result<BlockChannel> {
        Ok(BlockChannel::new(channel)?.with_policy(self.0.launcher.policy(1)))
    }

    /// What a kernel does with a channel that only signals.
    ///
    /// # Errors
    /// `mem.transport` if the peer's token is not mapped.
    pub fn block_semaphore(&self, channel: &BaseMemoryChannel) -> Result<BlockSemaphore> {
        Ok(BlockSemaphore::new(channel)?.with_policy(self.0.launcher.policy(1)))
    }

    /// A running proxy service for port channels. Channels keep it alive.
    ///
    /// # Errors
    /// If its thread cannot be started.
    pub fn proxy_service(&self) -> Result<ProxyService> {
        let mut config = ProxyServiceConfig::new(self.0.core.waiter().clone());
        config.proxy.fifo_size = self.0.context.config().fifo_size;
        let service = ProxyService::new(config)?;
        service.start_proxy()?;
        Ok(service)
    }

    /// This rank's GPU: `WARPWAY_DEVICE` if it is set; else the device whose context is current on the thread that first
    /// uses it; else the rank among those of its host, modulo the visible devices. Several ranks may use one device. The
    /// first call opens the driver and starts a thread that watches the kernels.
    ///
    /// # Errors
    /// `unavailable` without a driver or device, or if `WARPWAY_ENGINE` is `host`; `gpu.driver`, also for a device that
    /// does not exist.
    pub fn gpu(&self) -> Result<Gpu> {
        let mut gpu = self.0.gpu.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(gpu) = &*gpu {
            return Ok(gpu.clone());
        }
        let Inner { core, context, cuda, .. } = &*self.0;
        let cuda = cuda.as_ref().ok_or_else(|| Unavailable {
            what: "a GPU".into(),
            why: "WARPWAY_ENGINE is host".into(),
            hint: "set it to auto or cuda",
        })?;
        let compiler = context.devices().compiler();
        let made = Gpu::new(core, &cuda.context()?, compiler, context.config().device_timeout)?;
        Ok(gpu.insert(made).clone())
    }

    /// A barrier on semaphores, much faster than [`barrier`](Self::barrier) when used often. All ranks call it.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn make_barrier(&self) -> Result<Barrier> {
        Barrier::new(self, None)
    }

    /// The same by a transport of the caller's choice, the same on all ranks.
    ///
    /// # Errors
    /// As [`make_barrier`](Self::make_barrier).
    pub fn make_barrier_by(&self, transport: Transport) -> Result<Barrier> {
        Barrier::new(self, Some(transport))
    }

    /// Returns once every rank has called it. Through the bootstrap: for set-up, not for loops.
    ///
    /// # Errors
    /// `bootstrap.timeout` naming a rank that did not come.
    pub fn barrier(&self) -> Result<()> {
        self.0.core.barrier(self.bootstrap_deadline())
    }

    /// Fails every wait on all ranks of this communicator. Returns at once; any thread; idempotent.
    pub fn abort(&self, reason: impl Into<String>) {
        self.0.core.abort(reason);
    }

    /// The failure found in the background or by an earlier call, if there is one.
    pub fn async_error(&self) -> Option<Error> {
        self.0.core.async_error()
    }

    /// The executor of plans, made by `make` if there is none yet.
    pub(crate) fn executor_or_else(
        &self,
        make: impl FnOnce(&Launcher) -> Result<PlanExecutor>,
    ) -> Result<PlanExecutor> {
        if let Some(executor) = self.0.executor.get() {
            return Ok(executor.clone());
        }
        let _turn = self.0.making_executor.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(executor) = self.0.executor.get() {
            return Ok(executor.clone());
        }
        let made = make(&self.0.launcher)?;
        Ok(self.0.executor.get_or_init(|| made).clone())
    }

    /// The collectives, found out about at the first call.
    pub(crate) fn collectives(&self) -> Result<&Collectives> {
        if let Some(collectives) = self.0.collectives.get() {
            return Ok(collectives);
        }
        let made = Collectives::new(self)?;
        Ok(self.0.collectives.get_or_init(|| made))
    }

    /// What sends and receives, made by `make` if there is nothing yet.
    pub(crate) fn point_to_point_or_else(&self, make: impl FnOnce() -> PointToPoint) -> &PointToPoint {
        self.0.point_to_point.get_or_init(make)
    }

    /// Limit of waits inside kernels.
    pub(crate) fn device_timeout(&self) -> Timeout {
        self.0.context.config().device_timeout
    }

    pub(crate) fn setup_deadline(&self) -> Deadline {
        self.0.context.config().setup_timeout.start()
    }

    /// The endpoint for `peer`: by `transport`, or by the fastest one that reaches it.
    pub(crate) fn endpoint(&self, peer: u32, transport: Option<Transport>) -> Result<EndpointConfig> {
        let core = &self.0.core;
        let argument = || ExchangeError::Argument {
            operation: "connect",
            why: format!("there is no rank {peer} among {}", self.n_ranks()),
        };
        let member = *core.members().get(peer as usize).ok_or_else(argument)?;
        let peers = core.control().peers();
        let host = |job_rank: u32| peers.get(job_rank as usize).map(|p| p.host);
        let near = host(member) == host(core.control().job_rank());
        let fastest = if near { Transport::SharedMemory } else { Transport::Ethernet };
        Ok(match transport.unwrap_or(fastest) {
            // The GPU of this rank.
            Transport::CudaIpc => {
                EndpointConfig { transport: Transport::CudaIpc, ..EndpointConfig::default() }
            }
            other => EndpointConfig::cpu(other),
        })
    }
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.core.fmt(f)
    }
}
