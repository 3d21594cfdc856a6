//! Device handles of channels.

use warpway_core::channel::{BaseMemoryChannel, MemoryChannel};
use warpway_core::endpoint::EndpointConfig;
use warpway_core::memory::{Access, RegisteredMemory};
use warpway_core::semaphore::{MemoryDevice2DeviceSemaphore, Semaphore};
use warpway_core::testing::allocate;
use warpway_core::transport::{Device, DeviceKind, Transport};
use warpway_cuda::LaunchShape;

use super::{Rig, rig, rig_on, soon, until};

impl Rig {
    /// A semaphore on each side of a connection between devices.
    fn semaphores(&self, devices: [i32; 2]) -> [Semaphore; 2] {
        let endpoint = |id| EndpointConfig {
            transport: Transport::CudaIpc,
            device: Device { kind: DeviceKind::Gpu, id },
            ..EndpointConfig::default()
        };
        let [here, there] = [0, 1].map(|rank: usize| {
            self.ranks[rank].connect(endpoint(devices[rank]), 1 - rank as u32, 0).unwrap()
        });
        let connections = [here.wait(soon()).unwrap(), there.wait(soon()).unwrap()];
        let [here, there] = [0, 1].map(|rank: usize| {
            self.ranks[rank].build_semaphore(&connections[rank], 1 - rank as u32, 0).unwrap()
        });
        [here.wait(soon()).unwrap(), there.wait(soon()).unwrap()]
    }

    /// A memory of rank 1 as rank 0 sees it.
    fn sent(&self, memory: &RegisteredMemory) -> RegisteredMemory {
        let sent = self.ranks[1].send_memory(memory, 0, 1).unwrap();
        let received = self.ranks[0].recv_memory(1, 1).unwrap().wait(soon()).unwrap();
        sent.wait(soon()).unwrap();
        received
    }
}

#[test]
fn a_memory_channel_has_the_addresses_of_its_parts() {
    let rig = rig("devices=1");
    let (here, there) = (&rig.gpus[0], &rig.gpus[1]);
    let [semaphore, remote] = rig.semaphores([0, 0]);
    let (source, packets) = (here.alloc::<u8>(100).unwrap(), here.alloc::<u64>(9).unwrap());
    let destination = rig.sent(there.alloc::<u32>(33).unwrap().memory());
    let base = MemoryDevice2DeviceSemaphore::new(semaphore.clone()).unwrap();
    let channel = MemoryChannel::new(
        base,
        destination.clone(),
        source.memory().clone(),
        Some(packets.memory().clone()),
    )
    .unwrap();
    let handle = here.memory_channel(&channel).unwrap();
    assert_eq!(handle.semaphore.inbound, semaphore.inbound_address().unwrap());
    assert_eq!(handle.semaphore.expected, handle.semaphore.inbound + 32);
    assert_eq!(handle.semaphore.remote_inbound, semaphore.remote_address().unwrap());
    assert_eq!(handle.semaphore.site, here.control().site(Some(1), semaphore.id()));
    assert_eq!((handle.dst, handle.dst_bytes), (destination.address("test", 0, 132).unwrap(), 132));
    assert_eq!((handle.src, handle.src_bytes), (source.address(), 100));
    assert_eq!((handle.packet_buffer, handle.packet_bytes), (packets.address(), 72));
    let signals = here.signal_channel(channel.base()).unwrap();
    assert_eq!(*signals, handle.semaphore);
    drop((signals, handle, channel, destination, semaphore, remote, source, packets));
    rig.end();
}

#[test]
fn handles_are_stale_once_their_guards_are_gone() {
    let rig = rig("devices=1");
    let gpu = &rig.gpus[0];
    let [semaphore, remote] = rig.semaphores([0, 0]);
    let source = gpu.alloc::<u8>(8).unwrap();
    let base = MemoryDevice2DeviceSemaphore::new(semaphore).unwrap();
    let channel = MemoryChannel::new(base, source.memory().clone(), source.memory().clone(), None).unwrap();
    let first = gpu.memory_channel(&channel).unwrap();
    let second = gpu.memory_channel(&channel).unwrap();
    // SAFETY: a word in pinned memory, which lives as long as the GPU.
    let word = |address: u64| unsafe { rig.host(address).cast::<u64>().read_volatile() };
    assert_ne!(first.liveness, second.liveness);
    assert_eq!((word(first.liveness), word(second.liveness)), (first.generation, second.generation));
    let (copy, clone) = (*first, first.clone());
    drop(first);
    assert_eq!(word(copy.liveness), copy.generation, "the clone lives");
    drop(clone);
    assert_ne!(word(copy.liveness), copy.generation);
    // An array keeps its channels, too.
    let array = gpu.handle_array(&[second.clone(), second.clone()]).unwrap();
    let (one, kept) = (*second, second.liveness);
    drop(second);
    assert_eq!((word(kept), array.len()), (one.generation, 2));
    // SAFETY: two handles in live memory.
    let found =
        unsafe { rig.host(array.address()).cast::<[warpway_cuda::MemoryChannelDeviceHandle; 2]>().read() };
    assert_eq!(found, [one; 2]);
    drop(array);
    assert_ne!(word(kept), one.generation);
    // A word serves the next object with a new generation.
    let third = gpu.memory_channel(&channel).unwrap();
    assert_eq!(third.liveness, kept);
    assert_ne!(third.generation, one.generation);
    assert_eq!(word(third.liveness), third.generation);
    drop((third, channel, source, remote));
    rig.end();
}

/// As a field of a structure it is nothing that the launch could keep.
#[test]
fn a_token_named_by_a_plain_value_is_given_to_nobody_before_the_launch_has_ended() {
    let rig = rig("devices=1");
    let gpu = &rig.gpus[0];
    let (stream, gate) = (gpu.stream().unwrap(), gpu.alloc::<u64>(1).unwrap());
    let wait = rig.kernel(0, "wait_u64");
    let [semaphore, remote] = rig.semaphores([0, 0]);
    let base = MemoryDevice2DeviceSemaphore::new(semaphore).unwrap();
    let signals = gpu.signal_channel(&BaseMemoryChannel::new(base)).unwrap();
    let plain = *signals;
    // SAFETY: the kernel's parameters. It stands for one that has the handle in a structure.
    unsafe { gpu.launch(&wait, LaunchShape::new(1, 1), (&gate, 1u64, 20_000u64), &stream).unwrap() };
    drop((signals, remote));
    let is_given_out = || {
        let next = rig.semaphores([0, 0]);
        next.iter().any(|semaphore| semaphore.inbound_address().unwrap() == plain.inbound)
    };
    // More often than a page has tokens, which all have their turn.
    for _ in 0..200 {
        assert!(!is_given_out());
    }
    gate.write(0, &[1]).unwrap();
    gpu.synchronize(&stream, soon()).unwrap();
    until("the token's return", is_given_out);
    drop((stream, gate, wait));
    rig.end();
}

#[test]
fn what_kernels_could_not_use_is_refused() {
    let rig = rig_on("devices=2", [0, 1]);
    let (here, there) = (&rig.gpus[0], &rig.gpus[1]);
    let [semaphore, remote] = rig.semaphores([0, 1]);
    let source = here.alloc::<u8>(8).unwrap();
    let on_host =
        rig.ranks[0].register_memory(allocate(4096).unwrap(), Transport::CudaIpc.into(), Access::ALL);
    let on_host = on_host.unwrap();
    let base = MemoryDevice2DeviceSemaphore::new(semaphore).unwrap();
    let channel = |source: &RegisteredMemory| {
        MemoryChannel::new(base.clone(), on_host.clone(), source.clone(), None).unwrap()
    };
    let error = here.memory_channel(&channel(source.memory())).unwrap_err();
    assert!(
        error.to_string().contains("one of its memories is not on a GPU; allocate it with Gpu::alloc"),
        "{error}"
    );
    let error = there.memory_channel(&channel(source.memory())).unwrap_err();
    assert_eq!((error.id(), error.peer()), ("conn.incompatible", Some(1)));
    assert!(
        error.to_string().contains("kernels signal and wait on a connection of their own GPU"),
        "{error}"
    );
    drop((base, on_host, source, remote));
    rig.end();
}
