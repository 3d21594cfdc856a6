//! Two ranks in one process, each with an engine of its own, and a relay that can misbehave between them.
#![allow(dead_code, reason = "each test binary uses a part")]
#![allow(clippy::unwrap_used, reason = "test code, which the lint does not recognise outside of #[test]")]

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use warpway_core::connection::Connection;
use warpway_core::endpoint::{Endpoint, EndpointConfig};
use warpway_core::engine::{Engine, EngineContext, Members};
use warpway_core::memory::{Access, EthernetExport, ImportReport, MemoryRecord, RegisteredMemory};
use warpway_core::testing::{LocalJob, allocate};
use warpway_core::trace::FlightRecorder;
use warpway_core::transport::{Device, Transport, TransportFlags};
use warpway_core::wait::{WaitPolicy, Waiter};
use warpway_core::{Deadline, Health};
use warpway_net::{TcpConfig, TcpEngine};

/// Before a test itself fails.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

pub(crate) fn limit() -> Deadline {
    Deadline::after(LIMIT)
}

/// One rank of a job.
pub(crate) struct Rank {
    pub(crate) number: u32,
    pub(crate) engine: TcpEngine,
    pub(crate) context: EngineContext,
}

impl Rank {
    pub(crate) fn new(job: &LocalJob, number: u32, config: TcpConfig) -> Self {
        let everybody: Vec<u32> = (0..job.n_ranks()).collect();
        Self::in_communicator(job, number, &everybody, config)
    }

    /// A rank of a communicator of `members`, which are ranks of the job as `number` is.
    pub(crate) fn in_communicator(job: &LocalJob, number: u32, members: &[u32], config: TcpConfig) -> Self {
        let members = Members::new(members);
        let waiter = Waiter::new(
            Arc::new(Health::new(members.rank_of(number).unwrap())),
            Arc::new(FlightRecorder::new(64)),
            WaitPolicy::patient(),
        );
        let context = EngineContext { control: job.control(number), waiter, members };
        Self { number, engine: TcpEngine::with_config(config), context }
    }

    pub(crate) fn health(&self) -> &Health {
        &self.context.waiter.health
    }

    /// Zeroed memory that peers may reach.
    pub(crate) fn memory(&self, size: u64, access: Access) -> RegisteredMemory {
        let region = allocate(size).unwrap();
        let export = self.engine.export(&self.context, &region, access).unwrap();
        let record = MemoryRecord {
            owner: self.number,
            original_address: region.address().as_ptr() as u64,
            size,
            host: 1,
            process: u64::from(self.number),
            device: Device::CPU,
            device_uuid: [0; 16],
            offset: 0,
            allocation_size: size,
            transports: Transport::Ethernet.into(),
            access,
            shared: None,
            gpu: None,
            ethernet: export.ethernet.clone(),
        };
        RegisteredMemory::local(record, region, vec![export])
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        self.engine.endpoint(&self.context, &EndpointConfig::cpu(Transport::Ethernet)).unwrap()
    }

    pub(crate) fn endpoint_with_queue(&self, limit: i32) -> Endpoint {
        let config =
            EndpointConfig { max_write_queue_size: limit, ..EndpointConfig::cpu(Transport::Ethernet) };
        self.engine.endpoint(&self.context, &config).unwrap()
    }

    pub(crate) fn connect(&self, local: &Endpoint, remote: &Endpoint) -> warpway_core::Result<Connection> {
        let raw = self.engine.connect(&self.context, local, remote, limit())?;
        let waiter = self.context.waiter.clone();
        let peer = self.context.rank_of(remote.owner);
        Ok(Connection::new(raw, local.clone(), remote.clone(), peer, waiter))
    }
}

/// What the peer makes of a memory, with changes that a liar would make.
pub(crate) fn imported(
    memory: &RegisteredMemory,
    change: impl FnOnce(&mut MemoryRecord),
) -> RegisteredMemory {
    let mut record = memory.record().clone();
    change(&mut record);
    let transports = TransportFlags::from(Transport::Ethernet);
    RegisteredMemory::imported(record, None, transports, ImportReport::default())
}

pub(crate) fn import(memory: &RegisteredMemory) -> RegisteredMemory {
    imported(memory, |_| {})
}

pub(crate) fn memory_id(memory: &RegisteredMemory) -> u64 {
    memory.record().ethernet.as_ref().map(|EthernetExport { memory_id }| *memory_id).unwrap()
}

/// Two ranks of one job.
pub(crate) struct Pair {
    pub(crate) job: LocalJob,
    pub(crate) ranks: [Rank; 2],
}

impl Pair {
    pub(crate) fn new() -> Self {
        Self::with_config(TcpConfig::default())
    }

    pub(crate) fn with_config(config: TcpConfig) -> Self {
        let job = LocalJob::of_processes(2);
        let ranks = [0, 1].map(|number| Rank::new(&job, number, config));
        Self { job, ranks }
    }

    /// A communicator that numbers the ranks the other way round than the job does; `ranks` are in the job's order.
    pub(crate) fn reversed() -> Self {
        let job = LocalJob::of_processes(2);
        let rank = |number| Rank::in_communicator(&job, number, &[1, 0], TcpConfig::default());
        let ranks = [0, 1].map(rank);
        Self { job, ranks }
    }

    /// A connection, by its two ends.
    pub(crate) fn connect(&self) -> [Connection; 2] {
        self.connect_by(|_| {})
    }

    /// The same after `change` of the endpoint of rank 1 that rank 0, which dials, sees.
    pub(crate) fn connect_by(&self, change: impl FnOnce(&mut Endpoint)) -> [Connection; 2] {
        let [a, b] = &self.ranks;
        self.join(a.endpoint(), b.endpoint(), change)
    }

    pub(crate) fn join(
        &self,
        here: Endpoint,
        there: Endpoint,
        change: impl FnOnce(&mut Endpoint),
    ) -> [Connection; 2] {
        let [a, b] = &self.ranks;
        let mut seen = there.clone();
        change(&mut seen);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| b.connect(&there, &here).unwrap());
            let first = a.connect(&here, &seen).unwrap();
            [first, other.join().unwrap()]
        })
    }

    pub(crate) fn assert_healthy(&self) {
        for rank in &self.ranks {
            assert!(rank.health().failure().is_none(), "{:?}", rank.health().failure());
        }
    }
}

pub(crate) fn only(ip: IpAddr) -> impl FnOnce(&mut Endpoint) {
    move |endpoint| endpoint.addresses.retain(|address| address.ip() == ip)
}

/// Copies bytes out of a memory.
pub(crate) fn bytes(memory: &RegisteredMemory) -> Vec<u8> {
    let mut out = vec![0; memory.size() as usize];
    let pointer = memory.pointer("test", 0, memory.size()).unwrap();
    // SAFETY: the memory is mapped and as long as the vector; the tests read it when nothing is under way.
    unsafe { pointer.as_ptr().copy_to_nonoverlapping(out.as_mut_ptr(), out.len()) };
    out
}

/// Fills a memory.
pub(crate) fn fill(memory: &RegisteredMemory, byte: impl Fn(usize) -> u8) {
    let content: Vec<u8> = (0..memory.size() as usize).map(byte).collect();
    let pointer = memory.pointer("test", 0, memory.size()).unwrap();
    // SAFETY: as in `bytes`.
    unsafe { pointer.as_ptr().copy_from_nonoverlapping(content.as_ptr(), content.len()) };
}

/// Waits for a condition that a background thread brings about.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < LIMIT, "{what} did not happen within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Passes bytes between a dialler and `target` until told otherwise.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    /// While set, nothing is read from the dialler.
    pub(crate) stalled: Arc<AtomicBool>,
    cut: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Relay {
    /// Serves one connection.
    pub(crate) fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (stalled, cut) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let flags = (Arc::clone(&stalled), Arc::clone(&cut));
        let thread = std::thread::spawn(move || {
            let (dialler, _) = listener.accept().unwrap();
            let acceptor = TcpStream::connect(target).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| pass(&dialler, &acceptor, &flags.0, &flags.1));
                scope.spawn(|| pass(&acceptor, &dialler, &AtomicBool::new(false), &flags.1));
            });
        });
        Self { address, stalled, cut, thread: Some(thread) }
    }

    /// Drops both sockets at once.
    pub(crate) fn cut(&mut self) {
        self.cut.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.cut();
    }
}

fn pass(mut from: &TcpStream, mut to: &TcpStream, stalled: &AtomicBool, cut: &AtomicBool) {
    from.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    to.set_write_timeout(Some(LIMIT)).unwrap();
    let mut buffer = vec![0; 64 << 10];
    while !cut.load(Ordering::SeqCst) {
        if stalled.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        match from.read(&mut buffer) {
            Ok(0) => {
                let _ = to.shutdown(Shutdown::Write);
                return;
            }
            Ok(read) => {
                if to.write_all(&buffer[..read]).is_err() {
                    break;
                }
            }
            Err(error)
                if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
            Err(_) => break,
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
