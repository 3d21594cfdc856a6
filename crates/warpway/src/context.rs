//! What the communicators of one process share, and the ways to join a job.

use std::sync::Arc;

use warpway_core::bootstrap::{Bootstrap, ControlPlane, JoinPlan, ScopeId, TcpBootstrap, UniqueId};
use warpway_core::communicator::{Communicator as Core, CommunicatorConfig, CommunicatorParts};
use warpway_core::config::Config;
use warpway_core::engine::Engine;
use warpway_core::memory::{LocalMemories, Region, TokenMemory};
use warpway_core::{Error, Result};
use warpway_host::{HostEngine, SharedBuffer};
use warpway_net::TcpEngine;

use crate::communicator::Communicator;

/// Scope of a job's first communicator; 0 is the bootstrap's own.
const WORLD: ScopeId = ScopeId(1);

/// Configuration and engines. Communicators made from one context map each allocation of a peer once and
/// give each other (ranks as threads) the original pointers. Cheap to clone.
#[derive(Clone)]
pub struct Context(Arc<Inner>);

struct Inner {
    config: Config,
    host: HostEngine,
    memories: Arc<LocalMemories>,
}

impl Context {
    /// A context without communicators.
    pub fn new(config: Config) -> Self {
        Self(Arc::new(Inner { config, host: HostEngine::new(), memories: Arc::default() }))
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.0.config
    }

    /// The shared-memory engine, which allocates.
    pub fn host(&self) -> &HostEngine {
        &self.0.host
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
    /// If descriptors or threads are exhausted.
    pub fn join(&self, bootstrap: TcpBootstrap) -> Result<Communicator> {
        let Inner { config, host, memories } = &*self.0;
        let control: Arc<dyn ControlPlane> = bootstrap.control();
        let engines: Vec<Arc<dyn Engine>> = vec![Arc::new(host.clone()), Arc::new(TcpEngine::new())];
        let core = Core::new(CommunicatorParts {
            control,
            scope: WORLD,
            open: None,
            members: (0..bootstrap.n_ranks()).collect(),
            engines,
            token_memory: token_memory(),
            local_memories: Arc::clone(memories),
            config: CommunicatorConfig {
                setup_timeout: config.setup_timeout,
                recorder_capacity: config.trace_records as usize,
                ..CommunicatorConfig::default()
            },
        })?;
        Communicator::on(core, Arc::new(bootstrap), self.clone())
    }
}

/// Tokens lie in memory that peers can map.
fn token_memory() -> TokenMemory {
    Arc::new(|bytes| -> Result<Region> {
        let buffer = SharedBuffer::allocate(bytes)?;
        buffer
            .region()
            .cloned()
            .ok_or(Error::Internal { place: "token memory", what: "an allocation has bytes" })
    })
}
