//! Buffers, registrations of foreign memory, objects in device memory.

use warpway_core::config::{Config, Environment};
use warpway_cuda::jit::Compiler;
use warpway_cuda::{
    DeviceMemory, DeviceSemaphore, DeviceSyncer, Gpu, KernelArgument, LaunchShape, PortConfig,
};

use super::{IMAGE, TIMEOUT, rig, rig_on, soon};

#[test]
fn buffers_are_zeroed_and_copied_exactly() {
    let rig = rig("devices=1");
    let gpu = &rig.gpus[0];
    let buffer = gpu.alloc::<u16>(5).unwrap();
    assert_eq!((buffer.len(), buffer.bytes(), buffer.memory().size()), (5, 10, 10));
    assert_eq!(buffer.to_vec().unwrap(), [0; 5]);
    buffer.write(1, &[7, 8]).unwrap();
    buffer.write(5, &[]).unwrap();
    let mut part = [0u16; 3];
    buffer.read(2, &mut part).unwrap();
    assert_eq!(part, [8, 0, 0]);
    buffer.fill(9).unwrap();
    assert_eq!(buffer.to_vec().unwrap(), [9; 5]);
    for (offset, count) in [(4, 2), (6, 0), (u64::MAX, 1)] {
        let error = buffer.write(offset, &vec![1; count]).unwrap_err();
        assert_eq!(error.id(), "mem.bounds", "{offset} {count}");
        assert_eq!(buffer.read(offset, &mut vec![1; count]).unwrap_err().id(), "mem.bounds");
    }
    assert_eq!(buffer.to_vec().unwrap(), [9; 5]);
    assert_eq!(gpu.alloc::<u64>(0).unwrap_err().id(), "mem.invalid");
    assert_eq!(gpu.alloc::<u64>(u64::MAX / 4).unwrap_err().id(), "mem.invalid");
    drop(buffer);
    rig.end();
}

#[test]
fn foreign_memory_is_looked_up_before_it_is_registered() {
    let rig = rig_on("devices=2", [0, 1]);
    let (here, there) = (&rig.gpus[0], &rig.gpus[1]);
    let memory = DeviceMemory::allocate(there.context(), 4096, &[]).unwrap();
    // SAFETY: refused.
    let error = unsafe { here.register(memory.address() + 16, 64) }.unwrap_err();
    assert!(error.to_string().contains("they are memory of device 1; each rank registers"), "{error}");
    // SAFETY: refused.
    let error = unsafe { there.register(memory.address(), 1 << 40) }.unwrap_err();
    assert_eq!(error.id(), "mem.bounds");
    let on_stack = 0u64;
    // SAFETY: refused.
    let error = unsafe { here.register(std::ptr::from_ref(&on_stack) as u64, 8) }.unwrap_err();
    assert_eq!(error.id(), "mem.invalid");
    drop(memory);
    rig.end();
}

#[test]
fn objects_begin_as_kernels_expect_them() {
    let rig = rig("devices=1");
    let gpu = &rig.gpus[0];
    let (syncer, semaphore) = (gpu.syncer(11).unwrap(), gpu.semaphore(3, 12).unwrap());
    let site = gpu.control().site(None, 11);
    // SAFETY: both objects live, and no kernel runs.
    let (found, units) = unsafe {
        (
            rig.host(syncer.address()).cast::<DeviceSyncer>().read(),
            rig.host(semaphore.address()).cast::<DeviceSemaphore>().read(),
        )
    };
    assert_eq!(found, DeviceSyncer { generation: 0, arrivals: 0, site });
    assert_eq!(units, DeviceSemaphore { tickets: 0, units: 3, site: gpu.control().site(None, 12) });
    assert_eq!((syncer.generation().unwrap(), semaphore.units().unwrap()), (0, 3));
    // Objects lie on lines of their own, and come back without the driver.
    assert!(syncer.address().is_multiple_of(64) && syncer.address().abs_diff(semaphore.address()) >= 64);
    let allocations = rig.fake.live().allocations;
    let address = syncer.address();
    drop(syncer);
    let again = gpu.semaphore(1, 0).unwrap();
    assert_eq!(again.address(), address);
    let many: Vec<_> = (0..3000).map(|n| gpu.syncer(n).unwrap()).collect();
    let mut addresses: Vec<u64> = many.iter().map(|syncer| syncer.address()).collect();
    addresses.sort_unstable();
    assert!(addresses.windows(2).all(|pair| pair[1] - pair[0] >= 64));
    assert_eq!(rig.fake.live().allocations, allocations + 2, "of 64 KiB each");
    drop((semaphore, again, many));
    rig.end();
}

#[test]
fn epochs_are_addresses_and_counters_in_one_place() {
    let rig = rig("devices=1");
    let epochs = rig.gpus[0].epochs(3).unwrap();
    let handle = (&epochs).value();
    assert_eq!((handle.n_areas, epochs.areas()), (3, 3));
    epochs.set(1, u64::from(u32::MAX)).unwrap();
    assert_eq!([0, 1, 2].map(|area| epochs.get(area).unwrap()), [0, u64::from(u32::MAX), 0]);
    assert_eq!(epochs.get(3).unwrap_err().id(), "mem.bounds");
    assert_eq!(epochs.set(u64::MAX, 0).unwrap_err().id(), "mem.bounds");
    // As the device reads them: a list of addresses, apart from the counter of blocks.
    // SAFETY: three addresses, and the counters that they name, in live memory.
    let values = unsafe {
        let list = rig.host(handle.areas).cast::<u64>();
        [0, 1, 2].map(|area| rig.host(list.add(area).read()).cast::<u64>().read())
    };
    assert_eq!(values, [0, u64::from(u32::MAX), 0]);
    // SAFETY: a word in live memory.
    assert_eq!(unsafe { rig.host(handle.arrivals).cast::<u64>().read() }, 0);
    assert_eq!(handle.arrivals, handle.areas + 24);
    drop(epochs);
    rig.end();
}

/// As PyTorch captures: in the mode that forbids most calls everywhere in the process. Streams and memory of our own are no
/// part of that.
#[test]
fn set_up_goes_on_beside_somebodys_capture() {
    use warpway_cuda_sys::driver_types::{CU_STREAM_CAPTURE_MODE_GLOBAL, CUgraph, CUstream};
    let rig = rig("devices=1");
    let table = rig.fake.driver();
    let context = &rig.contexts[0];
    let (mut captured, mut graph): (CUstream, CUgraph) = (std::ptr::null_mut(), std::ptr::null_mut());
    let entered = context.enter().unwrap();
    // SAFETY: places for the handles; the context is current.
    let begun = unsafe {
        let made = (table.cuStreamCreateWithPriority)(&raw mut captured, 1, 0);
        (made, (table.cuStreamBeginCapture)(captured, CU_STREAM_CAPTURE_MODE_GLOBAL))
    };
    assert_eq!(begun, (0, 0));
    let compiler = Compiler::new(&Config::default(), &Environment::default());
    for gpu in [&rig.gpus[0], &Gpu::new(&rig.ranks[0], context, &compiler, TIMEOUT).unwrap()] {
        let stream = gpu.stream().unwrap();
        let words = gpu.alloc::<u64>(4).unwrap();
        words.write(0, &[1, 2, 3, 4]).unwrap();
        let kernel = gpu.load_image(IMAGE).unwrap().kernel("add_u64").unwrap();
        let (syncer, epochs) = (gpu.syncer(1).unwrap(), gpu.epochs(2).unwrap());
        let ports = gpu.port_service(&PortConfig::default()).unwrap();
        // SAFETY: the kernel's parameters, and memory that is kept.
        unsafe { gpu.launch(&kernel, LaunchShape::new(1, 1), (&words, 6u64), &stream).unwrap() };
        gpu.synchronize(&stream, soon()).unwrap();
        assert_eq!(words.to_vec().unwrap(), [7, 2, 3, 4]);
        drop((stream, words, kernel, syncer, epochs, ports));
    }
    // SAFETY: the capture was begun above; the handles are the test's own.
    let ended = unsafe {
        let ended = (table.cuStreamEndCapture)(captured, &raw mut graph);
        ((table.cuStreamDestroy)(captured), ended, graph.is_null())
    };
    assert_eq!(ended, (0, 0, false));
    // SAFETY: as above.
    unsafe { (table.cuGraphDestroy)(graph) };
    drop(entered);
    rig.end();
}
