//! Semaphores under contention, grid barriers, atomics (device.md 4 and 11).

use std::time::Duration;

use warpway_cuda::{DeviceSemaphore, DeviceSyncer, LaunchShape, MemoryDevice2DeviceSemaphoreHandle};

use crate::rig::{Gpu, Source, World, rounds};

/// As long as a correct kernel never takes.
const DEADLINE: Duration = Duration::from_secs(2);

#[derive(Clone, Copy)]
#[repr(C)]
struct Contention {
    semaphore: MemoryDevice2DeviceSemaphoreHandle,
    rounds: u64,
    waits: u64,
}

/// Each signal is taken once, by waits and polls of any number of threads.
#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn signals_are_taken_once() {
    let gpu = Gpu::open();
    let world = World::new(&gpu, 0, DEADLINE);
    let kernel = gpu.kernel(Source::SEMAPHORES, "semaphore_contention");
    for threads in 1..=64 {
        let rounds = rounds(200);
        // Inbound and expected, on lines of their own.
        let (counters, waits) = (gpu.zeros::<u64>(32), gpu.zeros::<u64>(2));
        let semaphore = MemoryDevice2DeviceSemaphoreHandle {
            inbound: counters.at(0),
            remote_inbound: counters.at(0),
            expected: counters.at(16),
            site: world.site(0, threads),
        };
        gpu.run(
            &kernel,
            LaunchShape::new(2, threads),
            Contention { semaphore, rounds, waits: waits.address() },
        );
        world.check();
        let (counters, waits) = (counters.read(), waits.read());
        let all = u64::from(threads) * rounds;
        assert_eq!((counters[0], counters[16]), (all, all), "{threads} threads");
        let waiters = u64::from(threads).div_ceil(2) * rounds;
        assert_eq!(waits, [waiters, all - waiters], "{threads} threads");
    }
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Units {
    semaphore: u64,
    counter: u64,
    inside: u64,
    most: u64,
    rounds: u64,
}

/// One unit lets one block in at a time, n units at most n, and nobody waits for ever, with up to 64 contenders.
#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn units_are_never_lost() {
    let gpu = Gpu::open();
    let world = World::new(&gpu, 0, DEADLINE);
    let kernel = gpu.kernel(Source::SEMAPHORES, "device_semaphore");
    for (blocks, units) in [(1, 1), (2, 1), (3, 1), (5, 1), (16, 1), (64, 1), (3, 2), (64, 2), (64, 7)] {
        let start = DeviceSemaphore { tickets: 0, units, site: world.site(0, blocks) };
        let (semaphore, words) = (gpu.upload(&[start]), gpu.zeros::<u64>(48));
        let rounds = rounds(200);
        let parameters = Units {
            semaphore: semaphore.address(),
            counter: words.at(0),
            inside: words.at(16),
            most: words.at(32),
            rounds,
        };
        gpu.run(&kernel, LaunchShape::new(blocks, 64), parameters);
        world.check();
        let (words, all) = (words.read(), u64::from(blocks) * rounds);
        assert_eq!(semaphore.read(), [DeviceSemaphore { tickets: all, units: units + all, ..start }]);
        assert_eq!(words[16], 0, "{blocks} blocks, {units} units");
        assert!((1..=units).contains(&words[32]), "{} of {units} inside", words[32]);
        if units == 1 {
            assert_eq!(words[0], all, "{blocks} blocks");
        }
    }
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Barriers {
    syncer: u64,
    slots: u64,
    rounds: u64,
    wrong: u64,
}

/// One barrier object through launches of different grids, without reset.
#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn grid_barriers_are_used_again() {
    let gpu = Gpu::open();
    let world = World::new(&gpu, 0, DEADLINE);
    let kernel = gpu.kernel(Source::SEMAPHORES, "grid_barrier");
    let start = DeviceSyncer { site: world.site(0, 7), ..DeviceSyncer::default() };
    let (syncer, wrong) = (gpu.upload(&[start]), gpu.zeros::<u64>(1));
    let mut barriers = 0;
    let all = gpu.context.info().multiprocessors;
    for (blocks, threads) in [(2, 32), (1, 64), (7, 96), (64, 256), (all, 512), (3, 1), (all, 32)] {
        let shape = LaunchShape::new(blocks, threads);
        let _residency = kernel.reserve(shape).unwrap();
        let (slots, rounds) = (gpu.zeros::<u64>(blocks as usize), rounds(500));
        let (syncer_at, slots_at, wrong_at) = (syncer.address(), slots.address(), wrong.address());
        let parameters = Barriers { syncer: syncer_at, slots: slots_at, rounds, wrong: wrong_at };
        for _ in 0..2 {
            gpu.run(&kernel, shape, parameters);
            world.check();
            // A barrier of one block is none.
            barriers += if blocks == 1 { 0 } else { 2 * rounds };
            assert_eq!(syncer.read(), [DeviceSyncer { generation: barriers, ..start }]);
            assert_eq!(wrong.read(), [0], "{blocks} blocks");
            assert_eq!(slots.read(), vec![rounds; blocks as usize]);
        }
    }
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Atomics {
    words: u64,
    order: u32,
    reserved: u32,
}

/// All orders, both scopes, all types: no addition is lost.
#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn atomics_lose_nothing() {
    let gpu = Gpu::open();
    let kernel = gpu.kernel(Source::SEMAPHORES, "atomics");
    for order in 0..5 {
        let words = gpu.zeros::<u64>(8);
        gpu.run(&kernel, LaunchShape::new(90, 333), Atomics { words: words.address(), order, reserved: 0 });
        assert_eq!(words.read(), [90 * 333; 8], "order {order}");
    }
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

/// M1 and M2 between two blocks of one device.
#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn messages_between_blocks() {
    let gpu = Gpu::open();
    let world = World::new(&gpu, 0, DEADLINE);
    let kernel = gpu.kernel(Source::SEMAPHORES, "message_passing");
    for threads in [1, 32, 256, 1024] {
        let (counters, data, stale) = (gpu.zeros::<u64>(64), gpu.zeros::<u64>(1024), gpu.zeros::<u64>(1));
        let semaphore = |at: usize| MemoryDevice2DeviceSemaphoreHandle {
            inbound: counters.at(at),
            remote_inbound: counters.at(at),
            expected: counters.at(at + 16),
            site: world.site(0, at as u32),
        };
        let rounds = rounds(5000);
        let (ping, pong) = (semaphore(0), semaphore(32));
        let (data_at, stale_at) = (data.address(), stale.address());
        let parameters = Litmus { ping, pong, data: data_at, rounds, stale: stale_at, first: 0, reserved: 0 };
        gpu.run(&kernel, LaunchShape::new(2, threads), parameters);
        world.check();
        assert_eq!(stale.read(), [0], "{threads} threads");
        let written = data.read();
        assert!(written[..threads as usize].iter().all(|word| *word == rounds));
        let counters = counters.read();
        assert_eq!([counters[0], counters[16], counters[32], counters[48]], [rounds; 4]);
    }
}
