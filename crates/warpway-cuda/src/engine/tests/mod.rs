//! The engine on a driver in host memory.

mod fabric;
mod faults;
mod processes;
mod sharing;

use std::sync::Arc;
use std::time::Duration;

use fake_cuda::Fake;
use warpway_core::communicator::Communicator;
use warpway_core::deadline::Deadline;
use warpway_core::engine::Engine;
use warpway_core::memory::{
    Access, ImportReport, LocalMemories, MemoryRecord, Region, RegisteredMemory, TokenMemory,
};
use warpway_core::testing::LocalJob;
use warpway_core::transport::Transport;

use super::{CudaEngine, DeviceChoice, Devices};
use crate::context::Context;
use crate::jit::tests::always;
use crate::memory::{DeviceMemory, copy_from_host, copy_to_host};
use crate::stream::Stream;

/// The kernels of the fake that these tests use; the connections' kernel is its `add_u64`.
pub(crate) const IMAGE: &[u8] = b"fake module
function add_u64 parameters=8,8 registers=16 threads=1024 shared=0
function wait_u64 parameters=8,8,8 registers=16 threads=1024 shared=0
function trap registers=16 threads=1024 shared=0
\0";

pub(crate) fn patience() -> Deadline {
    Deadline::after(Duration::from_secs(30))
}

/// A machine, and its devices as one process has them.
pub(crate) fn machine(settings: &str) -> (Fake, Devices) {
    let fake = Fake::open();
    fake.set(settings);
    let devices = devices(&fake);
    (fake, devices)
}

pub(crate) fn devices(fake: &Fake) -> Devices {
    Devices::new(fake.path(), always(IMAGE, "add_u64"))
}

/// A rank on a device of its own.
struct Rank {
    comm: Communicator,
    engine: CudaEngine,
    stream: Stream,
}

impl Rank {
    fn new(job: &LocalJob, rank: u32, devices: &Devices, memories: Option<&Arc<LocalMemories>>) -> Self {
        let choice = DeviceChoice { ordinal: None, local_rank: rank };
        let engine = CudaEngine::new(devices, choice);
        let mut parts = job.parts(rank, vec![Arc::new(engine.clone()) as Arc<dyn Engine>]);
        parts.gpu_token_memory = Some(Arc::new(engine.tokens()) as Arc<dyn TokenMemory>);
        if let Some(memories) = memories {
            parts.local_memories = Arc::clone(memories);
        }
        let comm = Communicator::new(parts).unwrap();
        let stream = Stream::new(&engine.context().unwrap()).unwrap();
        Self { comm, engine, stream }
    }

    fn context(&self) -> Context {
        self.engine.context().unwrap()
    }

    /// Memory of the rank's device with these bytes, registered; exportable by descriptor, or plain.
    fn memory(&self, plain: bool, bytes: &[u8]) -> (DeviceMemory, RegisteredMemory) {
        let size = bytes.len() as u64;
        let allocate = if plain { DeviceMemory::plain } else { DeviceMemory::allocate };
        let memory = allocate(&self.context(), size, &[]).unwrap();
        let registered = self.register(memory.region().unwrap());
        write(&self.stream, memory.address(), bytes);
        (memory, registered)
    }

    fn register(&self, region: Region) -> RegisteredMemory {
        self.comm.register_memory(region, Transport::CudaIpc.into(), Access::ALL).unwrap()
    }
}

/// `memory` as `to` gets it from `from`.
fn sent(from: &Rank, to: &Rank, memory: &RegisteredMemory) -> warpway_core::Result<RegisteredMemory> {
    let sent = from.comm.send_memory(memory, to.comm.rank(), 0)?;
    let received = to.comm.recv_memory(from.comm.rank(), 0)?.wait(patience());
    sent.wait(patience())?;
    received
}

/// Waits until everything has been given back; what a communicator leaves to its threads may take a moment.
#[track_caller]
pub(crate) fn nothing_is_left(fake: &Fake, after: &str) {
    comes_to(|| fake.live().total(), 0, after);
}

/// Waits until `found` gives `expected`: a thread that has passed a memory on may hold it for a moment.
#[track_caller]
pub(crate) fn comes_to<T: PartialEq + std::fmt::Debug>(found: impl Fn() -> T, expected: T, after: &str) {
    let deadline = patience();
    while found() != expected {
        assert!(!deadline.expired(), "{after}: {:?} instead of {expected:?}", found());
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn write(stream: &Stream, address: u64, bytes: &[u8]) {
    // SAFETY: the tests give ranges of live memory.
    unsafe { copy_from_host(stream, address, bytes).unwrap() };
    stream.synchronize(patience()).unwrap();
}

pub(crate) fn read(stream: &Stream, address: u64, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    // SAFETY: as above.
    unsafe { copy_to_host(stream, &mut bytes, address).unwrap() };
    stream.synchronize(patience()).unwrap();
    bytes
}

pub(crate) fn word(stream: &Stream, address: u64) -> u64 {
    u64::from_le_bytes(read(stream, address, 8).try_into().unwrap())
}

/// Bytes that differ from each other's neighbours, none of them zero.
pub(crate) fn pattern(seed: u64, size: u64) -> Vec<u8> {
    (0..size).map(|i| ((i * 31 + seed * 7) % 251) as u8 + 1).collect()
}

fn record(region: &Region, size: u64) -> MemoryRecord {
    MemoryRecord {
        owner: 1,
        original_address: region.address().as_ptr() as u64,
        size,
        host: 1,
        process: 1,
        device: region.device(),
        device_uuid: [0; 16],
        offset: 0,
        allocation_size: size,
        transports: Transport::CudaIpc.into(),
        access: Access::ALL,
        shared: None,
        gpu: None,
        ethernet: None,
    }
}

/// A registration without a communicator, for connections.
pub(crate) fn local(region: Region) -> RegisteredMemory {
    RegisteredMemory::local(record(&region, region.size()), region, Vec::new())
}

/// The same as a peer's.
pub(crate) fn imported(region: Region) -> RegisteredMemory {
    let record = record(&region, region.size());
    RegisteredMemory::imported(record, Some(region), Transport::CudaIpc.into(), ImportReport::default())
}
