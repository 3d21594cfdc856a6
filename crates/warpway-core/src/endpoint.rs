//! Endpoints: one side of a connection before it exists.

use std::net::SocketAddr;

use crate::transport::{Device, Transport};

/// How RDMA counters are advanced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IbMode {
    /// From `WARPWAY_IBV_MODE`.
    #[default]
    Default,
    /// RDMA atomics.
    Host,
    /// Write with immediate.
    HostNoAtomic,
}

/// RDMA part of an [`EndpointConfig`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IbConfig {
    /// Port, −1 = first active one.
    pub port: i32,
    /// GID index, −1 = from the environment.
    pub gid_index: i32,
    /// Completion queue length.
    pub max_cq_size: i32,
    /// Completions polled at once.
    pub max_cq_poll_num: i32,
    /// Send queue length.
    pub max_send_wr: i32,
    /// Receive queue length.
    pub max_recv_wr: i32,
    /// Requests posted at once.
    pub max_wr_per_send: i32,
    /// Counter mode.
    pub mode: IbMode,
}

impl Default for IbConfig {
    fn default() -> Self {
        Self {
            port: -1,
            gid_index: -1,
            max_cq_size: 1024,
            max_cq_poll_num: 256,
            max_send_wr: 8192,
            max_recv_wr: 16,
            max_wr_per_send: 64,
            mode: IbMode::Default,
        }
    }
}

/// What an endpoint is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndpointConfig {
    /// The transport; `Unknown` is rejected at connect.
    pub transport: Transport,
    /// The device; a GPU with id −1 is the current one.
    pub device: Device,
    /// Requests in flight before a proxy drains; −1 = the transport's default.
    pub max_write_queue_size: i32,
    /// RDMA settings.
    pub ib: IbConfig,
}

impl Default for EndpointConfig {
    fn default() -> Self {
        Self {
            transport: Transport::Unknown,
            device: Device::CURRENT_GPU,
            max_write_queue_size: -1,
            ib: IbConfig::default(),
        }
    }
}

impl EndpointConfig {
    /// An endpoint for CPU memory.
    pub fn cpu(transport: Transport) -> Self {
        Self { transport, device: Device::CPU, ..Self::default() }
    }
}

/// An endpoint, local or received from a peer: plain data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Rank of its owner in the job.
    pub owner: u32,
    /// The transport.
    pub transport: Transport,
    /// The device, resolved.
    pub device: Device,
    /// Hash of the owner's host identity.
    pub host: u64,
    /// Hash of the owner's process identity.
    pub process: u64,
    /// As configured.
    pub max_write_queue_size: i32,
    /// Where a TCP endpoint listens, best address first; at most 8.
    pub addresses: Vec<SocketAddr>,
    /// A number unique in the owner's process; pairs the two sides of a TCP connection.
    pub id: u64,
}

impl Endpoint {
    /// What an engine makes of `config`, on the device that it has resolved, with nothing to listen at. Owner, host and
    /// process are filled in by the core.
    pub fn new(transport: Transport, device: Device, config: &EndpointConfig, id: u64) -> Self {
        let max_write_queue_size = config.max_write_queue_size;
        let (owner, host, process, addresses) = (0, 0, 0, Vec::new());
        Self { owner, transport, device, host, process, max_write_queue_size, addresses, id }
    }
}
