//! The handle that users hold.

use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::ExchangeError;
use super::exchange::{EndpointSource, Exchange, Exchanges};
use super::offers::Offers;
use super::publish::{Imports, Publication, Publications};
use super::state::{COMMUNICATOR_TAG, State};
use super::tokens::Tokens;
use super::workers::{Strand, Workers};
use crate::bootstrap::{
    Bootstrap as _, ControlPlane, PeerInfo, Processors, ScopeId, ScopedBootstrap, Subscription,
};
use crate::connection::Connection;
use crate::deadline::{Deadline, Timeout};
use crate::endpoint::{Endpoint, EndpointConfig};
use crate::engine::{Engine, EngineContext, Members};
use crate::error::{Error, Result};
use crate::health::{Health, lock};
use crate::memory::{Access, LocalMemories, Region, RegisteredMemory, TokenMemory};
use crate::semaphore::Semaphore;
use crate::trace::{FlightRecorder, Operation, Request};
use crate::transport::TransportFlags;
use crate::wait::{WaitPolicy, Waiter};
use crate::wire::SlotId;

/// Sizes and limits of a communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommunicatorConfig {
    /// How long an import or a connection may take, and a step of `split`.
    pub setup_timeout: Timeout,
    /// Operations that the flight recorder keeps.
    pub recorder_capacity: usize,
    /// Buffers that may be published at once.
    pub publication_capacity: usize,
    /// Back-off of waits; `None`: by the members on this host and the processors that they have together.
    pub wait_policy: Option<WaitPolicy>,
}

impl Default for CommunicatorConfig {
    fn default() -> Self {
        Self {
            setup_timeout: Timeout::after(Duration::from_secs(60)),
            recorder_capacity: 1024,
            publication_capacity: 256,
            wait_policy: None,
        }
    }
}

impl CommunicatorConfig {
    pub(super) fn wait_policy(&self, control: &dyn ControlPlane, members: &[u32]) -> WaitPolicy {
        if let Some(policy) = self.wait_policy {
            return policy;
        }
        let peers = control.peers();
        let me = peers.get(control.job_rank() as usize);
        let on_this_host = |peer: &&PeerInfo| me.is_some_and(|me| me.host == peer.host);
        let near = members.iter().filter_map(|member| peers.get(*member as usize)).filter(on_this_host);
        let near: Vec<&Processors> = near.map(|peer| &peer.processors).collect();
        match me.and_then(|me| me.processors.suffice_for(&near)) {
            Some(enough) => WaitPolicy::spinning_if(enough),
            None => WaitPolicy::for_ranks(near.len()),
        }
    }
}

/// A scope that is open already: the bootstrap opens the job's own.
#[derive(Clone)]
pub struct OpenScope {
    /// Its health; the communicator's from now on.
    pub health: Arc<Health>,
    /// Closes it when the last clone is dropped.
    pub guard: Arc<dyn std::any::Any + Send + Sync>,
}

/// What a communicator is made of.
pub struct CommunicatorParts {
    /// Messages and descriptors.
    pub control: Arc<dyn ControlPlane>,
    /// Which communicator of the job it is; agreed by its members.
    pub scope: ScopeId,
    /// `None`: the communicator opens the scope.
    pub open: Option<OpenScope>,
    /// Job ranks by rank.
    pub members: Vec<u32>,
    /// In the order in which they are tried for imports.
    pub engines: Vec<Arc<dyn Engine>>,
    /// Where the tokens lie of semaphores that CPU endpoints wait for.
    pub token_memory: Arc<dyn TokenMemory>,
    /// Where those lie that kernels wait for, on connections of GPU endpoints; `None` without a GPU.
    pub gpu_token_memory: Option<Arc<dyn TokenMemory>>,
    /// Shared by communicators of this process that are to give each other original pointers.
    pub local_memories: Arc<LocalMemories>,
    /// Sizes and limits.
    pub config: CommunicatorConfig,
}

/// Exchanges handles with the other ranks of its scope. Cheap to clone, `Send + Sync`.
///
/// Dropping the last clone ends what is under way (`exchange.dropped`); connections, semaphores and
/// memories live on, and the other ranks are told that this one has left when the last of them is gone.
#[derive(Clone)]
pub struct Communicator(Arc<Inner>);

struct Inner {
    state: Arc<State>,
    _subscription: Subscription,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.state.close();
    }
}

impl Communicator {
    /// Opens the scope, unless it is open, and begins to listen. Not collective.
    ///
    /// # Errors
    /// `exchange.argument` if the members are no list of distinct ranks of the job with this rank among
    /// them; those of the control plane.
    pub fn new(parts: CommunicatorParts) -> Result<Self> {
        let CommunicatorParts { control, scope, open, members, engines, .. } = parts;
        let rank = check_members(&*control, &members)?;
        let OpenScope { health, guard } = match open {
            Some(open) => open,
            None => {
                let health = Arc::new(Health::new(rank));
                let guard = control.open_scope(scope, &members, Arc::clone(&health))?;
                OpenScope { health, guard: Arc::new(guard) }
            }
        };
        let config = parts.config;
        let waiter = Waiter::new(
            Arc::clone(&health),
            Arc::new(FlightRecorder::new(config.recorder_capacity)),
            config.wait_policy(&*control, &members),
        );
        let bootstrap =
            ScopedBootstrap::new(Arc::clone(&control), scope, members.clone(), Arc::clone(&health))?;
        let workers = Workers::new(Arc::clone(&health));
        let context = EngineContext { control, waiter, members: Members::new(&members) };
        let state = Arc::new_cyclic(|this| State {
            scope,
            rank,
            members,
            bootstrap: Arc::new(bootstrap),
            engines,
            context,
            config,
            tokens: Tokens::new(parts.token_memory, parts.gpu_token_memory),
            local_memories: parts.local_memories,
            offers: Arc::new(Offers::default()),
            scope_guard: guard,
            publication_strand: Strand::new(&workers),
            workers,
            exchanges: Exchanges::default(),
            publications: Publications::new(config.publication_capacity),
            imports: Imports::default(),
            connections: Mutex::default(),
            next_semaphore: AtomicU64::new(0),
            splits: Mutex::new(0),
            closed: AtomicBool::new(false),
            this: this.clone(),
        });
        Ok(Self::listen(state))
    }

    fn listen(state: Arc<State>) -> Self {
        let weak = Arc::downgrade(&state);
        state.health().subscribe(Box::new({
            let weak = weak.clone();
            move |_| _ = weak.upgrade().map(|state| state.failed())
        }));
        state.health().subscribe_departures(Arc::new({
            let weak = weak.clone();
            move |peer| _ = weak.upgrade().map(|state| state.departed(peer))
        }));
        let sink = Arc::new(move |job_rank: u32, bytes: Vec<u8>| {
            if let Some(state) = weak.upgrade() {
                state.receive(job_rank, &bytes);
            }
        });
        let subscription = state.context.control.subscribe(state.scope, COMMUNICATOR_TAG, sink);
        Self(Arc::new(Inner { state, _subscription: subscription }))
    }

    /// This rank.
    pub fn rank(&self) -> u32 {
        self.0.state.rank
    }

    /// How many ranks there are.
    pub fn n_ranks(&self) -> u32 {
        self.0.state.members.len() as u32
    }

    /// The scope's name within the job.
    pub fn scope(&self) -> ScopeId {
        self.0.state.scope
    }

    /// Job ranks by rank.
    pub fn members(&self) -> &[u32] {
        &self.0.state.members
    }

    /// Messages and descriptors.
    pub fn control(&self) -> &Arc<dyn ControlPlane> {
        &self.0.state.context.control
    }

    /// Messages and small collectives among this communicator's ranks.
    pub fn bootstrap(&self) -> &Arc<ScopedBootstrap> {
        &self.0.state.bootstrap
    }

    /// What the communicator's engines are called with.
    pub fn engine_context(&self) -> &EngineContext {
        &self.0.state.context
    }

    /// Registers a local range for every transport in `transports`. Does not own the memory unless the
    /// region does.
    ///
    /// # Errors
    /// `unavailable` for a transport without an engine; `mem.export` from an engine.
    pub fn register_memory(
        &self,
        region: Region,
        transports: TransportFlags,
        access: Access,
    ) -> Result<RegisteredMemory> {
        self.0.state.health().check_during("register_memory")?;
        self.0.state.register(region, transports, access)
    }

    /// A registration of this rank as bytes that the user carries to a peer.
    ///
    /// # Errors
    /// `mem.side` for an imported memory.
    pub fn serialize_memory(&self, memory: &RegisteredMemory) -> Result<Vec<u8>> {
        self.0.state.serialize(memory)
    }

    /// Imports what a member has serialised. May block for as long as an import does.
    ///
    /// # Errors
    /// [`WireError`](crate::wire::WireError) for bytes that are no such thing; `mem.import` with the reason
    /// of each transport.
    pub fn deserialize_memory(&self, bytes: &[u8]) -> Result<RegisteredMemory> {
        self.0.state.health().check_during(Operation::ImportMemory)?;
        self.0.state.deserialize(bytes)
    }

    /// Sends a registration of this rank; the peer calls [`recv_memory`](Self::recv_memory). Sent at once
    /// and registered until the peer has imported it: the result, which comes then, may be ignored.
    #[track_caller]
    pub fn send_memory(&self, memory: &RegisteredMemory, peer: u32, tag: i32) -> Result<Exchange<()>> {
        self.0.state.send_memory(memory, peer, tag, Location::caller())
    }

    /// The memory that the peer sends.
    #[track_caller]
    pub fn recv_memory(&self, peer: u32, tag: i32) -> Result<Exchange<RegisteredMemory>> {
        self.0.state.recv_memory(peer, tag, Location::caller())
    }

    /// A local endpoint; TCP listens from here on.
    pub fn create_endpoint(&self, config: &EndpointConfig) -> Result<Endpoint> {
        self.0.state.health().check_during("create_endpoint")?;
        self.0.state.create_endpoint(config)
    }

    /// A connection to `peer`, which connects to this rank. One call per side, also for a rank with itself.
    #[track_caller]
    pub fn connect(
        &self,
        source: impl Into<EndpointSource>,
        peer: u32,
        tag: i32,
    ) -> Result<Exchange<Connection>> {
        let site = Location::caller();
        self.0.state.connect(source.into(), peer, tag, site)
    }

    /// A semaphore on a connection to `peer`, which builds one, too.
    #[track_caller]
    pub fn build_semaphore(
        &self,
        connection: &Connection,
        peer: u32,
        tag: i32,
    ) -> Result<Exchange<Semaphore>> {
        self.0.state.build_semaphore(connection, peer, tag, Location::caller())
    }

    /// The rank that a connection made by this communicator leads to.
    ///
    /// # Errors
    /// `exchange.argument` for any other connection.
    pub fn remote_rank_of(&self, connection: &Connection) -> Result<u32> {
        self.find("remote_rank_of", connection).map(|_| connection.peer())
    }

    /// The tag that a connection was made with.
    ///
    /// # Errors
    /// `exchange.argument` for a connection of another communicator.
    pub fn tag_of(&self, connection: &Connection) -> Result<i32> {
        self.find("tag_of", connection)
    }

    fn find(&self, operation: &'static str, connection: &Connection) -> Result<i32> {
        let connections = lock(&self.0.state.connections);
        let found = connections.iter().find(|(weak, _)| weak.is(connection));
        found.map(|(_, tag)| *tag).ok_or_else(|| {
            let why = "the connection was not made by this communicator".to_owned();
            Error::Exchange(ExchangeError::Argument { operation, why })
        })
    }

    /// Makes a registration of this rank known to every other rank, without their doing anything.
    ///
    /// # Errors
    /// `mem.side` for an imported memory; `exchange.slots_in_use`.
    pub fn publish(&self, memory: &RegisteredMemory) -> Result<Publication> {
        let everybody: Vec<u32> = (0..self.n_ranks()).collect();
        self.publish_to(memory, &everybody)
    }

    /// The same for some ranks; those that know the buffer already are not told again.
    pub fn publish_to(&self, memory: &RegisteredMemory, recipients: &[u32]) -> Result<Publication> {
        self.0.state.publish(memory, recipients)
    }

    /// Holds a buffer that was published before in the slot that it had, if it is still there: what
    /// [`publish_to`](Self::publish_to) would give, with less work. Nobody is told anything.
    pub fn republish(&self, memory: &RegisteredMemory, slot: SlotId) -> Option<Publication> {
        self.0.state.republish(memory, slot)
    }

    /// The buffer that `owner` has published as `slot`; waits until it has come and is mapped.
    ///
    /// # Errors
    /// `exchange.withdrawn`; why it could not be mapped; a [`WaitError`](crate::wait::WaitError) at the
    /// deadline.
    pub fn published(&self, owner: u32, slot: SlotId, deadline: Deadline) -> Result<RegisteredMemory> {
        self.0.state.published(owner, slot, deadline)
    }

    /// Returns once every rank has called it.
    pub fn barrier(&self, deadline: Deadline) -> Result<()> {
        let (operation, recorder) = (Operation::BootstrapBarrier, &self.0.state.context.waiter.recorder);
        let record = recorder.start(Request { operation, peer: None, object: 0, bytes: 0, offset: 0 });
        let result = self.0.state.bootstrap.barrier(deadline);
        match &result {
            Ok(()) => recorder.complete(record),
            Err(error) => recorder.fail(record, error),
        }
        result
    }

    /// Divides the communicator: ranks with the same colour become one, ordered by `key`, then by rank here.
    /// Colour −1 takes no part and gets `None`. Every rank must call it.
    ///
    /// # Errors
    /// On every rank alike, naming the culprit: `exchange.collective` for another negative colour or for
    /// exchanges that are still under way. Otherwise those of [`new`](Self::new).
    pub fn split(&self, color: i32, key: i32, deadline: Deadline) -> Result<Option<Self>> {
        let state = &self.0.state;
        let Some((scope, members)) = state.agree_on_split(color, key, deadline)? else { return Ok(None) };
        let rank = check_members(&**self.control(), &members)?;
        let health = Arc::new(Health::new(rank));
        let guard = self.control().open_scope(scope, &members, Arc::clone(&health))?;
        let child = state.child(scope, members, OpenScope { health, guard: Arc::new(guard) })?;
        Ok(Some(Self::listen(child)))
    }

    /// The failure of the communicator, if there is one, also one found in the background. Does not block.
    pub fn async_error(&self) -> Option<Error> {
        self.0.state.health().failure().map(Error::from)
    }

    /// Marks the communicator as failed, wakes every wait and tells the other ranks. Returns at once,
    /// any thread, any number of times.
    pub fn abort(&self, reason: impl Into<String>) {
        self.0.state.health().abort(reason);
    }

    /// Abort word and first failure.
    pub fn health(&self) -> &Arc<Health> {
        self.0.state.health()
    }

    /// The last operations.
    pub fn flight_recorder(&self) -> &Arc<FlightRecorder> {
        &self.0.state.context.waiter.recorder
    }

    /// Health, recorder and back-off, for waits on this communicator's behalf.
    pub fn waiter(&self) -> &Waiter {
        &self.0.state.context.waiter
    }

    #[cfg(test)]
    pub(super) fn state(&self) -> &Arc<State> {
        &self.0.state
    }

    /// Tokens in use by semaphores, and tokens altogether.
    pub fn token_usage(&self) -> (u64, u64) {
        self.0.state.tokens.usage()
    }
}

/// This rank's position among the members.
fn check_members(control: &dyn ControlPlane, members: &[u32]) -> Result<u32> {
    let argument = |why| ExchangeError::Argument { operation: "Communicator::new", why };
    let mut seen = vec![false; control.peers().len()];
    for &member in members {
        match seen.get_mut(member as usize) {
            None => return Err(argument(format!("member {member} is no rank of the job")).into()),
            Some(true) => return Err(argument(format!("member {member} is listed twice")).into()),
            Some(unseen) => *unseen = true,
        }
    }
    let me = control.job_rank();
    let position = members.iter().position(|member| *member == me);
    let position =
        position.ok_or_else(|| argument(format!("rank {me} of the job is not among the members")))?;
    Ok(position as u32)
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Communicator")
            .field("scope", &self.scope())
            .field("rank", &self.rank())
            .field("n_ranks", &self.n_ranks())
            .finish_non_exhaustive()
    }
}
