//! Turns, lanes, room on the device, graphs, and what lives until a kernel has ended.

use warpway_cuda::{GpuBuffer, LaunchShape, Plain, Stream};

use super::{rig, rig_on, soon, until};

const ONE: LaunchShape = LaunchShape { blocks: 1, threads: 1, shared_bytes: 0 };

fn names(fake: &fake_cuda::Fake) -> Vec<String> {
    fake.launches().into_iter().map(|launch| launch.function).collect()
}

#[test]
fn kernels_take_turns_across_streams_and_lanes_do_not() {
    let rig = rig("devices=1");
    let gpu = &rig.gpus[0];
    let (first, second, third) = (gpu.stream().unwrap(), gpu.stream().unwrap(), gpu.stream().unwrap());
    let words = gpu.alloc::<u64>(3).unwrap();
    let (wait, add) = (rig.kernel(0, "wait_u64"), rig.kernel(0, "add_u64"));
    let at = |index: u64| words.address() + 8 * index;
    // SAFETY: the kernels' parameters, words of the buffer, which lives to the end of the test.
    unsafe {
        gpu.launch(&wait, ONE, (&words, 7u64, 20_000u64), &first).unwrap();
        gpu.launch(&add, ONE, (Plain(at(1)), 1u64), &second).unwrap();
        gpu.lane().launch(&add, ONE, (Plain(at(2)), 1u64), &third).unwrap();
    }
    // The lane's kernel has run, that of the turn behind the wait has not.
    gpu.synchronize(&third, soon()).unwrap();
    assert_eq!(words.to_vec().unwrap(), [0, 0, 1]);
    assert!(!second.is_idle().unwrap());
    words.write(0, &[7]).unwrap();
    gpu.synchronize(&second, soon()).unwrap();
    assert_eq!(words.to_vec().unwrap(), [7, 1, 1]);
    drop((first, second, third, words, wait, add));
    rig.end();
}

#[test]
fn all_blocks_have_room_or_nothing_is_launched() {
    let rig = rig("devices=1,sms=4");
    let (here, there) = (&rig.gpus[0], &rig.gpus[1]);
    let (stream, other) = (here.stream().unwrap(), there.stream().unwrap());
    let words = here.alloc::<u64>(1).unwrap();
    let kernel = rig.kernel(0, "add_u64");
    let limit = kernel.resident_blocks(LaunchShape::new(1, 1024)).unwrap() as u32;
    let add = |gpu: &warpway_cuda::Gpu, blocks, stream: &Stream| {
        // SAFETY: the kernel's parameters and a word that lives to the end of the test.
        unsafe { gpu.launch(&kernel, LaunchShape::new(blocks, 1024), (&words, 1u64), stream) }
    };
    let error = add(here, limit + 1, &stream).unwrap_err();
    assert_eq!(error.id(), "gpu.residency");
    // Turns need room for the widest only.
    add(here, limit - 1, &stream).unwrap();
    add(here, limit - 1, &stream).unwrap();
    add(there, 1, &other).unwrap();
    // Ranks on one device share it, for as long as they may launch.
    let error = add(there, 2, &other).unwrap_err();
    assert!(
        error.to_string().contains(&format!("at most {limit} can, of which {} are taken", limit - 1)),
        "{error}"
    );
    assert!(!rig.ranks[1].health().is_failed(), "a refused launch is the caller's mistake alone");
    here.synchronize(&stream, soon()).unwrap();
    there.synchronize(&other, soon()).unwrap();
    assert_eq!(rig.fake.launches().len(), 3);
    drop((stream, other, words, kernel));
    rig.end();
}

#[test]
fn what_a_launch_uses_lives_until_it_has_ended() {
    let rig = rig("devices=1");
    let gpu = &rig.gpus[0];
    let stream = gpu.stream().unwrap();
    let gate = gpu.alloc::<u64>(1).unwrap();
    let before = rig.fake.live();
    let used = gpu.alloc::<u64>(4).unwrap();
    let (wait, add) = (rig.kernel(0, "wait_u64"), rig.kernel(0, "add_u64"));
    let address = used.address();
    // SAFETY: the kernels' parameters; the launches keep the buffers.
    unsafe {
        gpu.launch(&wait, ONE, (&gate, 1u64, 20_000u64), &stream).unwrap();
        gpu.launch(&add, ONE, (&used, 1u64), &stream).unwrap();
    }
    drop((used, wait, add));
    assert!(rig.fake.host_address(address).is_some());
    let live = rig.fake.live();
    assert_eq!((live.mappings, live.modules), (before.mappings + 1, 2), "the kernels and the buffer");
    gate.write(0, &[1]).unwrap();
    gpu.synchronize(&stream, soon()).unwrap();
    let live = rig.fake.live();
    assert_eq!((live.mappings, live.modules), (before.mappings, 0));
    assert!(rig.fake.host_address(address).is_none());
    drop((gate, stream));
    rig.end();
}

#[test]
fn a_gpu_that_is_dropped_waits_for_its_kernels() {
    let rig = rig("devices=1");
    let stream = rig.gpus[0].stream().unwrap();
    let other = rig.gpus[1].clone();
    // The other rank's memory, so that it does not go with the GPU.
    let gate = other.alloc::<u64>(1).unwrap();
    let used = rig.gpus[0].alloc::<u64>(1).unwrap();
    let (wait, add) = (rig.kernel(0, "wait_u64"), rig.kernel(0, "add_u64"));
    // SAFETY: the kernels' parameters; the gate outlives the kernel, the launch keeps the other buffer.
    unsafe {
        rig.gpus[0].launch(&wait, ONE, (&gate, 1u64, 20_000u64), &stream).unwrap();
        rig.gpus[0].launch(&add, ONE, (&used, 1u64), &stream).unwrap();
    }
    drop((used, wait, add));
    let opener = std::thread::spawn({
        let gate = gate.clone();
        move || {
            std::thread::sleep(std::time::Duration::from_millis(100));
            gate.write(0, &[1]).unwrap();
        }
    });
    let super::Rig { gpus, ranks, contexts, fake } = rig;
    drop(gpus);
    assert!(stream.is_idle().unwrap());
    assert_eq!(names(&fake), ["wait_u64", "add_u64"]);
    assert!(!ranks[0].health().is_failed());
    opener.join().unwrap();
    drop((stream, gate, other, ranks, contexts));
    assert_eq!(fake.live().total(), 0, "{:?}", fake.live());
}

#[test]
fn graphs_keep_what_they_use_and_take_turns() {
    let rig = rig("devices=1");
    let gpu = &rig.gpus[0];
    let (stream, second) = (gpu.stream().unwrap(), gpu.stream().unwrap());
    let used: GpuBuffer<u64> = gpu.alloc(2).unwrap();
    let (wait, add) = (rig.kernel(0, "wait_u64"), rig.kernel(0, "add_u64"));
    let graph = gpu
        .capture(&stream, || {
            // SAFETY: the kernel's parameters; the graph keeps the buffer.
            unsafe { gpu.launch(&add, ONE, (&used, 3u64), &stream) }
        })
        .unwrap();
    assert_eq!(rig.fake.launches(), [], "captured, not done");
    for _ in 0..10 {
        graph.launch(&stream).unwrap();
    }
    gpu.synchronize(&stream, soon()).unwrap();
    assert_eq!(used.to_vec().unwrap(), [30, 0]);
    // An eager launch, the graph behind it on another stream.
    let at = Plain(used.address() + 8);
    // SAFETY: the kernel's parameters; the graph keeps the buffer.
    unsafe { gpu.launch(&wait, ONE, (at, 1u64, 20_000u64), &stream).unwrap() };
    graph.launch(&second).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(used.to_vec().unwrap(), [30, 0]);
    used.write(1, &[1]).unwrap();
    gpu.synchronize(&second, soon()).unwrap();
    assert_eq!(used.to_vec().unwrap(), [33, 1]);
    // A graph that is dropped while it runs.
    graph.launch(&stream).unwrap();
    let address = used.address();
    drop((graph, used, add, wait));
    gpu.synchronize(&stream, soon()).unwrap();
    until("the end of the graph", || {
        gpu.synchronize(&stream, soon()).unwrap();
        rig.fake.host_address(address).is_none()
    });
    drop((stream, second));
    rig.end();
}

#[test]
fn captures_end_with_the_first_error_and_do_not_nest() {
    let rig = rig("devices=1");
    let gpu = &rig.gpus[0];
    let (stream, other) = (gpu.stream().unwrap(), gpu.stream().unwrap());
    let error = gpu.capture(&stream, || gpu.capture(&other, || Ok(())).map(drop)).unwrap_err();
    assert!(error.to_string().contains("another capture of the same lane"), "{error}");
    assert!(!stream.is_capturing().unwrap());
    gpu.capture(&stream, || Ok(())).unwrap();
    drop((stream, other));
    rig.end();
}

#[test]
fn what_others_capture_is_kept() {
    let rig = rig("devices=1");
    let gpu = &rig.gpus[0];
    let stream = gpu.stream().unwrap();
    let used = gpu.alloc::<u64>(1).unwrap();
    let add = rig.kernel(0, "add_u64");
    let graph = stream
        .capture(|| {
            // SAFETY: the kernel's parameters; the GPU keeps the buffer.
            unsafe { gpu.launch(&add, ONE, (&used, 3u64), &stream) }.unwrap();
            Ok(())
        })
        .unwrap();
    let address = used.address();
    drop((used, add));
    graph.launch(&stream).unwrap();
    gpu.synchronize(&stream, soon()).unwrap();
    // SAFETY: the buffer is still there, and nothing runs.
    assert_eq!(unsafe { rig.host(address).cast::<u64>().read() }, 3);
    drop((graph, stream));
    rig.end();
}

#[test]
fn streams_and_kernels_of_another_device_are_refused() {
    let rig = rig_on("devices=2", [0, 1]);
    let (here, there) = (&rig.gpus[0], &rig.gpus[1]);
    let (stream, other) = (here.stream().unwrap(), there.stream().unwrap());
    let (kernel, foreign) = (rig.kernel(0, "trap"), rig.kernel(1, "trap"));
    // SAFETY: refused.
    let error = unsafe { here.launch(&kernel, ONE, (), &other) }.unwrap_err();
    assert_eq!(error.to_string(), "launching trap: device 0: the stream is of device 1");
    // SAFETY: as above.
    let error = unsafe { here.launch(&foreign, ONE, (), &stream) }.unwrap_err();
    assert_eq!(error.to_string(), "launching trap: device 0: the kernel is of device 1");
    let error = here.capture(&other, || Ok(())).unwrap_err();
    assert_eq!(error.id(), "gpu.device");
    drop((stream, other, kernel, foreign));
    rig.end();
}

#[test]
fn arguments_come_in_order_with_the_kernels_layout() {
    let rig = rig("devices=1");
    let gpu = &rig.gpus[0];
    let stream = gpu.stream().unwrap();
    let words = gpu.alloc::<u32>(3).unwrap();
    let fill = rig.kernel(0, "fill_u32");
    // SAFETY: the kernel's parameters.
    unsafe { gpu.launch(&fill, ONE, (&words, 0xabcd_u32, 2u64), &stream).unwrap() };
    gpu.synchronize(&stream, soon()).unwrap();
    assert_eq!(words.to_vec().unwrap(), [0xabcd, 0xabcd, 0]);
    // SAFETY: refused, for the count is shorter than the kernel's.
    let error = unsafe { gpu.launch(&fill, LaunchShape::new(4, 32), (&words, 0xabcd_u32, 2u32), &stream) };
    assert_eq!(
        error.unwrap_err().to_string(),
        "launching fill_u32: argument 3 (u32) has 4 bytes at offset 12, the kernel's parameter has 8 at offset 16"
    );
    // Nothing is under way, and no room was taken for it.
    let graph = gpu.capture(&stream, || {
        // SAFETY: refused.
        let error = unsafe { gpu.launch(&fill, ONE, (&words,), &stream) }.unwrap_err();
        assert_eq!(error.id(), "gpu.arguments");
        Ok(())
    });
    drop(graph.unwrap());
    assert_eq!(rig.fake.launches().len(), 1);
    drop((stream, words, fill));
    rig.end();
}

/// As compilers write it to files, where a text ends without a zero.
#[test]
fn code_from_a_file_reaches_the_driver_only_if_it_is_whole() {
    let rig = rig("devices=1");
    let gpu = &rig.gpus[0];
    let text =
        b"fake module\nfunction many parameters=8,1,8,2,8,4,8,8,4,4,4,4 registers=8 threads=1024 shared=0";
    let module = gpu.load_image(text).unwrap();
    let many = module.kernel("many").unwrap();
    let stream = gpu.stream().unwrap();
    let words = gpu.alloc::<u64>(1).unwrap();
    // SAFETY: the kernel's parameters; it does nothing.
    unsafe {
        let arguments = (&words, 1u8, 2u64, 3u16, 4u64, 5.0f32, 6u64, 7.0f64, 8u32, 9i32, 10u32, 11i32);
        gpu.launch(&many, ONE, arguments, &stream).unwrap();
    }
    gpu.synchronize(&stream, soon()).unwrap();
    let launched = rig.fake.launches().pop().unwrap();
    assert_eq!(launched.function, "many");
    // Each parameter is aligned as its size is.
    let expected = [
        &words.address().to_le_bytes()[..],
        &1u64.to_le_bytes(),
        &2u64.to_le_bytes(),
        &3u64.to_le_bytes(),
        &4u64.to_le_bytes(),
        &5f32.to_le_bytes(),
        &[0; 4],
        &6u64.to_le_bytes(),
        &7f64.to_le_bytes(),
        &8u32.to_le_bytes(),
        &9u32.to_le_bytes(),
        &10u32.to_le_bytes(),
        &11u32.to_le_bytes(),
    ]
    .concat();
    assert_eq!(launched.arguments, expected);

    // Since it was last asked.
    let loads = || rig.fake.calls().iter().filter(|call| call.starts_with("cuModuleLoadDataEx")).count();
    assert_eq!(loads(), 1);
    let error = gpu.load_image(b"\x7fELF\x02\x01 and no more").unwrap_err();
    assert_eq!(error.id(), "gpu.image");
    let words_of_it = "loading an image of 18 bytes (device 0): its headers are damaged; build it anew";
    assert_eq!(error.to_string(), words_of_it);
    assert_eq!(loads(), 0);
    drop((module, many, stream, words));
    rig.end();
}
