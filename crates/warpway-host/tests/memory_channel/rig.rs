//! Two ranks, joined by hand from the core's types: the set-up that a communicator does otherwise.

use std::sync::Arc;
use std::time::Duration;

use warpway_core::channel::{BaseMemoryChannel, MemoryChannel};
use warpway_core::connection::{Connection, RawConnection};
use warpway_core::endpoint::Endpoint;
use warpway_core::memory::{Access, ImportReport, MemoryRecord, Region, RegisteredMemory};
use warpway_core::semaphore::{MemoryDevice2DeviceSemaphore, Semaphore, TokenSlot};
use warpway_core::trace::FlightRecorder;
use warpway_core::transport::{Device, Transport, TransportFlags};
use warpway_core::wait::{WaitPolicy, Waiter};
use warpway_core::{Health, Timeout};
use warpway_host::{BlockChannel, SharedBuffer};

/// What one rank of a pair has.
pub(crate) struct Rig {
    pub(crate) rank: u32,
    pub(crate) channel: BlockChannel,
    pub(crate) waiter: Waiter,
    /// Where the peer's puts arrive.
    pub(crate) inbox: SharedBuffer,
    /// Where this rank's puts come from and its gets go to.
    pub(crate) source: SharedBuffer,
}

/// Bytes of each buffer of a pair; the packet buffer is the inbox.
pub(crate) const BUFFER: u64 = 4 << 20;

pub(crate) fn waiter(rank: u32, ranks: usize) -> Waiter {
    Waiter::new(Arc::new(Health::new(rank)), Arc::new(FlightRecorder::new(64)), WaitPolicy::for_ranks(ranks))
}

/// Two ranks of this process. `timeout` is the limit of their waits.
pub(crate) fn pair(timeout: Duration) -> [Rig; 2] {
    let buffers = || [(); 2].map(|()| SharedBuffer::allocate(BUFFER).unwrap());
    let (inboxes, sources) = (buffers(), buffers());
    let tokens = [(); 2].map(|()| SharedBuffer::allocate(64).unwrap());
    [0, 1].map(|rank| {
        let peer = 1 - rank;
        let far = |buffer: &SharedBuffer, access| imported(peer as u32, buffer.region().unwrap(), access);
        let near = |buffer: &SharedBuffer, access| local(rank as u32, buffer.region().unwrap(), access);
        let slot = |memory| TokenSlot { memory, offset: 0, lease: None };
        let token_access = Access::ALL | Access::TOKENS;
        let waiter = waiter(rank as u32, 2);
        let semaphore = Semaphore::new(
            connection(rank as u32, waiter.clone()),
            slot(near(&tokens[rank], token_access)),
            slot(far(&tokens[peer], token_access)),
            40 + rank as u64,
        )
        .unwrap();
        let base = BaseMemoryChannel::new(MemoryDevice2DeviceSemaphore::new(semaphore).unwrap())
            .with_timeout(Timeout::after(timeout));
        let channel = MemoryChannel::on(
            base,
            far(&inboxes[peer], Access::ALL),
            near(&sources[rank], Access::ALL),
            Some(near(&inboxes[rank], Access::ALL)),
        )
        .unwrap();
        Rig {
            rank: rank as u32,
            channel: BlockChannel::new(&channel).unwrap(),
            waiter,
            inbox: inboxes[rank].clone(),
            source: sources[rank].clone(),
        }
    })
}

pub(crate) fn record(owner: u32, region: &Region, access: Access) -> MemoryRecord {
    MemoryRecord {
        owner,
        original_address: region.address().as_ptr() as u64,
        size: region.size(),
        host: 1,
        process: 1,
        device: Device::CPU,
        device_uuid: [0; 16],
        offset: region.backing().map_or(0, |b| b.offset),
        allocation_size: region.backing().map_or(region.size(), |b| b.allocation_size),
        transports: Transport::SharedMemory.into(),
        access,
        shared: None,
        gpu: None,
        ethernet: None,
    }
}

pub(crate) fn local(owner: u32, region: &Region, access: Access) -> RegisteredMemory {
    RegisteredMemory::local(record(owner, region, access), region.clone(), Vec::new())
}

pub(crate) fn imported(owner: u32, region: &Region, access: Access) -> RegisteredMemory {
    let transports: TransportFlags = Transport::SharedMemory.into();
    let record = record(owner, region, access);
    RegisteredMemory::imported(record, Some(region.clone()), transports, ImportReport::default())
}

/// A connection whose operations are not used: blocks work on the memories themselves.
fn connection(rank: u32, waiter: Waiter) -> Connection {
    let endpoint = |owner| Endpoint {
        owner,
        transport: Transport::SharedMemory,
        device: Device::CPU,
        host: 1,
        process: 1,
        max_write_queue_size: -1,
        addresses: Vec::new(),
        id: u64::from(owner),
    };
    Connection::new(raw(), endpoint(rank), endpoint(1 - rank), 1 - rank, waiter)
}

fn raw() -> Box<dyn RawConnection> {
    use warpway_core::Result;
    use warpway_core::connection::{Position, Span};
    use warpway_core::deadline::Deadline;

    struct Unused;

    impl RawConnection for Unused {
        fn write(&self, _: Span<'_>, _: Span<'_>, _: u64) -> Result<Position> {
            panic!("blocks do not write through the connection");
        }
        fn store(&self, _: Span<'_>, _: u64) -> Result<Position> {
            panic!("blocks do not store through the connection");
        }
        fn add(&self, _: Span<'_>, _: i64) -> Result<Position> {
            panic!("blocks do not add through the connection");
        }
        fn completed(&self) -> Result<Position> {
            Ok(Position(0))
        }
        fn flush(&self, _: Position, _: Deadline) -> Result<()> {
            Ok(())
        }
        fn posted(&self) -> Position {
            Position(0)
        }
        fn max_write_queue_size(&self) -> u64 {
            1
        }
    }

    Box::new(Unused)
}
