//! One other rank, connected.

use warpway_core::Result;
use warpway_core::channel::{BaseMemoryChannel, MemoryChannel, PortChannel};
use warpway_core::connection::Connection;
use warpway_core::fifo::SemaphoreId;
use warpway_core::memory::RegisteredMemory;
use warpway_core::proxy::ProxyService;
use warpway_core::semaphore::{MemoryDevice2DeviceSemaphore, Semaphore};

use crate::communicator::Communicator;

/// A connection to one rank, and the exchanges on it.
///
/// The i-th exchange here (memory, semaphore, channel) meets the i-th one there: both ranks make the same
/// calls in the same order, or both get an error that names the two calls.
///
/// ```
/// use warpway::{Config, Context, Transport, in_process};
///
/// # fn main() -> warpway::Result<()> {
/// let found = in_process(2, &Context::new(Config::default()), |comm| {
///     let peer = comm.connect_by(1 - comm.rank(), Transport::Ethernet)?;
///     let (mine, theirs) = (comm.alloc::<u32>(3)?, comm.alloc::<u32>(3)?);
///     mine.fill(comm.rank() + 1)?;
///     let remote = peer.exchange_memory(&theirs)?;
///     let service = comm.proxy_service()?;
///     let channel = peer.port_channel(&service, &mine, &remote)?.device_handle();
///     channel.put_with_signal(0, 0, mine.bytes())?;
///     channel.flush()?;
///     channel.wait()?;
///     comm.barrier()?;
///     Ok(theirs.to_vec()?)
/// })?;
/// assert_eq!(found, [[2; 3], [1; 3]]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Peer {
    comm: Communicator,
    rank: u32,
    connection: Connection,
}

impl Peer {
    /// Tag of these exchanges; others are free for direct use of the core's communicator.
    pub(crate) const TAG: i32 = 0;

    pub(crate) fn new(comm: Communicator, rank: u32, connection: Connection) -> Self {
        Self { comm, rank, connection }
    }

    /// Its rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// The connection.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Gives the peer access to a memory of this rank. Does not wait for it.
    ///
    /// # Errors
    /// If the communicator has failed, or the memory is not this rank's.
    #[track_caller]
    pub fn send_memory(&self, memory: impl AsRef<RegisteredMemory>) -> Result<()> {
        self.comm.core().send_memory(memory.as_ref(), self.rank, Self::TAG).map(drop)
    }

    /// The memory that the peer sends.
    ///
    /// # Errors
    /// `exchange.*`, `mem.import` with the reason for each transport.
    #[track_caller]
    pub fn recv_memory(&self) -> Result<RegisteredMemory> {
        self.comm.core().recv_memory(self.rank, Self::TAG)?.wait(self.comm.setup_deadline())
    }

    /// Gives the peer access to a memory of this rank and takes the one that it gives. Both ranks call it.
    ///
    /// # Errors
    /// As [`send_memory`](Self::send_memory) and [`recv_memory`](Self::recv_memory).
    #[track_caller]
    pub fn exchange_memory(&self, memory: impl AsRef<RegisteredMemory>) -> Result<RegisteredMemory> {
        self.send_memory(memory)?;
        self.recv_memory()
    }

    /// A pair of tokens with the peer. Both ranks call it.
    ///
    /// # Errors
    /// `exchange.*`.
    #[track_caller]
    pub fn semaphore(&self) -> Result<Semaphore> {
        self.start_semaphore()?.wait(self.comm.setup_deadline())
    }

    /// The same without waiting: start with all peers, then wait.
    ///
    /// # Errors
    /// If the communicator has failed.
    #[track_caller]
    pub fn start_semaphore(&self) -> Result<warpway_core::communicator::Exchange<Semaphore>> {
        self.comm.core().build_semaphore(&self.connection, self.rank, Self::TAG)
    }

    /// A channel of which kernels put from `local` to `remote`, get, signal and wait. Both ranks call it.
    ///
    /// # Errors
    /// `conn.incompatible` or `mem.transport` if the peer is connected otherwise than by shared memory, or on
    /// another host; use a port channel then.
    #[track_caller]
    pub fn memory_channel(
        &self,
        local: impl AsRef<RegisteredMemory>,
        remote: &RegisteredMemory,
    ) -> Result<MemoryChannel> {
        let base = self.signal_channel()?;
        MemoryChannel::on(base, remote.clone(), local.as_ref().clone(), None)
    }

    /// The same with a local buffer in which the peer's packets arrive.
    ///
    /// # Errors
    /// As [`memory_channel`](Self::memory_channel).
    #[track_caller]
    pub fn packet_channel(
        &self,
        local: impl AsRef<RegisteredMemory>,
        remote: &RegisteredMemory,
        packets: impl AsRef<RegisteredMemory>,
    ) -> Result<MemoryChannel> {
        let base = self.signal_channel()?;
        MemoryChannel::on(base, remote.clone(), local.as_ref().clone(), Some(packets.as_ref().clone()))
    }

    /// A channel that only signals. Both ranks call it.
    ///
    /// # Errors
    /// `conn.incompatible` unless the peer shares memory with this rank.
    #[track_caller]
    pub fn signal_channel(&self) -> Result<BaseMemoryChannel> {
        let semaphore = MemoryDevice2DeviceSemaphore::new(self.semaphore()?)?;
        Ok(BaseMemoryChannel::new(semaphore).with_timeout(self.comm.device_timeout()))
    }

    /// A semaphore with the peer that port channels of `service` use. Both ranks build one, this or any other.
    ///
    /// # Errors
    /// `exchange.*`, `proxy.full`.
    #[track_caller]
    pub fn build_and_add_semaphore(&self, service: &ProxyService) -> Result<SemaphoreId> {
        service.build_and_add_semaphore(self.comm.core(), &self.connection, self.comm.setup_deadline())
    }

    /// A channel whose requests `service` carries out, by any transport. Both ranks call it.
    ///
    /// The service keeps semaphore and memories for as long as it lives, also when the channel is gone: a program
    /// that makes channels in a loop takes a new service for each round, or removes them by their ids.
    ///
    /// # Errors
    /// `exchange.*`, `proxy.full`.
    #[track_caller]
    pub fn port_channel(
        &self,
        service: &ProxyService,
        local: impl AsRef<RegisteredMemory>,
        remote: &RegisteredMemory,
    ) -> Result<PortChannel> {
        let semaphore = self.build_and_add_semaphore(service)?;
        let (destination, source) = (service.add_memory(remote)?, service.add_memory(local.as_ref())?);
        let channel = service.port_channel(semaphore, destination, source)?;
        Ok(channel.with_timeout(self.comm.device_timeout()))
    }
}
