//! Every kind of wait ends by its deadline, by an abort and by its own bound, and the record says what happened (device.md 1).

use std::time::{Duration, Instant};

use warpway_cuda::{
    ErrorRecord, FailureCode, Kernel, LaunchShape, MemoryChannelDeviceHandle,
    MemoryDevice2DeviceSemaphoreHandle, PROXY_STOPPED, WaitKind,
};

use crate::rig::{Buffer, Gpu, Pinned, Source, World};

#[derive(Clone, Copy)]
#[repr(C)]
struct Stuck {
    control: u64,
    zeros: u64,
    host: u64,
    kind: u32,
    peer: u32,
    object: u32,
    reserved: u32,
    max_spin: i64,
    status: u64,
}

const OK: u32 = 0;
const TIMEOUT: u32 = 1;
const ABORTED: u32 = 2;

/// One kind of wait for what never comes.
#[derive(Debug, Clone, Copy)]
struct Wait {
    /// As the kernel numbers it.
    number: u32,
    kind: WaitKind,
    /// What the threads may wait for; each thread waits for another value where these are tickets or positions.
    expected: (u64, u64),
    observed: u64,
    epoch: u64,
    /// Only the first thread of each block waits.
    by_block: bool,
}

/// The threads of both blocks.
const THREADS: u64 = 64;

const fn wait(number: u32, kind: WaitKind, expected: (u64, u64)) -> Wait {
    Wait { number, kind, expected, observed: 0, epoch: 0, by_block: false }
}

const HOST: Wait = wait(1, WaitKind::HostToDevice, (1, THREADS));
const DEVICE: Wait = wait(2, WaitKind::MemoryDeviceToDevice, (1, THREADS));
const SWITCH: Wait = wait(3, WaitKind::Switch, (2, 2 * THREADS));
const PACKET: Wait = wait(4, WaitKind::Packet, (7, 7));
const FLUSH: Wait = wait(5, WaitKind::Flush, (1, THREADS));
const FIFO_SYNC: Wait = wait(6, WaitKind::FifoSlot, (4, 4));
const GRID: Wait = Wait { by_block: true, ..wait(7, WaitKind::GridBarrier, (1, 1)) };
const UNIT: Wait = wait(8, WaitKind::DeviceSemaphore, (1, THREADS));
const BULK: Wait = Wait { observed: 1, ..wait(9, WaitKind::BulkBarrier, (0, 0)) };
const LINE: Wait = Wait { epoch: 5, ..wait(11, WaitKind::Packet, (5, 5)) };
/// Three pushes of each thread into two slots.
const FIFO_SLOT: Wait = wait(12, WaitKind::FifoSlot, (1, 3 * THREADS - 2));

/// A launch of `stuck` and what it needs.
struct Launch {
    gpu: Gpu,
    /// Kept: dropping the last kernel of a module waits for launches of it, so a test would never come to its abort.
    kernel: Kernel,
    world: World,
    zeros: Buffer<u64>,
    host: Pinned<u64>,
    status: Buffer<u32>,
    max_spin: i64,
}

impl Launch {
    fn new(deadline: Duration) -> Self {
        Self::on(Gpu::open(), deadline)
    }

    fn on(gpu: Gpu, deadline: Duration) -> Self {
        let world = World::new(&gpu, 3, deadline);
        let (zeros, host) = (gpu.zeros(64), gpu.pinned(1024));
        let status = gpu.upload(&vec![99; THREADS as usize + 1]);
        let kernel = gpu.kernel(Source::FAILURES, "stuck");
        Self { gpu, kernel, world, zeros, host, status, max_spin: -1 }
    }

    fn start(&self, number: u32) {
        let parameters = Stuck {
            control: self.world.address(),
            zeros: self.zeros.address(),
            host: self.host.address(),
            kind: number,
            peer: 1,
            object: 42,
            reserved: 0,
            max_spin: self.max_spin,
            status: self.status.address(),
        };
        self.gpu.launch(&self.kernel, LaunchShape::new(2, 32), parameters);
    }

    /// After the end: all fields of the record, the results of all threads, and that puts and signals did nothing after it.
    fn check(&self, wait: Wait, code: FailureCode, reason: u32, elapsed: Duration) -> ErrorRecord {
        self.gpu.finish();
        let record = self.world.failure();
        assert_eq!(
            (record.failure_code(), record.wait_kind()),
            (Some(code), Some(wait.kind)),
            "{wait:?}: {record:?}"
        );
        assert_eq!((record.rank, record.peer, record.object), (3, 1, 42), "{wait:?}: {record:?}");
        assert_eq!(
            (record.reason, record.epoch, record.reserved),
            (reason, wait.epoch, 0),
            "{wait:?}: {record:?}"
        );
        let (least, most) = wait.expected;
        assert!((least..=most).contains(&record.expected), "{wait:?}: {record:?}");
        assert_eq!(record.observed, wait.observed, "{wait:?}: {record:?}");
        let threads = if wait.by_block { 1 } else { 32 };
        assert!(record.block < 2 && record.thread < threads, "{wait:?}: {record:?}");
        assert!(record.elapsed_ns >= elapsed.as_nanos() as u64, "{wait:?}: {record:?}");

        let status = self.status.read();
        let (threads, seen) = status.split_at(THREADS as usize);
        assert!(threads.iter().all(|status| [TIMEOUT, ABORTED].contains(status)), "{wait:?}: {threads:?}");
        // A push gives no status; the kernel takes all its failures for an abort.
        let timed_out = code == FailureCode::Timeout && wait.number != FIFO_SLOT.number;
        let place = (record.block * 32 + record.thread) as usize;
        assert_eq!(threads[place], if timed_out { TIMEOUT } else { ABORTED }, "{wait:?}: {threads:?}");
        assert_eq!(seen, [0], "{wait:?}: a put or signal did something after the failure");
        record
    }
}

/// The deadline ends it, not before it is due.
fn ends_by_deadline(wait: Wait) {
    let deadline = Duration::from_millis(30);
    let launch = Launch::new(deadline);
    launch.start(wait.number);
    launch.check(wait, FailureCode::Timeout, 0, deadline);
}

/// Without a deadline it waits until the host says so.
fn ends_by_abort(wait: Wait) {
    let launch = Launch::new(Duration::ZERO);
    launch.start(wait.number);
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(50) {
        assert!(!launch.gpu.stream.is_idle().unwrap(), "{wait:?} ended by itself");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(launch.world.record(), None);
    launch.world.abort(9);
    launch.check(wait, FailureCode::Aborted, 9, Duration::from_millis(1));

    // Whoever comes later leaves at once, and the record stays.
    let again = Launch::on(Gpu::open(), Duration::ZERO);
    again.world.abort(8);
    again.start(wait.number);
    again.check(wait, FailureCode::Aborted, 8, Duration::ZERO);
}

/// The caller's own bound of tests ends it, far from any deadline.
fn ends_by_bound(wait: Wait) {
    let mut launch = Launch::new(Duration::ZERO);
    launch.max_spin = 1000;
    launch.start(wait.number);
    launch.check(wait, FailureCode::Timeout, 0, Duration::ZERO);
}

macro_rules! kinds {
    ($($name:ident = $wait:expr;)*) => { $(
        mod $name {
            use super::*;

            #[test]
            #[ignore = "needs a GPU: cargo xtask gpu-bundle"]
            fn by_deadline() {
                ends_by_deadline($wait);
            }

            #[test]
            #[ignore = "needs a GPU: cargo xtask gpu-bundle"]
            fn by_abort() {
                ends_by_abort($wait);
            }

            #[test]
            #[ignore = "needs a GPU: cargo xtask gpu-bundle"]
            fn by_bound() {
                ends_by_bound($wait);
            }
        }
    )* };
}

kinds! {
    host_semaphore = HOST;
    device_semaphore_of_a_peer = DEVICE;
    switch_barrier = SWITCH;
    packet = PACKET;
    flush = FLUSH;
    fifo_sync = FIFO_SYNC;
    grid_barrier = GRID;
    unit = UNIT;
    bulk_barrier = BULK;
    line = LINE;
    fifo_slot = FIFO_SLOT;
}

/// A call that cannot be carried out fails at once, in every build.
fn is_refused(call: Wait, code: FailureCode) {
    let launch = Launch::new(Duration::ZERO);
    launch.start(call.number);
    let record = launch.check(call, code, 0, Duration::ZERO);
    assert_eq!(record.elapsed_ns, 0);
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn a_missing_packet_buffer() {
    is_refused(wait(13, WaitKind::Call, (1, 1)), FailureCode::Misuse);
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn a_misaligned_addition() {
    is_refused(Wait { observed: 4, ..wait(14, WaitKind::Call, (8, 8)) }, FailureCode::Alignment);
}

#[derive(Clone, Copy)]
#[repr(C)]
struct ChannelPut {
    channel: MemoryChannelDeviceHandle,
    target_offset: u64,
    origin_offset: u64,
    bytes: u64,
}

/// Builds with checks refuse ranges beyond their memory, and handles whose channel is gone; nothing is copied.
#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn what_checks_find() {
    let gpu = Gpu::open();
    let program = Source::COPY.program().define("WARPWAY_DEVICE_CHECKS", 1);
    let kernel = gpu.kernel_of(&program, "channel_put");
    let (source, liveness) = (gpu.upload(&[7u8; 100]), gpu.upload(&[5u64]));
    let misuse = |expected, observed| Some((FailureCode::Misuse, expected, observed));
    for (target_offset, origin_offset, bytes, generation, expected) in [
        (0, 0, 100, 5, None),
        (40, 0, 60, 5, None),
        (100, 100, 0, 5, None),
        (1, 0, 100, 5, misuse(100, 101)),
        (0, 50, 51, 5, misuse(100, 101)),
        (101, 0, 0, 5, misuse(100, 101)),
        // The end does not fit 64 bits.
        (64, 0, u64::MAX, 5, misuse(100, 63)),
        (0, 0, 100, 4, Some((FailureCode::StaleHandle, 4, 5))),
    ] {
        let (world, target) = (World::new(&gpu, 3, Duration::ZERO), gpu.zeros::<u8>(100));
        let semaphore = MemoryDevice2DeviceSemaphoreHandle { site: world.site(1, 42), ..Default::default() };
        let channel = MemoryChannelDeviceHandle {
            semaphore,
            dst: target.address(),
            dst_bytes: 100,
            src: source.address(),
            src_bytes: 100,
            liveness: liveness.address(),
            generation,
            ..Default::default()
        };
        gpu.run(
            &kernel,
            LaunchShape::new(2, 32),
            ChannelPut { channel, target_offset, origin_offset, bytes },
        );
        let mut copied = vec![0; 100];
        if let Some((code, expected, observed)) = expected {
            let record = world.failure();
            assert_eq!(
                (record.failure_code(), record.wait_kind()),
                (Some(code), Some(WaitKind::Call)),
                "{record:?}"
            );
            assert_eq!((record.rank, record.peer, record.object), (3, 1, 42), "{record:?}");
            assert_eq!((record.expected, record.observed), (expected, observed), "{record:?}");
        } else {
            world.check();
            copied[target_offset as usize..(target_offset + bytes) as usize].fill(7);
        }
        assert_eq!(target.read(), copied);
    }
}

/// A proxy that has stopped is a failure at once, also without a deadline.
#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn a_stopped_proxy() {
    for (wait, word) in [(FIFO_SYNC, 1), (FIFO_SLOT, 1), (FLUSH, 2)] {
        let launch = Launch::new(Duration::ZERO);
        launch.host.write(word, PROXY_STOPPED);
        launch.start(wait.number);
        let record =
            launch.check(Wait { observed: PROXY_STOPPED, ..wait }, FailureCode::Aborted, 0, Duration::ZERO);
        assert_eq!(record.elapsed_ns, 0);
    }
}

/// The context serves on: a wait that is fulfilled, in a world of its own, after one that failed.
#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn the_context_stays_usable() {
    let launch = Launch::new(Duration::from_millis(5));
    launch.start(HOST.number);
    launch.check(HOST, FailureCode::Timeout, 0, Duration::from_millis(5));
    let next = Launch::on(launch.gpu, Duration::from_secs(2));
    next.host.write(0, THREADS);
    next.start(HOST.number);
    next.gpu.finish();
    next.world.check();
    let status = next.status.read();
    assert_eq!((&status[..64], status[64]), (&[OK; 64][..], 99));
}
