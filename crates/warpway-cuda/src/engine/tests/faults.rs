//! What cannot be had, and what peers or programs get wrong.

use warpway_core::endpoint::{Endpoint, EndpointConfig};
use warpway_core::memory::{GpuExport, Import};
use warpway_core::transport::{Device, DeviceKind};

use super::*;

#[test]
fn without_a_driver_only_gpus_are_missing() {
    let devices = Devices::new("/nowhere/libcuda.so.1", always(IMAGE, "add_u64"));
    let engine = CudaEngine::new(&devices, DeviceChoice::default());
    let job = LocalJob::new(1);
    let host = Arc::new(warpway_core::testing::LocalEngine::new(Transport::SharedMemory));
    let mut parts = job.parts(0, vec![host, Arc::new(engine.clone())]);
    parts.gpu_token_memory = Some(Arc::new(engine.tokens()));
    let comm = Communicator::new(parts).unwrap();
    // Host memory does not even look for it.
    let region = warpway_core::testing::allocate(4096).unwrap();
    let error = comm.register_memory(region, Transport::CudaIpc.into(), Access::ALL).unwrap_err();
    assert_eq!(error.id(), "mem.export");
    assert!(error.to_string().contains("it is host memory"), "{error}");
    let gpu = EndpointConfig { transport: Transport::CudaIpc, ..EndpointConfig::default() };
    for error in [engine.context().map(drop).unwrap_err(), comm.create_endpoint(&gpu).map(drop).unwrap_err()]
    {
        assert_eq!(error.id(), "unavailable");
        let text = error.to_string();
        assert!(text.contains("/nowhere/libcuda.so.1") && text.contains("WARPWAY_CUDA_DRIVER"), "{text}");
    }
}

#[test]
fn the_device_is_the_one_asked_for_the_current_one_or_that_of_the_local_rank() {
    let (_fake, devices) = machine("devices=2");
    let chosen = |ordinal, local_rank| {
        let engine = CudaEngine::new(&devices, DeviceChoice { ordinal, local_rank });
        engine.context().map(|context| context.ordinal())
    };
    assert_eq!([0, 1, 2, 5].map(|rank| chosen(None, rank).unwrap()), [0, 1, 0, 1]);
    assert_eq!(chosen(Some(1), 0).unwrap(), 1);
    for missing in [2, u32::MAX] {
        let error = chosen(Some(missing), 0).unwrap_err();
        assert_eq!(error.id(), "unavailable");
        let text = error.to_string();
        assert!(text.contains(&format!("GPU {missing} is unavailable")), "{text}");
        assert!(text.contains("WARPWAY_DEVICE") && text.contains("the driver shows 2,"), "{text}");
    }
    let current = devices.context(1).unwrap();
    let _entered = current.enter().unwrap();
    assert_eq!(chosen(None, 0).unwrap(), 1);
    assert_eq!(chosen(Some(0), 0).unwrap(), 0);
}

#[test]
fn no_device_at_all_says_so() {
    let (fake, devices) = machine("devices=0");
    let error = CudaEngine::new(&devices, DeviceChoice::default()).context().unwrap_err();
    assert!(error.to_string().contains("CUDA_VISIBLE_DEVICES"), "{error}");
    assert_eq!(fake.live().total(), 0);
}

#[test]
fn gpus_that_do_not_reach_each_other_are_told_apart() {
    let (fake, devices) = machine("devices=2,peers=none");
    for (job, shared) in [(LocalJob::new(2), true), (LocalJob::of_processes(2), false)] {
        let memories = shared.then(Arc::default);
        let ranks = [0, 1].map(|rank| Rank::new(&job, rank, &devices, memories.as_ref()));
        let (_memory, mine) = ranks[0].memory(false, &[1; 64]);
        let error = sent(&ranks[0], &ranks[1], &mine).unwrap_err();
        assert_eq!(error.id(), "mem.import");
        assert!(error.to_string().contains("peer access"), "{error}");
        if shared {
            let gpu = EndpointConfig { transport: Transport::CudaIpc, ..EndpointConfig::default() };
            let _theirs = ranks[1].comm.connect(gpu, 0, 0).unwrap();
            let error = ranks[0].comm.connect(gpu, 1, 0).unwrap().wait(patience()).unwrap_err();
            assert_eq!((error.id(), error.peer()), ("conn.incompatible", Some(1)));
        }
    }
    drop(devices);
    nothing_is_left(&fake, "the end");
}

#[test]
fn pointers_are_looked_at_before_they_are_exported() {
    let (_fake, devices) = machine("devices=2,peers=all");
    let job = LocalJob::new(2);
    let ranks = [0, 1].map(|rank| Rank::new(&job, rank, &devices, None));
    let (memory, _) = ranks[0].memory(true, &[1; 1000]);
    let address = memory.region().unwrap().address();
    let export = |rank: &Rank, size, device| {
        // SAFETY: nobody follows the address.
        let region =
            unsafe { Region::new(address, size, Device { kind: DeviceKind::Gpu, id: device }, None, None) };
        let flags = Transport::CudaIpc.into();
        rank.comm.register_memory(region.unwrap(), flags, Access::ALL).map(drop).unwrap_err()
    };
    let beyond = export(&ranks[0], 1001, 0);
    assert_eq!(beyond.id(), "mem.bounds");
    let elsewhere = export(&ranks[1], 1000, 0);
    assert_eq!(elsewhere.id(), "mem.export");
    assert!(elsewhere.to_string().contains("another GPU"), "{elsewhere}");
    // A registration that is wrong about the device is found out by the driver.
    let lied = export(&ranks[1], 1000, 1);
    assert_eq!(lied.id(), "gpu.device");
    assert!(lied.to_string().contains("memory of device 0"), "{lied}");
    drop(memory);
    let freed = export(&ranks[0], 1000, 0);
    assert_eq!(freed.id(), "mem.invalid");
    assert!(freed.to_string().contains("freed"), "{freed}");
}

#[test]
fn numbers_of_a_peer_are_not_believed() {
    let (fake, devices) = machine("devices=2,peers=all");
    let job = LocalJob::of_processes(2);
    let ranks = [0, 1].map(|rank| Rank::new(&job, rank, &devices, None));
    let (_memory, mine) = ranks[0].memory(false, &[1; 4096]);
    let good = mine.record().clone();
    let before = fake.live();
    let import = |record: &MemoryRecord| -> warpway_core::Result<Import> {
        ranks[1].engine.import(ranks[1].comm.engine_context(), record, patience())
    };
    let refused = |record: MemoryRecord| {
        let error = import(&record).map(drop).unwrap_err();
        assert_eq!(fake.live(), before, "{error}");
        error
    };
    // Larger than it is: the driver refuses to map it.
    let error = refused(MemoryRecord { allocation_size: 4 << 20, ..good.clone() });
    assert!(error.to_string().contains("cuMemMap failed"), "{error}");
    let error = refused(MemoryRecord { allocation_size: u64::MAX, size: 1 << 40, ..good.clone() });
    assert!(error.id().starts_with("gpu.") || error.id() == "mem.import", "{error}");
    let error = refused(MemoryRecord { offset: 2 << 20, ..good.clone() });
    assert!(error.to_string().contains("beyond its allocation"), "{error}");
    let error = refused(MemoryRecord { offset: u64::MAX, ..good.clone() });
    assert!(error.to_string().contains("beyond its allocation"), "{error}");
    let error = refused(MemoryRecord { device: Device::CPU, ..good.clone() });
    assert!(error.to_string().contains("not memory of a GPU"), "{error}");
    let error = refused(MemoryRecord { shared: None, ..good.clone() });
    assert!(error.to_string().contains("no way to open it"), "{error}");
    let offer =
        good.shared.clone().map(|shared| warpway_core::memory::SharedExport { descriptor: 999, ..shared });
    let error = refused(MemoryRecord { shared: offer, ..good.clone() });
    assert_eq!(error.id(), "mem.import");
    let junk = GpuExport::Ipc { handle: [7; 64], allocation: 1 };
    let error = refused(MemoryRecord { shared: None, gpu: Some(junk), ..good.clone() });
    assert!(error.to_string().contains("cuIpcOpenMemHandle failed"), "{error}");
    // What is mapped already has one size only.
    let kept = import(&good).unwrap();
    let error = import(&MemoryRecord { allocation_size: 4 << 20, ..good.clone() }).map(drop).unwrap_err();
    assert!(error.to_string().contains("its allocation is 2097152 bytes"), "{error}");
    drop(kept);
    assert_eq!(fake.live(), before);
}

#[test]
fn a_descriptor_that_is_no_memory_is_refused() {
    let (fake, devices) = machine("devices=2,peers=all");
    let job = LocalJob::of_processes(2);
    let ranks = [0, 1].map(|rank| Rank::new(&job, rank, &devices, None));
    let before = fake.live();
    let file = Arc::new(std::os::fd::OwnedFd::from(std::fs::File::open("/proc/self/exe").unwrap()));
    let (_memory, mine) = ranks[0].memory(false, &[1; 64]);
    let offer = ranks[0].comm.control().offer_descriptor(file).unwrap();
    let shared = warpway_core::memory::SharedExport { process_id: 1, descriptor: offer.descriptor };
    let record = MemoryRecord { shared: Some(shared), ..mine.record().clone() };
    let error =
        ranks[1].engine.import(ranks[1].comm.engine_context(), &record, patience()).map(drop).unwrap_err();
    assert!(error.to_string().contains("cuMemImportFromShareableHandle failed"), "{error}");
    drop((mine, _memory));
    assert_eq!(fake.live(), before);
}

#[test]
fn endpoints_are_on_the_ranks_own_device() {
    let (_fake, devices) = machine("devices=2,peers=all");
    let job = LocalJob::new(2);
    let ranks = [0, 1].map(|rank| Rank::new(&job, rank, &devices, None));
    let endpoint = |rank: &Rank, id| {
        let device = Device { kind: DeviceKind::Gpu, id };
        let config = EndpointConfig { transport: Transport::CudaIpc, device, ..EndpointConfig::default() };
        rank.comm.create_endpoint(&config)
    };
    for id in [-1, 1] {
        assert_eq!(endpoint(&ranks[1], id).unwrap().device, Device { kind: DeviceKind::Gpu, id: 1 });
    }
    let error = endpoint(&ranks[1], 0).unwrap_err();
    assert_eq!(error.id(), "gpu.device");
    assert!(error.to_string().contains("this communicator is on device 1"), "{error}");
    // Another host.
    let here = endpoint(&ranks[0], -1).unwrap();
    let there = Endpoint { owner: 1, host: here.host + 1, ..endpoint(&ranks[1], -1).unwrap() };
    let refused = ranks[0].engine.connect(ranks[0].comm.engine_context(), &here, &there, patience());
    let error = refused.map(drop).unwrap_err();
    assert_eq!((error.id(), error.peer()), ("conn.incompatible", Some(1)));
}

/// Everything that the engine does, with two ranks on two devices.
fn all(devices: &Devices) -> warpway_core::Result<u64> {
    let job = LocalJob::of_processes(2);
    let engines =
        [0, 1].map(|local_rank| CudaEngine::new(devices, DeviceChoice { ordinal: None, local_rank }));
    let comm = |rank: u32| {
        let engine = engines[rank as usize].clone();
        let mut parts = job.parts(rank, vec![Arc::new(engine.clone()) as Arc<dyn Engine>]);
        parts.gpu_token_memory = Some(Arc::new(engine.tokens()));
        Communicator::new(parts)
    };
    let comms = [comm(0)?, comm(1)?];
    let memory = DeviceMemory::allocate(&engines[1].context()?, 4096, &[])?;
    let plain = DeviceMemory::plain(&engines[0].context()?, 4096, &[])?;
    let flags = Transport::CudaIpc.into();
    let mine = comms[1].register_memory(memory.region()?, flags, Access::ALL)?;
    let source = comms[0].register_memory(plain.region()?, flags, Access::ALL)?;
    let _sent = comms[1].send_memory(&mine, 0, 0)?;
    let there = comms[0].recv_memory(1, 0)?.wait(patience())?;
    let gpu = EndpointConfig { transport: Transport::CudaIpc, ..EndpointConfig::default() };
    let started = [comms[0].connect(gpu, 1, 1)?, comms[1].connect(gpu, 0, 1)?];
    let connections = [started[0].wait(patience())?, started[1].wait(patience())?];
    let built =
        [comms[0].build_semaphore(&connections[0], 1, 2)?, comms[1].build_semaphore(&connections[1], 0, 2)?];
    let semaphores = [built[0].wait(patience())?, built[1].wait(patience())?];
    connections[0].write(&there, 64, &source, 0, 1000)?;
    connections[0].update_and_sync(&there, 0, &mut 0, 40)?;
    connections[0].atomic_add(&there, 0, 2)?;
    semaphores[0].signal()?;
    connections[0].flush(patience())?;
    let stream = Stream::new(&engines[1].context()?)?;
    let mut word = [0u64];
    // SAFETY: live memory, synchronised before it is read.
    unsafe { copy_to_host(&stream, &mut word, memory.address())? };
    stream.synchronize(patience())?;
    Ok(word[0])
}

#[test]
fn each_call_of_the_driver_that_fails_is_named_and_leaks_nothing() {
    use std::collections::BTreeSet;
    let (fake, devices) = machine("devices=2,peers=all");
    assert_eq!(all(&devices).unwrap(), 42);
    drop(devices);
    nothing_is_left(&fake, "the end");
    let calls = fake.calls();
    let names: BTreeSet<String> =
        calls.iter().filter_map(|call| call.split(' ').next()).map(str::to_owned).collect();
    // Clean-up, whose failures are noted, and questions whose failure means "no".
    let quiet = [
        "cuDriverGetVersion",
        "cuDevicePrimaryCtxRelease",
        "cuCtxPushCurrent",
        "cuCtxPopCurrent",
        "cuStreamDestroy",
        "cuModuleUnload",
        "cuMemFree",
        "cuMemFreeHost",
        "cuMemUnmap",
        "cuMemAddressFree",
        "cuMemRelease",
        "cuDeviceGetAttribute",
    ];
    let mut named = 0;
    for name in names.iter().filter(|name| !quiet.contains(&name.as_str())) {
        let times = calls.iter().filter(|call| call.split(' ').next() == Some(name)).count() as u64;
        for nth in BTreeSet::from([1, times.div_ceil(2), times]) {
            let devices = super::devices(&fake);
            fake.fail(name, nth, 999);
            if let Err(error) = all(&devices) {
                let text = error.to_string();
                assert!(
                    text.contains(&format!("{name} failed: ")) && text.contains("(999)"),
                    "{name} {nth}: {text}"
                );
                named += 1;
            } else {
                // Asked once more.
                let known = ["cuStreamQuery", "cuThreadExchangeStreamCaptureMode", "cuCtxGetCurrent"];
                assert!(known.contains(&name.as_str()), "{name} {nth} failed unnoticed");
            }
            fake.forget_failures();
            drop(devices);
            nothing_is_left(&fake, &format!("{name} {nth}"));
        }
    }
    assert!(named > 50, "{named}");
}
