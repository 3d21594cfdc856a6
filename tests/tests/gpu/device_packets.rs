//! Packets and lines take any number of bytes (device.md 8), and an exchange of packets may be repeated (device.md 2).

use std::time::Duration;

use warpway_cuda::{
    EpochsHandle, LaunchShape, MemoryChannelDeviceHandle, MemoryDevice2DeviceSemaphoreHandle, Site,
};

use crate::rig::{Gpu, Source, World, rounds};

#[derive(Clone, Copy)]
#[repr(C)]
struct PacketMatrix {
    scratch: u64,
    failures: u64,
    site: Site,
}

/// 0 to 65 bytes (lines: 500) at 16 misalignments of the data; nothing beside packets and data is written.
fn matrix(kernel: &str) {
    let gpu = Gpu::open();
    let world = World::new(&gpu, 0, Duration::from_secs(2));
    let kernel = gpu.kernel(Source::PACKETS, kernel);
    for threads in [32, 96, 512] {
        let (scratch, failures) = (gpu.zeros::<u8>(16 * 4096), gpu.zeros::<u64>(3));
        let (scratch_at, failures_at) = (scratch.address(), failures.address());
        let parameters = PacketMatrix { scratch: scratch_at, failures: failures_at, site: world.site(0, 0) };
        gpu.run(&kernel, LaunchShape::new(16, threads), parameters);
        world.check();
        let found = failures.read();
        assert_eq!(
            found[0], 0,
            "{threads} threads: wrong bytes, e.g. of block {} at {} bytes",
            found[1], found[2]
        );
        // The last data of block 15, by the host: the kernel's own check has run.
        let out = &scratch.read()[15 * 4096 + 2048 + 1024..];
        let sample = |i: usize| (i * 3 + i / 83 + 1) as u8;
        assert_eq!((out[14], &out[15..80]), (0xee, &*(15..80).map(sample).collect::<Vec<u8>>()));
    }
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn matrix_of_ll16() {
    matrix("packet_matrix_ll16");
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn matrix_of_ll8() {
    matrix("packet_matrix_ll8");
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn matrix_of_lines() {
    matrix("packet_matrix_lines");
}

#[derive(Clone, Copy)]
#[repr(C)]
struct PacketExchange {
    channel: MemoryChannelDeviceHandle,
    epochs: EpochsHandle,
    bytes: u64,
    target_offset: u64,
}

/// A rank that exchanges with itself: what it receives is what it sends, launch after launch, whatever the first epoch, eager and
/// replayed in any mix, and flags begin again at 1.
fn exchange_from(epoch: u64) {
    const BYTES: usize = 3001;
    const HALF: usize = BYTES.div_ceil(8) * 16;
    let gpu = Gpu::open();
    let world = World::new(&gpu, 0, Duration::from_secs(2));
    let kernel = gpu.kernel(Source::PACKETS, "packet_exchange");
    let packets = gpu.zeros::<u8>(2 * HALF);
    let memory = gpu.zeros::<u8>(2 * 3072);
    let counter = gpu.upload(&[epoch]);
    let (areas, arrivals) = (gpu.upload(&[counter.address()]), gpu.zeros::<u64>(1));
    let semaphore = MemoryDevice2DeviceSemaphoreHandle { site: world.site(0, 0), ..Default::default() };
    let channel = MemoryChannelDeviceHandle {
        semaphore,
        dst: packets.address(),
        dst_bytes: 2 * HALF as u64,
        src: memory.address(),
        src_bytes: 2 * 3072,
        packet_buffer: packets.address(),
        packet_bytes: 2 * HALF as u64,
        ..Default::default()
    };
    let epochs = EpochsHandle { areas: areas.address(), arrivals: arrivals.address(), n_areas: 1 };
    let parameters = PacketExchange { channel, epochs, bytes: BYTES as u64, target_offset: 3072 };
    let shape = LaunchShape::new(5, 64);
    let graph = gpu.capture(|| gpu.launch(&kernel, shape, parameters));
    let launches = rounds(300);
    for launch in 0..launches {
        let mut values = vec![0xee; 2 * 3072];
        for (i, value) in values[..BYTES].iter_mut().enumerate() {
            *value = (i as u64 * 7 + launch * 13 + 1) as u8;
        }
        memory.write(&values);
        if launch % 3 == 0 {
            gpu.launch(&kernel, shape, parameters);
        } else {
            graph.launch(&gpu.stream).unwrap();
        }
        gpu.finish();
        let (sent, received) = values.split_at_mut(3072);
        received[..BYTES].copy_from_slice(&sent[..BYTES]);
        assert!(memory.read() == values, "launch {launch} from epoch {epoch}");
    }
    world.check();
    assert_eq!(counter.read(), [epoch.wrapping_add(launches)]);
    assert_eq!(arrivals.read(), [0]);
    // The last flag, in all packets of the half of the last epoch.
    let last = epoch.wrapping_add(launches - 1);
    let half = &packets.read()[(last % 2) as usize * HALF..][..HALF];
    let flag = (last % 0xffff_ffff + 1) as u32;
    for packet in half.chunks(16) {
        assert_eq!((&packet[4..8], &packet[12..]), (&flag.to_le_bytes()[..], &flag.to_le_bytes()[..]));
    }
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn exchanges_follow_epochs() {
    exchange_from(0);
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn flags_begin_again() {
    exchange_from(0xffff_ffff - 150);
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn epochs_are_wider_than_flags() {
    exchange_from(u64::MAX - 0xffff_ffff * 3 - 100);
}
