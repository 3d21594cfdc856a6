//! Memory of ranks that are threads of one process.

use warpway_core::endpoint::EndpointConfig;
use warpway_core::memory::GpuExport;
use warpway_core::transport::Device;

use super::*;

fn gpu() -> EndpointConfig {
    EndpointConfig { transport: Transport::CudaIpc, ..EndpointConfig::default() }
}

/// Connections of ranks 0 and 1, on both sides.
fn connect(ranks: &[Rank; 2]) -> [warpway_core::connection::Connection; 2] {
    let started = [0, 1].map(|me: usize| ranks[me].comm.connect(gpu(), 1 - me as u32, 5).unwrap());
    started.map(|exchange| exchange.wait(patience()).unwrap())
}

#[test]
fn ranges_of_one_allocation_share_a_mapping_until_the_last_is_dropped() {
    let (fake, devices) = machine("devices=2,peers=all");
    let job = LocalJob::of_processes(2);
    let ranks = [0, 1].map(|rank| Rank::new(&job, rank, &devices, None));
    let before = fake.live();
    let bytes = pattern(1, 70_001);
    let (memory, whole) = ranks[0].memory(false, &bytes);
    let part = ranks[0].register(memory.region().unwrap().slice(4099, 1003).unwrap());
    let record = part.record();
    assert_eq!((record.offset, record.size, record.allocation_size), (4099, 1003, 2 << 20));
    assert_eq!(record.device_uuid, ranks[0].context().info().uuid);
    assert_eq!((record.device, record.gpu), (Device { kind: gpu().device.kind, id: 0 }, None));
    assert!(record.shared.is_some());

    let [there, part_there] = [&whole, &part].map(|memory| sent(&ranks[0], &ranks[1], memory).unwrap());
    assert_eq!(fake.live().mappings, before.mappings + 2, "the allocation, and one mapping of it");
    let (first, second) = (there.address("test", 0, 1).unwrap(), part_there.address("test", 0, 1).unwrap());
    assert_eq!(second, first + 4099);
    assert_ne!(first, memory.address());
    assert_eq!(read(&ranks[1].stream, first, bytes.len()), bytes);
    assert_eq!(read(&ranks[1].stream, second, 1003), &bytes[4099..5102]);
    assert_eq!(there.pointer("test", 0, 1).unwrap_err().id(), "mem.device");

    drop(there);
    assert_eq!(read(&ranks[1].stream, second, 1003), &bytes[4099..5102], "still mapped");
    drop(part_there);
    comes_to(|| fake.live().mappings, before.mappings + 1, "both ranges dropped");
    drop((memory, whole, part));
    comes_to(|| fake.live(), before, "the memory dropped");
    drop((ranks, job, devices));
    nothing_is_left(&fake, "the end");
}

#[test]
fn threads_reach_each_others_gpus_without_a_second_mapping() {
    let (fake, devices) = machine("devices=2,peers=all");
    let job = LocalJob::new(2);
    let memories = Arc::default();
    let ranks = [0, 1].map(|rank| Rank::new(&job, rank, &devices, Some(&memories)));
    for plain in [false, true] {
        let before = fake.live().mappings;
        let bytes = pattern(u64::from(plain), 4097);
        let (memory, mine) = ranks[0].memory(plain, &bytes);
        // As another library's pointer: nothing is known of it but its address.
        let (address, size) = (memory.region().unwrap().address(), mine.size());
        // SAFETY: `memory` keeps it.
        let foreign = unsafe { Region::new(address, size, ranks[0].context().device(), None, None) }.unwrap();
        let foreign = ranks[0].register(foreign.slice(1, size - 1).unwrap());
        assert_eq!(foreign.record().offset, 1);
        assert_eq!(foreign.record().gpu.is_some(), plain, "{:?}", foreign.record());
        for (memory, from) in [(&mine, 0), (&foreign, 1)] {
            let there = sent(&ranks[0], &ranks[1], memory).unwrap();
            assert_eq!(there.data(), memory.data());
            let address = there.address("test", 0, 1).unwrap();
            assert_eq!(read(&ranks[1].stream, address, bytes.len() - from), &bytes[from..]);
        }
        comes_to(|| fake.live().mappings, before + u64::from(!plain), "what was sent is dropped");
    }
    drop((ranks, job, devices));
    nothing_is_left(&fake, "the end");
}

#[test]
fn copies_words_and_signals_arrive_in_the_peers_memory() {
    let fake = Fake::open();
    for (job, shared) in [(LocalJob::new(2), true), (LocalJob::of_processes(2), false)] {
        let devices = devices(&fake);
        let memories = shared.then(Arc::default);
        let ranks = [0, 1].map(|rank| Rank::new(&job, rank, &devices, memories.as_ref()));
        let bytes = pattern(9, 10_007);
        let (target, mine) = ranks[1].memory(false, &vec![0xee; 12_288]);
        let there = sent(&ranks[1], &ranks[0], &mine).unwrap();
        let (_source_memory, source) = ranks[0].memory(false, &bytes);
        let [connection, back] = connect(&ranks);
        let started = [
            ranks[0].comm.build_semaphore(&connection, 1, 0).unwrap(),
            ranks[1].comm.build_semaphore(&back, 0, 0).unwrap(),
        ];
        let [semaphore, peer] = started.map(|exchange| exchange.wait(patience()).unwrap());

        connection.write(&there, 4099, &source, 3, 8001).unwrap();
        connection.update_and_sync(&there, 8, &mut 0, 0x0123_4567_89ab_cdef).unwrap();
        connection.atomic_add(&there, 8, -0xef).unwrap();
        (0..3).for_each(|_| semaphore.signal().unwrap());
        connection.flush(patience()).unwrap();

        let found = read(&ranks[1].stream, target.address(), 12_288);
        let mut expected = vec![0xee; 12_288];
        expected[8..16].copy_from_slice(&0x0123_4567_89ab_cd00_u64.to_le_bytes());
        expected[4099..4099 + 8001].copy_from_slice(&bytes[3..8004]);
        assert!(found == expected);
        let token = peer.inbound_address().unwrap();
        let token = read(&ranks[1].stream, token, 64);
        assert_eq!(token[..8], 3u64.to_le_bytes());
        assert!(token[8..].iter().all(|byte| *byte == 0));
        assert_eq!(semaphore.remote_address().unwrap() == peer.inbound_address().unwrap(), shared);
        assert_eq!(peer.poll().unwrap_err().id(), "mem.device");

        drop((there, mine, target, source, _source_memory, connection, back, semaphore, peer));
        drop((ranks, job, devices));
        nothing_is_left(&fake, "the end");
    }
}

#[test]
fn a_token_that_is_given_out_again_is_fresh() {
    let (_fake, devices) = machine("devices=1");
    let job = LocalJob::new(1);
    let rank = Rank::new(&job, 0, &devices, None);
    let tokens = rank.engine.tokens();
    let pages = [tokens.allocate(4096).unwrap(), tokens.allocate(4096).unwrap()];
    assert_eq!(pages[0].backing().unwrap().offset + 4096, pages[1].backing().unwrap().offset);
    let register = |page: &Region| {
        let access = Access::ALL | Access::TOKENS;
        rank.comm.register_memory(page.clone(), Transport::CudaIpc.into(), access).unwrap()
    };
    let memories = pages.each_ref().map(register);
    let address = memories[1].address("test", 0, 4096).unwrap();
    assert_eq!(read(&rank.stream, address, 4096), vec![0; 4096]);
    write(&rank.stream, address, &pattern(3, 4096));
    tokens.reset(&memories[1], 128).unwrap();
    let mut expected = pattern(3, 4096);
    expected[128..192].fill(0);
    assert_eq!(read(&rank.stream, address, 4096), expected);
    assert_eq!(tokens.reset(&memories[1], 4096).unwrap_err().id(), "mem.bounds");
}

#[test]
fn several_ranks_share_one_gpu() {
    let (fake, devices) = machine("devices=1");
    let job = LocalJob::of_processes(3);
    let ranks: Vec<_> = (0..3).map(|rank| Rank::new(&job, rank, &devices, None)).collect();
    assert!(ranks.iter().all(|rank| rank.context().ordinal() == 0));
    assert_eq!(fake.live().contexts, 1);
    let before = fake.live().mappings;
    let (_memory, mine) = ranks[0].memory(false, &pattern(1, 999));
    let there: Vec<_> = [1, 2].map(|to: usize| sent(&ranks[0], &ranks[to], &mine).unwrap()).into();
    assert_eq!(there[0].data(), there[1].data());
    assert_eq!(fake.live().mappings, before + 2);
}

#[test]
fn handles_of_plain_memory_name_the_whole_allocation() {
    let (_fake, devices) = machine("devices=1");
    let job = LocalJob::new(1);
    let rank = Rank::new(&job, 0, &devices, None);
    let (first, whole) = rank.memory(true, &[1; 1000]);
    let part = rank.register(first.region().unwrap().slice(256, 100).unwrap());
    let (_second, other) = rank.memory(true, &[2; 1000]);
    let name = |memory: &RegisteredMemory| match memory.record().gpu {
        Some(GpuExport::Ipc { handle, allocation }) => (handle, allocation),
        _ => panic!("{memory:?}"),
    };
    assert_eq!(name(&whole), name(&part));
    assert_ne!(name(&whole).0, name(&other).0);
    assert_ne!(name(&whole).1, name(&other).1);
    assert_eq!((part.record().offset, part.record().allocation_size), (256, 1000));
}
