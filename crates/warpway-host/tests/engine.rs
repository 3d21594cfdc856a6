//! The engine behind a control plane that hands descriptors out inside one process.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use warpway_core::bootstrap::{
    ControlPlane, DescriptorOffer, MessageSink, PeerInfo, ScopeGuard, ScopeId, Subscription,
};
use warpway_core::connection::{Connection, Position};
use warpway_core::deadline::Deadline;
use warpway_core::endpoint::EndpointConfig;
use warpway_core::engine::{Engine, EngineContext, Members};
use warpway_core::memory::{Access, ImportReport, MemoryRecord, Region, RegisteredMemory, SharedExport};
use warpway_core::semaphore::{Host2HostSemaphore, Semaphore, TokenSlot};
use warpway_core::trace::FlightRecorder;
use warpway_core::transport::{Device, Transport};
use warpway_core::wait::{WaitPolicy, Waiter};
use warpway_core::wire::JobNonce;
use warpway_core::{Error, Health, Result, Timeout};
use warpway_host::{HostBuffer, HostEngine, SharedBuffer};

/// Descriptors on offer, and how often one was fetched.
#[derive(Default)]
struct Desk {
    offers: Mutex<HashMap<u64, Arc<OwnedFd>>>,
    fetched: AtomicU64,
}

struct Plane {
    rank: u32,
    peers: Vec<PeerInfo>,
    desk: Arc<Desk>,
}

impl ControlPlane for Plane {
    fn job_rank(&self) -> u32 {
        self.rank
    }
    fn peers(&self) -> &[PeerInfo] {
        &self.peers
    }
    fn job_nonce(&self) -> JobNonce {
        JobNonce([7; 16])
    }
    fn post(&self, _: ScopeId, _: u32, _: i32, _: &[u8]) -> Result<()> {
        unimplemented!()
    }
    fn receive(&self, _: ScopeId, _: u32, _: i32, _: Deadline) -> Result<Vec<u8>> {
        unimplemented!()
    }
    fn try_receive(&self, _: ScopeId, _: u32, _: i32) -> Result<Option<Vec<u8>>> {
        unimplemented!()
    }
    fn subscribe(&self, _: ScopeId, _: i32, _: MessageSink) -> Subscription {
        unimplemented!()
    }
    fn open_scope(&self, _: ScopeId, _: &[u32], _: Arc<Health>) -> Result<ScopeGuard> {
        unimplemented!()
    }
    fn offer_descriptor(&self, descriptor: Arc<OwnedFd>) -> Result<DescriptorOffer> {
        let mut offers = self.desk.offers.lock().unwrap();
        let number = offers.len() as u64 + 1;
        offers.insert(number, descriptor);
        Ok(DescriptorOffer { descriptor: number, guard: Box::new(()) })
    }
    fn fetch_descriptor(&self, _: u32, descriptor: u64, _: Deadline) -> Result<OwnedFd> {
        self.desk.fetched.fetch_add(1, Ordering::SeqCst);
        Ok(self.desk.offers.lock().unwrap()[&descriptor].try_clone().unwrap())
    }
}

/// One rank: its engine and what it knows. Ranks are separate processes as far as the engine can tell.
struct Rank {
    engine: HostEngine,
    context: EngineContext,
    desk: Arc<Desk>,
}

fn ranks(processes: [u64; 2]) -> [Rank; 2] {
    let desk = Arc::new(Desk::default());
    let peer = |rank: u32| PeerInfo {
        rank,
        host: 5,
        process: processes[rank as usize],
        process_id: 1,
        host_name: "here".into(),
        processors: Default::default(),
        addresses: Vec::new(),
        unix_name: Vec::new(),
    };
    [0, 1].map(|rank| {
        let control = Arc::new(Plane { rank, peers: vec![peer(0), peer(1)], desk: Arc::clone(&desk) });
        let waiter = Waiter::new(
            Arc::new(Health::new(rank)),
            Arc::new(FlightRecorder::new(64)),
            WaitPolicy::for_ranks(2),
        );
        Rank {
            engine: HostEngine::new(),
            context: EngineContext { control, waiter, members: Members::new(&[0, 1]) },
            desk: Arc::clone(&desk),
        }
    })
}

impl Rank {
    /// What the communicator does when it sends a memory.
    fn register(&self, region: &Region, access: Access) -> RegisteredMemory {
        let export = self.engine.export(&self.context, region, access).unwrap();
        let me = &self.context.control.peers()[self.context.control.job_rank() as usize];
        let backing = region.backing().unwrap();
        let offer = self.context.control.offer_descriptor(Arc::clone(&backing.descriptor)).unwrap();
        let record = MemoryRecord {
            owner: me.rank,
            original_address: region.address().as_ptr() as u64,
            size: region.size(),
            host: me.host,
            process: me.process,
            device: Device::CPU,
            device_uuid: [0; 16],
            offset: backing.offset,
            allocation_size: backing.allocation_size,
            transports: Transport::SharedMemory.into(),
            access,
            shared: Some(SharedExport { process_id: me.process_id, descriptor: offer.descriptor }),
            gpu: None,
            ethernet: None,
        };
        RegisteredMemory::local(record, region.clone(), vec![export])
    }

    fn import(&self, record: &MemoryRecord) -> Result<RegisteredMemory> {
        let import = self.engine.import(&self.context, record, Deadline::NEVER)?;
        let transports = import.transport.into();
        Ok(RegisteredMemory::imported(record.clone(), import.region, transports, ImportReport::default()))
    }

    fn connect(&self, peer: &Self) -> Connection {
        let endpoint = |r: &Self| {
            let me = &r.context.control.peers()[r.context.control.job_rank() as usize];
            let endpoint =
                r.engine.endpoint(&r.context, &EndpointConfig::cpu(Transport::SharedMemory)).unwrap();
            warpway_core::endpoint::Endpoint {
                owner: me.rank,
                host: me.host,
                process: me.process,
                ..endpoint
            }
        };
        let (local, remote) = (endpoint(self), endpoint(peer));
        warpway_core::connection::check_compatible(&local, &remote, 1).unwrap();
        let raw = self.engine.connect(&self.context, &local, &remote, Deadline::NEVER).unwrap();
        let rank = remote.owner;
        Connection::new(raw, local, remote, rank, self.context.waiter.clone())
    }
}

#[test]
fn an_allocation_is_mapped_once_and_shared_by_its_slices() {
    let [owner, user] = ranks([1, 2]);
    let buffer = HostBuffer::<u8>::allocate(100_000).unwrap();
    let whole = owner.register(buffer.region().unwrap(), Access::ALL);
    let slice = buffer.region().unwrap().slice(4097, 17).unwrap();
    let mut part = owner.register(&slice, Access::ALL).record().clone();
    part.shared.clone_from(&whole.record().shared);

    let whole = user.import(whole.record()).unwrap();
    let part = user.import(&part).unwrap();
    let (whole_at, part_at) = (whole.data().unwrap().as_ptr() as u64, part.data().unwrap().as_ptr() as u64);
    assert_ne!(whole_at, whole.original_address(), "another mapping of the same memory");
    assert_eq!(part_at, whole_at + 4097);
    drop(whole);
    // The mapping lives as long as one import of it.
    let connection = user.connect(&owner);
    let source = SharedBuffer::allocate(17).unwrap();
    source.write(0, &[0xabu8; 17]).unwrap();
    let source = user.register(source.region().unwrap(), Access::ALL);
    connection.write(&part, 0, &source, 0, 17).unwrap();
    let data = buffer.to_vec().unwrap();
    assert!(data[4097..4114].iter().all(|b| *b == 0xab));
    assert_eq!(data.iter().filter(|b| **b != 0).count(), 17);
}

#[test]
fn the_cache_forgets_what_nobody_uses() {
    let [owner, user] = ranks([1, 2]);
    let fetched = || user.desk.fetched.load(Ordering::SeqCst);
    let buffer = SharedBuffer::allocate(10).unwrap();
    let memory = owner.register(buffer.region().unwrap(), Access::ALL);
    let first = user.import(memory.record()).unwrap();
    let second = user.import(memory.record()).unwrap();
    assert_eq!(first.data(), second.data());
    assert_eq!(fetched(), 1, "the second import needs no descriptor");
    drop((first, second));
    user.import(memory.record()).unwrap();
    assert_eq!(fetched(), 2, "nothing was kept");
}

#[test]
fn threads_of_one_process_get_the_original_address() {
    let [owner, mut user] = ranks([1, 1]);
    user.engine = owner.engine.clone();
    let buffer = SharedBuffer::allocate(100).unwrap();
    let memory = owner.register(buffer.region().unwrap(), Access::ALL);
    let import = user.import(memory.record()).unwrap();
    assert_eq!(import.data(), memory.data());
    // With an engine of its own, a thread maps like a process.
    let stranger = &ranks([1, 1])[1];
    let record = MemoryRecord { shared: None, ..memory.record().clone() };
    assert_eq!(stranger.import(&record).unwrap_err().id(), "mem.import");
    // A registration that is gone is not found any more.
    let record = MemoryRecord { shared: None, ..memory.record().clone() };
    drop(memory);
    assert_eq!(user.import(&record).unwrap_err().id(), "mem.import");
}

#[test]
fn records_are_not_trusted() {
    let [owner, user] = ranks([1, 2]);
    let buffer = SharedBuffer::allocate(8192).unwrap();
    let good = owner.register(buffer.region().unwrap(), Access::ALL).record().clone();
    let refused = |change: &dyn Fn(&mut MemoryRecord)| {
        let mut record = good.clone();
        change(&mut record);
        let error = user.import(&record).unwrap_err();
        assert!(error.id() == "mem.import" && error.peer() == Some(0), "{error}");
        error.to_string()
    };
    assert!(refused(&|r| r.offset = 1).contains("beyond its allocation"));
    assert!(refused(&|r| r.offset = u64::MAX).contains("beyond its allocation"));
    assert!(refused(&|r| r.size = u64::MAX).contains("beyond its allocation"));
    assert!(refused(&|r| r.allocation_size = 1 << 40).contains("holds 8192 bytes"));
    assert!(refused(&|r| r.host = 6).contains("another host"));
    assert!(refused(&|r| r.shared = None).contains("no descriptor"));
    assert!(refused(&|r| r.device = Device::CURRENT_GPU).contains("not host memory"));
    // Also while the allocation is mapped already.
    let _import = user.import(&good).unwrap();
    assert!(refused(&|r| r.allocation_size = 1 << 40).contains("is 8192 bytes"));
}

#[test]
fn plain_memory_cannot_be_exported_and_the_error_says_what_to_do() {
    let [owner, _] = ranks([1, 2]);
    let mut word = 0u64;
    // SAFETY: the word outlives the region and nothing else touches it.
    let region =
        unsafe { Region::new(std::ptr::NonNull::from(&mut word).cast(), 8, Device::CPU, None, None) }
            .unwrap();
    let error = owner.engine.export(&owner.context, &region, Access::ALL).err().unwrap();
    assert_eq!(error.id(), "mem.export");
    assert!(error.to_string().contains("HostBuffer"), "{error}");
}

#[test]
fn connections_write_store_and_add_in_order() {
    let [owner, user] = ranks([1, 2]);
    let buffer = HostBuffer::<u64>::allocate(1_000_003).unwrap();
    let far = user.import(owner.register(buffer.region().unwrap(), Access::ALL).record()).unwrap();
    let data = HostBuffer::<u64>::allocate(1_000_003).unwrap();
    let values: Vec<u64> = (0..data.len()).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    data.write(0, &values).unwrap();
    let near = user.register(data.region().unwrap(), Access::ALL);
    let connection = user.connect(&owner);

    assert_eq!(connection.write(&far, 0, &near, 0, data.bytes()).unwrap(), Position(1));
    assert_eq!(buffer.to_vec().unwrap(), values);
    let mut shadow = 0;
    assert_eq!(connection.update_and_sync(&far, 8, &mut shadow, 77).unwrap(), Position(2));
    assert_eq!(connection.atomic_add(&far, 8, -100).unwrap(), Position(3));
    let mut word = [0u64; 3];
    buffer.read(0, &mut word).unwrap();
    assert_eq!(word, [values[0], 77u64.wrapping_sub(100), values[2]]);
    assert_eq!(shadow, 77);
    connection.flush(Deadline::after(std::time::Duration::ZERO)).unwrap();
    assert_eq!((connection.completed().unwrap(), connection.in_flight().unwrap()), (Position(3), 0));
    // Zero bytes are an operation too.
    assert_eq!(connection.write(&far, data.bytes(), &near, 0, 0).unwrap(), Position(4));

    assert_eq!(connection.write(&far, 8, &near, 0, data.bytes()).unwrap_err().id(), "mem.bounds");
    assert_eq!(connection.atomic_add(&far, 4, 1).unwrap_err().id(), "mem.alignment");
    assert_eq!(connection.atomic_add(&far, data.bytes() - 4, 1).unwrap_err().id(), "mem.bounds");
    let error = connection.write(&near, 8, &near, 0, 16).unwrap_err();
    assert_eq!((error.id(), error.peer()), ("conn.refused", Some(0)));
    assert_eq!(connection.try_flush(), Position(4), "refused operations have no position");
}

/// A signal through the connection wakes a waiter that sleeps at its token.
#[test]
fn host_semaphores_wake_sleepers() {
    let ranks = ranks([1, 2]);
    let tokens = [(); 2].map(|()| SharedBuffer::allocate(128).unwrap());
    let access = Access::ALL | Access::TOKENS;
    let memories = [0, 1].map(|r| ranks[r].register(tokens[r].region().unwrap(), access));
    let semaphores = [0usize, 1].map(|r| {
        let slot = |memory| TokenSlot { memory, offset: 64, lease: None };
        let far = ranks[r].import(memories[1 - r].record()).unwrap();
        let connection = ranks[r].connect(&ranks[1 - r]);
        // Only the counters of tokens may be updated, not the words behind them.
        assert_eq!(connection.atomic_add(&far, 8, 1).unwrap_err().id(), "mem.alignment");
        let semaphore = Semaphore::new(connection, slot(memories[r].clone()), slot(far), r as u64).unwrap();
        Host2HostSemaphore::new(semaphore).unwrap()
    });
    let limit = Timeout::after(std::time::Duration::from_secs(60));
    let [first, second] = semaphores;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..200 {
                second.wait(limit).unwrap();
                second.signal().unwrap();
            }
        });
        for round in 0..200 {
            if round % 50 == 0 {
                // Long enough for the other side to fall asleep.
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            first.signal().unwrap();
            first.wait(limit).unwrap();
        }
    });
    let error = first.wait(Timeout::after(std::time::Duration::from_millis(10))).unwrap_err();
    assert!(matches!(error, Error::Wait(_)), "{error}");
}

/// Nothing of ours has a name in a file system.
#[test]
fn nothing_is_left_in_shared_memory_file_systems() {
    let list = || {
        ["/dev/shm", "/tmp"].map(|dir| {
            let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
            entries.filter(|e| e.file_name().to_string_lossy().contains("warpway")).count()
        })
    };
    let before = list();
    let buffer = SharedBuffer::allocate(1 << 20).unwrap();
    buffer.write(0, &[1u8; 4096]).unwrap();
    assert_eq!(list(), before);
}
