//! The proxy service that kernels of one device feed, and handles of its channels.

use std::fmt;
use std::sync::Arc;

use warpway_core::channel::{BasePortChannel, DeviceHandle, PortChannel};
use warpway_core::connection::Connection;
use warpway_core::fifo::DEFAULT_FIFO_SIZE;
use warpway_core::proxy::{PollPolicy, ProxyError, ProxyService, ProxyServiceConfig};
use warpway_core::wait::Waiter;
use warpway_core::{Error, Result};

use super::fifo::DeviceFifo;
use super::thread::binding;
use crate::context::Context;
use crate::handle::{BasePortChannelHandle, FifoHandle, Host2DeviceSemaphoreHandle, PortChannelHandle, Site};

/// Where the counter of tickets drawn lies in a token, behind the counter of signals that have come.
const EXPECTED: u64 = 32;

/// How a [`PortService`] runs.
#[derive(Debug, Clone)]
pub struct PortConfig {
    /// Slots of the FIFO, a power of two.
    pub fifo_size: u64,
    /// How the thread looks for requests; `None`: as the communicator's waits would.
    pub poll: Option<PollPolicy>,
}

impl Default for PortConfig {
    fn default() -> Self {
        Self { fifo_size: DEFAULT_FIFO_SIZE, poll: None }
    }
}

/// Carries out what kernels of one device ask for by port channels. Cheap to clone; the last clone, also one inside a
/// channel or a handle, stops the service and joins its thread.
///
/// Registries, channels, start and stop are those of the [`ProxyService`] inside; host threads cannot push.
#[derive(Clone)]
pub struct PortService {
    service: ProxyService,
    fifo: DeviceFifo,
    context: Context,
    /// Device address of the control block that ends waits of kernels, or 0.
    control: u64,
}

impl PortService {
    /// A service for kernels of `context`'s device, which does not run yet. Errors go to `waiter`'s health. `control` is
    /// the device address of the control block whose abort word and deadline end waits of these kernels; it must outlive
    /// them. 0: there is none, waits end by a compiled-in deadline.
    ///
    /// Make it before kernels run: pinning memory may wait for them.
    ///
    /// # Errors
    /// `fifo.size`, `gpu.driver` if memory is exhausted.
    pub fn new(context: &Context, waiter: Waiter, control: u64, config: &PortConfig) -> Result<Self> {
        let fifo = DeviceFifo::new(context, config.fifo_size)?;
        let mut settings = ProxyServiceConfig::new(waiter);
        settings.proxy.source = Some(Arc::new(fifo.clone()));
        settings.proxy.poll = config.poll.unwrap_or(settings.proxy.poll);
        settings.proxy.name = format!("warpway-proxy-gpu{}", context.ordinal());
        settings.proxy.thread_init = Some(binding(context));
        let service = ProxyService::new(settings)?;
        Ok(Self { service, fifo, context: context.clone(), control })
    }

    /// Ids, channels, start and stop.
    pub fn service(&self) -> &ProxyService {
        &self.service
    }

    /// The ring, for requests that no channel makes: `warpway::Fifo`. `object` is its number in errors.
    pub fn fifo_handle(&self, object: u32) -> DeviceHandle<FifoHandle, ProxyService> {
        let handle = self.fifo.handle(Site { control: self.control, object, ..Site::default() });
        DeviceHandle::new(handle, self.service.clone())
    }

    /// What kernels do with a channel whose calls name memories: `warpway::BasePortChannel`, by value.
    ///
    /// # Errors
    /// `proxy.usage` for a channel of another service, `mem.device` if its semaphore is not waited for on this device.
    pub fn base_port_channel(
        &self,
        channel: &BasePortChannel,
    ) -> Result<DeviceHandle<BasePortChannelHandle, BasePortChannel>> {
        Ok(DeviceHandle::new(self.handle(channel)?, channel.clone()))
    }

    /// What kernels do with a channel between two memories: `warpway::PortChannel`, by value.
    ///
    /// # Errors
    /// As [`base_port_channel`](Self::base_port_channel).
    pub fn port_channel(
        &self,
        channel: &PortChannel,
    ) -> Result<DeviceHandle<PortChannelHandle, PortChannel>> {
        let handle = PortChannelHandle {
            base: self.handle(channel.base())?,
            dst: channel.destination_id().bits(),
            src: channel.source_id().bits(),
            dst_bytes: channel.destination().size(),
            src_bytes: channel.source().size(),
        };
        Ok(DeviceHandle::new(handle, channel.clone()))
    }

    fn handle(&self, channel: &BasePortChannel) -> Result<BasePortChannelHandle> {
        let operation = "making a device handle of a port channel";
        let usage = |why| Error::Proxy(ProxyError::Usage { operation, why });
        if !channel.service().is(&self.service) {
            return Err(usage("the channel belongs to another proxy service"));
        }
        let flush_done = channel.flush_word().ok_or_else(|| usage("the service is fed by host threads"))?;
        let semaphore = channel.semaphore();
        let connection = semaphore.connection();
        if connection.local().device != self.context.device() {
            return Err(usage("the connection's endpoint is not on the GPU whose kernels feed the service"));
        }
        // An object's number in records has 32 bits; semaphores are numbered from 0 in each communicator.
        let object = u32::try_from(semaphore.id()).unwrap_or(u32::MAX);
        let site = Site { control: self.control, peer: connection.peer(), object };
        let inbound = semaphore.inbound_address()?;
        load_adder(connection);
        Ok(BasePortChannelHandle {
            semaphore_id: channel.semaphore_id().bits(),
            reserved: 0,
            semaphore: Host2DeviceSemaphoreHandle { inbound, expected: inbound + EXPECTED, site },
            fifo: self.fifo.handle(site),
            flush_done,
        })
    }
}

/// Loads what an addition needs: while kernels wait, loading one more may have to wait for them, and they for the addition.
/// A channel that does without additions works without, so a failure is told by the first of them.
fn load_adder(connection: &Connection) {
    if let Err(error) = connection.prepare_atomic_add() {
        let peer = connection.peer();
        tracing::debug!(target: "warpway::gpu", peer, %error, "additions of a port channel will fail");
    }
}

impl fmt::Debug for PortService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PortService")
            .field("service", &self.service)
            .field("fifo", &self.fifo)
            .finish_non_exhaustive()
    }
}
