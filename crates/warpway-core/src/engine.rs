//! What the core asks of an engine: to export, import and connect. Engines are passed to the
//! communicator as values; the core never names one.

use std::collections::HashMap;
use std::sync::Arc;

use crate::bootstrap::ControlPlane;
use crate::connection::RawConnection;
use crate::deadline::Deadline;
use crate::endpoint::{Endpoint, EndpointConfig};
use crate::error::Result;
use crate::memory::{Access, Export, Import, MemoryRecord, Region};
use crate::transport::Transport;
use crate::wait::Waiter;

/// What an engine may use of the communicator that calls it.
#[derive(Clone)]
pub struct EngineContext {
    /// Messages and descriptors.
    pub control: Arc<dyn ControlPlane>,
    /// Health, recorder and back-off of the communicator.
    pub waiter: Waiter,
    /// Which ranks of the job the communicator consists of.
    pub members: Members,
}

impl EngineContext {
    /// What health, waits and errors call the owner of an endpoint or a memory: its rank in this communicator.
    /// A stranger, whom the core does not let through, keeps the number that the job gave it.
    pub fn rank_of(&self, job_rank: u32) -> u32 {
        self.members.rank_of(job_rank).unwrap_or(job_rank)
    }
}

/// The ranks of a communicator and their numbers in the job. Endpoints, memory records and the control plane
/// count in job ranks; everything that a user sees counts in ranks of the communicator. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Members(Arc<HashMap<u32, u32>>);

impl Members {
    /// `job_ranks[r]` is the job rank of rank `r`; they are distinct.
    pub fn new(job_ranks: &[u32]) -> Self {
        Self(Arc::new(job_ranks.iter().copied().zip(0..).collect()))
    }

    /// The rank in the communicator, `None` for a rank of the job that is not in it.
    pub fn rank_of(&self, job_rank: u32) -> Option<u32> {
        self.0.get(&job_rank).copied()
    }
}

/// One transport. `Send + Sync`; one value may serve several communicators.
pub trait Engine: Send + Sync {
    /// The transport it provides.
    fn transport(&self) -> Transport;

    /// Makes a local region reachable. The export lasts until its guard is dropped.
    ///
    /// # Errors
    /// `mem.export` with the reason and what to use instead.
    fn export(&self, context: &EngineContext, region: &Region, access: Access) -> Result<Export>;

    /// Makes a peer's memory usable here. Must not trust the record: sizes and offsets are checked against
    /// what is really there.
    ///
    /// # Errors
    /// With the reason; the core puts it into the import report and tries other transports.
    fn import(&self, context: &EngineContext, record: &MemoryRecord, deadline: Deadline) -> Result<Import>;

    /// Readies this process's own memory, registered by another rank of it, for use here: `region` is that of
    /// the registration. Called instead of [`import`](Self::import) by communicators whose ranks are threads.
    ///
    /// # Errors
    /// With the reason, as for `import`.
    fn adopt(&self, context: &EngineContext, region: &Region) -> Result<()> {
        let _ = (context, region);
        Ok(())
    }

    /// Makes a local endpoint; TCP listens from here on. `owner`, `host` and `process` are filled by the core.
    fn endpoint(&self, context: &EngineContext, config: &EndpointConfig) -> Result<Endpoint>;

    /// Joins two endpoints that have passed [`check_compatible`](crate::connection::check_compatible).
    /// Both sides call it; it may block until the peer does.
    fn connect(
        &self,
        context: &EngineContext,
        local: &Endpoint,
        remote: &Endpoint,
        deadline: Deadline,
    ) -> Result<Box<dyn RawConnection>>;
}
