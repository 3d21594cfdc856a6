//! Doubles for tests: a job whose ranks are threads of one process, and an engine for it.
//!
//! Available under the cargo feature `testing`. [`LocalJob`] delivers messages on one thread per rank, as
//! a real control plane does, passes descriptors by duplication, and lets a test kill a rank.

mod control;
mod engine;

use std::sync::Arc;

pub use control::{LocalControl, LocalJob};
pub use engine::{LocalEngine, allocate, allocate_as};

use crate::bootstrap::ScopeId;
use crate::communicator::{CommunicatorConfig, CommunicatorParts};
use crate::engine::Engine;
use crate::memory::{HostTokens, LocalMemories};

impl LocalJob {
    /// What a communicator of all ranks, with a table of local memories of its own, is made of.
    pub fn parts(&self, rank: u32, engines: Vec<Arc<dyn Engine>>) -> CommunicatorParts {
        CommunicatorParts {
            control: self.control(rank),
            scope: ScopeId(1),
            open: None,
            members: (0..self.n_ranks()).collect(),
            engines,
            token_memory: Arc::new(HostTokens(allocate)),
            gpu_token_memory: None,
            local_memories: Arc::new(LocalMemories::new()),
            config: CommunicatorConfig::default(),
        }
    }
}
