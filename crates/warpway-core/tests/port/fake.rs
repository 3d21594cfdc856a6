//! A connection that records what it is told and completes it when the test says so.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use warpway_core::connection::{
    CompletionListener, Connection, ConnectionError, Position, RawConnection, Span,
};
use warpway_core::endpoint::Endpoint;
use warpway_core::memory::{Access, ImportReport, MemoryRecord, Region, RegisteredMemory};
use warpway_core::proxy::{ProxyService, ProxyServiceConfig};
use warpway_core::semaphore::{Semaphore, TokenSlot};
use warpway_core::token::Token;
use warpway_core::trace::{FlightRecorder, Operation};
use warpway_core::transport::{Device, Transport};
use warpway_core::wait::{WaitPolicy, Waiter};
use warpway_core::{Deadline, Error, Health, Result, Timeout};

/// How long the product may take in tests of its time limits.
pub(crate) const LIMIT: Timeout = Timeout::after(Duration::from_secs(2));
/// How long a test waits before it calls something a hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// One operation as it reached the connection. Memories show by their (made-up) addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Write { destination: u64, destination_offset: u64, source: u64, source_offset: u64, size: u64 },
    Add { destination: u64, offset: u64, delta: i64 },
}

/// What the next operations do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Panic,
    Break,
}

#[derive(Default)]
pub(crate) struct Wire {
    ops: Mutex<Vec<Op>>,
    posted: AtomicU64,
    /// Operations that the test has let complete; `u64::MAX` = all, as they come.
    released: AtomicU64,
    fault: Mutex<Option<Fault>>,
    limit: u64,
    /// Completions are told to those who want to be told.
    tells: bool,
    /// How often it was asked to let go of what is complete.
    asked_to_let_go: AtomicU64,
    watchers: Mutex<Vec<Weak<dyn CompletionListener>>>,
    broken: AtomicBool,
}

impl Wire {
    pub(crate) fn ops(&self) -> Vec<Op> {
        self.ops.lock().unwrap().clone()
    }

    pub(crate) fn posted(&self) -> u64 {
        self.posted.load(Ordering::SeqCst)
    }

    pub(crate) fn asked_to_let_go(&self) -> u64 {
        self.asked_to_let_go.load(Ordering::SeqCst)
    }

    /// Lets the first `count` operations complete.
    pub(crate) fn release(&self, count: u64) {
        self.released.store(count, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.tell(Some(Position(count.min(self.posted()))));
    }

    /// The connection fails by itself.
    pub(crate) fn break_down(&self) {
        self.broken.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.tell(None);
    }

    fn tell(&self, completed: Option<Position>) {
        for watcher in self.watchers.lock().unwrap().iter().filter_map(Weak::upgrade) {
            watcher.advanced(completed);
        }
    }

    pub(crate) fn release_all(&self) {
        self.release(u64::MAX);
    }

    pub(crate) fn inject(&self, fault: Fault) {
        *self.fault.lock().unwrap() = Some(fault);
    }

    fn post(&self, operation: Operation, op: Op) -> Result<Position> {
        let fault = *self.fault.lock().unwrap();
        match fault {
            Some(Fault::Panic) => panic!("injected panic"),
            Some(Fault::Break) => {
                return Err(broken(operation));
            }
            None => {}
        }
        // Under the lock, so that position and place in the log agree.
        let mut ops = self.ops.lock().unwrap();
        ops.push(op);
        Ok(Position(self.posted.fetch_add(1, Ordering::SeqCst) + 1))
    }
}

fn broken(operation: Operation) -> Error {
    ConnectionError::Broken { rank: 0, peer: PEER, transport: TRANSPORT, operation, why: "injected".into() }
        .into()
}

struct FakeConnection(Arc<Wire>);

impl RawConnection for FakeConnection {
    fn write(&self, destination: Span<'_>, source: Span<'_>, size: u64) -> Result<Position> {
        let op = Op::Write {
            destination: destination.memory.original_address(),
            destination_offset: destination.offset,
            source: source.memory.original_address(),
            source_offset: source.offset,
            size,
        };
        self.0.post(Operation::Write, op)
    }

    fn store(&self, _: Span<'_>, _: u64) -> Result<Position> {
        unreachable!("port channels do not store");
    }

    fn add(&self, destination: Span<'_>, delta: i64) -> Result<Position> {
        let op =
            Op::Add { destination: destination.memory.original_address(), offset: destination.offset, delta };
        self.0.post(Operation::AtomicAdd, op)
    }

    fn completed(&self) -> Result<Position> {
        if self.0.broken.load(Ordering::SeqCst) {
            return Err(broken(Operation::Write));
        }
        // Posted first, so that the minimum never runs ahead of what was posted.
        let posted = self.0.posted();
        Ok(Position(posted.min(self.0.released.load(Ordering::SeqCst))))
    }

    fn flush(&self, _: Position, _: Deadline) -> Result<()> {
        unreachable!("a proxy never blocks in a flush");
    }

    fn posted(&self) -> Position {
        Position(self.0.posted())
    }

    fn max_write_queue_size(&self) -> u64 {
        self.0.limit
    }

    fn let_go(&self) -> Result<bool> {
        self.0.asked_to_let_go.fetch_add(1, Ordering::SeqCst);
        Ok(self.completed()? == self.posted())
    }

    fn watch(&self, listener: Weak<dyn CompletionListener>) -> bool {
        self.0.watchers.lock().unwrap().push(listener);
        self.0.tells
    }
}

pub(crate) const PEER: u32 = 3;
pub(crate) const TRANSPORT: Transport = Transport::Ethernet;
/// Address of the peer's token memory.
pub(crate) const REMOTE_TOKENS: u64 = 0x7000;
/// Offset of the token in it.
pub(crate) const REMOTE_TOKEN: u64 = 128;

pub(crate) fn waiter(rank: u32) -> Waiter {
    Waiter::new(
        Arc::new(Health::new(rank)),
        Arc::new(FlightRecorder::new(64)),
        WaitPolicy { spins: 0, yields: 20, slice: Duration::from_millis(10) },
    )
}

fn record(address: u64, size: u64, access: Access) -> MemoryRecord {
    MemoryRecord {
        owner: PEER,
        original_address: address,
        size,
        host: 1,
        process: 2,
        device: Device::CPU,
        device_uuid: [0; 16],
        offset: 0,
        allocation_size: size,
        transports: TRANSPORT.into(),
        access,
        shared: None,
        gpu: None,
        ethernet: None,
    }
}

/// A peer's memory, only reachable through the network.
pub(crate) fn remote_memory(address: u64, size: u64) -> RegisteredMemory {
    RegisteredMemory::imported(
        record(address, size, Access::ALL),
        None,
        TRANSPORT.into(),
        ImportReport::default(),
    )
}

/// `size` reserved bytes of this process that nobody touches.
pub(crate) fn local_memory(size: u64) -> RegisteredMemory {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    // SAFETY: a fresh private mapping that is never unmapped; PROT_NONE pages cost nothing.
    let address = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            size as usize,
            ProtFlags::empty(),
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        )
    }
    .unwrap();
    let address = NonNull::new(address.cast::<u8>()).unwrap();
    // SAFETY: the mapping stays for ever; the fake connection does not read it.
    let region = unsafe { Region::new(address, size, Device::CPU, None, None) }.unwrap();
    let record = record(address.as_ptr() as u64, size, Access::ALL);
    RegisteredMemory::local(record, region, Vec::new())
}

fn token_memory() -> (RegisteredMemory, Arc<Token>) {
    let token = Arc::new(Token::new());
    let address = NonNull::from(&*token).cast::<u8>();
    let keeper: Arc<dyn std::any::Any + Send + Sync> = token.clone();
    // SAFETY: the keeper owns the token, which consists of atomics.
    let region = unsafe { Region::new(address, 64, Device::CPU, None, Some(keeper)) }.unwrap();
    let record = record(address.as_ptr() as u64, 64, Access::ALL | Access::TOKENS);
    (RegisteredMemory::local(record, region, Vec::new()), token)
}

/// One connection to a made-up peer, with a semaphore.
pub(crate) struct Link {
    pub(crate) wire: Arc<Wire>,
    pub(crate) semaphore: Semaphore,
    /// What the peer would raise.
    pub(crate) inbound: Arc<Token>,
    pub(crate) waiter: Waiter,
}

impl Link {
    /// A link whose operations complete at once.
    pub(crate) fn open(waiter: &Waiter) -> Self {
        let link = Self::gated(waiter, 1 << 20);
        link.wire.release_all();
        link
    }

    /// A link whose operations complete when the test says so, with a write queue of `limit`.
    pub(crate) fn gated(waiter: &Waiter, limit: u64) -> Self {
        Self::on(waiter, Wire { limit, ..Wire::default() })
    }

    /// The same, and the connection tells of completions.
    pub(crate) fn telling(waiter: &Waiter, limit: u64) -> Self {
        Self::on(waiter, Wire { limit, tells: true, ..Wire::default() })
    }

    fn on(waiter: &Waiter, wire: Wire) -> Self {
        let wire = Arc::new(wire);
        let endpoint = |owner| Endpoint {
            owner,
            transport: TRANSPORT,
            device: Device::CPU,
            host: 1,
            process: 2,
            max_write_queue_size: -1,
            addresses: Vec::new(),
            id: 9,
        };
        let raw = Box::new(FakeConnection(Arc::clone(&wire)));
        let connection = Connection::new(raw, endpoint(0), endpoint(PEER), PEER, waiter.clone());
        let (memory, inbound) = token_memory();
        let inbound_slot = TokenSlot { memory, offset: 0, lease: None };
        let remote = RegisteredMemory::imported(
            record(REMOTE_TOKENS, 4096, Access::ALL | Access::TOKENS),
            None,
            TRANSPORT.into(),
            ImportReport::default(),
        );
        let remote = TokenSlot { memory: remote, offset: REMOTE_TOKEN, lease: None };
        let semaphore = Semaphore::new(connection, inbound_slot, remote, 77).unwrap();
        Self { wire, semaphore, inbound, waiter: waiter.clone() }
    }
}

pub(crate) fn service(waiter: &Waiter) -> ProxyService {
    let service = ProxyService::new(ProxyServiceConfig::new(waiter.clone())).unwrap();
    service.start_proxy().unwrap();
    service
}

/// What a signal looks like on the wire.
pub(crate) const SIGNAL: Op = Op::Add { destination: REMOTE_TOKENS, offset: REMOTE_TOKEN, delta: 1 };

/// Waits until `condition` holds; a test fails where it does not come true.
#[track_caller]
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < PATIENCE, "{what}: did not happen within {PATIENCE:?}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// A deadline that only a hang reaches.
pub(crate) fn patience() -> Deadline {
    Deadline::after(PATIENCE)
}
