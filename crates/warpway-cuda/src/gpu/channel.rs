//! Device handles of channels.

use std::fmt;
use std::sync::Arc;

use warpway_core::channel::{BaseMemoryChannel, DeviceHandle, MemoryChannel};
use warpway_core::connection::ConnectionError;
use warpway_core::gpu::GpuError;
use warpway_core::memory::RegisteredMemory;
use warpway_core::semaphore::Semaphore;
use warpway_core::transport::{Device, DeviceKind, Transport};
use warpway_core::{Error, Result};

use super::control::ControlBlock;
use super::liveness::{LivenessWord, LivenessWords};
use crate::handle::{MemoryChannelDeviceHandle, MemoryDevice2DeviceSemaphoreHandle};
use crate::in_flight::Lasting;

/// Where the counter of tickets drawn lies in a token, behind the counter of signals that have come.
const EXPECTED: u64 = 32;

/// A memory channel whose handles kernels use. Cheap to clone; when the last clone is dropped, handles are stale.
#[derive(Clone)]
pub struct GpuMemoryChannel(Arc<Inner>);

struct Inner {
    /// Its semaphore's token is given to nobody else, and its memories stay, until launches under way have ended.
    channel: Lasting<MemoryChannel>,
    /// Ends when this is dropped.
    _liveness: LivenessWord,
}

impl GpuMemoryChannel {
    /// The channel.
    pub fn channel(&self) -> &MemoryChannel {
        &self.0.channel
    }
}

impl fmt::Debug for GpuMemoryChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.channel.fmt(f)
    }
}

/// A channel that only signals, whose handles kernels use. Cheap to clone.
#[derive(Clone)]
pub struct GpuSignalChannel(Arc<Lasting<BaseMemoryChannel>>);

impl GpuSignalChannel {
    /// The channel.
    pub fn channel(&self) -> &BaseMemoryChannel {
        &self.0
    }
}

impl fmt::Debug for GpuSignalChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The plain data of a memory channel for kernels of `device`, and the guard that keeps the channel.
pub(super) fn memory_channel(
    channel: &MemoryChannel,
    device: Device,
    control: &ControlBlock,
    words: &LivenessWords,
) -> Result<DeviceHandle<MemoryChannelDeviceHandle, GpuMemoryChannel>> {
    let semaphore = channel.semaphore().semaphore();
    let packets = channel.packet_buffer();
    let on_gpu = |memory: &RegisteredMemory| on_a_gpu(memory, device);
    let handle = MemoryChannelDeviceHandle {
        semaphore: semaphore_handle(semaphore, device, control)?,
        dst: on_gpu(channel.destination())?,
        dst_bytes: channel.destination().size(),
        src: on_gpu(channel.source())?,
        src_bytes: channel.source().size(),
        packet_buffer: packets.map_or(Ok(0), on_gpu)?,
        packet_bytes: packets.map_or(0, RegisteredMemory::size),
        liveness: 0,
        generation: 0,
    };
    let liveness = words.take()?;
    let handle = MemoryChannelDeviceHandle {
        liveness: liveness.address(),
        generation: liveness.generation(),
        ..handle
    };
    let channel = Lasting::new(control.watched().context(), channel.clone());
    let channel = GpuMemoryChannel(Arc::new(Inner { channel, _liveness: liveness }));
    Ok(DeviceHandle::new(handle, channel))
}

/// The same of a channel that only signals.
pub(super) fn signal_channel(
    channel: &BaseMemoryChannel,
    device: Device,
    control: &ControlBlock,
) -> Result<DeviceHandle<MemoryDevice2DeviceSemaphoreHandle, GpuSignalChannel>> {
    let handle = semaphore_handle(channel.semaphore().semaphore(), device, control)?;
    let channel = Lasting::new(control.watched().context(), channel.clone());
    Ok(DeviceHandle::new(handle, GpuSignalChannel(Arc::new(channel))))
}

fn semaphore_handle(
    semaphore: &Semaphore,
    device: Device,
    control: &ControlBlock,
) -> Result<MemoryDevice2DeviceSemaphoreHandle> {
    let connection = semaphore.connection();
    if connection.transport() != Transport::CudaIpc || connection.local().device != device {
        return Err(Error::Connection(ConnectionError::Incompatible {
            local: connection.transport(),
            remote: connection.remote_transport(),
            peer: connection.peer(),
            why: "kernels signal and wait on a connection of their own GPU by CudaIpc",
        }));
    }
    let inbound = semaphore.inbound_address()?;
    Ok(MemoryDevice2DeviceSemaphoreHandle {
        inbound,
        remote_inbound: semaphore.remote_address()?,
        expected: inbound + EXPECTED,
        site: control.site(Some(connection.peer()), semaphore.id()),
    })
}

/// Address of a memory that kernels touch: this GPU's, or a peer's that is mapped here.
fn on_a_gpu(memory: &RegisteredMemory, device: Device) -> Result<u64> {
    let address = memory.address("memory channel", 0, memory.size())?;
    match memory.region().map(|region| region.device().kind) {
        Some(DeviceKind::Gpu) => Ok(address),
        _ => Err(Error::Gpu(GpuError::Device {
            what: "making a device handle of a memory channel".into(),
            device: device.id,
            why: "one of its memories is not on a GPU".into(),
            hint: Some("allocate it with Gpu::alloc, or register device memory with Gpu::register"),
        })),
    }
}
