//! The control plane over TCP and Unix sockets: authenticated links between ranks, made when they are
//! needed, and one thread per process and job that serves them.

mod dial;
mod fetch;
mod joining;
mod outbound;
mod reach;
mod service;
mod shared;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use self::dial::Dial;
use self::joining::{Joining, SETUP_SCOPE};
use self::service::{MAX_MESSAGE, Service, ServiceSetup};
use self::shared::{CONTROL_PLANE, Command, Outgoing, Scope, Shared, State};
use super::join_machine::JoinMachine;
use super::poller::Poller;
use super::socket::{Address, Listener};
use super::unique_id::fill_random;
use super::{
    AddressFamily, Admission, BootstrapError, ControlPlane, DescriptorOffer, JobSecret, JoinPlan,
    MessageSink, NameFilter, PeerInfo, ProcessIdentity, RootLocation, ScopeGuard, ScopeId, Subscription,
};
use crate::deadline::Deadline;
use crate::error::{Error, Result, SystemError};
use crate::health::{Cause, Failure, Health, lock};
use crate::trace::Operation;
use crate::wire::JobNonce;

/// Addresses a rank tells the others at most.
const MAX_ADDRESSES: usize = 8;
/// The longest sleep of a wait; all that ends it also wakes it.
const SLICE: Duration = Duration::from_secs(1);

/// See the module's page. [`close`](Self::close), or dropping it, says goodbye to the other ranks and ends the
/// thread.
pub(super) struct Mesh {
    shared: Arc<Shared>,
    own: PeerInfo,
    secret: JobSecret,
    admission: Admission,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Mesh {
    /// Joins a job whose root runs or will run soon. Blocks until the job stands.
    ///
    /// # Errors
    /// What the root says (`bootstrap.refused`, `bootstrap.missing`), the death of a rank (`peer.died`), or why
    /// root or ranks cannot be reached (`bootstrap.unreachable`, `bootstrap.authentication`).
    pub(super) fn join(plan: &JoinPlan, host_id: &str, deadline: Deadline) -> Result<Arc<Self>> {
        let JoinPlan { rank, n_ranks, root, secret, admission, interfaces, root_rank } = plan;
        let (rank, n_ranks, admission) = (*rank, *n_ranks, *admission);
        if rank >= n_ranks {
            return Err(BootstrapError::Rank { rank, n_ranks }.into());
        }
        let identity = ProcessIdentity::read(host_id)?;
        let (listeners, own, port) = listen(rank, &identity, plan)?;
        let poller = Poller::new()?;
        let shared = Arc::new(Shared::new(rank, n_ranks, poller.waker()));
        let now = Instant::now();
        let candidates = match root {
            RootLocation::Unix { name } => vec![Address::Unix(name.clone())],
            RootLocation::Tcp { addresses } => addresses.iter().copied().map(Address::Tcp).collect(),
        };
        let machine = JoinMachine::new(Arc::new(own.clone()), n_ranks, deadline.instant());
        let root = Dial::new(now, candidates, reach::seed(rank, u32::MAX));
        let service = Service::new(ServiceSetup {
            shared: Arc::clone(&shared),
            poller,
            key: secret.handshake_key(),
            admission,
            own: own.clone(),
            // The address that the root sees may be one that the user has excluded.
            port: port.filter(|_| interfaces.family.is_none() && interfaces.names == NameFilter::Any),
            listeners,
            joining: Joining {
                machine,
                root,
                connection: None,
                started: now,
                root_rank: *root_rank,
                suspects: Vec::new(),
            },
        })?;
        let thread_shared = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("warpway-mesh".into())
            .spawn(move || serve(service, &thread_shared))
            .map_err(|e| SystemError::from_io("spawn of the mesh's thread", &e))?;
        let mesh = Arc::new(Self {
            shared,
            own,
            secret: secret.clone(),
            admission,
            thread: Mutex::new(Some(thread)),
        });
        mesh.wait_joined()?;
        Ok(mesh)
    }

    /// Connections that were dropped because they did not authenticate.
    pub(super) fn stray_connections(&self) -> u64 {
        self.shared.strays.load(Ordering::Relaxed)
    }

    /// The service ends it: at its deadline, at a failure, or when the job stands.
    fn wait_joined(&self) -> Result<()> {
        let mut state = self.shared.lock();
        loop {
            match &state.joined {
                Some(result) => return result.clone(),
                None if lock(&self.thread).as_ref().is_none_or(JoinHandle::is_finished) => {
                    return Err(internal("the service ended without a word"));
                }
                None => state = self.sleep(state, SLICE),
            }
        }
    }

    /// Waits until every scope has been left, `limit` at most; true if so. Threads of communicators and engines
    /// drop what keeps a scope open a moment after they have been told to end.
    pub(super) fn wait_scopes_left(&self, limit: Deadline) -> bool {
        let mut state = self.shared.lock();
        while !state.scopes.is_empty() {
            match limit.remaining() {
                Some(Duration::ZERO) => return false,
                remaining => state = self.sleep(state, remaining.unwrap_or(SLICE).min(SLICE)),
            }
        }
        true
    }

    /// Says goodbye to the other ranks and waits until they have heard it. Whoever still holds the mesh can
    /// send nothing more.
    pub(super) fn close(&self) {
        self.shared.lock().has_ended = true;
        self.shared.command(Command::Close);
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread
            // A sink may hold the last reference: the thread cannot wait for itself.
            && thread.thread().id() != std::thread::current().id()
        {
            // A panic has been recorded by the thread itself.
            let _ = thread.join();
        }
    }

    fn sleep<'a>(
        &self,
        state: std::sync::MutexGuard<'a, State>,
        limit: Duration,
    ) -> std::sync::MutexGuard<'a, State> {
        match self.shared.changed.wait_timeout(state, limit) {
            Ok((state, _)) => state,
            Err(poisoned) => poisoned.into_inner().0,
        }
    }

    fn check_peer(&self, operation: Operation, peer: u32) -> Result<()> {
        let n_ranks = self.shared.n_ranks;
        if peer < n_ranks {
            Ok(())
        } else {
            Err(BootstrapError::NoSuchPeer { operation, peer, n_ranks }.into())
        }
    }

    /// Why `receive` cannot go on, if it cannot.
    fn obstacle(&self, state: &State, scope: ScopeId, peer: u32) -> Result<()> {
        if let Some(error) = &state.broken {
            return Err(error.clone());
        }
        let Some(open) = state.scopes.get(&scope) else {
            let why = format!("scope {} is not open on rank {}", scope.0, self.shared.rank);
            return Err(BootstrapError::Argument { operation: Operation::BootstrapRecv, why }.into());
        };
        open.health.check()?;
        if state.has_left(scope, peer) {
            let culprit = open.members.iter().position(|m| *m == peer).map(|at| at as u32);
            let (rank, phase) = (open.health.rank(), Operation::BootstrapRecv.to_string());
            return Err(Failure { rank, culprit, phase, cause: Cause::PeerLeft }.into());
        }
        Ok(())
    }
}

impl Drop for Mesh {
    fn drop(&mut self) {
        self.close();
    }
}

fn take(state: &mut State, scope: ScopeId, peer: u32, tag: i32) -> Option<Vec<u8>> {
    let key = (scope, peer, tag);
    let queue = state.mail.get_mut(&key)?;
    let message = queue.pop_front();
    if queue.is_empty() {
        state.mail.remove(&key);
    }
    message
}

impl ControlPlane for Mesh {
    fn job_rank(&self) -> u32 {
        self.shared.rank
    }

    fn peers(&self) -> &[PeerInfo] {
        self.shared.peers.get().map_or(&[], Vec::as_slice)
    }

    fn job_nonce(&self) -> JobNonce {
        self.secret.nonce()
    }

    fn derive_key(&self, purpose: &str) -> [u8; 32] {
        JobSecret::derive("warpway derived key v1", &[&self.secret.handshake_key(), purpose.as_bytes()])
            .handshake_key()
    }

    fn post(&self, scope: ScopeId, peer: u32, tag: i32, data: &[u8]) -> Result<()> {
        self.check_peer(Operation::BootstrapSend, peer)?;
        let length = data.len() as u64;
        if length > MAX_MESSAGE {
            return Err(BootstrapError::TooLong { length, limit: MAX_MESSAGE }.into());
        }
        if peer == self.shared.rank {
            self.shared.deliver(scope, peer, tag, data.to_vec());
            self.shared.waker.wake();
            return Ok(());
        }
        let outgoing = Outgoing { scope, tag, data: data.to_vec() };
        let mut state = self.shared.lock();
        if let Some(error) = &state.broken {
            return Err(error.clone());
        }
        if state.has_ended {
            let why = format!("rank {} has left the job", self.shared.rank);
            return Err(BootstrapError::Argument { operation: Operation::BootstrapSend, why }.into());
        }
        state.commands.push(Command::Post(peer, outgoing));
        drop(state);
        self.shared.waker.wake();
        Ok(())
    }

    fn receive(&self, scope: ScopeId, peer: u32, tag: i32, deadline: Deadline) -> Result<Vec<u8>> {
        self.check_peer(Operation::BootstrapRecv, peer)?;
        let started = Instant::now();
        let mut state = self.shared.lock();
        loop {
            // What has come counts, even if the sender failed right after.
            if let Some(message) = take(&mut state, scope, peer, tag) {
                return Ok(message);
            }
            self.obstacle(&state, scope, peer)?;
            if deadline.expired() {
                let (rank, operation) = (self.shared.rank, Operation::BootstrapRecv);
                let elapsed = started.elapsed();
                return Err(BootstrapError::Timeout { rank, peer, tag, operation, elapsed }.into());
            }
            if peer != self.shared.rank && state.linked.insert(peer) {
                state.commands.push(Command::Link(peer));
                self.shared.waker.wake();
            }
            state = self.sleep(state, deadline.remaining().unwrap_or(SLICE).min(SLICE));
        }
    }

    fn try_receive(&self, scope: ScopeId, peer: u32, tag: i32) -> Result<Option<Vec<u8>>> {
        self.check_peer(Operation::BootstrapRecv, peer)?;
        let mut state = self.shared.lock();
        if let Some(message) = take(&mut state, scope, peer, tag) {
            return Ok(Some(message));
        }
        self.obstacle(&state, scope, peer).map(|()| None)
    }

    fn subscribe(&self, scope: ScopeId, tag: i32, sink: MessageSink) -> Subscription {
        let mut state = self.shared.lock();
        let number = state.number();
        state.sinks.insert((scope, tag), (number, sink));
        let mut keys: Vec<_> = state.mail.keys().copied().filter(|k| (k.0, k.2) == (scope, tag)).collect();
        keys.sort_unstable();
        for key in keys {
            for data in state.mail.remove(&key).unwrap_or_default() {
                state.for_sinks.push_back((scope, key.1, tag, data));
            }
        }
        drop(state);
        self.shared.waker.wake();
        Subscription(Box::new(SubscriptionGuard { shared: Arc::downgrade(&self.shared), scope, tag, number }))
    }

    fn open_scope(&self, scope: ScopeId, members: &[u32], health: Arc<Health>) -> Result<ScopeGuard> {
        let argument = |why: String| BootstrapError::Argument { operation: Operation::Split, why };
        if scope == SETUP_SCOPE {
            return Err(argument("this scope is reserved".into()).into());
        }
        if let Some(member) = members.iter().find(|m| **m >= self.shared.n_ranks) {
            return Err(argument(format!("rank {member} is not in the job")).into());
        }
        if self.shared.lock().scopes.contains_key(&scope) {
            return Err(argument(format!("scope {} is open already", scope.0)).into());
        }
        let scope = self.shared.open(scope, members, health);
        Ok(ScopeGuard(Box::new(OpenScope { shared: Arc::downgrade(&self.shared), scope })))
    }

    fn offer_descriptor(&self, descriptor: Arc<OwnedFd>) -> Result<DescriptorOffer> {
        let mut state = self.shared.lock();
        let number = state.number();
        state.offers.insert(number, descriptor);
        let guard = Box::new(OfferGuard { shared: Arc::downgrade(&self.shared), number });
        Ok(DescriptorOffer { descriptor: number, guard })
    }

    fn fetch_descriptor(&self, peer: u32, descriptor: u64, deadline: Deadline) -> Result<OwnedFd> {
        self.check_peer(Operation::ImportMemory, peer)?;
        let rank = self.shared.rank;
        let refused = |why: &str| BootstrapError::Descriptor { rank, peer, descriptor, why: why.into() };
        if peer == rank {
            let offer = self.shared.lock().offers.get(&descriptor).map(Arc::clone);
            let offer = offer.ok_or_else(|| refused("it is not offered, or not any more"))?;
            return offer
                .try_clone()
                .map_err(|e| SystemError::from_io("dup of an offered descriptor", &e).into());
        }
        let info = self.peers().get(peer as usize).ok_or_else(|| refused("the job does not stand yet"))?;
        if info.host != self.own.host || info.unix_name.is_empty() {
            return Err(refused("it runs on another host").into());
        }
        let request = fetch::Fetch {
            address: Address::Unix(info.unix_name.clone()),
            key: self.secret.handshake_key(),
            admission: self.admission,
            rank,
            peer,
            descriptor,
        };
        request.run(deadline, &|| self.shared.lock().is_gone(peer))
    }
}

struct SubscriptionGuard {
    shared: Weak<Shared>,
    scope: ScopeId,
    tag: i32,
    number: u64,
}

impl Drop for SubscriptionGuard {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            let mut state = shared.lock();
            let key = (self.scope, self.tag);
            // Another sink may have taken the place.
            let removed = match state.sinks.get(&key) {
                Some((number, _)) if *number == self.number => state.sinks.remove(&key),
                _ => None,
            };
            drop(state);
            // The sink may own what takes the lock when it is dropped.
            drop(removed);
        }
    }
}

struct OpenScope {
    shared: Weak<Shared>,
    scope: Arc<Scope>,
}

impl Drop for OpenScope {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.close(&self.scope);
        }
    }
}

struct OfferGuard {
    shared: Weak<Shared>,
    number: u64,
}

impl Drop for OfferGuard {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            let offer = shared.lock().offers.remove(&self.number);
            drop(offer);
        }
    }
}

/// The thread. Whatever ends it early becomes the health of every scope.
fn serve(service: Service, shared: &Shared) {
    let error = match std::panic::catch_unwind(AssertUnwindSafe(|| service.run())) {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error,
        Err(_) => internal("the service panicked"),
    };
    tracing::error!(rank = shared.rank, %error, "{CONTROL_PLANE} broken");
    shared.service_broken(&error);
}

fn internal(what: &'static str) -> Error {
    Error::Internal { place: "bootstrap::mesh", what }
}

/// This rank's listeners and what it tells the others about itself.
fn listen(
    rank: u32,
    identity: &ProcessIdentity,
    plan: &JoinPlan,
) -> Result<(Vec<Listener>, PeerInfo, Option<u16>)> {
    let mut random = [0; 16];
    fill_random(&mut random)?;
    let mut unix_name = b"warpway-mesh-".to_vec();
    unix_name.extend(random.iter().flat_map(|b| format!("{b:02x}").into_bytes()));
    let mut listeners = vec![Listener::bind(&Address::Unix(unix_name.clone()))?];
    let mut addresses = Vec::new();
    let mut port = None;
    if let (RootLocation::Tcp { addresses: roots }, false) =
        (&plan.root, plan.admission == Admission::SameUser)
    {
        let listener = listen_anywhere(plan.interfaces.family)?;
        if let Address::Tcp(bound) = listener.address {
            let ips = plan.interfaces.addresses(roots.first().map(SocketAddr::ip))?;
            let usable = |ip: &IpAddr| ip.is_ipv4() || bound.is_ipv6();
            addresses = ips
                .into_iter()
                .filter(usable)
                .take(MAX_ADDRESSES)
                .map(|ip| (ip, bound.port()).into())
                .collect();
            port = Some(bound.port());
        }
        listeners.push(listener);
    }
    let info = PeerInfo {
        rank,
        host: identity.host.hash,
        process: identity.hash,
        process_id: identity.process_id,
        host_name: identity.host.name.clone(),
        processors: super::Processors::of_this_thread(),
        addresses,
        unix_name,
    };
    Ok((listeners, info, port))
}

/// Both families if the kernel has both.
fn listen_anywhere(family: Option<AddressFamily>) -> Result<Listener> {
    let v4 = Address::Tcp((Ipv4Addr::UNSPECIFIED, 0).into());
    let v6 = Address::Tcp((Ipv6Addr::UNSPECIFIED, 0).into());
    Ok(match family {
        Some(AddressFamily::V4) => Listener::bind(&v4)?,
        Some(AddressFamily::V6) => Listener::bind(&v6)?,
        None => Listener::bind(&v6).or_else(|_| Listener::bind(&v4))?,
    })
}
