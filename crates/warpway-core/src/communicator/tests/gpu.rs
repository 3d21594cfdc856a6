//! What the core does with memory that the CPU cannot touch. The GPU is host memory that says otherwise, so that a test
//! can look at what arrives where no code of the core may.

use std::any::Any;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::connection::{Position, RawConnection, Span};
use crate::deadline::Timeout;
use crate::endpoint::{Endpoint, EndpointConfig};
use crate::engine::{Engine, EngineContext};
use crate::error::Result;
use crate::memory::{
    Export, GpuExport, GpuPlacement, Import, LocalMemories, MemoryRecord, Region, TokenMemory,
};
use crate::testing::allocate_as;
use crate::transport::{Device, DeviceKind};

const GPU: Device = Device { kind: DeviceKind::Gpu, id: 3 };
const UUID: [u8; 16] = *b"GPU-0123456789ab";
const EXPORT: GpuExport = GpuExport::Ipc { handle: [9; 64], allocation: 4711 };

/// An engine by name of CudaIpc, and what it has been asked.
struct Double {
    maps: LocalEngine,
    adopted: AtomicU64,
    log: Arc<Log>,
}

#[derive(Default)]
struct Log {
    raised: Mutex<Vec<(u64, u64)>>,
    kept: Mutex<Vec<(Position, Arc<dyn Any + Send + Sync>)>>,
}

impl Engine for Double {
    fn transport(&self) -> Transport {
        Transport::CudaIpc
    }

    fn export(&self, context: &EngineContext, region: &Region, access: Access) -> Result<Export> {
        let export = self.maps.export(context, region, access)?;
        let backing = region.backing().unwrap();
        let gpu = GpuPlacement {
            device_uuid: UUID,
            offset: backing.offset,
            allocation_size: backing.allocation_size,
            descriptor: Some(Arc::clone(&backing.descriptor)),
            export: Some(EXPORT),
        };
        Ok(Export { gpu: Some(gpu), ..export })
    }

    fn import(&self, context: &EngineContext, record: &MemoryRecord, deadline: Deadline) -> Result<Import> {
        self.maps.import(context, record, deadline)
    }

    fn adopt(&self, _context: &EngineContext, region: &Region) -> Result<()> {
        assert_eq!(region.device(), GPU);
        self.adopted.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn endpoint(&self, context: &EngineContext, config: &EndpointConfig) -> Result<Endpoint> {
        self.maps.endpoint(context, config)
    }

    fn connect(
        &self,
        _context: &EngineContext,
        _local: &Endpoint,
        _remote: &Endpoint,
        _deadline: Deadline,
    ) -> Result<Box<dyn RawConnection>> {
        Ok(Box::new(Noted { log: Arc::clone(&self.log), posted: AtomicU64::new(0) }))
    }
}

/// Does nothing but note.
struct Noted {
    log: Arc<Log>,
    posted: AtomicU64,
}

impl RawConnection for Noted {
    fn write(&self, _destination: Span<'_>, _source: Span<'_>, _size: u64) -> Result<Position> {
        Ok(Position(self.posted.fetch_add(1, Ordering::SeqCst) + 1))
    }

    fn store(&self, _destination: Span<'_>, _value: u64) -> Result<Position> {
        unreachable!("no test stores")
    }

    fn add(&self, _destination: Span<'_>, _delta: i64) -> Result<Position> {
        unreachable!("a signal raises")
    }

    fn raise(&self, destination: Span<'_>, value: u64) -> Result<Position> {
        self.log
            .raised
            .lock()
            .unwrap()
            .push((destination.memory.original_address() + destination.offset, value));
        Ok(Position(self.posted.fetch_add(1, Ordering::SeqCst) + 1))
    }

    fn keep(&self, position: Position, what: &Arc<dyn Any + Send + Sync>) {
        self.log.kept.lock().unwrap().push((position, Arc::clone(what)));
    }

    fn completed(&self) -> Result<Position> {
        Ok(Position(0))
    }

    fn flush(&self, _position: Position, _deadline: Deadline) -> Result<()> {
        Ok(())
    }

    fn posted(&self) -> Position {
        Position(self.posted.load(Ordering::SeqCst))
    }

    fn max_write_queue_size(&self) -> u64 {
        u64::MAX
    }
}

/// Tokens on the GPU, and how often one was made fresh.
#[derive(Default)]
struct Pages(AtomicU64);

impl TokenMemory for Pages {
    fn allocate(&self, bytes: u64) -> Result<Region> {
        allocate_as(GPU, bytes)
    }

    fn reset(&self, page: &RegisteredMemory, offset: u64) -> Result<()> {
        assert_eq!(page.region().unwrap().device(), GPU);
        assert!(offset.is_multiple_of(64) && offset < page.size(), "{offset}");
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

struct Rank {
    comm: Communicator,
    engine: Arc<Double>,
    pages: Arc<Pages>,
}

/// Ranks with a GPU each; `memories` says whether they are threads that know each other's.
fn ranks(job: &LocalJob, memories: Option<Arc<LocalMemories>>) -> Vec<Rank> {
    let rank = |rank| {
        let maps = LocalEngine::new(Transport::CudaIpc);
        let engine = Arc::new(Double { maps, adopted: AtomicU64::new(0), log: Arc::default() });
        let pages = Arc::<Pages>::default();
        let mut parts = job.parts(rank, vec![Arc::clone(&engine) as Arc<dyn Engine>]);
        parts.gpu_token_memory = Some(Arc::clone(&pages) as Arc<dyn TokenMemory>);
        if let Some(memories) = &memories {
            parts.local_memories = Arc::clone(memories);
        }
        Rank { comm: Communicator::new(parts).unwrap(), engine, pages }
    };
    (0..job.n_ranks()).map(rank).collect()
}

fn gpu() -> EndpointConfig {
    EndpointConfig { transport: Transport::CudaIpc, device: GPU, ..EndpointConfig::default() }
}

/// A semaphore between ranks 0 and 1, on both sides.
fn semaphores(ranks: &[Rank]) -> [crate::semaphore::Semaphore; 2] {
    let connections: Vec<_> = (0..2)
        .map(|me| ranks[me].comm.connect(gpu(), 1 - me as u32, 0).unwrap())
        .collect::<Vec<_>>()
        .into_iter()
        .map(|exchange| exchange.wait(patience()).unwrap())
        .collect();
    let built: Vec<_> = (0..2)
        .map(|me| ranks[me].comm.build_semaphore(&connections[me], 1 - me as u32, 0).unwrap())
        .collect();
    built
        .into_iter()
        .map(|exchange| exchange.wait(patience()).unwrap())
        .collect::<Vec<_>>()
        .try_into()
        .unwrap_or_else(|_| panic!("two"))
}

#[test]
fn the_cpu_gets_addresses_of_a_gpu_but_no_pointers() {
    let job = LocalJob::new(2);
    let ranks = ranks(&job, None);
    let region = allocate_as(GPU, 8192).unwrap().slice(4160, 1003).unwrap();
    let access = Access::ALL | Access::TOKENS;
    let mine = ranks[0].comm.register_memory(region.clone(), Transport::CudaIpc.into(), access).unwrap();
    let record = mine.record();
    assert_eq!((record.device, record.device_uuid), (GPU, UUID));
    assert_eq!((record.offset, record.size, record.allocation_size), (4160, 1003, 8192));
    assert!(record.shared.is_some(), "the descriptor is offered");
    assert_eq!(record.gpu, Some(EXPORT));

    let sent = ranks[0].comm.send_memory(&mine, 1, 0).unwrap();
    let theirs = ranks[1].comm.recv_memory(0, 0).unwrap().wait(patience()).unwrap();
    sent.wait(patience()).unwrap();
    assert_eq!(theirs.record(), record);
    for memory in [&mine, &theirs] {
        let base = memory.data().unwrap().as_ptr() as u64;
        assert_eq!(memory.address("test", 1002, 1).unwrap(), base + 1002);
        assert_eq!(memory.address("test", 1002, 2).unwrap_err().id(), "mem.bounds");
        assert_eq!(memory.token_address("test", 64).unwrap(), base + 64);
        let refused = [
            memory.pointer("test", 0, 1).unwrap_err(),
            memory.token("test", 0).unwrap_err(),
            memory.mapped_token("test", 0).unwrap_err(),
        ];
        for error in refused {
            assert_eq!(error.id(), "mem.device", "{error}");
            assert!(error.to_string().contains("GPU 3"), "{error}");
        }
    }
}

#[test]
fn signals_of_many_threads_raise_a_gpu_token_in_order() {
    let job = LocalJob::new(2);
    let ranks = ranks(&job, None);
    let [semaphore, peer] = semaphores(&ranks);
    for result in [semaphore.poll().map(drop), semaphore.wait(Timeout::after(Duration::from_secs(5)))] {
        let error = result.unwrap_err();
        assert_eq!(error.id(), "mem.device");
        assert!(error.to_string().contains("kernels wait"), "{error}");
    }
    assert_eq!(semaphore.inbound_token().unwrap_err().id(), "mem.device");
    assert_eq!(semaphore.remote_token().unwrap_err().id(), "mem.device");
    let inbound = semaphore.inbound();
    let page = inbound.memory.data().unwrap().as_ptr() as u64;
    assert_eq!(semaphore.inbound_address().unwrap(), page + inbound.offset);
    assert_ne!(semaphore.remote_address().unwrap(), peer.inbound_address().unwrap(), "mapped elsewhere");

    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..250).for_each(|_| semaphore.signal().unwrap()));
        }
    });
    let token = peer.inbound_address().unwrap();
    let expected: Vec<_> = (1..=1000).map(|value| (token, value)).collect();
    assert_eq!(*ranks[0].engine.log.raised.lock().unwrap(), expected);
}

#[test]
fn a_token_is_not_given_out_again_while_a_signal_to_it_is_under_way() {
    let job = LocalJob::new(2);
    let ranks = ranks(&job, None);
    let [semaphore, peer] = semaphores(&ranks);
    semaphore.signal().unwrap();
    drop((semaphore, peer));
    // Rank 0's token has come back; rank 1's is still aimed at by what its peer has posted.
    eventually("the release", || ranks[0].comm.token_usage() == (0, 64));
    assert_eq!(ranks[1].comm.token_usage(), (1, 64));
    let kept = std::mem::take(&mut *ranks[0].engine.log.kept.lock().unwrap());
    // The token, and the scope of the communicator, which the connection leaves to what it has posted.
    assert_eq!(kept.iter().map(|(position, _)| *position).collect::<Vec<_>>(), [Position(1); 2]);
    drop(kept);
    eventually("the release", || ranks[1].comm.token_usage() == (0, 64));

    for _ in 0..64 {
        drop(semaphores(&ranks));
    }
    let pages = &ranks[0].pages;
    assert_eq!(pages.0.load(Ordering::SeqCst), 65, "each token is made fresh when it is given out");
}

#[test]
fn a_gpu_endpoint_needs_tokens_on_a_gpu() {
    let job = LocalJob::new(1);
    let engine = Arc::new(LocalEngine::new(Transport::CudaIpc));
    let comm = Communicator::new(job.parts(0, vec![engine])).unwrap();
    let connections = [comm.connect(gpu(), 0, 0).unwrap(), comm.connect(gpu(), 0, 0).unwrap()];
    let connection = connections[0].wait(patience()).unwrap();
    let error = comm.build_semaphore(&connection, 0, 0).unwrap_err();
    assert_eq!(error.id(), "unavailable");
    assert!(error.to_string().contains("kernels wait"), "{error}");
}

#[test]
fn memory_of_this_process_is_adopted_not_imported() {
    let job = LocalJob::new(2);
    let ranks = ranks(&job, Some(Arc::default()));
    let region = allocate_as(GPU, 4096).unwrap();
    let mine = ranks[0].comm.register_memory(region, Transport::CudaIpc.into(), Access::ALL).unwrap();
    let sent = ranks[0].comm.send_memory(&mine, 1, 0).unwrap();
    let theirs = ranks[1].comm.recv_memory(0, 0).unwrap().wait(patience()).unwrap();
    sent.wait(patience()).unwrap();
    assert_eq!(theirs.data(), mine.data());
    assert_eq!(ranks[1].engine.adopted.load(Ordering::SeqCst), 1);
    assert_eq!(ranks[1].engine.maps.imports(), 0);
}
