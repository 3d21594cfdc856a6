//! Contexts, streams, events, graphs, kernels.

use std::time::Duration;

use fake_cuda::with_library_without;
use warpway_core::Deadline;
use warpway_cuda::{
    Architecture, Context, DeviceMemory, Driver, Event, LaunchShape, Module, Stream, copy_from_host,
    copy_to_host, fill, write_word,
};

use super::{IMAGE, soon, start};

#[test]
fn devices_are_what_the_driver_says() {
    let (_fake, driver, context) = start("devices=3,arch=90,sms=132,peers=0-1");
    assert_eq!(driver.device_count().unwrap(), 3);
    let devices = driver.devices().unwrap();
    assert_eq!(devices.iter().map(|d| d.ordinal).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(devices[1].architecture, Architecture { major: 9, minor: 0 });
    assert_eq!(devices[1].architecture.to_string(), "sm_90");
    assert_eq!(context.info().multiprocessors, 132);
    assert!(devices.iter().all(|d| devices.iter().filter(|other| other.uuid == d.uuid).count() == 1));
    assert!(driver.peer_link(0, 1).unwrap().access && driver.peer_link(1, 1).unwrap().atomics);
    assert!(!driver.peer_link(0, 2).unwrap().access);
    let error = driver.device(3).unwrap_err().to_string();
    assert!(
        error.contains("opening device 3: cuDeviceGet failed: CUDA_ERROR_INVALID_DEVICE (101)"),
        "{error}"
    );
}

#[test]
fn an_old_driver_and_none_are_unavailable() {
    let fake = fake_cuda::Fake::open();
    fake.set("version=11080");
    let error = Driver::open(fake.path()).unwrap_err();
    assert_eq!(error.id(), "unavailable");
    assert!(error.to_string().contains("supports CUDA 11.8, 12.0 is needed"), "{error}");
    let error = Driver::open("/nowhere/libcuda.so.1".as_ref()).unwrap_err().to_string();
    assert!(error.contains("WARPWAY_CUDA_DRIVER"), "{error}");
    // Something else of that name.
    let error = Driver::open("libm.so.6".as_ref()).unwrap_err().to_string();
    assert!(error.contains("has no cuInit") && error.contains("unset WARPWAY_CUDA_DRIVER"), "{error}");
}

#[test]
fn entering_nests_and_comes_back() {
    let (fake, driver, first) = start("devices=2");
    let second = Context::primary(&driver, 1).unwrap();
    assert_eq!(Context::current_device(&driver).unwrap(), None);
    {
        let _a = first.enter().unwrap();
        assert_eq!(Context::current_device(&driver).unwrap(), Some(0));
        {
            let _b = second.enter().unwrap();
            let _again = second.enter().unwrap();
            assert_eq!(Context::current_device(&driver).unwrap(), Some(1));
        }
        assert_eq!(Context::current_device(&driver).unwrap(), Some(0));
    }
    assert_eq!(Context::current_device(&driver).unwrap(), None);
    drop((first, second));
    assert_eq!(fake.live().total(), 0);
}

#[test]
fn kernels_are_launched_with_their_parameters() {
    let (fake, _, context) = start("devices=1,sms=4");
    let stream = Stream::new(&context).unwrap();
    let module = Module::load(&context, IMAGE).unwrap();
    let kernel = module.kernel("add_u64").unwrap();
    assert_eq!(kernel.registers().unwrap(), 16);
    let error = module.kernel("nothing").unwrap_err().to_string();
    assert!(error.contains("looking for kernel nothing") && error.contains("extern \"C\""), "{error}");
    let (address, bytes) = module.global("counter").unwrap();
    assert_eq!(bytes, 8);
    // SAFETY: the variable has eight bytes.
    unsafe { fill(&stream, address, 3, 8).unwrap() };
    // SAFETY: the kernel's parameters, and a word that it may change.
    unsafe { kernel.launch(&stream, LaunchShape::new(3, 128), &(address, 5u64)).unwrap() };
    let mut word = [0u64];
    // SAFETY: as above; synchronised before it is read.
    unsafe { copy_to_host(&stream, &mut word, address).unwrap() };
    stream.synchronize(soon()).unwrap();
    assert_eq!(word, [0x0303_0303_0303_0308]);
    let launches = fake.launches();
    assert_eq!(launches.len(), 1);
    let bytes: Vec<u8> = address.to_le_bytes().into_iter().chain(5u64.to_le_bytes()).collect();
    assert_eq!(launches[0].arguments, bytes);
    // SAFETY: refused by its shape.
    let error = unsafe { kernel.launch(&stream, LaunchShape::new(1, 2048), &(address, 5u64)) }.unwrap_err();
    let text = error.to_string();
    let expected = "launching add_u64 with 1 blocks of 2048 threads (device 0): cuLaunchKernel failed";
    assert!(text.contains(expected) && text.contains("compare the shape with"), "{text}");
    let error = Module::load(&context, b"no image\0").unwrap_err().to_string();
    assert!(error.contains("loading an image of 9 bytes (device 0): cuModuleLoadDataEx failed"), "{error}");
    drop((kernel, module, stream, context));
    assert_eq!(fake.live().total(), 0);
}

/// By number and by size, before the driver hears of the launch.
#[test]
fn arguments_that_are_not_the_kernels_are_refused() {
    let (fake, _, context) = start("devices=1");
    let stream = Stream::new(&context).unwrap();
    let fill = Module::load(&context, IMAGE).unwrap().kernel("fill_u32").unwrap();
    let launches = || fake.calls().iter().filter(|call| call.starts_with("cuLaunchKernel")).count();
    let one = LaunchShape::new(1, 1);
    let word = DeviceMemory::allocate(&context, 4, &[]).unwrap();
    let at = word.address();
    // SAFETY: refused.
    let errors = unsafe {
        [
            fill.launch(&stream, one, &(at, 7u32)).unwrap_err(),
            fill.launch(&stream, one, &()).unwrap_err(),
            fill.launch(&stream, one, &(at, 7u32, 1u64, 0u8)).unwrap_err(),
            fill.launch(&stream, one, &(at, 7u64, 1u64)).unwrap_err(),
            fill.launch(&stream, one, &(at, 7i32, 1i32)).unwrap_err(),
            fill.launch(&stream, one, &(at as u32, 7u32, 1u64)).unwrap_err(),
        ]
    };
    assert!(errors.iter().all(|error| error.id() == "gpu.arguments"));
    assert_eq!(
        errors.map(|error| error.to_string()),
        [
            "launching fill_u32: arguments: 2 given, the kernel takes 3",
            "launching fill_u32: arguments: 0 given, the kernel takes 3",
            "launching fill_u32: arguments: 4 given, the kernel takes 3",
            "launching fill_u32: argument 2 (u64) has 8 bytes at offset 8, the kernel's parameter has 4 at offset 8",
            "launching fill_u32: argument 3 (i32) has 4 bytes at offset 12, the kernel's parameter has 8 at offset 16",
            "launching fill_u32: argument 1 (u32) has 4 bytes at offset 0, the kernel's parameter has 8 at offset 0",
        ]
    );
    assert_eq!(launches(), 0);

    // Once for the kernel; the types of each launch may be others of the same sizes.
    // SAFETY: one word is written.
    unsafe {
        fill.launch(&stream, one, &(at, 7u32, 1u64)).unwrap();
        fill.clone().launch(&stream, one, &(at, 8i32, 1i64)).unwrap();
        fill.launch(&stream, one, &(at, [1u8; 4], 1u64)).unwrap();
    }
    // SAFETY: refused, after others have been accepted.
    let error = unsafe { fill.launch(&stream, one, &(at, 7u64, 1u64)) }.unwrap_err();
    assert_eq!(error.id(), "gpu.arguments");
    stream.synchronize(soon()).unwrap();
    let calls = fake.calls();
    let count = |function: &str| calls.iter().filter(|call| call.starts_with(function)).count();
    assert_eq!((count("cuLaunchKernel"), count("cuFuncGetParamInfo")), (3, 0));
}

/// A driver before CUDA 12.4 does not tell what a kernel takes.
#[test]
fn an_older_driver_takes_any_arguments() {
    let context = with_library_without("cuFuncGetParamInfo", |library| {
        Context::primary(&Driver::open(library).unwrap(), 0).unwrap()
    });
    let stream = Stream::new(&context).unwrap();
    let fill = Module::load(&context, IMAGE).unwrap().kernel("fill_u32").unwrap();
    let word = DeviceMemory::allocate(&context, 4, &[]).unwrap();
    // SAFETY: the kernel reads the first four bytes of the second argument, and not the last one.
    unsafe { fill.launch(&stream, LaunchShape::new(1, 1), &(word.address(), 7u64, 1u64, 0u8)).unwrap() };
    let mut found = [0u32];
    // SAFETY: the word lives; synchronised before it is read.
    unsafe { copy_to_host(&stream, &mut found, word.address()).unwrap() };
    stream.synchronize(soon()).unwrap();
    assert_eq!(found, [7]);
}

#[test]
fn words_are_written_in_the_order_of_the_stream() {
    let (_fake, driver, context) = start("devices=2,peers=all");
    let peer = Context::primary(&driver, 1).unwrap();
    let stream = Stream::new(&context).unwrap();
    let there = DeviceMemory::allocate(&peer, 64, &[&context]).unwrap();
    let value = 0x0123_4567_89ab_cdef;
    let mut words = [0u64; 3];
    // SAFETY: ranges of live memory; synchronised before they are read.
    unsafe {
        fill(&stream, there.address(), 0xff, 24).unwrap();
        write_word(&stream, there.address() + 8, 1).unwrap();
        write_word(&stream, there.address() + 8, value).unwrap();
        copy_to_host(&stream, &mut words, there.address()).unwrap();
    }
    stream.synchronize(soon()).unwrap();
    assert_eq!(words, [u64::MAX, value, u64::MAX]);
    // SAFETY: refused.
    let error = unsafe { write_word(&stream, there.address() + 4, 1) }.unwrap_err().to_string();
    assert!(error.contains("cuStreamWriteValue64 failed: CUDA_ERROR_INVALID_VALUE (1)"), "{error}");
}

#[test]
fn blocks_that_wait_are_counted_on_the_whole_device() {
    let (_fake, _, context) = start("devices=1,sms=4");
    let module = Module::load(&context, IMAGE).unwrap();
    let kernel = module.kernel("fill_u32").unwrap();
    let shape = LaunchShape::new(1, 1024);
    let limit = kernel.resident_blocks(shape).unwrap();
    assert!(limit >= 4);
    let all = kernel.reserve(LaunchShape { blocks: limit as u32, ..shape }).unwrap();
    let error = kernel.reserve(shape).unwrap_err();
    assert_eq!(error.id(), "gpu.residency");
    assert!(
        error.to_string().contains(&format!("at most {limit} can, of which {limit} are taken")),
        "{error}"
    );
    drop(all);
    drop(kernel.reserve(shape).unwrap());
}

#[test]
fn waits_end_at_their_deadline_and_the_work_goes_on() {
    let (_fake, _, context) = start("devices=1");
    let (stream, other) = (Stream::new(&context).unwrap(), Stream::new(&context).unwrap());
    let word = DeviceMemory::allocate(&context, 8, &[]).unwrap();
    // SAFETY: eight bytes that live to the end of the test.
    unsafe { copy_from_host(&other, word.address(), &[0u64]).unwrap() };
    other.synchronize(soon()).unwrap();
    let event = Event::new(&context).unwrap();
    assert!(event.is_done().unwrap(), "nothing is recorded yet");
    let module = Module::load(&context, IMAGE).unwrap();
    let kernel = module.kernel("wait_u64").unwrap();
    // SAFETY: the kernel's parameters; the word lives to the end of the test.
    unsafe { kernel.launch(&stream, LaunchShape::new(1, 32), &(word.address(), 7u64, 20_000u64)).unwrap() };
    event.record(&stream).unwrap();
    let error = stream.synchronize(Deadline::after(Duration::from_millis(30))).unwrap_err();
    assert_eq!(error.id(), "gpu.timeout");
    assert!(!event.is_done().unwrap());
    // SAFETY: as above.
    unsafe { copy_from_host(&other, word.address(), &[7u64]).unwrap() };
    stream.synchronize(soon()).unwrap();
    assert!(event.is_done().unwrap());
}

#[test]
fn graphs_replay_with_the_data_of_the_moment() {
    let (fake, _, context) = start("devices=1");
    let stream = Stream::new(&context).unwrap();
    let memory = DeviceMemory::allocate(&context, 4096, &[]).unwrap();
    let module = Module::load(&context, IMAGE).unwrap();
    let kernel = module.kernel("add_u64").unwrap();
    let graph = stream
        .capture(|| {
            assert!(stream.is_capturing().unwrap());
            // SAFETY: the kernel's parameters; the memory outlives the graph.
            unsafe { kernel.launch(&stream, LaunchShape::new(1, 1), &(memory.address(), 2u64)) }
        })
        .unwrap();
    assert!(!stream.is_capturing().unwrap());
    let mut word = [0u64];
    for start in [10u64, 1000] {
        // SAFETY: eight bytes of the allocation.
        unsafe { copy_from_host(&stream, memory.address(), &[start]).unwrap() };
        for _ in 0..25 {
            graph.launch(&stream).unwrap();
        }
        // SAFETY: as above; synchronised before it is read.
        unsafe { copy_to_host(&stream, &mut word, memory.address()).unwrap() };
        stream.synchronize(soon()).unwrap();
        assert_eq!(word, [start + 50]);
    }
    // What cannot be captured ends the capture, and the stream works on.
    let error = stream.capture(|| stream.synchronize(soon())).unwrap_err();
    assert!(error.to_string().contains("CAPTURE"), "{error}");
    assert!(!stream.is_capturing().unwrap());
    stream.synchronize(soon()).unwrap();
    drop((graph, kernel, module, memory, stream, context));
    assert_eq!(fake.live().total(), 0);
}

#[test]
fn events_order_streams_and_measure() {
    let (_fake, _, context) = start("devices=1");
    let (first, second) = (Stream::new(&context).unwrap(), Stream::new(&context).unwrap());
    let memory = DeviceMemory::allocate(&context, 16, &[]).unwrap();
    let module = Module::load(&context, IMAGE).unwrap();
    let (wait, add) = (module.kernel("wait_u64").unwrap(), module.kernel("add_u64").unwrap());
    // SAFETY: sixteen bytes that live to the end of the test.
    unsafe { copy_from_host(&first, memory.address(), &[0u64, 0]).unwrap() };
    first.synchronize(soon()).unwrap();
    let (begin, end) = (Event::timed(&context).unwrap(), Event::timed(&context).unwrap());
    begin.record(&first).unwrap();
    let one = LaunchShape::new(1, 1);
    // SAFETY: the kernels' parameters, as above.
    unsafe {
        wait.launch(&first, one, &(memory.address(), 1u64, 20_000u64)).unwrap();
        add.launch(&first, one, &(memory.address() + 8, 1u64)).unwrap();
    }
    end.record(&first).unwrap();
    second.wait_for(&end).unwrap();
    // SAFETY: as above. Not before the first stream has come to its end.
    unsafe { add.launch(&second, one, &(memory.address() + 8, 1u64)).unwrap() };
    assert!(!second.is_idle().unwrap());
    let third = Stream::new(&context).unwrap();
    // SAFETY: as above.
    unsafe { add.launch(&third, one, &(memory.address(), 1u64)).unwrap() };
    second.synchronize(soon()).unwrap();
    let mut words = [0u64; 2];
    // SAFETY: as above.
    unsafe { copy_to_host(&second, &mut words, memory.address()).unwrap() };
    second.synchronize(soon()).unwrap();
    assert_eq!(words, [1, 2]);
    assert!(begin.until(&end).unwrap() < Duration::from_secs(30));
}
