//! What the host does around the kernels, on a driver in host memory, where kernels do nothing.

use std::sync::Arc;
use std::time::Duration;

use fake_cuda::Fake;
use warpway_core::Timeout;
use warpway_core::communicator::Communicator;
use warpway_core::endpoint::EndpointConfig;
use warpway_core::engine::Engine;
use warpway_core::gpu::{FailureCode, WaitKind};
use warpway_core::memory::TokenMemory;
use warpway_core::testing::LocalJob;
use warpway_core::transport::Transport;

use super::pair::CANARIES;
use super::{Directions, Flight, Message, Messages, Mover, Pair, PortEnd, Transfer};
use crate::driver::Driver;
use crate::engine::tests::{machine, nothing_is_left, patience};
use crate::engine::{CudaEngine, DeviceChoice};
use crate::gpu::{Gpu, GpuBuffer};
use crate::handle::{ErrorRecord, HostControl, PortChannelHandle};
use crate::jit::tests::for_fake_driver;
use crate::memory::{copy_to_host, fill};
use crate::proxy::PortConfig;

const BYTES: u64 = 4 << 20;

/// What the kernels of each name are given, as `parameters.rs` says.
fn parameter_bytes(symbol: &str) -> Vec<u64> {
    let port = |words| [&[size_of::<PortChannelHandle>() as u64][..], &vec![8; words]].concat();
    match symbol {
        "gate" => vec![32],
        "fill_pattern" | "check_pattern" => vec![40],
        "bulk_put" => vec![40],
        "port_flight" => port(6),
        "port_stream" => port(5),
        name if name.starts_with("channel") => vec![112],
        name if name.starts_with("plain_bulk") => vec![40],
        name if name.starts_with("plain") => vec![24],
        name if name.starts_with("flight") => vec![40 + 7 * 8 + 8],
        _ => panic!("{symbol} is a new kernel"),
    }
}

fn open(settings: &str) -> (Fake, Pair) {
    let fake = Fake::open();
    fake.set(settings);
    let driver = Driver::open(fake.path()).unwrap();
    let pair = Pair::open(&driver, &for_fake_driver(parameter_bytes), [0, 1], BYTES).unwrap();
    (fake, pair)
}

#[test]
fn transfers_are_warmed_up_then_gated_then_checked() {
    let (fake, pair) = open("devices=2,peers=all,arch=90,sms=132");
    for (mover, kernel, shared) in [
        (Mover::ChannelPut { guarded: false }, "channel_put_Guard__None_", 0),
        (Mover::PlainPull(3), "plain_parts_8_", 0),
        (Mover::BulkPut, "bulk_put", 196_736),
        (Mover::PlainBulk(1), "plain_bulk_32768__6__3_", 196_656),
    ] {
        let transfer = Transfer { mover, bytes: BYTES, blocks: 8, directions: Directions::Both };
        let ready = pair.transfer(transfer).unwrap();
        fake.launches();
        let measured = ready.run().unwrap();
        assert_eq!((measured.wrong, ready.bytes()), (0, BYTES));
        let launches = fake.launches();
        for device in [0, 1] {
            let own: Vec<_> = launches.iter().filter(|launch| launch.device == device).collect();
            let names: Vec<&str> = own.iter().map(|launch| launch.function.as_str()).collect();
            // 100 passes twice, the second time behind the gate.
            assert_eq!(names.len(), 203, "{mover}");
            assert_eq!(
                (names[0], names[101], names[202]),
                ("fill_pattern", "gate", "check_pattern"),
                "{mover}"
            );
            let moving = own[1..101].iter().chain(&own[102..202]);
            assert!(moving.clone().all(|launch| launch.function == kernel), "{mover}: {names:?}");
            assert!(moving.clone().all(|launch| (launch.grid[0], launch.shared) == (8, shared)), "{mover}");
        }
    }
    drop(pair);
    assert_eq!(fake.live().total(), 0);
}

#[test]
fn one_direction_leaves_the_other_gpu_alone() {
    let (fake, pair) = open("devices=2,peers=all,arch=90");
    for (mover, checks) in [(Mover::ChannelPut { guarded: false }, 1), (Mover::ChannelGet, 0)] {
        let transfer = Transfer { mover, bytes: 64, blocks: 8, directions: Directions::One };
        let ready = pair.transfer(transfer).unwrap();
        fake.launches();
        ready.run().unwrap();
        let launches = fake.launches();
        let of = |name: &str| -> Vec<u32> {
            let found = launches.iter().filter(|launch| launch.function.contains(name));
            found.map(|launch| launch.device).collect()
        };
        assert!(of("channel").iter().all(|device| *device == 0));
        assert_eq!(of("gate"), [0]);
        // Where the bytes have arrived.
        assert_eq!(of("check_pattern"), [checks], "{mover}");
    }
}

#[test]
fn the_copy_engine_fills_the_destinations_and_nothing_behind_them() {
    let (fake, pair) = open("devices=2,peers=all,arch=90");
    for (mover, directions, filled) in [
        (Mover::CopyPush, Directions::Both, [true, true]),
        (Mover::CopyPull, Directions::Both, [true, true]),
        (Mover::CopyPush, Directions::One, [false, true]),
        (Mover::CopyPull, Directions::One, [true, false]),
    ] {
        for (side, value) in pair.sides.iter().zip([0x11, 0x22]) {
            // SAFETY: all of a buffer of ours.
            unsafe { fill(&side.stream, side.source.address(), value, BYTES).unwrap() };
        }
        let bytes = BYTES - 16;
        pair.transfer(Transfer { mover, bytes, blocks: 0, directions }).unwrap().run().unwrap();
        for (at, side) in pair.sides.iter().enumerate() {
            let mut words = vec![0u64; (bytes / 8 + CANARIES) as usize];
            // SAFETY: the destination has so many words; synchronised below.
            unsafe { copy_to_host(&side.stream, &mut words, side.destination.address()).unwrap() };
            pair.synchronize().unwrap();
            let (moved, behind) = words.split_at((bytes / 8) as usize);
            let expected =
                if filled[at] { [0x2222_2222_2222_2222, 0x1111_1111_1111_1111][at] } else { u64::MAX };
            assert!(moved.iter().all(|word| *word == expected), "{mover} {directions} {at}: {:#x}", moved[0]);
            assert!(behind.iter().all(|word| *word == u64::MAX), "{mover} {directions} {at}");
        }
    }
    drop(fake);
}

/// Kernels that do nothing complete no round and raise no counter: all of that is missing on both sides.
#[test]
fn rounds_that_are_missing_are_counted() {
    let (fake, pair) = open("devices=2,peers=all,arch=90");
    let flight =
        |message| Flight { message, guarded: false, bounded: true, out_of_step: message == Message::Line };
    assert_eq!(pair.flight(flight(Message::Line), 10).unwrap().wrong, 64 * 2 * 74);
    let times = pair.flight(flight(Message::Signal), 10).unwrap();
    assert_eq!((times.wrong, times.us), (64 * (2 * 74 + 2 * 74), vec![0.0; 64]));
    let launches = fake.launches();
    // The flag is the sixth word of the arguments: a place of its own each time, the same for both kinds.
    let flag = |launch: &fake_cuda::Launch| u64::from_le_bytes(launch.arguments[40..48].try_into().unwrap());
    let flags: Vec<u64> = launches.iter().filter(|launch| launch.device == 0).map(flag).collect();
    let distinct: std::collections::BTreeSet<&u64> = flags.iter().collect();
    assert_eq!((flags.len(), distinct.len(), &flags[..64]), (128, 64, &flags[64..]));
    let dither =
        |launch: &fake_cuda::Launch| u32::from_le_bytes(launch.arguments[100..104].try_into().unwrap());
    let dithers: Vec<u32> = launches.iter().map(dither).collect();
    assert_eq!((&dithers[..128], &dithers[128..]), (&[600; 128][..], &[0; 128][..]));
    let shapes: Vec<_> = launches.iter().map(|launch| (launch.device, launch.block[0])).collect();
    assert_eq!(shapes.iter().filter(|shape| shape.1 == 8).count(), 128, "a line has eight lanes: {shapes:?}");
}

#[test]
fn what_a_kernel_gave_up_on_is_said_once() {
    let (_fake, pair) = open("devices=2,peers=all,arch=90");
    let record = ErrorRecord {
        code: FailureCode::Timeout.number(),
        kind: WaitKind::Packet.number(),
        expected: 5,
        observed: 4,
        elapsed_ns: 2_500_000_000,
        ..ErrorRecord::default()
    };
    pair.sides[1].write_host_control(HostControl { record_state: 2, record, ..HostControl::default() });
    let error = pair.synchronize().unwrap_err().to_string();
    assert_eq!(
        error,
        "measuring: device 1: a kernel gave up: packet timed out after 2.500 s, expected 5, observed 4"
    );
    pair.revive().unwrap();
    pair.synchronize().unwrap();
}

#[test]
fn gpus_that_do_not_reach_each_other_are_refused() {
    let fake = Fake::open();
    fake.set("devices=2,peers=none,arch=90");
    let driver = Driver::open(fake.path()).unwrap();
    let error = Pair::open(&driver, &for_fake_driver(parameter_bytes), [0, 1], BYTES).unwrap_err();
    assert_eq!(error.id(), "gpu.device");
    assert!(error.to_string().contains("no peer access"), "{error}");
    assert_eq!(fake.live().total(), 0);
    // A device reaches itself.
    let pair = Pair::open(&driver, &for_fake_driver(parameter_bytes), [1, 1], BYTES).unwrap();
    let transfer =
        Transfer { mover: Mover::ChannelGet, bytes: 1 << 20, blocks: 8, directions: Directions::Both };
    assert_eq!(pair.transfer(transfer).unwrap().run().unwrap().wrong, 0);
    drop(pair);
    assert_eq!(fake.live().total(), 0);
}

/// Messages fit in here, with the words behind them.
const PORT_WORDS: u64 = 1000;

/// A rank's port channel to itself.
fn port_end(comm: &Communicator, gpu: &Gpu, words: u64) -> (PortEnd, GpuBuffer<u64>) {
    let endpoint = EndpointConfig { transport: Transport::CudaIpc, ..EndpointConfig::default() };
    let connection = comm.connect(endpoint, 0, 0).unwrap().wait(patience()).unwrap();
    let ports = gpu.port_service(&PortConfig::default()).unwrap();
    let [source, received] = [0, 1].map(|_| gpu.alloc::<u64>(words).unwrap());
    let service = ports.service();
    let semaphore = service.build_and_add_semaphore(comm, &connection, patience()).unwrap();
    let [destination, from] = [&received, &source].map(|buffer| service.add_memory(buffer.memory()).unwrap());
    let channel = service.port_channel(semaphore, destination, from).unwrap();
    let channel = ports.port_channel(&channel).unwrap();
    (PortEnd::new(gpu, channel, source, received.clone()).unwrap(), received)
}

/// Kernels do nothing here: what they should have done is missing, what the host does is there.
#[test]
fn ends_of_port_channels_count_what_is_missing_and_stay_in_their_buffers() {
    let (fake, devices) = machine("devices=1,arch=90");
    let job = LocalJob::new(1);
    let engine = CudaEngine::new(&devices, DeviceChoice { ordinal: None, local_rank: 0 });
    let mut parts = job.parts(0, vec![Arc::new(engine.clone()) as Arc<dyn Engine>]);
    parts.gpu_token_memory = Some(Arc::new(engine.tokens()) as Arc<dyn TokenMemory>);
    let comm = Communicator::new(parts).unwrap();
    let timeout = Timeout::after(Duration::from_secs(5));
    let gpu =
        Gpu::new(&comm, &engine.context().unwrap(), &for_fake_driver(parameter_bytes), timeout).unwrap();
    let (end, received) = port_end(&comm, &gpu, PORT_WORDS);
    assert_eq!(port_end(&comm, &gpu, 1).0.flight(10, true).unwrap_err().id(), "mem.bounds");
    fake.launches();

    let times = end.flight(10, true).unwrap();
    assert_eq!((times.us, times.wrong), (vec![0.0; 10], 74));
    assert_eq!(end.flight(u64::MAX, false).unwrap().us, [0.0; 0], "the side that answers has no samples");
    end.refill(64, 5).unwrap();
    let words = received.to_vec().unwrap();
    let touched = 8 + CANARIES as usize;
    assert!(
        words[..touched].iter().all(|word| *word == u64::MAX) && words[touched..].iter().all(|w| *w == 0)
    );
    let messages = Messages { bytes: 1 << 40, sent: 3, awaited: 2, flush_each: true };
    assert_eq!(end.send(messages).unwrap(), 0.0);
    assert_eq!(end.wrong(64, 5).unwrap(), 0);

    let launches = fake.launches();
    let names: Vec<&str> = launches.iter().map(|launch| launch.function.as_str()).collect();
    assert_eq!(names, ["port_flight", "port_flight", "fill_pattern", "port_stream", "check_pattern"]);
    let numbers = |launch: usize, from: usize| -> Vec<u64> {
        let plain = &launches[launch].arguments[from..];
        plain.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
    };
    let channel = size_of::<PortChannelHandle>();
    assert_eq!(numbers(0, channel)[1..5], [received.address(), 64, 10, 1]);
    assert_eq!(numbers(1, channel)[1..5], [received.address(), 64, PortEnd::MOST_ROUNDS, 0]);
    // As much as there is room for.
    assert_eq!(numbers(3, channel)[..4], [8 * (PORT_WORDS - CANARIES), 3, 2, 1]);
    assert_eq!(numbers(4, 0)[..3], [received.address(), 8, 5]);
    assert_eq!(numbers(4, 0)[4], CANARIES);
    drop((end, received, gpu, comm, engine, job, devices));
    nothing_is_left(&fake, "the end");
}
