//! Latencies and bandwidth of the host engine between real processes.
//!
//! `cargo run --release -p warpway-host --example latency` starts itself again as the other ranks. Each
//! rank is pinned to a core (rank modulo cores). Everything that ranks share lies in one memfd. `CORES=1`
//! makes the ranks believe in so many cores: it shows waits that yield instead of spinning.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::os::fd::AsRawFd;
use std::process::{Child, Command};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use warpway_core::channel::{BaseMemoryChannel, MemoryChannel};
use warpway_core::connection::{Connection, Position, RawConnection, Span};
use warpway_core::deadline::Deadline;
use warpway_core::endpoint::Endpoint;
use warpway_core::memory::{Access, ImportReport, MemoryRecord, Region, RegisteredMemory};
use warpway_core::semaphore::{MemoryDevice2DeviceSemaphore, Semaphore, TokenSlot};
use warpway_core::trace::FlightRecorder;
use warpway_core::transport::{Device, Transport};
use warpway_core::wait::{WaitPolicy, Waiter};
use warpway_core::{Health, Result, Timeout};
use warpway_host::{BlockChannel, Launcher, Ll8, Ll16, Packet, Share, SharedBuffer};

const LARGE: u64 = 64 << 20;
const LARGE_AT: u64 = 2 << 20;
const TOTAL: u64 = LARGE_AT + LARGE;
const SMALL: u64 = 4096;
const SMALL_AT: u64 = 64 << 10;

fn main() -> Result<()> {
    if let Ok(spec) = std::env::var("LATENCY_CHILD") {
        let mut words = spec.split(' ');
        let mut next = || words.next().unwrap().to_owned();
        let (rank, ranks, test) = (next().parse().unwrap(), next().parse().unwrap(), next());
        return run(&Job::join(rank, ranks, map(&next())), &test);
    }
    let shared = SharedBuffer::allocate(TOTAL)?;
    for (test, ranks) in
        [("signal", 2), ("ll16", 2), ("ll8", 2), ("barrier", 2), ("barrier", 4), ("launch", 1), ("put", 2)]
    {
        shared.write(0, &vec![0u8; LARGE_AT as usize])?;
        let fd = shared.region().unwrap().backing().unwrap().descriptor.as_raw_fd();
        let path = format!("/proc/{}/fd/{fd}", std::process::id());
        let children: Vec<Child> = (1..ranks)
            .map(|rank| {
                Command::new(std::env::current_exe().unwrap())
                    .env("LATENCY_CHILD", format!("{rank} {ranks} {test} {path}"))
                    .spawn()
                    .unwrap()
            })
            .collect();
        run(&Job::join(0, ranks, shared.region().unwrap().clone()), test)?;
        for mut child in children {
            assert!(child.wait().unwrap().success());
        }
    }
    Ok(())
}

/// The parent's memory, by the path of its descriptor.
fn map(path: &str) -> Region {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap};
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let (protection, size) = (ProtFlags::READ | ProtFlags::WRITE, TOTAL as usize);
    // SAFETY: a new mapping, which is never undone; it is reached through the region only.
    unsafe {
        let address = mmap(std::ptr::null_mut(), size, protection, MapFlags::SHARED, &file, 0).unwrap();
        madvise(address, size, Advice::LinuxHugepage).unwrap();
        Region::new(NonNull::new(address.cast()).unwrap(), TOTAL, Device::CPU, None, None).unwrap()
    }
}

struct Job {
    rank: u32,
    ranks: u32,
    shared: Region,
    waiter: Waiter,
}

impl Job {
    fn join(rank: u32, ranks: u32, shared: Region) -> Self {
        // Before pinning: the affinity mask counts, also an inherited one.
        unpin();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        pin(rank as usize % cores);
        let waiter = Waiter::new(
            Arc::new(Health::new(rank)),
            Arc::new(FlightRecorder::new(64)),
            WaitPolicy::for_load(
                ranks as usize,
                std::env::var("CORES").map_or(cores, |c| c.parse().unwrap()),
            ),
        );
        Self { rank, ranks, shared, waiter }
    }

    /// A channel to `peer`; `large` chooses the destination.
    fn channel(&self, peer: u32, large: bool) -> BlockChannel {
        let access = Access::ALL | Access::TOKENS;
        let slot = |owner: u32, other: u32| {
            let offset = u64::from(owner * self.ranks + other) * 64;
            TokenSlot { memory: self.memory(owner, 0, SMALL_AT, access), offset, lease: None }
        };
        let endpoint = |owner| Endpoint {
            owner,
            transport: Transport::SharedMemory,
            device: Device::CPU,
            host: 1,
            process: u64::from(owner),
            max_write_queue_size: -1,
            addresses: Vec::new(),
            id: 0,
        };
        let connection =
            Connection::new(Box::new(Unused), endpoint(self.rank), endpoint(peer), peer, self.waiter.clone());
        let semaphore =
            Semaphore::new(connection, slot(self.rank, peer), slot(peer, self.rank), u64::from(peer))
                .unwrap();
        let base = BaseMemoryChannel::new(MemoryDevice2DeviceSemaphore::new(semaphore).unwrap())
            .with_timeout(Timeout::after(Duration::from_secs(20)));
        let inbox = |owner: u32, other: u32| {
            let at = SMALL_AT + u64::from(owner * self.ranks + other) * SMALL;
            self.memory(owner, at, SMALL, Access::ALL)
        };
        let far =
            if large { self.memory(peer, LARGE_AT, LARGE, Access::ALL) } else { inbox(peer, self.rank) };
        let source = SharedBuffer::allocate(if large { LARGE } else { SMALL }).unwrap();
        let source = register(self.rank, source.region().unwrap(), Access::ALL, self.rank);
        let channel = MemoryChannel::on(base, far, source, Some(inbox(self.rank, peer))).unwrap();
        BlockChannel::new(&channel).unwrap()
    }

    fn memory(&self, owner: u32, offset: u64, size: u64, access: Access) -> RegisteredMemory {
        register(owner, &self.shared.slice(offset, size).unwrap(), access, self.rank)
    }
}

fn register(owner: u32, region: &Region, access: Access, me: u32) -> RegisteredMemory {
    let transports = Transport::SharedMemory.into();
    let record = MemoryRecord {
        owner,
        original_address: region.address().as_ptr() as u64,
        size: region.size(),
        host: 1,
        process: u64::from(owner),
        device: Device::CPU,
        device_uuid: [0; 16],
        offset: 0,
        allocation_size: region.size(),
        transports,
        access,
        shared: None,
        gpu: None,
        ethernet: None,
    };
    if owner == me {
        RegisteredMemory::local(record, region.clone(), Vec::new())
    } else {
        RegisteredMemory::imported(record, Some(region.clone()), transports, ImportReport::default())
    }
}

fn run(job: &Job, test: &str) -> Result<()> {
    match test {
        "signal" => signal(job),
        "ll16" => packet::<Ll16>(job),
        "ll8" => packet::<Ll8>(job),
        "barrier" => barrier(job),
        "launch" => launch(job),
        _ => put(job),
    }
}

/// Median time of `rounds` rounds, divided by `rounds`, in microseconds.
fn time(rounds: u32, mut body: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..21 {
        let start = Instant::now();
        for _ in 0..rounds {
            body()?;
        }
        times.push(start.elapsed().as_secs_f64() * 1e6 / f64::from(rounds));
    }
    times.sort_by(f64::total_cmp);
    Ok(times[10])
}

fn signal(job: &Job) -> Result<()> {
    let channel = job.channel(1 - job.rank, false);
    let round_trip = time(20_000, || {
        if job.rank == 0 {
            channel.signal()?;
            channel.wait()
        } else {
            channel.wait()?;
            channel.signal()
        }
    })?;
    report(job, "signal and wait, one way", round_trip / 2.0, "µs")
}

fn packet<P: Packet>(job: &Job) -> Result<()> {
    let channel = job.channel(1 - job.rank, false);
    let mut flag = 0;
    let round_trip = time(20_000, || {
        flag += 1;
        if job.rank == 0 {
            channel.put_packets::<P>(0, 0, 8, Share::ALL, flag)?;
        }
        channel.unpack_packets::<P>(0, 0, 8, Share::ALL, flag)?;
        if job.rank == 1 {
            channel.put_packets::<P>(0, 0, 8, Share::ALL, flag)?;
        }
        Ok(())
    })?;
    report(job, &format!("8 bytes in packets of {}, one way", P::BYTES), round_trip / 2.0, "µs")
}

/// Dissemination: in round k each rank signals the rank 2^k further on.
fn barrier(job: &Job) -> Result<()> {
    let rounds = job.ranks.ilog2();
    let channels: Vec<_> = (0..rounds)
        .map(|k| {
            let step = 1 << k;
            let (to, from) = ((job.rank + step) % job.ranks, (job.rank + job.ranks - step) % job.ranks);
            (job.channel(to, false), job.channel(from, false))
        })
        .collect();
    let each = time(2_000, || {
        for (to, from) in &channels {
            to.signal()?;
            from.wait()?;
        }
        Ok(())
    })?;
    report(job, &format!("barrier of {} ranks", job.ranks), each, "µs")
}

fn launch(job: &Job) -> Result<()> {
    unpin();
    let launcher = Launcher::new(job.waiter.clone());
    for blocks in [1, 2] {
        let each = time(2_000, || launcher.launch(blocks, |_| Ok(())))?;
        report(job, &format!("empty launch of {blocks} blocks"), each, "µs")?;
    }
    let each = time(20, || launcher.launch(2, |block| (0..1000).try_for_each(|_| block.barrier())))?;
    report(job, "grid barrier of 2 blocks", each / 1000.0, "µs")
}

fn put(job: &Job) -> Result<()> {
    let channel = job.channel(1 - job.rank, true);
    if job.rank == 1 {
        return channel.wait();
    }
    unpin();
    let launcher = Launcher::new(job.waiter.clone());
    for blocks in [1, 2] {
        let put = time(2, || launcher.launch(blocks, |block| channel.put_same(0, LARGE, block.share())))?;
        let (from, mut to) = (vec![1u8; LARGE as usize], vec![2u8; LARGE as usize]);
        let copy = time(2, || {
            let size = LARGE as usize / blocks as usize;
            let parts: Vec<_> =
                to.chunks_mut(size).zip(from.chunks(size)).map(std::sync::Mutex::new).collect();
            launcher.launch(blocks, |block| {
                let mut part = parts[block.index() as usize].lock().unwrap();
                let (to, from) = &mut *part;
                to.copy_from_slice(from);
                Ok(())
            })
        })?;
        let rate = |us: f64| LARGE as f64 / us / 1e3;
        report(job, &format!("put of 64 MiB by {blocks} blocks"), rate(put), "GB/s")?;
        report(job, &format!("memcpy of 64 MiB by {blocks} threads"), rate(copy), "GB/s")?;
    }
    channel.signal()
}

fn report(job: &Job, what: &str, value: f64, unit: &str) -> Result<()> {
    if job.rank == 0 {
        println!("{what:<44} {value:>8.3} {unit}");
    }
    Ok(())
}

fn pin(core: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    rustix::thread::sched_setaffinity(None, &set).unwrap();
}

fn unpin() {
    let mut set = rustix::thread::CpuSet::new();
    (0..rustix::thread::CpuSet::MAX_CPU.min(1024)).for_each(|core| set.set(core));
    rustix::thread::sched_setaffinity(None, &set).unwrap();
}

/// Blocks work on the memories themselves.
struct Unused;

impl RawConnection for Unused {
    fn write(&self, _: Span<'_>, _: Span<'_>, _: u64) -> Result<Position> {
        unreachable!()
    }
    fn store(&self, _: Span<'_>, _: u64) -> Result<Position> {
        unreachable!()
    }
    fn add(&self, _: Span<'_>, _: i64) -> Result<Position> {
        unreachable!()
    }
    fn completed(&self) -> Result<Position> {
        unreachable!()
    }
    fn flush(&self, _: Position, _: Deadline) -> Result<()> {
        unreachable!()
    }
    fn posted(&self) -> Position {
        unreachable!()
    }
    fn max_write_queue_size(&self) -> u64 {
        1
    }
}
