//! What the communicators of one process share, and the ways to join a job.

use std::sync::Arc;

use warpway_core::bootstrap::{Bootstrap, ControlPlane, JoinPlan, ScopeId, TcpBootstrap, UniqueId};
use warpway_core::communicator::{Communicator as Core, CommunicatorConfig, CommunicatorParts};
use warpway_core::config::{Config, EngineChoice, Environment, Loaded};
use warpway_core::engine::Engine;
use warpway_core::memory::{HostTokens, LocalMemories, Region, TokenMemory};
use warpway_core::{Error, Result};
use warpway_cuda::jit::Compiler;
use warpway_cuda::{CudaEngine, DeviceChoice, Devices};
use warpway_host::{HostEngine, SharedBuffer};
use warpway_net::TcpEngine;

use crate::collective::Proofs;
use crate::communicator::Communicator;
use crate::logging::show_logs;

/// Scope of a job's first communicator; 0 is the bootstrap's own.
const WORLD: ScopeId = ScopeId(1);

/// Configuration and engines. Communicators made from one context map each allocation of a peer once and
/// give each other (ranks as threads) the original pointers. Cheap to clone.
#[derive(Clone)]
pub struct Context(Arc<Inner>);

struct Inner {
    config: Config,
    host: HostEngine,
    devices: Devices,
    memories: Arc<LocalMemories>,
    proofs: Proofs,
}

impl Context {
    /// A context without communicators. Nothing of a GPU is opened before it is used.
    pub fn new(config: Config) -> Self {
        // What it is asked for has defaults: where to look for the compiler of kernels, and where to keep them.
        Self::with(config, &Environment::of_process().unwrap_or_default())
    }

    fn with(config: Config, environment: &Environment) -> Self {
        let devices = Devices::new(&config.cuda_driver, Compiler::new(&config, environment));
        let (memories, proofs) = Default::default();
        Self(Arc::new(Inner { config, host: HostEngine::new(), devices, memories, proofs }))
    }

    /// A context with the settings of the process's environment.
    ///
    /// A program without a `tracing` subscriber gets one that shows Warpway's lines as `WARPWAY_LOG_*` say
    /// (warnings on standard error), among them variables that are misspelt or without effect. A program
    /// that has its own sets it before this call; see [`log_subscriber`](crate::log_subscriber).
    ///
    /// # Errors
    /// `config.*` naming the variable; `system` if the log file cannot be opened.
    pub fn from_env() -> Result<Self> {
        Self::from_environment(&Environment::of_process()?)
    }

    pub(crate) fn from_environment(environment: &Environment) -> Result<Self> {
        let Loaded { config, notices } = Config::read(environment)?;
        show_logs(&config)?;
        for notice in &notices {
            notice.log();
        }
        Ok(Self::with(config, environment))
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.0.config
    }

    /// The shared-memory engine, which allocates.
    pub fn host(&self) -> &HostEngine {
        &self.0.host
    }

    /// Plans of the catalogue that have been proven.
    pub(crate) fn proofs(&self) -> &Proofs {
        &self.0.proofs
    }

    /// The GPUs: driver, contexts and the compiler of kernels, opened when they are first used.
    pub fn devices(&self) -> &Devices {
        &self.0.devices
    }

    /// Joins with an id that one process made ([`UniqueIdRoot`](crate::UniqueIdRoot)) and handed to all.
    /// Blocks until all ranks have joined.
    ///
    /// # Errors
    /// Those of [`TcpBootstrap::initialize_id`].
    pub fn join_id(&self, id: &UniqueId, rank: u32, n_ranks: u32) -> Result<Communicator> {
        self.join(TcpBootstrap::initialize_id(id, rank, n_ranks, self.config().clone())?)
    }

    /// Joins by plan.
    ///
    /// # Errors
    /// Those of [`TcpBootstrap::initialize_plan`].
    pub fn join_plan(&self, plan: &JoinPlan) -> Result<Communicator> {
        self.join(TcpBootstrap::initialize_plan(plan, self.config().clone())?)
    }

    /// The communicator of all ranks of a bootstrap that has joined. Every rank calls it once.
    ///
    /// # Errors
    /// If descriptors or threads are exhausted; without a GPU where `WARPWAY_ENGINE` is `cuda`.
    pub fn join(&self, bootstrap: TcpBootstrap) -> Result<Communicator> {
        let Inner { config, host, devices, memories, .. } = &*self.0;
        let control: Arc<dyn ControlPlane> = bootstrap.control();
        let mut engines: Vec<Arc<dyn Engine>> = vec![Arc::new(host.clone())];
        let choice = DeviceChoice { ordinal: config.device, local_rank: local_rank(&*control) };
        let cuda = (config.engine != EngineChoice::Host).then(|| CudaEngine::new(devices, choice));
        if let Some(cuda) = &cuda {
            if config.engine == EngineChoice::Cuda {
                cuda.context()?;
            }
            engines.push(Arc::new(cuda.clone()));
        }
        engines.push(Arc::new(TcpEngine::new()));
        let core = Core::new(CommunicatorParts {
            control,
            scope: WORLD,
            open: None,
            members: (0..bootstrap.n_ranks()).collect(),
            engines,
            token_memory: token_memory(),
            gpu_token_memory: cuda.as_ref().map(|cuda| Arc::new(cuda.tokens()) as Arc<dyn TokenMemory>),
            local_memories: Arc::clone(memories),
            config: CommunicatorConfig {
                setup_timeout: config.setup_timeout,
                recorder_capacity: config.trace_records as usize,
                ..CommunicatorConfig::default()
            },
        })?;
        Communicator::on(core, Arc::new(bootstrap), self.clone(), cuda)
    }
}

/// This rank's number among those of its host, which choose their GPUs by it.
fn local_rank(control: &dyn ControlPlane) -> u32 {
    let (peers, me) = (control.peers(), control.job_rank() as usize);
    let host = peers.get(me).map(|me| me.host);
    peers.iter().take(me).filter(|peer| Some(peer.host) == host).count() as u32
}

/// Tokens lie in memory that peers can map.
fn token_memory() -> Arc<dyn TokenMemory> {
    Arc::new(HostTokens(|bytes| -> Result<Region> {
        let buffer = SharedBuffer::allocate(bytes)?;
        buffer
            .region()
            .cloned()
            .ok_or(Error::Internal { place: "token memory", what: "an allocation has bytes" })
    }))
}
