//! What the variables of launchers say about this process: rank, ranks on its host, job, where to meet.
//!
//! What each of them really sets was looked at with Open MPI 4.1 and MPICH 4.0 (Hydra); torchrun and srun
//! document it.

use std::fmt;
use std::net::IpAddr;

use super::address::is_loopback;
use super::rendezvous::Host;
use super::slurm;
use crate::config::{Config, ConfigError, Environment};

/// Who started the ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Launcher {
    /// `warpway launch`, or `WARPWAY_RANK` set by hand or in code.
    Warpway,
    /// torchrun, or its variables set by hand.
    Torchrun,
    /// Open MPI's mpirun.
    OpenMpi,
    /// MPICH's or Intel MPI's mpiexec, or a resource manager that speaks PMI.
    Hydra,
    /// srun.
    Slurm,
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Warpway => "warpway launch (WARPWAY_RANK)",
            Self::Torchrun => "torchrun (RANK)",
            Self::OpenMpi => "Open MPI (OMPI_COMM_WORLD_RANK)",
            Self::Hydra => "MPICH or Intel MPI (PMI_RANK)",
            Self::Slurm => "srun (SLURM_PROCID)",
        })
    }
}

/// What a launcher says.
#[derive(Debug)]
pub(super) struct Launched {
    pub(super) launcher: Launcher,
    pub(super) rank: u32,
    pub(super) n_ranks: u32,
    pub(super) local_rank: Option<u32>,
    pub(super) local_size: Option<u32>,
    /// Equal on all ranks of the job and on no others of this user; empty if nothing names the job.
    pub(super) job: Vec<(&'static str, String)>,
    /// A host that all ranks can name, where rank 0 should be.
    pub(super) master: Option<Master>,
}

/// Where to meet if nobody has said so explicitly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Master {
    /// Where this comes from.
    pub(super) variable: &'static str,
    /// Names or addresses of one host.
    pub(super) hosts: Vec<String>,
    /// A guess that rank 0 must confirm: it may run elsewhere.
    pub(super) guess: bool,
}

/// A rank and the size it goes with, by the names of their variables.
struct Seat {
    rank: (&'static str, u32),
    size: (&'static str, u32),
}

/// The first launcher that has set both rank and size.
pub(super) fn detect(
    environment: &Environment,
    config: &Config,
    host: &dyn Host,
) -> Result<Launched, ConfigError> {
    let seen = Seen { environment, config, host };
    let (launcher, seat) = seen.seat()?;
    let (rank, n_ranks) = (seat.rank.1, seat.size.1);
    if rank >= n_ranks {
        return Err(conflict(seat.rank, seat.size, "ranks are 0 to world size - 1"));
    }
    let (local_rank, local_size) = seen.local_seat(launcher, n_ranks)?;
    if let (Some(local_rank), Some(local_size)) = (local_rank, local_size)
        && local_rank.1 >= local_size.1
    {
        return Err(conflict(local_rank, local_size, "local ranks are 0 to local size - 1"));
    }
    if let Some(local_size) = local_size.filter(|local_size| local_size.1 > n_ranks) {
        return Err(conflict(local_size, seat.size, "there cannot be more ranks on one host than in all"));
    }
    let local_size = local_size.map(|(_, size)| size);
    Ok(Launched {
        launcher,
        rank,
        n_ranks,
        local_rank: local_rank.map(|(_, rank)| rank),
        local_size,
        job: seen.job(launcher, local_size == Some(n_ranks)),
        master: seen.master(launcher),
    })
}

struct Seen<'a> {
    environment: &'a Environment,
    config: &'a Config,
    host: &'a dyn Host,
}

type Named = (&'static str, u32);

impl Seen<'_> {
    fn seat(&self) -> Result<(Launcher, Seat), ConfigError> {
        let (rank, size) = ("WARPWAY_RANK", "WARPWAY_WORLD_SIZE");
        match (self.config.rank, self.config.world_size) {
            (Some(r), Some(s)) => return Ok((Launcher::Warpway, Seat { rank: (rank, r), size: (size, s) })),
            (Some(_), None) => return Err(half(size, rank)),
            (None, Some(_)) => return Err(half(rank, size)),
            (None, None) => {}
        }
        let mut incomplete = None;
        for (launcher, rank, sizes) in [
            (Launcher::Torchrun, "RANK", &["WORLD_SIZE"][..]),
            (Launcher::OpenMpi, "OMPI_COMM_WORLD_RANK", &["OMPI_COMM_WORLD_SIZE"]),
            (Launcher::Hydra, "PMI_RANK", &["PMI_SIZE"]),
            (Launcher::Slurm, "SLURM_PROCID", &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"]),
        ] {
            // Batch scripts and shells of an allocation have a SLURM_PROCID too, but are no ranks of a job.
            if launcher == Launcher::Slurm && self.environment.get("SLURM_STEP_ID").is_none() {
                continue;
            }
            let size = sizes.iter().copied().find(|name| self.environment.get(name).is_some());
            match (self.number(rank)?, size) {
                (Some(rank), Some(size)) => {
                    if let Some(size) = self.number(size)? {
                        return Ok((launcher, Seat { rank, size }));
                    }
                }
                (Some(_), None) => incomplete = incomplete.or(Some(half(sizes[0], rank))),
                (None, Some(size)) => incomplete = incomplete.or(Some(half(rank, size))),
                (None, None) => {}
            }
        }
        Err(incomplete.unwrap_or_else(|| self.no_launcher()))
    }

    fn local_seat(
        &self,
        launcher: Launcher,
        n_ranks: u32,
    ) -> Result<(Option<Named>, Option<Named>), ConfigError> {
        let (rank, size) = match launcher {
            Launcher::Warpway => (None, None),
            Launcher::Torchrun => (self.number("LOCAL_RANK")?, self.number("LOCAL_WORLD_SIZE")?),
            Launcher::OpenMpi => {
                (self.number("OMPI_COMM_WORLD_LOCAL_RANK")?, self.number("OMPI_COMM_WORLD_LOCAL_SIZE")?)
            }
            Launcher::Hydra => (self.number("MPI_LOCALRANKID")?, self.number("MPI_LOCALNRANKS")?),
            Launcher::Slurm => (self.number("SLURM_LOCALID")?, self.slurm_local_size(n_ranks)?),
        };
        let set = |value: Option<u32>, name| value.map(|value| (name, value));
        Ok((
            set(self.config.local_rank, "WARPWAY_LOCAL_RANK").or(rank),
            set(self.config.local_world_size, "WARPWAY_LOCAL_WORLD_SIZE").or(size),
        ))
    }

    fn slurm_local_size(&self, n_ranks: u32) -> Result<Option<Named>, ConfigError> {
        let nodes = match self.number("SLURM_STEP_NUM_NODES")? {
            None => self.number("SLURM_NNODES")?,
            nodes => nodes,
        };
        if let Some((name, 1)) = nodes {
            return Ok(Some((name, n_ranks)));
        }
        let name = "SLURM_STEP_TASKS_PER_NODE";
        let (Some(text), Some((_, node))) = (self.environment.get(name), self.number("SLURM_NODEID")?) else {
            return Ok(None);
        };
        match slurm::tasks_of_node(text, node) {
            Some(tasks) => Ok(Some((name, tasks))),
            None => Err(value_error(name, text, "a list such as 2(x3),1 that covers SLURM_NODEID")),
        }
    }

    /// `WARPWAY_JOB_ID` stands for whatever the launcher says.
    fn job(&self, launcher: Launcher, one_host: bool) -> Vec<(&'static str, String)> {
        if let Some(job) = &self.config.job_id {
            return vec![("WARPWAY_JOB_ID", job.clone())];
        }
        let get = |names: &[&'static str]| -> Vec<(&'static str, String)> {
            names.iter().filter_map(|name| Some((*name, self.environment.get(name)?.to_owned()))).collect()
        };
        match launcher {
            Launcher::Warpway => Vec::new(),
            // Without a rendezvous the run id is "none" for every job; the port tells them apart.
            Launcher::Torchrun => get(&["TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_PORT"]),
            // The second is a random number per job of Open MPI 4, whose name spaces are short.
            Launcher::OpenMpi => get(&["PMIX_NAMESPACE", "OMPI_MCA_orte_precondition_transports"]),
            // Hydra tells the job's name only over its own protocol, but its proxy is the parent of all ranks
            // of a host.
            Launcher::Hydra => {
                match one_host.then(|| self.host.launcher_process("hydra_pmi_proxy")).flatten() {
                    Some((process, start)) => vec![("hydra_pmi_proxy", format!("{process} {start}"))],
                    None => get(&SLURM_JOB),
                }
            }
            Launcher::Slurm => get(&SLURM_JOB),
        }
    }

    fn master(&self, launcher: Launcher) -> Option<Master> {
        let get = |name: &'static str| self.environment.get(name).map(|text| (name, text));
        if let Some((variable, host)) = get("MASTER_ADDR") {
            return Some(Master { variable, hosts: vec![host.to_owned()], guess: false });
        }
        let slurm = || {
            ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"].into_iter().find_map(|name| {
                let first = slurm::first_host(self.environment.get(name)?)?;
                Some((name, vec![first]))
            })
        };
        let (variable, hosts) = match launcher {
            Launcher::Warpway | Launcher::Torchrun => None,
            Launcher::OpenMpi => get("OMPI_MCA_orte_hnp_uri")
                .map(|(name, uri)| (name, hosts_of_uri(uri)))
                .filter(|(_, hosts)| !hosts.is_empty())
                .or_else(slurm),
            Launcher::Hydra | Launcher::Slurm => slurm(),
        }?;
        Some(Master { variable, hosts, guess: true })
    }

    /// A decimal number, `None` if not set.
    fn number(&self, name: &'static str) -> Result<Option<Named>, ConfigError> {
        let Some(text) = self.environment.get(name) else { return Ok(None) };
        let digits = text.bytes().all(|b| b.is_ascii_digit());
        match text.parse() {
            Ok(value) if digits => Ok(Some((name, value))),
            _ => Err(value_error(name, text, "a whole number of at most 32 bits, in decimal digits")),
        }
    }

    fn no_launcher(&self) -> ConfigError {
        let mut hint = String::from(
            "start the program with `warpway launch -n 4 -- program`, torchrun, mpirun or srun, or set WARPWAY_RANK, \
             WARPWAY_WORLD_SIZE and WARPWAY_COMM_ID (for a single rank, WARPWAY_RANK=0 WARPWAY_WORLD_SIZE=1)",
        );
        if self.environment.get("SLURM_JOB_ID").is_some() {
            hint.push_str("; this is a Slurm allocation but not a step of it: use srun");
        }
        ConfigError::NoLauncher { hint }
    }
}

const SLURM_JOB: [&str; 3] = ["SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"];

/// The addresses of `745996288.0;tcp://192.0.2.2,10.0.0.2:40517;tcp6://[fd00::2]:51567`, without those that only
/// mean something on that host or link.
fn hosts_of_uri(uri: &str) -> Vec<String> {
    let addresses = uri.split(';').filter_map(|part| part.split_once("://")).flat_map(|(scheme, rest)| {
        let list = match scheme {
            "tcp6" => rest.rsplit_once(']').map(|(list, _)| list),
            "tcp" | "tcp4" => rest.split_once(':').map(|(list, _)| list),
            _ => None,
        };
        list.unwrap_or_default().split(',').map(|text| text.trim_matches(['[', ']'])).collect::<Vec<_>>()
    });
    addresses
        .filter(|text| match text.parse() {
            Ok(IpAddr::V4(ip)) => !ip.is_link_local(),
            Ok(IpAddr::V6(ip)) => !ip.is_unicast_link_local(),
            Err(_) => false,
        })
        .filter(|text| !is_loopback(text))
        .map(str::to_owned)
        .collect()
}

fn half(missing: &'static str, set: &'static str) -> ConfigError {
    ConfigError::Missing {
        variable: missing.into(),
        hint: format!("{set} is, and the two go together; set both or none"),
    }
}

fn conflict(a: Named, b: Named, why: &'static str) -> ConfigError {
    ConfigError::Conflict {
        variable: a.0.into(),
        value: a.1.to_string(),
        other: b.0.into(),
        other_value: b.1.to_string(),
        why,
    }
}

fn value_error(name: &str, value: &str, expected: &str) -> ConfigError {
    ConfigError::Value { variable: name.into(), value: value.into(), expected: expected.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_mpirun() {
        for (uri, hosts) in [
            ("745996288.0;tcp://192.0.2.2:40517;tcp6://[fd00::2]:51567", &["192.0.2.2", "fd00::2"][..]),
            (
                "1.0;tcp://10.1.0.1,10.2.0.1:5;tcp6://[fd00::1],[fe80::1]:6",
                &["10.1.0.1", "10.2.0.1", "fd00::1"],
            ),
            ("prterun-a-1@0.0;tcp4://10.136.153.1:37049:20,20", &["10.136.153.1"]),
            ("1.0;tcp://127.0.0.1:5;usock;ud://7", &[]),
            ("", &[]),
            ("tcp://", &[]),
            ("tcp6://]:", &[]),
        ] {
            assert_eq!(hosts_of_uri(uri), hosts, "{uri}");
        }
    }
}
