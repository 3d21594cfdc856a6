//! Memory channels between two devices: what arrives is what was sent, nothing else is touched, and messages are seen
//! in the order that device.md 3 promises.

use std::time::Duration;

use warpway_cuda::{
    EpochsHandle, Kernel, LaunchShape, MemoryChannelDeviceHandle, MemoryDevice2DeviceSemaphoreHandle,
};

use crate::rig::{Buffer, Gpu, Source, World, rounds};

const DEADLINE: Duration = Duration::from_secs(2);

/// Two devices and what a communicator of theirs would hold.
struct Pair {
    gpus: [Gpu; 2],
    worlds: [World; 2],
    /// Of each device: inbound counters and tickets, on lines of their own.
    counters: [Buffer<u64>; 2],
}

impl Pair {
    fn open() -> Self {
        let gpus = Gpu::pair();
        let worlds = [0, 1].map(|rank| World::new(&gpus[rank], rank as u32, DEADLINE));
        let counters = [0, 1].map(|rank| gpus[rank].share(&[0u64; 128], &gpus[1 - rank]));
        Self { gpus, worlds, counters }
    }

    /// Semaphore `number` as `rank` sees it.
    fn semaphore(&self, rank: usize, number: usize) -> MemoryDevice2DeviceSemaphoreHandle {
        MemoryDevice2DeviceSemaphoreHandle {
            inbound: self.counters[rank].at(32 * number),
            remote_inbound: self.counters[1 - rank].at(32 * number),
            expected: self.counters[rank].at(32 * number + 16),
            site: self.worlds[rank].site(1 - rank as u32, number as u32),
        }
    }

    fn kernels(&self, source: Source, name: &str) -> [Kernel; 2] {
        [0, 1].map(|rank| self.gpus[rank].kernel(source, name))
    }

    /// Runs a kernel on both devices at once.
    fn run<P: Copy>(&self, kernels: &[Kernel; 2], shape: LaunchShape, parameters: [P; 2]) {
        for rank in [0, 1] {
            self.gpus[rank].launch(&kernels[rank], shape, parameters[rank]);
        }
        self.gpus.iter().for_each(Gpu::finish);
        self.worlds.iter().for_each(World::check);
    }

    /// Buffers of both, each within reach of the other.
    fn share<T: Copy>(&self, values: [&[T]; 2]) -> [Buffer<T>; 2] {
        [0, 1].map(|rank| self.gpus[rank].share(values[rank], &self.gpus[1 - rank]))
    }
}

#[derive(Clone, Copy)]
#[repr(C)]
struct ChannelPut {
    channel: MemoryChannelDeviceHandle,
    target_offset: u64,
    origin_offset: u64,
    bytes: u64,
}

/// Both directions at once, all kinds of offsets; the guards of the buffers are at their very ends.
fn transfers(kernel: &str, puts: bool) {
    /// Two rounds of eight vectors for each thread, and a part of one.
    const SIZE: usize = 1_500_000;
    let pair = Pair::open();
    let kernels = pair.kernels(Source::COPY, kernel);
    let data = [0u32, 1].map(|rank| {
        (0..SIZE as u32)
            .map(|i| ((i ^ rank << 16).wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect::<Vec<u8>>()
    });
    for (target, origin, bytes) in [
        (0, 0, SIZE),
        (1, 1, SIZE - 1),
        (0, 3, SIZE - 3),
        (16, 0, 65_536),
        (SIZE - 1, 0, 1),
        (4, 8, 13),
        (8, 4, 777_777),
        (5, 5, 0),
    ] {
        let filler = vec![0xc5; SIZE];
        let sources = pair.share([&data[0][..], &data[1][..]]);
        let targets = pair.share([&filler[..], &filler[..]]);
        let parameters = [0, 1].map(|rank| {
            // A put goes from the local source to the peer's target, a get from the peer's source to the local target.
            let (local, remote) = if puts {
                (&sources[rank], &targets[1 - rank])
            } else {
                (&targets[rank], &sources[1 - rank])
            };
            let channel = MemoryChannelDeviceHandle {
                semaphore: pair.semaphore(rank, 0),
                dst: remote.address(),
                dst_bytes: SIZE as u64,
                src: local.address(),
                src_bytes: SIZE as u64,
                ..Default::default()
            };
            let (target_offset, origin_offset) = (target as u64, origin as u64);
            ChannelPut { channel, target_offset, origin_offset, bytes: bytes as u64 }
        });
        pair.run(&kernels, LaunchShape::new(8, 512), parameters);
        for rank in [0, 1] {
            let mut expected = filler.clone();
            expected[target..target + bytes].copy_from_slice(&data[1 - rank][origin..origin + bytes]);
            assert!(targets[rank].read() == expected, "rank {rank}: {bytes} bytes from {origin} to {target}");
            assert!(sources[rank].read() == data[rank], "rank {rank}: the source has changed");
        }
    }
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn puts() {
    transfers("channel_put", true);
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn gets() {
    transfers("channel_get", false);
}

#[derive(Clone, Copy)]
#[repr(C)]
struct PacketExchange {
    channel: MemoryChannelDeviceHandle,
    epochs: EpochsHandle,
    bytes: u64,
    target_offset: u64,
}

/// Exchanges by packets in two halves, eager and replayed, across the wrap of flags, with data that changes.
#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn packet_exchanges() {
    const BYTES: usize = 10_001;
    const HALF: usize = BYTES.div_ceil(8) * 16;
    const ROOM: usize = 10_240;
    let pair = Pair::open();
    let kernels = pair.kernels(Source::PACKETS, "packet_exchange");
    let start = 0xffff_ffffu64 - 100;
    let packets = pair.share([&[0u8; 2 * HALF][..]; 2]);
    let memory = pair.share([&[0u8; 2 * ROOM][..]; 2]);
    let epochs = pair.share([&[start][..]; 2]);
    let areas = [0, 1].map(|rank| pair.gpus[rank].upload(&[epochs[rank].address()]));
    let arrivals = [0, 1].map(|rank| pair.gpus[rank].zeros::<u64>(1));
    let parameters = [0, 1].map(|rank| PacketExchange {
        channel: MemoryChannelDeviceHandle {
            semaphore: pair.semaphore(rank, 0),
            dst: packets[1 - rank].address(),
            dst_bytes: 2 * HALF as u64,
            src: memory[rank].address(),
            src_bytes: 2 * ROOM as u64,
            packet_buffer: packets[rank].address(),
            packet_bytes: 2 * HALF as u64,
            ..Default::default()
        },
        epochs: EpochsHandle { areas: areas[rank].address(), arrivals: arrivals[rank].address(), n_areas: 1 },
        bytes: BYTES as u64,
        target_offset: ROOM as u64,
    });
    let shape = LaunchShape::new(8, 128);
    let graphs = [0, 1].map(|rank| {
        let gpu = &pair.gpus[rank];
        gpu.capture(|| gpu.launch(&kernels[rank], shape, parameters[rank]))
    });
    let launches = rounds(300);
    for launch in 0..launches {
        let sent = [0, 1].map(|rank| {
            let mut values = vec![0xee; 2 * ROOM];
            for (i, value) in values[..BYTES].iter_mut().enumerate() {
                *value = (i as u64 * 7 + launch * 13 + rank * 101 + 1) as u8;
            }
            memory[rank as usize].write(&values);
            values
        });
        // Each rank mixes eager and replayed launches in its own way, and comes first now and then.
        let first = (launch / 2 % 2) as usize;
        for rank in [first, 1 - first] {
            if (launch + rank as u64).is_multiple_of(3) {
                pair.gpus[rank].launch(&kernels[rank], shape, parameters[rank]);
            } else {
                graphs[rank].launch(&pair.gpus[rank].stream).unwrap();
            }
            if launch % 16 == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        pair.gpus.iter().for_each(Gpu::finish);
        for rank in [0, 1] {
            let mut expected = sent[rank].clone();
            expected[ROOM..ROOM + BYTES].copy_from_slice(&sent[1 - rank][..BYTES]);
            assert!(memory[rank].read() == expected, "rank {rank}, launch {launch}");
        }
    }
    pair.worlds.iter().for_each(World::check);
    assert_eq!(epochs.each_ref().map(Buffer::read), [[start + launches]; 2]);
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Litmus {
    ping: MemoryDevice2DeviceSemaphoreHandle,
    pong: MemoryDevice2DeviceSemaphoreHandle,
    data: u64,
    rounds: u64,
    stale: u64,
    first: u32,
    reserved: u32,
}

/// M1 with one thread, M2 with more, and M10 by the bulk engine: what was written before a signal is seen after the wait,
/// in both directions, with delays at random.
fn messages(source: Source, kernel: &str, threads: u32, words: usize, iterations: u64) {
    let pair = Pair::open();
    let kernels = pair.kernels(source, kernel);
    for sender in [0, 1] {
        let receiver = 1 - sender;
        let data = pair.gpus[receiver].share(&vec![0u64; words], &pair.gpus[sender]);
        let stale = [0, 1].map(|rank| pair.gpus[rank].zeros::<u64>(1));
        let numbers = [2 * sender, 2 * sender + 1];
        let parameters = [0, 1].map(|rank| Litmus {
            ping: pair.semaphore(rank, numbers[0]),
            pong: pair.semaphore(rank, numbers[1]),
            data: data.address(),
            rounds: iterations,
            stale: stale[rank].address(),
            first: u32::from(rank != sender),
            reserved: 0,
        });
        pair.run(&kernels, LaunchShape::new(1, threads), parameters);
        assert_eq!(stale.each_ref().map(|count| count.read()[0]), [0, 0], "from {sender}");
        assert!(data.read().iter().all(|word| *word == iterations));
        for (rank, number) in [(receiver, numbers[0]), (sender, numbers[1])] {
            let counters = pair.counters[rank].read();
            assert_eq!([counters[32 * number], counters[32 * number + 16]], [iterations; 2]);
        }
    }
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn m1_a_thread_to_a_thread() {
    messages(Source::SEMAPHORES, "message_passing", 1, 1, rounds(100_000));
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn m2_a_block_to_a_block() {
    messages(Source::SEMAPHORES, "message_passing", 64, 64, rounds(50_000));
    messages(Source::SEMAPHORES, "message_passing", 1024, 1024, rounds(50_000));
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn m10_bulk_stores() {
    messages(Source::BULK, "bulk_messages", 256, 2048, rounds(50_000));
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Flight {
    semaphore: MemoryDevice2DeviceSemaphoreHandle,
    rounds: u64,
    elapsed_ns: u64,
    first: u32,
    mode: u32,
}

/// M3: relaxed signals order execution, and none is lost; the guarded and the ordered forms beside them.
#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn m3_relaxed_signals_keep_step() {
    let pair = Pair::open();
    let kernels = pair.kernels(Source::SEMAPHORES, "flight");
    let rounds = rounds(20_000);
    for (number, mode) in [1, 2, 3, 4].into_iter().enumerate() {
        let elapsed = [0, 1].map(|rank| pair.gpus[rank].zeros::<u64>(1));
        let parameters = [0, 1].map(|rank| Flight {
            semaphore: pair.semaphore(rank, number),
            rounds,
            elapsed_ns: elapsed[rank].address(),
            first: u32::from(rank == 0),
            mode,
        });
        pair.run(&kernels, LaunchShape::new(1, 1), parameters);
        let one_way = elapsed[0].read()[0] as f64 / (2 * rounds) as f64;
        println!("\n{{\"benchmark\":\"flight\",\"mode\":{mode},\"unit\":\"ns\",\"samples\":[{one_way:.1}]}}");
        assert!(one_way > 0.0);
        for rank in [0, 1] {
            let counters = pair.counters[rank].read();
            assert_eq!([counters[32 * number], counters[32 * number + 16]], [rounds; 2], "mode {mode}");
        }
    }
}

#[derive(Clone, Copy)]
#[repr(C)]
struct PacketLitmus {
    remote: u64,
    local: u64,
    rounds: u64,
    wrong: u64,
    site: warpway_cuda::Site,
    rank: u32,
    reserved: u32,
}

/// M8: a packet that carries the flag brings exactly that packet's payload, in two slots per thread, both ways at once.
fn packets_in_turns(kernel: &str, slot_bytes: usize, iterations: u64) {
    const THREADS: usize = 256;
    let pair = Pair::open();
    let kernels = pair.kernels(Source::LITMUS, kernel);
    let room = vec![0u8; 2 * THREADS * slot_bytes];
    let slots = pair.share([&room[..], &room[..]]);
    let wrong = [0, 1].map(|rank| pair.gpus[rank].zeros::<u64>(1));
    let parameters = [0, 1].map(|rank| PacketLitmus {
        remote: slots[1 - rank].address(),
        local: slots[rank].address(),
        rounds: iterations,
        wrong: wrong[rank].address(),
        site: pair.worlds[rank].site(1 - rank as u32, 0),
        rank: rank as u32,
        reserved: 0,
    });
    pair.run(&kernels, LaunchShape::new(2, THREADS as u32 / 2), parameters);
    assert_eq!(wrong.each_ref().map(|count| count.read()[0]), [0, 0]);
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn m8_packets_of_16_bytes() {
    packets_in_turns("packets_in_turns_ll16", 16, rounds(100_000));
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn m8_packets_of_8_bytes() {
    packets_in_turns("packets_in_turns_ll8", 8, rounds(100_000));
}

/// A line of 128 bytes per eight threads.
#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn m8_lines() {
    packets_in_turns("lines_in_turns", 16, rounds(100_000));
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Whole {
    lines: u64,
    rounds: u64,
    counts: u64,
    writes: u32,
    reserved: u32,
}

/// What lines rely on: a writer that waits for nobody, a reader that looks all the time; no look may find parts of two
/// stores in one line.
#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn lines_arrive_whole() {
    let pair = Pair::open();
    let kernels = pair.kernels(Source::LITMUS, "lines_arrive_whole");
    let iterations = rounds(200_000);
    for writer in [0, 1] {
        let lines = pair.gpus[1 - writer].share(&[0u8; 64 * 128], &pair.gpus[writer]);
        let counts = [0, 1].map(|rank| pair.gpus[rank].zeros::<u64>(3));
        let parameters = [0, 1].map(|rank| Whole {
            lines: lines.address(),
            rounds: iterations,
            counts: counts[rank].address(),
            writes: u32::from(rank == writer),
            reserved: 0,
        });
        pair.run(&kernels, LaunchShape::new(4, 128), parameters);
        let [looks, changes, torn] = counts[1 - writer].read()[..] else { panic!("three counts") };
        println!(
            "\n{{\"benchmark\":\"lines_arrive_whole\",\"writer\":{writer},\"stores\":{},\"looks\":{looks},\
             \"changes\":{changes},\"torn\":{torn}}}",
            64 * iterations
        );
        assert!(changes >= 64, "the reader saw {changes} changes in {looks} looks");
        assert_eq!(torn, 0, "of {looks} looks");
    }
}
