//! Memory that the CPU cannot touch, sent and received through the buffers of a device. The device of these tests does its
//! copies as late as it may: what is read before its copy was waited for is wrong, and so is what is told too early.
#![allow(clippy::unwrap_used, reason = "test code, which the lint does not recognise outside of #[test]")]

mod ranks;

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ranks::{Pair, Rank, bytes, eventually, fill, import, limit};
use warpway_core::connection::Connection;
use warpway_core::engine::Engine;
use warpway_core::gpu::GpuError;
use warpway_core::memory::{
    Access, MemoryRecord, Region, RegisteredMemory, StagedReader, StagedWriter, Staging,
};
use warpway_core::semaphore::{Semaphore, TokenSlot};
use warpway_core::transport::{Device, DeviceKind, Transport};
use warpway_core::{Error, Result, Timeout};

const GPU: Device = Device { kind: DeviceKind::Gpu, id: 3 };
const BUFFER: usize = 512 << 10;

/// The bytes of one allocation, and what the device has been given but not done.
#[derive(Debug, Default)]
struct FakeDevice {
    /// By address, which is only a number here.
    memories: Mutex<Vec<(u64, Vec<u8>)>>,
    broken: AtomicBool,
    /// While set, nothing is copied to it, and whoever waits for a copy is seen to wait.
    held: AtomicBool,
    waiting: AtomicBool,
    /// Reads begun while another one had not been released: the next piece comes while one is sent.
    overlapping: AtomicU64,
}

impl FakeDevice {
    /// `size` bytes whose addresses fault when the CPU touches them.
    fn allocate(self: &Arc<Self>, size: u64) -> Region {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        // SAFETY: a fresh private mapping, never unmapped, that nobody can access.
        let address = unsafe {
            mmap_anonymous(std::ptr::null_mut(), size as usize, ProtFlags::empty(), MapFlags::PRIVATE)
        };
        let address = NonNull::new(address.unwrap().cast::<u8>()).unwrap();
        self.memories.lock().unwrap().push((address.as_ptr() as u64, vec![0; size as usize]));
        // SAFETY: addresses of a device, which stay reserved.
        let region = unsafe { Region::new(address, size, GPU, None, None) }.unwrap();
        region.with_staging(Arc::new(Ways(Arc::clone(self))))
    }

    /// Before a copy.
    fn pass(&self) {
        while self.held.load(Ordering::SeqCst) {
            self.waiting.store(true, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(1));
        }
        self.waiting.store(false, Ordering::SeqCst);
    }

    fn touch<T>(&self, address: u64, size: usize, action: impl FnOnce(&mut [u8]) -> T) -> Result<T> {
        if self.broken.load(Ordering::SeqCst) {
            let (what, why) = ("copying".into(), "it is broken".into());
            return Err(GpuError::Device { what, device: GPU.id, why, hint: None }.into());
        }
        let mut memories = self.memories.lock().unwrap();
        let (start, bytes) = memories
            .iter_mut()
            .find(|(start, bytes)| (*start..*start + bytes.len() as u64).contains(&address))
            .unwrap();
        let at = (address - *start) as usize;
        Ok(action(&mut bytes[at..at + size]))
    }
}

#[derive(Debug)]
struct Ways(Arc<FakeDevice>);

impl Staging for Ways {
    fn reader(&self) -> Result<Box<dyn StagedReader>> {
        let buffers = [vec![0xee; BUFFER], vec![0xee; BUFFER]];
        Ok(Box::new(Reader { device: Arc::clone(&self.0), buffers, first: 0, requests: VecDeque::new() }))
    }

    fn writer(&self) -> Result<Box<dyn StagedWriter>> {
        Ok(Box::new(Writer {
            device: Arc::clone(&self.0),
            buffers: vec![vec![0; BUFFER]; 2],
            next: 0,
            work: VecDeque::new(),
        }))
    }
}

struct Reader {
    device: Arc<FakeDevice>,
    buffers: [Vec<u8>; 2],
    first: usize,
    requests: VecDeque<(u64, usize)>,
}

impl StagedReader for Reader {
    fn limit(&self) -> u64 {
        BUFFER as u64
    }

    fn request(&mut self, region: &Region, offset: u64, size: u64) -> Result<()> {
        assert!(self.requests.len() < 2 && size <= BUFFER as u64);
        self.device.overlapping.fetch_add(self.requests.len() as u64, Ordering::SeqCst);
        self.requests.push_back((region.slice(offset, size)?.address().as_ptr() as u64, size as usize));
        Ok(())
    }

    fn requests(&self) -> usize {
        self.requests.len()
    }

    fn wait(&mut self) -> Result<NonNull<u8>> {
        let (address, size) = self.requests[0];
        let buffer = &mut self.buffers[self.first];
        self.device.touch(address, size, |bytes| buffer[..size].copy_from_slice(bytes))?;
        Ok(NonNull::from(&mut buffer[..]).cast())
    }

    fn release(&mut self) {
        self.requests.pop_front().unwrap();
        self.buffers[self.first].fill(0xee);
        self.first ^= 1;
    }
}

enum Work {
    Copy { buffer: usize, address: u64, size: usize },
    Store(u64, u64),
    Add(u64, u64),
}

struct Writer {
    device: Arc<FakeDevice>,
    buffers: Vec<Vec<u8>>,
    next: usize,
    work: VecDeque<Work>,
}

impl Writer {
    fn until(&mut self, done: impl Fn(&VecDeque<Work>) -> bool) -> Result<()> {
        while !done(&self.work) {
            match self.work.pop_front().unwrap() {
                Work::Copy { buffer, address, size } => {
                    self.device.pass();
                    let source = &mut self.buffers[buffer];
                    self.device.touch(address, size, |bytes| bytes.copy_from_slice(&source[..size]))?;
                    source.fill(0xee);
                }
                Work::Store(address, value) => {
                    self.device.touch(address, 8, |bytes| bytes.copy_from_slice(&value.to_le_bytes()))?;
                }
                Work::Add(address, delta) => self.device.touch(address, 8, |bytes| {
                    let before = u64::from_le_bytes(bytes.try_into().unwrap());
                    bytes.copy_from_slice(&before.wrapping_add(delta).to_le_bytes());
                })?,
            }
        }
        Ok(())
    }
}

impl StagedWriter for Writer {
    fn limit(&self) -> u64 {
        BUFFER as u64
    }

    fn buffer(&mut self) -> Result<NonNull<u8>> {
        let next = self.next;
        self.until(|work| {
            !work.iter().any(|work| matches!(work, Work::Copy { buffer, .. } if *buffer == next))
        })?;
        Ok(NonNull::from(&mut self.buffers[next][..]).cast())
    }

    fn write(&mut self, region: &Region, offset: u64, size: u64) -> Result<()> {
        let address = region.slice(offset, size)?.address().as_ptr() as u64;
        self.work.push_back(Work::Copy { buffer: self.next, address, size: size as usize });
        self.next ^= 1;
        Ok(())
    }

    fn store(&mut self, region: &Region, offset: u64, value: u64) -> Result<()> {
        self.work.push_back(Work::Store(region.slice(offset, 8)?.address().as_ptr() as u64, value));
        Ok(())
    }

    fn add(&mut self, region: &Region, offset: u64, delta: u64) -> Result<()> {
        self.work.push_back(Work::Add(region.slice(offset, 8)?.address().as_ptr() as u64, delta));
        Ok(())
    }

    fn drain(&mut self) -> Result<()> {
        self.until(VecDeque::is_empty)
    }
}

fn register(rank: &Rank, region: Region, access: Access) -> RegisteredMemory {
    let export = rank.engine.export(&rank.context, &region, access).unwrap();
    let size = region.size();
    let record = MemoryRecord {
        owner: rank.number,
        original_address: region.address().as_ptr() as u64,
        size,
        host: 1,
        process: u64::from(rank.number),
        device: region.device(),
        device_uuid: [7; 16],
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

/// Rank 0 and rank 1, each with memory of a device of its own.
struct Case {
    pair: Pair,
    ends: [Connection; 2],
    devices: [Arc<FakeDevice>; 2],
}

impl Case {
    fn new() -> Self {
        let pair = Pair::new();
        let ends = pair.connect();
        Self { pair, ends, devices: Default::default() }
    }

    fn memory(&self, rank: usize, size: u64, access: Access) -> RegisteredMemory {
        register(&self.pair.ranks[rank], self.devices[rank].allocate(size), access)
    }

    fn set(&self, rank: usize, memory: &RegisteredMemory, byte: impl Fn(usize) -> u8) {
        let size = memory.size() as usize;
        let fill = |bytes: &mut [u8]| bytes.iter_mut().enumerate().for_each(|(i, b)| *b = byte(i));
        self.devices[rank].touch(memory.original_address(), size, fill).unwrap();
    }

    /// What has arrived at the device, and nothing that is still under way.
    fn get(&self, rank: usize, memory: &RegisteredMemory) -> Vec<u8> {
        let size = memory.size() as usize;
        self.devices[rank].touch(memory.original_address(), size, |bytes| bytes.to_vec()).unwrap()
    }
}

/// Any size, any alignment, in every combination of host and device; many pieces and one; nothing else is touched.
#[test]
fn writes_between_hosts_and_devices() {
    const SIZES: [u64; 9] = [1, 7, 512, 513, 4095, 65_536, (512 << 10) - 1, (512 << 10) + 1, 3_000_017];
    const ROOM: u64 = 3_000_017 + 128;
    let case = Case::new();
    for (from_device, to_device) in [(true, true), (true, false), (false, true)] {
        let memory = |rank: usize, device: bool| match device {
            true => case.memory(rank, ROOM, Access::ALL),
            false => case.pair.ranks[rank].memory(ROOM, Access::ALL),
        };
        let (source, target) = (memory(0, from_device), memory(1, to_device));
        for (round, size) in SIZES.into_iter().enumerate() {
            let (from, to) = (3 * round as u64 + 1, 5 * round as u64 + 2);
            let byte = |i: usize| (i.wrapping_mul(31) ^ (i >> 9) ^ (round * 7 + 1)) as u8;
            match from_device {
                true => case.set(0, &source, byte),
                false => fill(&source, byte),
            }
            match to_device {
                true => case.set(1, &target, |_| 0xa5),
                false => fill(&target, |_| 0xa5),
            }
            case.ends[0].write(&import(&target), to, &source, from, size).unwrap();
            case.ends[0].flush(limit()).unwrap();
            // The source may be changed after a flush.
            if from_device {
                case.set(0, &source, |_| 0);
            }
            let got = if to_device { case.get(1, &target) } else { bytes(&target) };
            let expected = |i: usize| match (i as u64).checked_sub(to).filter(|i| *i < size) {
                Some(i) => byte((i + from) as usize),
                None => 0xa5,
            };
            let wrong = (0..ROOM as usize).find(|i| got[*i] != expected(*i));
            assert_eq!(wrong, None, "{size} bytes, {from_device} {to_device}");
        }
    }
    assert!(case.devices[0].overlapping.load(Ordering::SeqCst) > 0, "the next piece comes while one is sent");
    case.pair.assert_healthy();
}

/// Words and tokens on a device are changed after the data before them, and a flush covers them.
#[test]
fn words_follow_the_data() {
    let case = Case::new();
    let [here, _there] = &case.ends;
    let source = case.memory(0, 100_000, Access::ALL);
    let data = case.memory(1, 100_000, Access::ALL);
    let tokens = [0, 1].map(|rank| case.memory(rank, 256, Access::ALL | Access::TOKENS));
    let slot = |memory: &RegisteredMemory| TokenSlot { memory: memory.clone(), offset: 64, lease: None };
    let semaphore = Semaphore::new(here.clone(), slot(&tokens[0]), slot(&import(&tokens[1])), 1).unwrap();
    let word = |memory: &RegisteredMemory, at: usize| {
        u64::from_le_bytes(case.get(1, memory)[at..at + 8].try_into().unwrap())
    };
    for round in 1..=20u64 {
        case.set(0, &source, |_| round as u8);
        here.write(&import(&data), 8, &source, 8, 99_992).unwrap();
        semaphore.signal().unwrap();
        here.atomic_add(&import(&data), 0, -3).unwrap();
        here.flush(limit()).unwrap();
        assert!(case.get(1, &data)[8..].iter().all(|b| *b == round as u8), "round {round}");
        assert_eq!((word(&tokens[1], 64), word(&data, 0)), (round, (3 * round).wrapping_neg()));
    }
    let mut mine = 0;
    here.update_and_sync(&import(&data), 16, &mut mine, 77).unwrap();
    here.flush(limit()).unwrap();
    assert_eq!((word(&data, 16), mine, word(&data, 8)), (77, 77, u64::from_le_bytes([20; 8])));
    case.pair.assert_healthy();
}

/// A word of host memory is there at once: not before the data that the device has been given.
#[test]
fn words_of_the_host_follow_the_data_of_a_device() {
    let case = Case::new();
    let [here, there] = &case.ends;
    let source = case.memory(0, 100_000, Access::ALL);
    let data = case.memory(1, 100_000, Access::ALL);
    let tokens = [0, 1].map(|rank| case.pair.ranks[rank].memory(256, Access::ALL | Access::TOKENS));
    let slot = |memory: &RegisteredMemory| TokenSlot { memory: memory.clone(), offset: 64, lease: None };
    let signals = Semaphore::new(here.clone(), slot(&tokens[0]), slot(&import(&tokens[1])), 1).unwrap();
    let waits = Semaphore::new(there.clone(), slot(&tokens[1]), slot(&import(&tokens[0])), 1).unwrap();
    let device = &case.devices[1];
    // Several: the two may come in apart.
    for round in 1..=20u8 {
        case.set(0, &source, |_| round);
        device.held.store(true, Ordering::SeqCst);
        here.write(&import(&data), 8, &source, 8, 99_992).unwrap();
        signals.signal().unwrap();
        eventually("a wait for the device", || device.waiting.load(Ordering::SeqCst));
        let early = waits.poll().unwrap();
        device.held.store(false, Ordering::SeqCst);
        assert!(!early, "round {round}: a signal before its data");
        waits.wait(Timeout::after(Duration::from_secs(30))).unwrap();
        assert!(case.get(1, &data)[8..].iter().all(|byte| *byte == round), "round {round}");
        here.flush(limit()).unwrap();
    }
    case.pair.assert_healthy();
}

/// What is posted before an unregistration arrives, or is refused; nothing arrives after it.
#[test]
fn nothing_is_copied_after_memory_was_withdrawn() {
    let case = Case::new();
    let source = case.memory(0, 4 << 20, Access::ALL);
    case.set(0, &source, |_| 9);
    let mut gone = Vec::new();
    for _ in 0..20 {
        let target = case.memory(1, 4 << 20, Access::ALL);
        let (remote, address) = (import(&target), target.original_address());
        let [here, _there] = case.pair.connect();
        here.write(&remote, 0, &source, 0, 4 << 20).unwrap();
        drop(target);
        let at_once = case.devices[1].touch(address, 4 << 20, |bytes| {
            let arrived = bytes.iter().filter(|b| **b == 9).count();
            bytes.fill(1);
            arrived
        });
        let error = here.flush(limit()).err();
        if at_once.unwrap() < 4 << 20 {
            assert_eq!(error.unwrap().id(), "conn.refused");
        }
        gone.push(address);
    }
    // Whatever the device had still to do has been done after this.
    let last = case.memory(1, 4 << 20, Access::ALL);
    case.ends[0].write(&import(&last), 0, &source, 0, 4 << 20).unwrap();
    case.ends[0].flush(limit()).unwrap();
    for address in gone {
        let untouched = |bytes: &mut [u8]| bytes.iter().all(|b| *b == 1);
        assert!(
            case.devices[1].touch(address, 4 << 20, untouched).unwrap(),
            "a copy after the registration's end"
        );
    }
}

/// Ranges and alignment are checked by the owner, as for host memory.
#[test]
fn a_bad_operation_is_refused() {
    let case = Case::new();
    let (source, target) = (case.memory(0, 64, Access::ALL), case.memory(1, 64, Access::ALL));
    case.set(0, &source, |_| 9);
    let mut record = import(&target).record().clone();
    record.size = 1 << 20;
    record.original_address += 4;
    let transports = Transport::Ethernet.into();
    let liar = RegisteredMemory::imported(record, None, transports, Default::default());
    type Post = fn(&Connection, &RegisteredMemory, &RegisteredMemory) -> Result<()>;
    let posts: [Post; 3] = [
        |here, liar, source| here.write(liar, 1, source, 0, 64).map(drop),
        |here, liar, _| here.atomic_add(liar, 4, 1).map(drop),
        |here, liar, _| here.update_and_sync(liar, 60, &mut 0, 1).map(drop),
    ];
    for post in posts {
        let [here, _there] = case.pair.connect();
        post(&here, &liar, &source).unwrap();
        assert_eq!(here.flush(limit()).unwrap_err().id(), "conn.refused");
    }
    assert_eq!(case.get(1, &target), [0; 64]);
    case.pair.assert_healthy();
}

/// A device that fails ends the connection and the communicator of its rank, with its own words.
#[test]
fn a_device_that_fails() {
    for broken in [0, 1] {
        let case = Case::new();
        let (source, target) = (case.memory(0, 4 << 20, Access::ALL), case.memory(1, 4 << 20, Access::ALL));
        case.devices[broken].broken.store(true, Ordering::SeqCst);
        case.ends[0].write(&import(&target), 0, &source, 0, 4 << 20).unwrap();
        assert!(case.ends[0].flush(limit()).is_err());
        let health = case.pair.ranks[broken].health();
        eventually("the failure", || health.is_failed());
        let text = health.failure().unwrap().to_string();
        assert!(text.contains("it is broken"), "{text}");
        case.devices[broken].broken.store(false, Ordering::SeqCst);
    }
}

/// Memory of a device whose engine offers no way is refused where it is registered.
#[test]
fn memory_that_cannot_be_reached_is_refused() {
    let case = Case::new();
    let region = case.devices[0].allocate(64);
    // SAFETY: as `allocate` made it.
    let bare = unsafe { Region::new(region.address(), 64, GPU, None, None) }.unwrap();
    let rank = &case.pair.ranks[0];
    let error: Error = rank.engine.export(&rank.context, &bare, Access::ALL).err().unwrap();
    assert_eq!(error.id(), "mem.export");
}
