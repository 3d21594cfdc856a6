//! What a communicator's handle, its background work and its messages share.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::exchange::Exchanges;
use super::offers::Offers;
use super::publish::{Imports, Publications};
use super::tokens::Tokens;
use super::workers::{Strand, Workers};
use super::{CommunicatorConfig, ExchangeError};
use crate::bootstrap::{BootstrapError, PeerInfo, ScopeId, ScopedBootstrap};
use crate::connection::WeakConnection;
use crate::deadline::Deadline;
use crate::engine::{Engine, EngineContext};
use crate::error::{Error, Result};
use crate::health::{DEPARTURE_GRACE, Health, lock};
use crate::memory::LocalMemories;
use crate::trace::Operation;
use crate::wire::{AnyHandle, ControlMessage, Handle, JobNonce, WireError};

/// The tag of everything that communicators tell each other, within the scope of the communicator.
pub(super) const COMMUNICATOR_TAG: i32 = i32::MIN + 0x100;

pub(super) struct State {
    pub(super) scope: ScopeId,
    pub(super) rank: u32,
    /// Job ranks by rank.
    pub(super) members: Vec<u32>,
    pub(super) bootstrap: Arc<ScopedBootstrap>,
    pub(super) engines: Vec<Arc<dyn Engine>>,
    pub(super) context: EngineContext,
    pub(super) config: CommunicatorConfig,
    pub(super) tokens: Tokens,
    pub(super) local_memories: Arc<LocalMemories>,
    pub(super) offers: Arc<Offers>,
    /// Open until the last connection is gone; see [`Connection::keeping`](crate::connection::Connection::keeping).
    pub(super) scope_guard: Arc<dyn Any + Send + Sync>,
    pub(super) workers: Arc<Workers>,
    pub(super) exchanges: Exchanges,
    pub(super) publications: Publications,
    pub(super) imports: Imports,
    /// Imports and withdrawals of published buffers, in order of arrival.
    pub(super) publication_strand: Arc<Strand>,
    pub(super) connections: Mutex<Vec<(WeakConnection, i32)>>,
    pub(super) next_semaphore: AtomicU64,
    pub(super) splits: Mutex<u64>,
    pub(super) closed: AtomicBool,
    pub(super) this: Weak<State>,
}

impl State {
    pub(super) fn health(&self) -> &Arc<Health> {
        &self.context.waiter.health
    }

    pub(super) fn nonce(&self) -> JobNonce {
        self.context.control.job_nonce()
    }

    /// This rank as the job knows it.
    pub(super) fn me(&self) -> &PeerInfo {
        // Checked when the communicator was made: the job's table holds every member.
        &self.context.control.peers()[self.members[self.rank as usize] as usize]
    }

    pub(super) fn setup_deadline(&self) -> Deadline {
        self.config.setup_timeout.start()
    }

    /// An error if the communicator has failed or `peer` is not a rank of it.
    pub(super) fn check(&self, operation: Operation, peer: u32) -> Result<()> {
        self.health().check_during(operation)?;
        let n_ranks = self.members.len() as u32;
        if peer < n_ranks {
            return Ok(());
        }
        Err(BootstrapError::NoSuchPeer { operation, peer, n_ranks }.into())
    }

    pub(super) fn check_tag(operation: &'static str, tag: i32) -> Result<()> {
        if tag >= 0 {
            return Ok(());
        }
        let why = format!("tag {tag} is negative; negative tags are the library's own");
        Err(ExchangeError::Argument { operation, why }.into())
    }

    /// Queues an envelope for `peer` (a rank of this communicator).
    pub(super) fn post(&self, peer: u32, envelope: &[u8]) -> Result<()> {
        let job_rank = self.members[peer as usize];
        self.context.control.post(self.scope, job_rank, COMMUNICATOR_TAG, envelope)
    }

    /// Tells `peer` something; to oneself without the control plane. Whoever has left need not be told,
    /// any other failure to tell is the communicator's.
    pub(super) fn tell(&self, peer: u32, message: ControlMessage) {
        if peer == self.rank {
            self.control_message(peer, message);
            return;
        }
        let envelope = Handle { sequence: 0, label: None, body: message }.encode(self.nonce());
        let told = envelope.map_err(Error::from).and_then(|envelope| self.post(peer, &envelope));
        if let Err(error) = told
            && !self.health().has_left(peer)
        {
            self.health().fail_local("exchange", Some(peer), error);
        }
    }

    /// A message has come; on the control plane's thread, so nothing here may block.
    pub(super) fn receive(&self, job_rank: u32, bytes: &[u8]) {
        let Some(peer) = self.context.members.rank_of(job_rank) else {
            let error = WireError::Field { field: "sender", value: job_rank.into() };
            self.health().fail_local("exchange", None, error.into());
            return;
        };
        match AnyHandle::decode(bytes) {
            Ok((handle, nonce)) if nonce == self.nonce() => match handle {
                AnyHandle::Control(control) => self.control_message(peer, control.body),
                handle => self.handle_arrived(peer, handle),
            },
            Ok(_) => drop(self.health().fail_local("exchange", Some(peer), WireError::Nonce.into())),
            Err(error) => drop(self.health().fail_local("exchange", Some(peer), error.into())),
        }
    }

    fn control_message(&self, peer: u32, message: ControlMessage) {
        match message {
            ControlMessage::Matched { tag, below } => self.matched(peer, tag, below),
            ControlMessage::Mismatched { tag, sequence, call } => {
                self.mismatched(peer, tag, sequence, call);
            }
            ControlMessage::Publish { slot, memory } => self.publish_arrived(peer, slot, memory),
            ControlMessage::Acknowledge { slot, refusal } => self.acknowledged(peer, slot, refusal),
            ControlMessage::Withdraw { slot } => self.withdraw_arrived(peer, slot),
            ControlMessage::Released { slot } => self.released(peer, slot),
            ControlMessage::TokenReleased { token } => self.tokens.release(token, peer),
        }
    }

    /// The communicator has failed: nothing outstanding will complete.
    pub(super) fn failed(&self) {
        if let Some(failure) = self.health().failure() {
            self.exchanges.fail(&failure);
        }
        self.publications_failed();
        self.imports.wake();
    }

    /// A peer has left. What it sent before may still be under way, so exchanges get their grace.
    pub(super) fn departed(&self, peer: u32) {
        self.tokens.release_all(peer);
        self.publications_departed(peer);
        self.imports.forget(peer);
        if self.exchanges.concern(peer) {
            self.fail_departed_later(peer);
        }
    }

    /// Ends what is outstanding with a rank that has left, once what it sent before must have come.
    pub(super) fn fail_departed_later(&self, peer: u32) {
        let state = self.this.clone();
        self.workers.submit(Box::new(move || {
            std::thread::sleep(DEPARTURE_GRACE);
            if let Some(state) = state.upgrade() {
                state.exchanges.fail_departed(state.rank, peer);
            }
        }));
    }

    /// The user has dropped the communicator.
    pub(super) fn close(&self) {
        if self.closed.swap(true, Ordering::SeqCst) {
            return;
        }
        self.exchanges.fail_dropped(self.rank);
        self.imports.close();
        self.publications_failed();
        self.workers.close();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Forgets connections that are gone, and adds one.
    pub(super) fn remember(&self, connection: WeakConnection, tag: i32) {
        let mut connections = lock(&self.connections);
        connections.retain(|(weak, _)| weak.upgrade().is_some());
        connections.push((connection, tag));
    }
}
