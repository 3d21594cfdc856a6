//! The control plane: what communicator and engines need from the bootstrap besides [`Bootstrap`].
//!
//! Ranks here are ranks of the *job*. A communicator is a *scope*: a number that keeps its messages apart
//! and a list of members whose death is its failure. The job itself is scope 0.
//!
//! [`Bootstrap`]: super::Bootstrap

use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::PeerInfo;
use crate::deadline::Deadline;
use crate::error::Result;
use crate::health::Health;
use crate::wire::JobNonce;

/// Names a communicator inside its job. Agreed by its members; 0 is the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ScopeId(pub u64);

/// Called on the control plane's own thread with (sender's job rank, message). Must not block for long.
pub type MessageSink = Arc<dyn Fn(u32, Vec<u8>) + Send + Sync>;

/// Ends a subscription when dropped; no call of the sink begins after that.
pub struct Subscription(pub Box<dyn Any + Send + Sync>);

/// Closes a scope when dropped: members are told that this rank has left it.
pub struct ScopeGuard(pub Box<dyn Any + Send + Sync>);

/// A descriptor handed out to peers that ask for it, until this is dropped.
pub struct DescriptorOffer {
    /// The number to ask for.
    pub descriptor: u64,
    /// Withdraws the offer when dropped.
    pub guard: Box<dyn Any + Send + Sync>,
}

/// See the module's page. One per process and job; shared by the job's communicators.
pub trait ControlPlane: Send + Sync {
    /// This rank in the job.
    fn job_rank(&self) -> u32;

    /// Every rank of the job, indexed by rank.
    fn peers(&self) -> &[PeerInfo];

    /// What every envelope of the job carries.
    fn job_nonce(&self) -> JobNonce;

    /// A key that every rank of the job derives alike and nobody else can, for one purpose (`"tcp"`):
    /// engines authenticate their own sockets with it.
    ///
    /// The default derives it from the nonce, which is secret as long as envelopes travel on authenticated
    /// links only; an implementation that holds the job's secret should derive from that instead.
    fn derive_key(&self, purpose: &str) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(b"warpway derived key 1\0");
        hash.update(self.job_nonce().0);
        hash.update(purpose.as_bytes());
        hash.finalize().into()
    }

    /// Queues a message; does not wait for the peer. Tags are per scope; negative ones are the library's.
    fn post(&self, scope: ScopeId, peer: u32, tag: i32, data: &[u8]) -> Result<()>;

    /// The next message of (scope, peer, tag), in order. Gives up at the deadline and when the scope's
    /// health fails.
    fn receive(&self, scope: ScopeId, peer: u32, tag: i32, deadline: Deadline) -> Result<Vec<u8>>;

    /// The same without waiting.
    fn try_receive(&self, scope: ScopeId, peer: u32, tag: i32) -> Result<Option<Vec<u8>>>;

    /// Calls `sink` for every message of (scope, tag), from any peer, from now on and for those already
    /// queued, in order per peer. `receive` must not be used on that tag then.
    fn subscribe(&self, scope: ScopeId, tag: i32, sink: MessageSink) -> Subscription;

    /// Opens a scope. From now on the death of a member fails `health`, and a failure of `health` (abort
    /// or local error) is told to the members. Messages that came before the scope was opened wait.
    fn open_scope(&self, scope: ScopeId, members: &[u32], health: Arc<Health>) -> Result<ScopeGuard>;

    /// Hands `descriptor` out to authenticated ranks of the job on this host.
    fn offer_descriptor(&self, descriptor: Arc<OwnedFd>) -> Result<DescriptorOffer>;

    /// Fetches a descriptor that `peer` (same host) offers.
    fn fetch_descriptor(&self, peer: u32, descriptor: u64, deadline: Deadline) -> Result<OwnedFd>;
}
