//! What is dropped too early, by an early return or a panic, while kernels run that use it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use fake_cuda::Fake;
use warpway_cuda::{Control, DeviceMemory, Keeper, KernelArgument, LaunchShape, PinnedMemory, Plain};

use super::{rig, rig_on, soon, until};

const ONE: LaunchShape = LaunchShape { blocks: 1, threads: 1, shared_bytes: 0 };

/// Memory and modules; events come and go with launches.
fn held(fake: &Fake) -> [u64; 5] {
    let live = fake.live();
    [live.allocations, live.mappings, live.pinned, live.modules, live.executables]
}

#[test]
fn memory_outlives_queued_replays_that_name_it_as_plain_values() {
    let rig = rig("devices=1");
    let gpu = &rig.gpus[0];
    let stream = gpu.stream().unwrap();
    let gate = gpu.alloc::<u64>(1).unwrap();
    let before = held(&rig.fake);
    let (wait, add) = (rig.kernel(0, "wait_u64"), rig.kernel(0, "add_u64"));
    let count = gpu.alloc::<u64>(1).unwrap();
    let at = count.address();
    let graph = gpu
        .capture(&stream, || {
            // SAFETY: the kernel's parameters; what is freed too early is the matter of this test.
            unsafe { gpu.launch(&add, ONE, (Plain(at), 1u64), &stream) }
        })
        .unwrap();
    // SAFETY: as above.
    unsafe { gpu.launch(&wait, ONE, (&gate, 1u64, 20_000u64), &stream).unwrap() };
    for _ in 0..100 {
        graph.launch(&stream).unwrap();
    }
    let returned_early = catch_unwind(AssertUnwindSafe(move || {
        let _dropped = (count, graph, add, wait);
        panic!("a check of a test has failed");
    }));
    assert!(returned_early.is_err());
    assert!(rig.fake.host_address(at).is_some(), "the replays have not run yet");
    gate.write(0, &[1]).unwrap();
    gpu.synchronize(&stream, soon()).unwrap();
    assert_eq!(rig.fake.launches().len(), 101);
    assert!(rig.fake.host_address(at).is_none(), "given back once they have");
    assert_eq!(held(&rig.fake), before);
    drop((gate, stream));
    rig.end();
}

#[test]
fn memory_of_another_device_outlives_the_kernels_of_this_one() {
    let rig = rig_on("devices=2", [0, 1]);
    let (here, there) = (&rig.gpus[0], &rig.gpus[1]);
    let stream = here.stream().unwrap();
    let gate = here.alloc::<u64>(1).unwrap();
    let (wait, add) = (rig.kernel(0, "wait_u64"), rig.kernel(0, "add_u64"));
    let target = DeviceMemory::allocate(there.context(), 8, &[here.context()]).unwrap();
    let at = target.address();
    // SAFETY: the kernels' parameters, and as above.
    unsafe {
        here.launch(&wait, ONE, (&gate, 1u64, 20_000u64), &stream).unwrap();
        here.launch(&add, ONE, (Plain(at), 5u64), &stream).unwrap();
    }
    drop(target);
    // SAFETY: alive, and no kernel has come to it.
    assert_eq!(unsafe { rig.host(at).cast::<u64>().read_volatile() }, 0);
    gate.write(0, &[1]).unwrap();
    here.synchronize(&stream, soon()).unwrap();
    assert!(rig.fake.host_address(at).is_none());
    drop((gate, stream, wait, add));
    rig.end();
}

#[test]
fn dropping_waits_for_no_kernel() {
    let rig = rig("devices=1");
    let (here, there) = (&rig.gpus[0], &rig.gpus[1]);
    let (stream, other) = (here.stream().unwrap(), there.stream().unwrap());
    let gate = here.alloc::<u64>(1).unwrap();
    let (wait, add) = (rig.kernel(0, "wait_u64"), rig.kernel(0, "add_u64"));
    let pinned = PinnedMemory::allocate(here.context(), 8).unwrap();
    let plain = DeviceMemory::plain(here.context(), 8, &[]).unwrap();
    let before = held(&rig.fake);
    // Rank 1's kernel waits for rank 0, whose thread drops memory first; the driver would wait for the kernel.
    // SAFETY: the kernel's parameters.
    unsafe { there.launch(&wait, ONE, (&gate, 1u64, 20_000u64), &other).unwrap() };
    drop((pinned, plain));
    assert!(!other.is_idle().unwrap());
    assert_eq!(held(&rig.fake), before, "given back later");
    // SAFETY: as above.
    unsafe { here.launch(&add, ONE, (&gate, 1u64), &stream).unwrap() };
    there.synchronize(&other, soon()).unwrap();
    here.synchronize(&stream, soon()).unwrap();
    assert_ne!(held(&rig.fake), before);
    drop((stream, other, gate, wait, add));
    rig.end();
}

#[test]
fn a_launch_lets_go_of_what_has_ended_after_it_is_on_its_way() {
    let rig = rig("devices=1");
    let (here, there) = (&rig.gpus[0], &rig.gpus[1]);
    let (stream, other) = (here.stream().unwrap(), there.stream().unwrap());
    let gate = here.alloc::<u64>(1).unwrap();
    let (wait, add) = (rig.kernel(0, "wait_u64"), rig.kernel(0, "add_u64"));
    let used = Kept(PinnedMemory::allocate(here.context(), 8).unwrap());
    // SAFETY: the kernels' parameters.
    unsafe {
        here.launch(&add, ONE, (&gate, used), &stream).unwrap();
        until("the first kernel's end", || stream.is_idle().unwrap());
        there.launch(&wait, ONE, (&gate, 1u64, 20_000u64), &other).unwrap();
        here.launch(&add, ONE, (&gate, 1u64), &stream).unwrap();
    }
    there.synchronize(&other, soon()).unwrap();
    here.synchronize(&stream, soon()).unwrap();
    drop((stream, other, gate, wait, add));
    rig.end();
}

/// A 0 that keeps memory which the driver frees only while nothing runs.
struct Kept(PinnedMemory);

impl KernelArgument for Kept {
    type Value = u64;

    fn value(&self) -> u64 {
        0
    }

    fn keep(&self, kept: &mut Vec<Keeper>) {
        kept.push(Arc::new(self.0.clone()));
    }
}

#[test]
fn a_capture_that_panics_leaves_stream_and_lane_as_they_were() {
    let rig = rig("devices=1");
    let gpu = &rig.gpus[0];
    let stream = gpu.stream().unwrap();
    let live = rig.fake.live();
    let panicked = catch_unwind(AssertUnwindSafe(|| gpu.capture(&stream, || panic!("in the captured work"))));
    assert!(panicked.is_err());
    assert!(!stream.is_capturing().unwrap());
    drop(gpu.capture(&stream, || Ok(())).unwrap());
    assert_eq!(rig.fake.live(), live);
    drop(stream);
    rig.end();
}

#[test]
fn what_another_capture_uses_does_not_go_with_our_graph() {
    let rig = rig("devices=1");
    let gpu = &rig.gpus[0];
    let (stream, other) = (gpu.stream().unwrap(), gpu.stream().unwrap());
    let add = rig.kernel(0, "add_u64");
    let used = gpu.alloc::<u64>(1).unwrap();
    let mut theirs = None;
    let ours = gpu
        .capture(&stream, || {
            let work = || {
                // SAFETY: the kernel's parameters; the GPU keeps the buffer.
                unsafe { gpu.launch(&add, ONE, (&used, 3u64), &other) }.unwrap();
                Ok(())
            };
            theirs = Some(other.capture(work)?);
            Ok(())
        })
        .unwrap();
    let address = used.address();
    drop((ours, used, add));
    let theirs = theirs.unwrap();
    theirs.launch(&other).unwrap();
    gpu.synchronize(&other, soon()).unwrap();
    // SAFETY: the buffer is still there, and nothing runs.
    assert_eq!(unsafe { rig.host(address).cast::<u64>().read() }, 3);
    drop((theirs, stream, other));
    rig.end();
}

#[test]
fn a_graph_within_a_graph_is_kept_and_does_not_hold_up_later_launches() {
    let rig = rig("devices=1");
    let gpu = &rig.gpus[0];
    let stream = gpu.stream().unwrap();
    let add = rig.kernel(0, "add_u64");
    let used = gpu.alloc::<u64>(1).unwrap();
    // SAFETY: the kernel's parameters; graphs and launches keep the buffer.
    let launch = || unsafe { gpu.launch(&add, ONE, (&used, 1u64), &stream) };
    launch().unwrap();
    let inner = gpu.capture(&stream, launch).unwrap();
    let outer = gpu
        .capture(&stream, || {
            inner.launch(&stream)?;
            inner.launch(&stream)
        })
        .unwrap();
    drop(inner);
    outer.launch(&stream).unwrap();
    launch().unwrap();
    gpu.synchronize(&stream, soon()).unwrap();
    assert_eq!(used.to_vec().unwrap(), [4]);
    let address = used.address();
    drop((outer, used));
    assert!(rig.fake.host_address(address).is_none(), "nothing that has ended is kept");
    drop((stream, add));
    rig.end();
}

#[test]
fn a_kernel_that_does_not_leave_keeps_its_control_block() {
    let mut rig = rig("devices=1");
    let stream = rig.gpus[0].stream().unwrap();
    let gate = rig.gpus[1].alloc::<u64>(1).unwrap();
    let wait = rig.kernel(0, "wait_u64");
    let control = rig.gpus[0].control().address();
    // SAFETY: the control block lives, and nobody writes it here.
    let host = unsafe { rig.host(control).cast::<Control>().read() }.host;
    // SAFETY: the kernel's parameters. It knows no abort word.
    unsafe { rig.gpus[0].launch(&wait, ONE, (&gate, 1u64, 40_000u64), &stream).unwrap() };
    drop((rig.gpus.remove(0), wait));
    assert!(!stream.is_idle().unwrap());
    assert!(rig.ranks[0].health().is_failed());
    assert!([control, host].iter().all(|address| rig.fake.host_address(*address).is_some()));
    gate.write(0, &[1]).unwrap();
    until("the kernel's end", || stream.is_idle().unwrap());
}
