//! Memory that goes by fabric handle, and what is left where it does not.

use warpway_core::endpoint::EndpointConfig;
use warpway_core::memory::GpuExport;
use warpway_cuda_sys::driver_types::{
    CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_PERMITTED, CUDA_ERROR_NOT_SUPPORTED,
};

use super::*;
use crate::jit::tests::messages;

/// Ranks on one host or on two, each as if it were a process.
fn ranks(devices: &Devices, same_host: bool) -> [Rank; 2] {
    let host = |rank: u32| if same_host { 1 } else { u64::from(rank) };
    let job = LocalJob::with_peers(|rank| (host(rank), u64::from(rank)), 2);
    [0, 1].map(|rank| Rank::new(&job, rank, devices, None))
}

fn is_fabric(memory: &RegisteredMemory) -> bool {
    matches!(memory.record().gpu, Some(GpuExport::Fabric { .. }))
}

#[test]
fn one_import_serves_all_ranges_of_an_allocation_and_no_descriptor_is_fetched() {
    let (fake, devices) = machine("devices=2,peers=all,fabric=works");
    let ranks = ranks(&devices, true);
    let before = fake.live();
    let bytes = pattern(1, 70_001);
    let (memory, whole) = ranks[0].memory(false, &bytes);
    let part = ranks[0].register(memory.region().unwrap().slice(4099, 1003).unwrap());
    assert!(is_fabric(&whole) && whole.record().gpu == part.record().gpu);
    // Who knows no fabric handles takes the descriptor.
    assert!(part.record().shared.is_some());
    fake.calls();
    let [there, part_there] = [&whole, &part].map(|memory| sent(&ranks[0], &ranks[1], memory).unwrap());
    let imports = |calls: Vec<String>| {
        calls
            .into_iter()
            .filter(|call| call.starts_with("cuMemImportFromShareableHandle"))
            .collect::<Vec<_>>()
    };
    assert_eq!(imports(fake.calls()), ["cuMemImportFromShareableHandle 0"]);
    let (first, second) = (there.address("test", 0, 1).unwrap(), part_there.address("test", 0, 1).unwrap());
    assert_eq!(second, first + 4099);
    assert_eq!(read(&ranks[1].stream, first, bytes.len()), bytes);
    drop((there, part_there, memory, whole, part));
    comes_to(|| fake.live(), before, "the memory dropped");
    drop((ranks, devices));
    nothing_is_left(&fake, "the end");
}

#[test]
fn a_handle_that_cannot_be_made_or_opened_leaves_the_descriptor_and_is_said_once() {
    let (fake, devices) = machine("devices=2,peers=all,fabric=works");
    let ranks = ranks(&devices, true);
    let record = |memory: &RegisteredMemory| memory.record().clone();
    let said = messages(tracing::Level::INFO, || {
        // Refused at import: twice, and the third one comes by fabric again.
        let (memory, mine) = ranks[0].memory(false, &pattern(2, 500));
        for round in 0..3 {
            if round < 2 {
                fake.fail("cuMemImportFromShareableHandle", 1, CUDA_ERROR_NOT_PERMITTED);
            }
            let import = ranks[1].engine.import(ranks[1].comm.engine_context(), &record(&mine), patience());
            let region = import.unwrap().region.unwrap();
            let address = region.address().as_ptr() as u64;
            assert_eq!(read(&ranks[1].stream, address, 500), pattern(2, 500));
        }
        drop((memory, mine));
        // Refused when the allocation is made.
        fake.fail("cuMemCreate", 1, CUDA_ERROR_NOT_SUPPORTED);
        let (_memory, mine) = ranks[1].memory(false, &[1; 64]);
        assert!(!is_fabric(&mine) && mine.record().shared.is_some());
        let (_memory, mine) = ranks[1].memory(false, &[1; 64]);
        assert!(!is_fabric(&mine), "not tried again");
        // Refused at export.
        fake.forget_failures();
        let memory = DeviceMemory::allocate(&ranks[0].context(), 64, &[]).unwrap();
        let region = memory.region().unwrap();
        fake.fail("cuMemExportToShareableHandle", 1, CUDA_ERROR_INVALID_VALUE);
        let mine = ranks[0].register(region);
        assert!(!is_fabric(&mine) && mine.record().shared.is_some());
    });
    let about = |text: &&String| text.contains("memory is shared without fabric handles");
    let said: Vec<&String> = said.iter().filter(about).collect();
    assert_eq!(said.len(), 2, "once for each device: {said:?}");
    assert!(said[0].starts_with("device 1: ") && said[0].contains("from the fabric"), "{said:?}");
    assert!(said[1].starts_with("device 0: ") && said[1].contains("to the fabric"), "{said:?}");
}

/// Across hosts there is no descriptor to fall back on.
#[test]
fn hosts_of_one_domain_reach_each_other_by_fabric_only() {
    let (fake, devices) = machine("devices=2,peers=all,fabric=works");
    let ranks = ranks(&devices, false);
    let (memory, mine) = ranks[0].memory(false, &pattern(3, 9001));
    let there = sent(&ranks[0], &ranks[1], &mine).unwrap();
    let (_source_memory, source) = ranks[1].memory(false, &pattern(4, 2000));
    let gpu = EndpointConfig { transport: Transport::CudaIpc, ..EndpointConfig::default() };
    let started = [0, 1].map(|me: usize| ranks[me].comm.connect(gpu, 1 - me as u32, 5).unwrap());
    let [back, connection] = started.map(|exchange| exchange.wait(patience()).unwrap());
    let started = [
        ranks[0].comm.build_semaphore(&back, 1, 0).unwrap(),
        ranks[1].comm.build_semaphore(&connection, 0, 0).unwrap(),
    ];
    let [awaited, semaphore] = started.map(|exchange| exchange.wait(patience()).unwrap());
    connection.write(&there, 11, &source, 3, 1777).unwrap();
    semaphore.signal().unwrap();
    connection.flush(patience()).unwrap();
    let mut expected = pattern(3, 9001);
    expected[11..11 + 1777].copy_from_slice(&pattern(4, 2000)[3..3 + 1777]);
    assert!(read(&ranks[0].stream, memory.address(), 9001) == expected);
    assert_eq!(word(&ranks[0].stream, awaited.inbound_address().unwrap()), 1);

    let (_other, other) = ranks[0].memory(false, &[1; 64]);
    fake.fail("cuMemImportFromShareableHandle", 1, CUDA_ERROR_NOT_PERMITTED);
    let error = sent(&ranks[0], &ranks[1], &other).unwrap_err();
    assert_eq!(error.id(), "mem.import");
    let words = ["cuMemImportFromShareableHandle failed: CUDA_ERROR_NOT_PERMITTED", "IMEX"];
    assert!(words.iter().all(|words| error.to_string().contains(words)), "{error}");
}

#[test]
fn hosts_without_a_domain_are_told_so() {
    let (_fake, devices) = machine("devices=2,peers=all,fabric=claimed");
    let ranks = ranks(&devices, false);
    let gpu = EndpointConfig { transport: Transport::CudaIpc, ..EndpointConfig::default() };
    let started = [0, 1].map(|me: usize| ranks[me].comm.connect(gpu, 1 - me as u32, 5).unwrap());
    for exchange in started {
        let error = exchange.wait(patience()).unwrap_err();
        assert_eq!(error.id(), "conn.incompatible");
        assert!(
            error.to_string().contains("by fabric handles only, which do not work on this GPU"),
            "{error}"
        );
    }
    let (_memory, mine) = ranks[0].memory(false, &[1; 64]);
    assert!(!is_fabric(&mine));
    let error = sent(&ranks[0], &ranks[1], &mine).unwrap_err();
    assert!(error.to_string().contains("another host"), "{error}");
}
