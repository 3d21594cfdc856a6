//! The trigger FIFO with a consumer on the host, and the requests that port channels make of their calls (device.md 6).

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use warpway_cuda::{
    BasePortChannelHandle, FailureCode, FifoHandle, Host2DeviceSemaphoreHandle, LaunchShape,
    PortChannelHandle, WaitKind,
};

use crate::rig::{Buffer, Gpu, Pinned, Source, World, rounds};

const NO_POSITION: u64 = u64::MAX;
const DATA: u64 = 1;
const FLAG: u64 = 2;
const SYNC: u64 = 4;
const ATOMIC_ADD: u64 = 8;

/// One element, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Element {
    kind: u64,
    semaphore: u64,
    destination: u64,
    source: u64,
    destination_offset: u64,
    source_offset: u64,
    size: u64,
    value: i64,
}

/// A ring, read by the rules of `fifo.cuh`, independently of the library's consumer.
struct Ring {
    size: u64,
    slots: Pinned<u64>,
    /// The tail, and on another line the completions.
    counters: Pinned<u64>,
    /// Head and cached tail.
    words: Buffer<u64>,
}

const FLUSH_DONE: usize = 16;

impl Ring {
    fn new(gpu: &Gpu, size: u64) -> Self {
        let slots = gpu.pinned(8 * size as usize);
        Self { size, slots, counters: gpu.pinned(32), words: gpu.zeros(32) }
    }

    fn handle(&self, world: &World) -> FifoHandle {
        FifoHandle {
            slots: self.slots.address(),
            head: self.words.at(0),
            tail: self.counters.address(),
            cached_tail: self.words.at(16),
            size: self.size,
            site: world.site(1, 5),
        }
    }

    /// True if the slot of a position holds the element of that lap.
    fn has(&self, position: u64) -> bool {
        let slot = (position % self.size * 8) as usize;
        let lap_is_even = (position / self.size).is_multiple_of(2);
        (0..4).all(|word| {
            (self.slots.word(slot + 2 * word + 1).load(Ordering::Acquire) >> 63 == 1) == lap_is_even
        })
    }

    /// Waits for the element of a position, without consuming it.
    fn take(&self, position: u64) -> Element {
        let begin = Instant::now();
        while !self.has(position) {
            assert!(begin.elapsed() < Duration::from_secs(10), "position {position} does not come");
            std::hint::spin_loop();
        }
        let slot = (position % self.size * 8) as usize;
        let half = |i: usize| self.slots.word(slot + i).load(Ordering::Relaxed);
        let second = |i: usize| half(2 * i + 1) & !(1 << 63);
        assert_eq!((second(0) >> 40, second(1) >> 32, second(2) >> 32, second(3)), (0, 0, 0, 0));
        Element {
            kind: second(0) & 0xff,
            semaphore: second(0) >> 8,
            destination: second(1),
            source: second(2),
            destination_offset: half(0),
            source_offset: half(2),
            size: half(4),
            value: half(6) as i64,
        }
    }

    /// Everything before `position` is consumed.
    fn consumed(&self, position: u64) {
        self.counters.word(0).store(position, Ordering::Release);
    }
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Pushes {
    fifo: FifoHandle,
    positions: u64,
    rounds: u64,
}

/// What thread `t` pushes in round `r`.
fn pushed(t: u64, r: u64) -> Element {
    Element {
        kind: DATA | SYNC,
        semaphore: t,
        destination: t + 1,
        source: t + 2,
        destination_offset: t,
        source_offset: r,
        size: t ^ r,
        value: -(t as i64),
    }
}

/// Every element once, whole, at the position that its producer was told, each producer's in order; over many laps.
fn produce(size: u64, blocks: u32, threads: u32, rounds: u64) {
    let gpu = Gpu::open();
    let world = World::new(&gpu, 0, Duration::from_secs(5));
    let kernel = gpu.kernel(Source::FIFO, "fifo_producers");
    let ring = Ring::new(&gpu, size);
    let producers = u64::from(blocks) * u64::from(threads);
    let positions = gpu.zeros::<u64>((producers * rounds) as usize);
    let parameters = Pushes { fifo: ring.handle(&world), positions: positions.address(), rounds };
    gpu.launch(&kernel, LaunchShape::new(blocks, threads), parameters);

    let mut next_round = vec![0; producers as usize];
    let mut expected = vec![0; (producers * rounds) as usize];
    for position in 0..producers * rounds {
        let element = ring.take(position);
        let (t, r) = (element.destination_offset, element.source_offset);
        assert!(t < producers && element == pushed(t, r), "position {position}: {element:?}");
        assert_eq!(r, next_round[t as usize], "position {position} of producer {t}");
        next_round[t as usize] += 1;
        expected[(r * producers + t) as usize] = position;
        // Sometimes the consumer is behind, sometimes one lap of elements is taken at once.
        if position % 7 != 3 || position % size == size - 1 || position + 1 == producers * rounds {
            ring.consumed(position + 1);
        }
    }
    gpu.finish();
    world.check();
    assert!(positions.read() == expected);
    assert_eq!(ring.words.read()[0], producers * rounds);
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn order_of_one_producer() {
    produce(8, 1, 1, rounds(5000));
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn laps_of_the_smallest_ring() {
    produce(2, 2, 32, rounds(200));
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn a_thousand_producers() {
    produce(64, 8, 125, rounds(200).min(20));
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn more_producers_than_a_block_has_threads() {
    produce(512, 64, 128, rounds(800).min(8));
}

/// A full ring holds its producers up and loses nothing.
#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn a_full_ring() {
    let gpu = Gpu::open();
    let world = World::new(&gpu, 0, Duration::from_secs(5));
    let kernel = gpu.kernel(Source::FIFO, "fifo_producers");
    let (ring, positions) = (Ring::new(&gpu, 16), gpu.zeros::<u64>(128));
    let parameters = Pushes { fifo: ring.handle(&world), positions: positions.address(), rounds: 1 };
    gpu.launch(&kernel, LaunchShape::new(4, 32), parameters);
    let first: Vec<Element> = (0..16).map(|position| ring.take(position)).collect();
    std::thread::sleep(Duration::from_millis(30));
    assert!(!gpu.stream.is_idle().unwrap(), "producers went on although nothing was consumed");
    assert_eq!(first, (0..16).map(|position| ring.take(position)).collect::<Vec<_>>(), "overwritten");
    let mut producers: Vec<u64> = Vec::new();
    for position in 0..128 {
        producers.push(ring.take(position).destination_offset);
        ring.consumed(position + 1);
    }
    gpu.finish();
    world.check();
    producers.sort_unstable();
    assert_eq!(producers, (0..128).collect::<Vec<_>>());
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Waits {
    fifo: FifoHandle,
    position: u64,
    status: u64,
}

/// `sync` waits for consumption, `poll` says whether it has been.
#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn consumption_is_seen() {
    let gpu = Gpu::open();
    let world = World::new(&gpu, 0, Duration::from_secs(5));
    let kernel = gpu.kernel(Source::FIFO, "fifo_sync");
    let (ring, status) = (Ring::new(&gpu, 16), gpu.upload(&[99u32; 2]));
    ring.consumed(5);
    let parameters = Waits { fifo: ring.handle(&world), position: 5, status: status.address() };
    gpu.launch(&kernel, LaunchShape::new(1, 1), parameters);
    std::thread::sleep(Duration::from_millis(20));
    assert!(!gpu.stream.is_idle().unwrap(), "position 5 is not consumed yet");
    ring.consumed(6);
    gpu.finish();
    assert_eq!(status.read(), [0, 0]);
    gpu.run(&kernel, LaunchShape::new(1, 1), parameters);
    assert_eq!(status.read(), [0, 1]);
    world.check();
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Requests {
    channel: PortChannelHandle,
    bytes: u64,
    positions: u64,
    status: u64,
}

/// Each call of a port channel is the request that it should be; calls that cannot be carried out are none.
#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn requests_of_a_port_channel() {
    let gpu = Gpu::open();
    let world = World::new(&gpu, 2, Duration::from_secs(5));
    let kernel = gpu.kernel(Source::FIFO, "port_calls");
    let ring = Ring::new(&gpu, 16);
    let (inbound, expected) = (gpu.pinned::<u64>(1), gpu.zeros::<u64>(1));
    let (positions, status) = (gpu.zeros::<u64>(7), gpu.upload(&[99u32; 3]));
    let site = world.site(1, 5);
    let base = BasePortChannelHandle {
        semaphore_id: 77,
        reserved: 0,
        semaphore: Host2DeviceSemaphoreHandle {
            inbound: inbound.address(),
            expected: expected.address(),
            site,
        },
        fifo: ring.handle(&world),
        flush_done: ring.counters.address() + 8 * FLUSH_DONE as u64,
    };
    let channel = PortChannelHandle { base, dst: 11, src: 12, dst_bytes: 1 << 20, src_bytes: 1 << 20 };
    let parameters =
        Requests { channel, bytes: 100, positions: positions.address(), status: status.address() };
    gpu.launch(&kernel, LaunchShape::new(1, 1), parameters);

    let none = Element {
        kind: 0,
        semaphore: 77,
        destination: 0,
        source: 0,
        destination_offset: 0,
        source_offset: 0,
        size: 0,
        value: 0,
    };
    let copy = |kind, destination_offset, source_offset| Element {
        kind,
        destination: 11,
        source: 12,
        destination_offset,
        source_offset,
        size: 100,
        ..none
    };
    let requests = [
        copy(DATA, 0, 8),
        copy(DATA, 16, 16),
        Element { kind: FLAG, ..none },
        copy(DATA | FLAG, 24, 32),
        Element { kind: ATOMIC_ADD, destination: 11, destination_offset: 8, value: -5, ..none },
        copy(DATA | FLAG | SYNC, 40, 48),
        Element { kind: SYNC, ..none },
    ];
    for (position, request) in (0..).zip(requests) {
        assert_eq!(ring.take(position), request);
        ring.consumed(position + 1);
        if request.kind & SYNC != 0 {
            std::thread::sleep(Duration::from_millis(5));
            assert!(!gpu.stream.is_idle().unwrap() && !ring.has(position + 1), "a flush did not wait");
            ring.counters.word(FLUSH_DONE).store(position + 1, Ordering::Release);
        }
    }
    std::thread::sleep(Duration::from_millis(5));
    assert!(!gpu.stream.is_idle().unwrap(), "nobody has signalled");
    inbound.word(0).store(1, Ordering::Release);
    gpu.finish();
    assert_eq!(status.read(), [0; 3]);
    assert_eq!(positions.read(), [0, 1, 2, 3, 4, NO_POSITION, NO_POSITION]);
    assert_eq!((ring.words.read()[0], expected.read()[0]), (7, 1));
    // The put beyond the memory came first.
    let record = world.failure();
    assert_eq!(
        (record.failure_code(), record.wait_kind()),
        (Some(FailureCode::FifoRange), Some(WaitKind::Call))
    );
    assert_eq!((record.rank, record.peer, record.object), (2, 1, 5));
    assert_eq!((record.expected, record.observed, record.elapsed_ns), (1, 1 << 20, 0));
}
