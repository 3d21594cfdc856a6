//! A job as the engine sees it: its key, and where this rank listens.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use warpway_core::bootstrap::ControlPlane;
use warpway_core::wire::JobNonce;
use warpway_core::{Error, SystemError};

use crate::socket;

/// Addresses an endpoint may carry.
const MAX_ADDRESSES: usize = 8;

/// Names a job, and this rank in it (a process may hold several ranks).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct JobId {
    pub(crate) nonce: JobNonce,
    pub(crate) rank: u32,
}

impl JobId {
    pub(crate) fn of(control: &dyn ControlPlane) -> Self {
        Self { nonce: control.job_nonce(), rank: control.job_rank() }
    }
}

/// See the module's page.
pub(crate) struct Job {
    pub(crate) id: JobId,
    /// Authenticates links of this job.
    pub(crate) key: [u8; 32],
    pub(crate) listeners: Vec<OwnedFd>,
    /// Where they listen: interfaces first, then loopback.
    pub(crate) addresses: Vec<SocketAddr>,
}

impl Job {
    /// Listens on the interfaces that the bootstrap chose for this rank, and on loopback for ranks of the
    /// same host; on nothing else.
    pub(crate) fn listen(control: &dyn ControlPlane) -> Result<Self, Error> {
        let id = JobId::of(control);
        let mut ips: Vec<IpAddr> = Vec::new();
        let chosen = control.peers().iter().find(|peer| peer.rank == id.rank);
        let chosen = chosen.map(|peer| peer.addresses.as_slice()).unwrap_or_default();
        let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        for ip in chosen.iter().map(SocketAddr::ip).take(MAX_ADDRESSES - loopback.len()).chain(loopback) {
            if !ips.contains(&ip) && !ip.is_unspecified() {
                ips.push(ip);
            }
        }
        let mut job =
            Self { id, key: control.derive_key("tcp"), listeners: Vec::new(), addresses: Vec::new() };
        let mut problem: Option<SystemError> = None;
        for ip in ips {
            match socket::listen(ip) {
                Ok((listener, address)) => {
                    job.listeners.push(listener);
                    job.addresses.push(address);
                }
                // A host without IPv6, or an interface that has gone: the others will do.
                Err(error) => {
                    tracing::debug!(%error, "cannot listen on an address");
                    problem = Some(error);
                }
            }
        }
        match problem {
            Some(error) if job.listeners.is_empty() => {
                Err(error.with_hint("no interface of this host can listen").into())
            }
            _ => Ok(job),
        }
    }
}
