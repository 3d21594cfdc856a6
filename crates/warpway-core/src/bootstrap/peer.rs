//! What every rank knows of every other once the bootstrap is done.

use std::net::SocketAddr;

use super::processors::Processors;

/// One rank of the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerInfo {
    /// Rank in the job.
    pub rank: u32,
    /// Hash of its host identity (boot id, host name, `WARPWAY_HOSTID`, network namespace): equal hashes
    /// share memory and abstract Unix sockets.
    pub host: u64,
    /// Hash of its process identity (host, process id, start time).
    pub process: u64,
    /// Process id, for messages.
    pub process_id: u32,
    /// Name of the host, for messages.
    pub host_name: String,
    /// Where it may run.
    pub processors: Processors,
    /// Where its bootstrap listens for TCP, best address first; empty if all ranks share a host.
    pub addresses: Vec<SocketAddr>,
    /// Name of its abstract Unix socket (without the leading zero byte).
    pub unix_name: Vec<u8>,
}
