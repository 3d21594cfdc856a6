//! From the environment or an explicit address to a [`JoinPlan`]: where the ranks of a job meet, and what lets
//! them in.
//!
//! All ranks must come to the same root and the same secret without having talked. So both depend only on what
//! the ranks have in common: the job's name, the address, the token.
//!
//! Pure but for [`Host`], which tests replace.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};
use std::time::{Duration, Instant};

use super::identity::ancestor;
use super::join::digest;
use super::launcher::{self, Launched, Launcher, Master};
use super::unique_id::fill_random;
use super::{
    Admission, BootstrapError, Interface, InterfaceChoice, JobSecret, JoinPlan, RootAddress, RootLocation,
};
use crate::config::{Config, ConfigError, Environment};
use crate::error::Result;

/// Ports that are tried at a master's address, so that other programs may occupy some.
const PROBES: usize = 16;
/// Where these ports are: above those that services are registered at, below those that Linux hands out.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
/// Addresses of one master that are tried.
const MASTER_ADDRESSES_MAX: usize = 4;

/// What the environment says about this process, and the plan that follows.
#[derive(Debug, Clone)]
pub struct Rendezvous {
    /// Where rank and size come from.
    pub launcher: Launcher,
    /// This rank.
    pub rank: u32,
    /// How many ranks the job has.
    pub n_ranks: u32,
    /// This rank among those of its host, if the launcher says so.
    pub local_rank: Option<u32>,
    /// Ranks on this host, if the launcher says so.
    pub local_size: Option<u32>,
    /// How to join.
    pub plan: JoinPlan,
}

/// What a rendezvous asks the operating system.
pub trait Host {
    /// Effective user id.
    fn user_id(&self) -> u32;

    /// Addresses of a host name.
    ///
    /// # Errors
    /// The resolver's.
    fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>>;

    /// Interfaces of this host.
    ///
    /// # Errors
    /// `system` if they cannot be listed.
    fn interfaces(&self) -> Result<Vec<Interface>>;

    /// The nearest ancestor whose command begins with `command`: process id and start time.
    fn launcher_process(&self, command: &str) -> Option<(u32, u64)>;
}

/// The host this process runs on.
#[derive(Debug, Clone, Copy)]
pub struct ThisHost {
    /// How long to ask again for a name that does not resolve: in a cluster, names appear as hosts come up.
    pub patience: Duration,
}

impl Rendezvous {
    /// Reads the variables of launchers from `environment` and everything else from `config`.
    ///
    /// # Errors
    /// `config.launcher` if no launcher has set a rank; `config.missing`, `config.value`, `config.conflict`,
    /// `config.meeting_place` name the variable; `system` if the kernel refuses.
    pub fn find(environment: &Environment, config: &Config, host: &dyn Host) -> Result<Self> {
        let launched = launcher::detect(environment, config, host).map_err(|error| match error {
            ConfigError::NoLauncher { .. } if config.comm_id.is_some() => ConfigError::Missing {
                variable: "WARPWAY_RANK".into(),
                hint: "WARPWAY_COMM_ID is; it goes with WARPWAY_RANK and WARPWAY_WORLD_SIZE".into(),
            },
            other => other,
        })?;
        let plan = match &config.comm_id {
            Some(address) => JoinPlan::at_address(address, seat(&launched), config, host)?,
            None => without_address(&launched, config, host)?,
        };
        let Launched { launcher, rank, n_ranks, local_rank, local_size, .. } = launched;
        Ok(Self { launcher, rank, n_ranks, local_rank, local_size, plan })
    }
}

/// A rank's place in its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seat {
    /// This rank.
    pub rank: u32,
    /// How many ranks the job has.
    pub n_ranks: u32,
    /// True if all ranks are known to be on one host.
    pub one_host: bool,
}

impl JoinPlan {
    /// For a job whose rank 0 listens at `address`. The secret is made of the address as written, the token and
    /// `WARPWAY_JOB_ID`, so ranks must agree on these.
    ///
    /// Without a token, ranks on one host (as `seat` says, or because the address is a loopback one) meet at an
    /// abstract Unix socket named after the address instead, where the kernel vouches for the peer's user.
    ///
    /// # Errors
    /// `bootstrap.rank`; `config.missing` without a token where one is needed; `config.meeting_place` if the
    /// name does not resolve or the interface does not exist.
    pub fn at_address(address: &RootAddress, seat: Seat, config: &Config, host: &dyn Host) -> Result<Self> {
        let Seat { rank, n_ranks, one_host } = seat;
        BootstrapError::check_rank(rank, n_ranks)?;
        let written = address.to_string();
        let job_id = config.job_id.as_deref().unwrap_or_default();
        let facts = [written.as_bytes(), job_id.as_bytes()];
        let mut interfaces = InterfaceChoice::from_config(config);
        if let Some(interface) = &address.interface {
            interfaces.names = super::NameFilter::Exact(vec![interface.clone()]);
        }
        if interfaces.toward.is_none() && !address.is_loopback() {
            interfaces.toward = address.ip();
        }
        let admission = admission(config, one_host || address.is_loopback())?;
        let root = match admission {
            Admission::SameUser => unix_root(host.user_id(), &facts),
            _ => {
                let addresses = addresses_of(address, rank == 0, config, host).map_err(|why| {
                    ConfigError::MeetingPlace {
                        rank,
                        place: written.clone(),
                        variable: "the root's address".into(),
                        why,
                    }
                })?;
                RootLocation::Tcp { addresses }
            }
        };
        let secret = secret(config, &facts);
        Ok(Self { rank, n_ranks, root, secret, admission, root_rank: Some(0), interfaces })
    }
}

impl InterfaceChoice {
    /// `WARPWAY_SOCKET_FAMILY`, `WARPWAY_SOCKET_IFNAME` and MSCCL++'s hint for the subnet.
    pub fn from_config(config: &Config) -> Self {
        Self {
            family: config.socket_family,
            names: config.socket_ifname.clone(),
            toward: config.subnet_hint.as_ref().and_then(RootAddress::ip),
        }
    }
}

impl ThisHost {
    /// Waits for names as long as bootstrap calls may take, at most a minute.
    pub fn new(config: &Config) -> Self {
        let minute = Duration::from_secs(60);
        Self { patience: config.bootstrap_timeout.duration().unwrap_or(minute).min(minute) }
    }
}

impl Host for ThisHost {
    fn user_id(&self) -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let start = Instant::now();
        let mut told = false;
        loop {
            match (name, 0u16).to_socket_addrs() {
                Ok(addresses) => return Ok(addresses.map(|a| a.ip()).collect()),
                Err(error) if start.elapsed() >= self.patience => return Err(error),
                Err(error) => {
                    if !told {
                        tracing::warn!(
                            "{name} does not resolve yet ({error}); asking again for {:?}",
                            self.patience
                        );
                    }
                    told = true;
                    std::thread::sleep(Duration::from_millis(200));
                }
            }
        }
    }

    fn interfaces(&self) -> Result<Vec<Interface>> {
        Interface::list()
    }

    fn launcher_process(&self, command: &str) -> Option<(u32, u64)> {
        ancestor(command)
    }
}

fn seat(launched: &Launched) -> Seat {
    let one_host = launched.n_ranks == 1 || launched.local_size == Some(launched.n_ranks);
    Seat { rank: launched.rank, n_ranks: launched.n_ranks, one_host }
}

/// The plan if nobody has said where rank 0 listens.
fn without_address(launched: &Launched, config: &Config, host: &dyn Host) -> Result<JoinPlan> {
    let Seat { rank, n_ranks, one_host } = seat(launched);
    let mut interfaces = InterfaceChoice::from_config(config);
    // A rank by itself meets nobody: any name will do, as long as no other job has it.
    let mut lonely = [0; 16];
    if n_ranks == 1 {
        fill_random(&mut lonely)?;
    }
    let mut facts: Vec<&[u8]> = vec![&lonely];
    facts.extend(launched.job.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]));
    let secret = secret(config, &facts);
    let root_rank = Some(0);

    let local_master = launched.local_size.is_none()
        && launched.master.as_ref().is_some_and(|m| m.hosts.iter().all(|h| super::address::is_loopback(h)));
    if n_ranks > 1 && launched.job.is_empty() && (one_host || local_master || config.comm_port.is_none()) {
        return Err(nothing_names_the_job(launched.launcher).into());
    }
    if one_host || local_master {
        let root = unix_root(host.user_id(), &facts);
        let admission = admission(config, true)?;
        return Ok(JoinPlan { rank, n_ranks, root, secret, admission, root_rank, interfaces });
    }

    let Some(master) = &launched.master else {
        return Err(ConfigError::Missing {
            variable: "WARPWAY_COMM_ID".into(),
            hint: format!(
                "{} does not say where rank 0 is; set WARPWAY_COMM_ID=host:port on all ranks, with the host of rank 0 \
                 (if all ranks are on one host, set WARPWAY_LOCAL_WORLD_SIZE={n_ranks} instead)",
                launched.launcher
            ),
        }
        .into());
    };
    let admission = admission(config, false)?;
    let ports = config.comm_port.map_or_else(|| probe_ports(&facts), |port| vec![port]);
    let (hosts, toward) = hosts_of(master, rank, config, host)?;
    interfaces.toward = interfaces.toward.or(toward);
    let addresses =
        ports.iter().flat_map(|port| hosts.iter().map(|ip| SocketAddr::new(*ip, *port))).collect();
    let root = RootLocation::Tcp { addresses };
    Ok(JoinPlan { rank, n_ranks, root, secret, admission, root_rank, interfaces })
}

/// Addresses to dial, or for rank 0 to bind, at a master; and one of them to prefer a subnet by.
///
/// Rank 0 binds every address: on its own host the master's name often resolves to something else (127.0.1.1 in
/// many `/etc/hosts`) than on the others.
fn hosts_of(
    master: &Master,
    rank: u32,
    config: &Config,
    host: &dyn Host,
) -> Result<(Vec<IpAddr>, Option<IpAddr>)> {
    let place = master.hosts.join(", ");
    let failure = |why: String| ConfigError::MeetingPlace {
        rank,
        place: place.clone(),
        variable: master.variable.into(),
        why,
    };
    if rank == 0 && !master.guess {
        return Ok((any_address(config), master.hosts.iter().find_map(|h| h.parse().ok())));
    }
    let mut found = Vec::new();
    for name in &master.hosts {
        match lookup(name, host) {
            Ok(ips) => found.extend(ips),
            Err(why) => return Err(failure(why).into()),
        }
    }
    found.retain(|ip| config.socket_family.is_none_or(|family| family.includes(*ip)));
    found.dedup();
    found.truncate(MASTER_ADDRESSES_MAX);
    let Some(first) = found.first().copied() else {
        return Err(
            failure("it has no address of the family that WARPWAY_SOCKET_FAMILY asks for".into()).into()
        );
    };
    let toward = Some(first).filter(|ip| !ip.is_loopback());
    if rank != 0 {
        return Ok((found, toward));
    }
    let own: Vec<IpAddr> =
        host.interfaces()?.iter().flat_map(|i| i.addresses.iter().map(|address| address.ip)).collect();
    if found.iter().any(|ip| ip.is_loopback() || own.contains(ip)) {
        return Ok((any_address(config), toward));
    }
    Err(failure(
        "rank 0 is not on that host; set WARPWAY_COMM_ID=host:port on all ranks, with the host of rank 0"
            .into(),
    )
    .into())
}

/// Addresses to dial, or for rank 0 to bind, at an explicit address.
fn addresses_of(
    address: &RootAddress,
    binds: bool,
    config: &Config,
    host: &dyn Host,
) -> Result<Vec<SocketAddr>, String> {
    let Some(ip) = address.ip() else {
        let mut ips =
            if binds && !address.is_loopback() { any_address(config) } else { lookup(&address.host, host)? };
        ips.retain(|ip| config.socket_family.is_none_or(|family| family.includes(*ip)));
        if ips.is_empty() {
            return Err("it has no address of the family that WARPWAY_SOCKET_FAMILY asks for".into());
        }
        return Ok(ips.into_iter().map(|ip| SocketAddr::new(ip, address.port)).collect());
    };
    let IpAddr::V6(v6) = ip else { return Ok(vec![SocketAddr::new(ip, address.port)]) };
    if !v6.is_unicast_link_local() {
        return Ok(vec![SocketAddr::new(ip, address.port)]);
    }
    let Some(name) = &address.interface else {
        return Err("a link-local address needs its interface: [address%interface]:port".into());
    };
    let interfaces = host.interfaces().map_err(|error| error.to_string())?;
    let index = interfaces.iter().find(|i| i.name == *name).map(|i| i.index);
    let index = index.ok_or_else(|| format!("there is no interface {name}"))?;
    Ok(vec![SocketAddrV6::new(v6, address.port, 0, index).into()])
}

fn lookup(name: &str, host: &dyn Host) -> Result<Vec<IpAddr>, String> {
    if let Ok(ip) = name.parse() {
        return Ok(vec![ip]);
    }
    match host.resolve(name) {
        Ok(ips) if ips.is_empty() => Err(format!("the name {name} has no address")),
        Ok(ips) => Ok(ips),
        Err(error) => Err(format!("the name {name} does not resolve: {error}")),
    }
}

/// IPv6 first: its wildcard takes IPv4 too where the kernel's default holds.
fn any_address(config: &Config) -> Vec<IpAddr> {
    let all: [IpAddr; 2] = [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()];
    all.into_iter().filter(|ip| config.socket_family.is_none_or(|family| family.includes(*ip))).collect()
}

/// The rule of who may join: a token, or the same user on the same host, or an explicit waiver.
fn admission(config: &Config, one_host: bool) -> Result<Admission, ConfigError> {
    match (&config.bootstrap_token, one_host, config.bootstrap_insecure) {
        (Some(_), ..) => Ok(Admission::Secret),
        (None, true, _) => Ok(Admission::SameUser),
        (None, false, true) => Ok(Admission::Anyone),
        (None, false, false) => Err(ConfigError::Missing {
            variable: "WARPWAY_BOOTSTRAP_TOKEN".into(),
            hint:
                "ranks of several hosts need a shared secret: set it to the same random text on all of them \
                   (or WARPWAY_BOOTSTRAP_INSECURE=1, which lets in anybody who can reach the root)"
                    .into(),
        }),
    }
}

fn secret(config: &Config, facts: &[&[u8]]) -> JobSecret {
    let token = config.bootstrap_token.as_ref().map_or(&[][..], |token| token.as_bytes());
    let parts: Vec<&[u8]> = std::iter::once(token).chain(facts.iter().copied()).collect();
    JobSecret::derive("warpway rendezvous secret v1", &parts)
}

fn unix_root(user_id: u32, facts: &[&[u8]]) -> RootLocation {
    let user = user_id.to_le_bytes();
    let parts: Vec<&[u8]> = std::iter::once(&user[..]).chain(facts.iter().copied()).collect();
    let digest = digest("warpway rendezvous name v1", &parts);
    let hex: String = digest[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    RootLocation::Unix { name: format!("warpway-{user_id}-{hex}").into_bytes() }
}

/// Different ports in an order of the job's own.
fn probe_ports(facts: &[&[u8]]) -> Vec<u16> {
    let mut ports = Vec::with_capacity(PROBES);
    for round in 0u64.. {
        let round = round.to_le_bytes();
        let parts: Vec<&[u8]> = std::iter::once(&round[..]).chain(facts.iter().copied()).collect();
        for pair in digest("warpway rendezvous port v1", &parts).chunks_exact(2) {
            let port = PORTS.start + u16::from_le_bytes([pair[0], pair[1]]) % (PORTS.end - PORTS.start);
            if !ports.contains(&port) {
                ports.push(port);
            }
            if ports.len() == PROBES {
                return ports;
            }
        }
    }
    ports
}

fn nothing_names_the_job(launcher: Launcher) -> ConfigError {
    ConfigError::Missing {
        variable: "WARPWAY_JOB_ID".into(),
        hint: format!(
            "{launcher} does not name the job; set WARPWAY_JOB_ID to a text of this job's own on all ranks, or \
             WARPWAY_COMM_ID=host:port with the host of rank 0"
        ),
    }
}

#[cfg(test)]
mod tests;
