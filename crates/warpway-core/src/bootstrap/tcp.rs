//! [`TcpBootstrap`]: joins a job and is its scope 0. [`UniqueIdRoot`]: the other end of a unique id.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::mesh::Mesh;
use super::root::{RootServer, RootSetup};
use super::scoped::ScopedBootstrap;
use super::socket::Address;
use super::{
    AddressFamily, Admission, Bootstrap, BootstrapError, ControlPlane, InterfaceChoice, JoinPlan, PeerInfo,
    Rendezvous, RootLocation, ScopeGuard, ScopeId, Seat, ThisHost, UniqueId,
};
use crate::config::{BootstrapToken, Config, ConfigError, Environment};
use crate::deadline::{Deadline, Timeout};
use crate::error::Result;
use crate::health::Health;

/// The job's own scope.
const JOB: ScopeId = ScopeId(0);
/// How long a root that has refused a job stays to tell late ranks, at most.
const ROOT_FAREWELL: Duration = Duration::from_millis(1500);

/// What joining needs besides the plan. Made from a time limit, or from a [`Config`] and its limit.
#[derive(Debug, Clone)]
pub struct JoinOptions {
    /// Limit of the whole set-up; `Timeout::NONE` waits until something fails.
    pub timeout: Timeout,
    /// Host id; token, interfaces and the rest for plans that are made here.
    pub config: Config,
}

impl Default for JoinOptions {
    /// 30 seconds and the default settings.
    fn default() -> Self {
        Config::default().into()
    }
}

impl From<Config> for JoinOptions {
    fn from(config: Config) -> Self {
        Self { timeout: config.bootstrap_timeout, config }
    }
}

impl From<Timeout> for JoinOptions {
    fn from(timeout: Timeout) -> Self {
        Self { timeout, config: Config::default() }
    }
}

impl From<Duration> for JoinOptions {
    fn from(timeout: Duration) -> Self {
        Timeout::after(timeout).into()
    }
}

impl JoinOptions {
    fn token(&self) -> Option<&[u8]> {
        self.config.bootstrap_token.as_ref().map(BootstrapToken::as_bytes)
    }
}

/// The ranks of a job over TCP and Unix sockets.
///
/// It owns the job's scope 0 and its collective tags; communicators open scopes of their own on
/// [`control`](Self::control). Dropping it says goodbye to the other ranks, unless other scopes are still open:
/// then the last holder of the control plane does.
pub struct TcpBootstrap {
    scoped: ScopedBootstrap,
    // Before the mesh: leaving the scope comes before leaving the job.
    _scope: ScopeGuard,
    mesh: Owner,
    root_strays: u64,
}

/// How long the end of a bootstrap waits for threads that are about to leave their scopes.
const LET_GO: Duration = Duration::from_millis(200);

/// Closes the mesh when the bootstrap is dropped. Were that left to the last of its holders, this might be a
/// thread in the background, and the program might end before goodbye has been said; the peers would take
/// that for a death.
struct Owner(Arc<Mesh>);

impl Deref for Owner {
    type Target = Arc<Mesh>;

    fn deref(&self) -> &Arc<Mesh> {
        &self.0
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // Otherwise the program still holds connections, and with them the mesh.
        if self.0.wait_scopes_left(Deadline::after(LET_GO)) {
            self.0.close();
        }
    }
}

impl TcpBootstrap {
    /// Joins by plan. Blocks until all ranks have joined.
    ///
    /// # Errors
    /// On every rank, with the rank to blame: `bootstrap.refused` (ranks that do not fit each other),
    /// `bootstrap.missing` (ranks that did not come), `peer.died`. `bootstrap.unreachable` and
    /// `bootstrap.authentication` if there is no root, or one of another job.
    pub fn initialize_plan(plan: &JoinPlan, options: impl Into<JoinOptions>) -> Result<Self> {
        Self::initialize(plan, &options.into())
    }

    /// Joins with an id that [`UniqueIdRoot::create`] made in some process that still holds it.
    ///
    /// # Errors
    /// As for [`initialize_plan`](Self::initialize_plan); `bootstrap.id` if the token differs.
    pub fn initialize_id(
        id: &UniqueId,
        rank: u32,
        n_ranks: u32,
        options: impl Into<JoinOptions>,
    ) -> Result<Self> {
        let options = options.into();
        let interfaces = InterfaceChoice::from_config(&options.config);
        let plan = id.plan(rank, n_ranks, options.token(), interfaces)?;
        Self::initialize(&plan, &options)
    }

    /// Joins at rank 0's address: `ip:port`, `[ipv6]:port` or `host:port`, each with `interface:` before it to
    /// choose where this rank listens. Without a token the address must be a loopback one.
    ///
    /// # Errors
    /// As for [`initialize_plan`](Self::initialize_plan), and those of [`JoinPlan::at_address`];
    /// `config.value` if the address cannot be read.
    pub fn initialize_addr(
        address: &str,
        rank: u32,
        n_ranks: u32,
        options: impl Into<JoinOptions>,
    ) -> Result<Self> {
        let options = options.into();
        let parsed = address.parse().map_err(|expected| ConfigError::Value {
            variable: "bootstrap address".into(),
            value: address.into(),
            expected,
        })?;
        let seat = Seat { rank, n_ranks, one_host: false };
        let host = ThisHost::new(&options.config);
        let plan = JoinPlan::at_address(&parsed, seat, &options.config, &host)?;
        Self::initialize(&plan, &options)
    }

    /// Joins as the variables of a launcher say.
    ///
    /// # Errors
    /// Those of [`Rendezvous::find`] and [`initialize_plan`](Self::initialize_plan).
    pub fn from_environment(environment: &Environment, options: impl Into<JoinOptions>) -> Result<Self> {
        let options = options.into();
        let host = ThisHost::new(&options.config);
        let found = Rendezvous::find(environment, &options.config, &host)?;
        Self::initialize(&found.plan, &options)
    }

    fn initialize(plan: &JoinPlan, options: &JoinOptions) -> Result<Self> {
        let JoinPlan { rank, n_ranks, .. } = *plan;
        BootstrapError::check_rank(rank, n_ranks)?;
        let deadline = options.timeout.start();
        let root = plan
            .hosts_root()
            .then(|| {
                RootServer::start(&RootSetup {
                    location: plan.root.clone(),
                    key: plan.secret.handshake_key(),
                    admission: plan.admission,
                    host: Some((rank, n_ranks)),
                })
            })
            .transpose()?;
        let mesh = Mesh::join(plan, &options.config.host_id, deadline).inspect_err(|_| {
            if let Some(root) = &root {
                root.finish(Deadline::after(ROOT_FAREWELL));
            }
        })?;
        let root_strays = root.as_ref().map_or(0, RootServer::stray_connections);
        drop(root);
        let members: Vec<u32> = (0..n_ranks).collect();
        let health = Arc::new(Health::new(rank));
        let scope = mesh.open_scope(JOB, &members, Arc::clone(&health))?;
        let scoped = ScopedBootstrap::new(Arc::clone(&mesh) as Arc<dyn ControlPlane>, JOB, members, health)?;
        Ok(Self { scoped, _scope: scope, mesh: Owner(mesh), root_strays })
    }

    /// The control plane of the job.
    pub fn control(&self) -> Arc<dyn ControlPlane> {
        Arc::clone(&*self.mesh) as Arc<dyn ControlPlane>
    }

    /// Health of the job as a whole: fails when a rank dies or [`abort`](Self::abort)s.
    pub fn health(&self) -> &Arc<Health> {
        self.scoped.health()
    }

    /// Ends all calls of this object on all ranks, now and later. Idempotent, returns at once.
    pub fn abort(&self, reason: impl Into<String>) -> bool {
        self.health().abort(reason)
    }

    /// Connections to this rank, and to the root if this rank hosted it, that were dropped because they did not
    /// authenticate.
    pub fn stray_connections(&self) -> u64 {
        self.root_strays + self.mesh.stray_connections()
    }

    /// Ranks per IPC domain (here: per host), after checking that the domains are equal and consecutive.
    ///
    /// # Errors
    /// `bootstrap.domains`, listing them.
    pub fn ipc_domain_size(&self) -> Result<u32> {
        domain_size(self.mesh.peers()).map_err(Into::into)
    }
}

impl Bootstrap for TcpBootstrap {
    fn rank(&self) -> u32 {
        self.scoped.rank()
    }

    fn n_ranks(&self) -> u32 {
        self.scoped.n_ranks()
    }

    fn n_ranks_per_node(&self) -> u32 {
        self.scoped.n_ranks_per_node()
    }

    fn send(&self, data: &[u8], peer: u32, tag: i32, deadline: Deadline) -> Result<()> {
        self.scoped.send(data, peer, tag, deadline)
    }

    fn recv(&self, buffer: &mut [u8], peer: u32, tag: i32, deadline: Deadline) -> Result<u64> {
        self.scoped.recv(buffer, peer, tag, deadline)
    }

    fn recv_vec(&self, peer: u32, tag: i32, deadline: Deadline) -> Result<Vec<u8>> {
        self.scoped.recv_vec(peer, tag, deadline)
    }

    fn all_gather(&self, buffer: &mut [u8], size: u64, deadline: Deadline) -> Result<()> {
        self.scoped.all_gather(buffer, size, deadline)
    }

    fn broadcast(&self, buffer: &mut [u8], root: u32, deadline: Deadline) -> Result<()> {
        self.scoped.broadcast(buffer, root, deadline)
    }

    fn barrier(&self, deadline: Deadline) -> Result<()> {
        self.scoped.barrier(deadline)
    }

    fn group_barrier(&self, ranks: &[u32], deadline: Deadline) -> Result<()> {
        self.scoped.group_barrier(ranks, deadline)
    }
}

/// A unique id and the root behind it. Must live until all ranks have joined; dropping it ends the root.
pub struct UniqueIdRoot {
    id: UniqueId,
    server: RootServer,
}

impl UniqueIdRoot {
    /// Starts a root at the addresses of this host that `config` allows, for ranks with its token.
    ///
    /// # Errors
    /// `system` if nothing can be bound, `config.value` if no interface fits.
    pub fn create(config: &Config) -> Result<Self> {
        let interfaces = InterfaceChoice::from_config(config);
        let token = config.bootstrap_token.as_ref().map(BootstrapToken::as_bytes);
        let ips = interfaces.addresses(None)?;
        let wildcards: &[IpAddr] = match interfaces.family {
            Some(AddressFamily::V4) => &[IpAddr::V4(Ipv4Addr::UNSPECIFIED)],
            Some(AddressFamily::V6) => &[IpAddr::V6(Ipv6Addr::UNSPECIFIED)],
            None => &[IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::UNSPECIFIED)],
        };
        // The id, and with it the secret, can be made only once the port is known: find a port first.
        let probe = RootLocation::Tcp { addresses: wildcards.iter().map(|ip| (*ip, 0).into()).collect() };
        let listener = super::root::bind(&probe)?;
        let Address::Tcp(bound) = listener.address else {
            return Err(crate::Error::Internal {
                place: "UniqueIdRoot::create",
                what: "a TCP listener has a TCP address",
            });
        };
        let usable = |ip: &IpAddr| ip.is_ipv4() || bound.is_ipv6();
        let addresses: Vec<SocketAddr> =
            ips.into_iter().filter(usable).take(4).map(|ip| (ip, bound.port()).into()).collect();
        let id = UniqueId::new(&addresses, token)?;
        let key = id.secret(token)?.handshake_key();
        let server = RootServer::serve(listener, key, Admission::Secret, None)?;
        Ok(Self { id, server })
    }

    /// The id to hand to all ranks.
    pub fn id(&self) -> &UniqueId {
        &self.id
    }

    /// Connections that were dropped because they did not authenticate.
    pub fn stray_connections(&self) -> u64 {
        self.server.stray_connections()
    }
}

/// Joins the ranks of a bootstrap of any kind (MPI, a store, shared memory) into a job of this library: rank 0
/// makes a unique id and broadcasts it.
///
/// # Errors
/// Those of `bootstrap` and of [`TcpBootstrap::initialize_id`].
pub fn join_over(bootstrap: &dyn Bootstrap, options: impl Into<JoinOptions>) -> Result<TcpBootstrap> {
    let options = options.into();
    let deadline = options.timeout.start();
    // An id of zeros says that rank 0 has failed, so that the others do not wait for it.
    let mut bytes = [0; UniqueId::BYTES];
    let root = if bootstrap.rank() == 0 {
        let root = UniqueIdRoot::create(&options.config);
        if let Ok(root) = &root {
            bytes = root.id().to_bytes();
        }
        Some(root)
    } else {
        None
    };
    bootstrap.broadcast(&mut bytes, 0, deadline)?;
    let _root = root.transpose()?;
    if bytes == [0; UniqueId::BYTES] {
        return Err(BootstrapError::UniqueId { why: "rank 0 could not make one" }.into());
    }
    let id = UniqueId::from_bytes(&bytes)?;
    let options = JoinOptions { timeout: deadline.into(), ..options };
    TcpBootstrap::initialize_id(&id, bootstrap.rank(), bootstrap.n_ranks(), options)
}

/// Size of the groups of ranks with one host.
fn domain_size(peers: &[PeerInfo]) -> Result<u32, BootstrapError> {
    let mut domains: Vec<(u64, u32, u32)> = Vec::new();
    for peer in peers {
        match domains.last_mut() {
            Some((host, _, last)) if *host == peer.host => *last = peer.rank,
            _ => domains.push((peer.host, peer.rank, peer.rank)),
        }
    }
    let size = domains.first().map_or(0, |(_, first, last)| last - first + 1);
    let mut hosts: Vec<u64> = domains.iter().map(|(host, _, _)| *host).collect();
    hosts.sort_unstable();
    let consecutive = hosts.windows(2).all(|pair| pair[0] != pair[1]);
    if consecutive && domains.iter().all(|(_, first, last)| last - first + 1 == size) {
        return Ok(size);
    }
    let name = |rank: u32| peers.get(rank as usize).map_or("?", |p| p.host_name.as_str());
    let domains: Vec<String> =
        domains.iter().map(|(_, first, last)| format!("{first}-{last} on {}", name(*first))).collect();
    Err(BootstrapError::Domains { domains: domains.join(", ") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peers(hosts: &[u64]) -> Vec<PeerInfo> {
        hosts
            .iter()
            .zip(0..)
            .map(|(host, rank)| PeerInfo {
                rank,
                host: *host,
                process: u64::from(rank),
                process_id: 1,
                host_name: format!("h{host}"),
                processors: Default::default(),
                addresses: Vec::new(),
                unix_name: Vec::new(),
            })
            .collect()
    }

    #[test]
    fn domains_are_equal_and_consecutive_or_listed() {
        assert_eq!(domain_size(&peers(&[1])).unwrap(), 1);
        assert_eq!(domain_size(&peers(&[1, 1, 1])).unwrap(), 3);
        assert_eq!(domain_size(&peers(&[1, 1, 9, 9])).unwrap(), 2);
        let uneven = domain_size(&peers(&[1, 1, 9])).unwrap_err();
        assert_eq!(uneven.id(), "bootstrap.domains");
        assert!(uneven.to_string().contains("0-1 on h1, 2-2 on h9"), "{uneven}");
        let scattered = domain_size(&peers(&[1, 9, 1, 9])).unwrap_err();
        assert!(scattered.to_string().contains("0-0 on h1, 1-1 on h9, 2-2 on h1, 3-3 on h9"), "{scattered}");
    }
}
