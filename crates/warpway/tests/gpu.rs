//! Ranks and their GPUs, on a driver in host memory.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test")]

use std::collections::HashSet;
use std::time::Duration;

use fake_cuda::Fake;
use warpway::core::bootstrap::NameFilter;
use warpway::core::config::EngineChoice;
use warpway::core::semaphore::MemoryDevice2DeviceSemaphore;
use warpway::cuda::jit::Program;
use warpway::cuda::{Context as GpuContext, Driver, PortChannelHandle, PortConfig};
use warpway::{
    Communicator, Config, Context, Deadline, EndpointConfig, MemoryChannel, Result, Transport, in_process,
};

fn config(fake: &Fake) -> Config {
    let mut config = Config::default();
    config.cuda_driver = fake.path().clone();
    config
}

fn ordinal(comm: &Communicator) -> Result<i32> {
    Ok(comm.gpu()?.context().ordinal())
}

#[test]
fn ranks_take_the_visible_devices_in_turns() {
    let fake = Fake::open();
    fake.set("devices=2");
    let ordinals = in_process(5, &Context::new(config(&fake)), |comm| {
        let child = comm.split(0, -(comm.rank() as i32))?.unwrap();
        assert_eq!(ordinal(&child)?, ordinal(comm)?, "a part of a communicator is on the same devices");
        comm.barrier()?;
        ordinal(comm)
    });
    assert_eq!(ordinals.unwrap(), [0, 1, 0, 1, 0]);
    assert_eq!(fake.live().total(), 0, "{:?}", fake.live());
}

#[test]
fn the_current_device_goes_before_the_local_rank_and_the_setting_before_both() {
    let fake = Fake::open();
    fake.set("devices=3");
    let driver = Driver::open(fake.path()).unwrap();
    let current = GpuContext::primary(&driver, 2).unwrap();
    let chosen = |config| {
        in_process(2, &Context::new(config), |comm| {
            let _entered = current.enter()?;
            ordinal(comm)
        })
    };
    assert_eq!(chosen(config(&fake)).unwrap(), [2, 2]);
    let mut configured = config(&fake);
    configured.device = Some(1);
    assert_eq!(chosen(configured.clone()).unwrap(), [1, 1]);
    configured.device = Some(3);
    let error = chosen(configured).unwrap_err();
    assert_eq!(error.id(), "unavailable");
    let words =
        "GPU 3 is unavailable: it was chosen (WARPWAY_DEVICE), but the driver shows 3, counted from 0";
    assert!(error.to_string().starts_with(words), "{error}");
}

#[test]
fn without_a_gpu_the_error_says_why() {
    let fake = Fake::open();
    let mut host = config(&fake);
    host.engine = EngineChoice::Host;
    let error = in_process(1, &Context::new(host), ordinal).unwrap_err();
    assert_eq!(error.to_string(), "a GPU is unavailable: WARPWAY_ENGINE is host; set it to auto or cuda");
    let mut absent = config(&fake);
    absent.cuda_driver = "/nowhere/libcuda.so.1".into();
    let error = in_process(1, &Context::new(absent), ordinal).unwrap_err();
    assert_eq!(error.id(), "unavailable");
}

/// Ranks 0 and 1 are on two devices, 0 and 2 on one, and each is a peer of itself.
#[test]
fn handles_of_threads_lead_to_each_other() {
    let fake = Fake::open();
    fake.set("devices=2");
    let sides = in_process(4, &Context::new(config(&fake)), |comm| {
        let gpu = comm.gpu()?;
        let peers = comm.connect_all(Some(Transport::CudaIpc))?;
        let memory = gpu.alloc::<u32>(33)?;
        for peer in &peers {
            peer.send_memory(&memory)?;
        }
        let remotes: Vec<_> = peers.iter().map(|peer| peer.recv_memory()).collect::<Result<_>>()?;
        let semaphores: Vec<_> = peers.iter().map(|peer| peer.start_semaphore()).collect::<Result<_>>()?;
        let mut handles = Vec::new();
        for (remote, semaphore) in remotes.into_iter().zip(semaphores) {
            let semaphore = semaphore.wait(Deadline::after(Duration::from_secs(30)))?;
            let semaphore = MemoryDevice2DeviceSemaphore::new(semaphore)?;
            let channel = MemoryChannel::new(semaphore, remote, memory.memory().clone(), None)?;
            handles.push(*gpu.memory_channel(&channel)?);
        }
        comm.barrier()?;
        Ok((memory.address(), handles))
    })
    .unwrap();
    for (rank, (address, handles)) in sides.iter().enumerate() {
        for (peer, handle) in handles.iter().enumerate() {
            let (there, back) = (&sides[peer].0, &sides[peer].1[rank]);
            assert_eq!(
                (handle.src, handle.src_bytes, handle.dst, handle.dst_bytes),
                (*address, 132, *there, 132)
            );
            assert_eq!(handle.semaphore.remote_inbound, back.semaphore.inbound, "{rank} to {peer}");
            assert_eq!(handle.semaphore.expected, handle.semaphore.inbound + 32);
            assert_eq!(handle.semaphore.site.peer, peer as u32);
        }
    }
    assert_eq!(fake.live().total(), 0, "{:?}", fake.live());
}

/// Of five ranks on two devices, as tutorial 8 makes them: all channels of a rank use one ring, each has a semaphore of its own.
#[test]
fn port_channels_with_all_others() {
    let fake = Fake::open();
    fake.set("devices=2");
    for transport in [Transport::CudaIpc, Transport::Ethernet] {
        let ended = in_process(5, &Context::new(config(&fake)), |comm| {
            let gpu = comm.gpu()?;
            let data = gpu.alloc_for::<u32>(33, transport.into())?;
            let endpoint = EndpointConfig { transport, device: gpu.device(), ..EndpointConfig::default() };
            let ports = gpu.port_service(&PortConfig::default())?;
            let mut handles = Vec::new();
            for peer in (0..5).filter(|peer| *peer != comm.rank()) {
                let peer = comm.connect_endpoint(peer, endpoint)?;
                let remote = peer.exchange_memory(&data)?;
                handles.push(ports.port_channel(&peer.port_channel(ports.service(), &data, &remote)?)?);
            }
            let array = gpu.handle_array(&handles)?;
            assert_eq!(array.len(), 4);
            let ring = *ports.fifo_handle(0);
            for (handle, peer) in handles.iter().zip((0..5).filter(|peer| *peer != comm.rank())) {
                assert_eq!((handle.src_bytes, handle.dst_bytes), (132, 132));
                let base = &handle.base;
                assert_eq!(
                    (base.fifo.slots, base.fifo.site.peer, base.semaphore.site.peer),
                    (ring.slots, peer, peer)
                );
                assert_eq!(base.semaphore.expected, base.semaphore.inbound + 32);
            }
            let of_each = |field: fn(&PortChannelHandle) -> u64| {
                handles.iter().map(|handle| field(handle)).collect::<HashSet<u64>>().len()
            };
            assert_eq!(of_each(|handle| handle.base.semaphore_id.into()), 4);
            assert_eq!(of_each(|handle| handle.base.semaphore.inbound), 4);
            assert_eq!(of_each(|handle| handle.dst.into()), 4);
            comm.barrier()
        });
        ended.unwrap();
        assert_eq!(fake.live().total(), 0, "{transport}: {:?}", fake.live());
    }
}

/// What a machine lacks is said where it is first needed, and nothing else fails.
#[test]
fn what_a_machine_lacks_has_an_error_or_another_way() {
    let fake = Fake::open();
    fake.set("devices=2,peers=none,descriptors=no");
    let mut config = config(&fake);
    config.nvrtc = Some("/nowhere/libnvrtc.so".into());
    let ended = in_process(2, &Context::new(config), |comm| {
        let gpu = comm.gpu()?;
        // Without descriptors memory is a plain allocation.
        let memory = gpu.alloc::<u32>(33)?;
        memory.fill(7)?;
        assert_eq!(memory.to_vec()?, [7; 33]);
        // No compiler.
        let program = Program::new("k.cu", "extern \"C\" __global__ void k() {}").kernel("k");
        let error = gpu.load(&program).unwrap_err();
        assert_eq!(error.id(), "unavailable");
        assert!(error.to_string().contains("/nowhere/libnvrtc.so"), "{error}");
        // Freed memory, memory of the host, a range that is not all in one allocation.
        let freed = gpu.alloc::<u32>(1)?.address();
        let own = memory.address();
        for (address, bytes, id) in [
            (freed, 4, "mem.invalid"),
            (std::ptr::from_ref(&own) as u64, 8, "mem.invalid"),
            (0, 8, "mem.invalid"),
            (own, 1 << 30, "mem.bounds"),
            (own + 1, u64::MAX, "mem.bounds"),
        ] {
            // SAFETY: refused.
            assert_eq!(unsafe { gpu.register(address, bytes) }.unwrap_err().id(), id, "{address:#x} {bytes}");
        }
        // Two devices that do not reach each other.
        let error = comm.connect_by(1 - comm.rank(), Transport::CudaIpc).unwrap_err();
        assert!(error.to_string().contains("no peer access"), "{error}");
        // The rank itself is reached all the same, and so is the peer by other ways.
        comm.connect_by(comm.rank(), Transport::CudaIpc)?;
        comm.barrier()?;
        Ok(memory.address())
    });
    let addresses = ended.unwrap();
    assert_ne!(addresses[0], addresses[1]);
    assert_eq!(fake.live().total(), 0, "{:?}", fake.live());
}

#[test]
fn an_old_driver_is_named_with_what_is_needed() {
    let fake = Fake::open();
    fake.set("devices=1,version=11080");
    let error = in_process(1, &Context::new(config(&fake)), ordinal).unwrap_err();
    assert_eq!(error.id(), "unavailable");
    assert!(error.to_string().contains("it supports CUDA 11.8, 12.0 is needed"), "{error}");
}

/// As PyTorch's tensors: a range in an allocation of another library.
#[test]
fn memory_of_other_libraries_travels_by_tcp() {
    let fake = Fake::open();
    fake.set("devices=2,peers=none");
    tensors_by_tcp(&fake);
}

/// The same in plain allocations, which no other process could open.
#[test]
fn memory_that_cannot_be_exported_travels_by_tcp() {
    let fake = Fake::open();
    fake.set("devices=2,peers=none,descriptors=no,ipc=no");
    let refused = in_process(1, &Context::new(config(&fake)), |comm| {
        let memory = comm.gpu()?.alloc_for::<u8>(8, Transport::Ethernet.into())?;
        // SAFETY: refused.
        unsafe { comm.gpu()?.register(memory.address(), 8) }
    });
    assert_eq!(refused.unwrap_err().id(), "mem.export");
    tensors_by_tcp(&fake);
}

/// From and to the middle of a tensor, in the middle of a segment.
fn tensors_by_tcp(fake: &Fake) {
    const SIZE: u64 = 1_000_003;
    const TENSOR: (u64, u64) = (4099, 700_001);
    const HALF: u64 = TENSOR.1 / 2;
    let byte = |rank: u32, at: u64| (at * 31 + at / 251 + u64::from(rank) * 101) as u8;
    let mut config = config(fake);
    config.socket_ifname = NameFilter::Exact(vec!["lo".into()]);
    let ended = in_process(2, &Context::new(config), |comm| {
        let (me, peer) = (comm.rank(), 1 - comm.rank());
        let (gpu, by) = (comm.gpu()?, Transport::Ethernet);
        let segment = gpu.alloc_for::<u8>(SIZE, by.into())?;
        segment.write(0, &(0..SIZE).map(|at| byte(me, at)).collect::<Vec<_>>())?;
        // SAFETY: `segment` lives until both ranks have met at the end.
        let tensor = unsafe { gpu.register_for(segment.address() + TENSOR.0, TENSOR.1, by.into())? };
        assert_eq!((tensor.size(), tensor.transports()), (TENSOR.1, by.into()));
        let link = comm.connect_by(peer, by)?;
        let there = link.exchange_memory(&tensor)?;
        // The upper half of the peer's tensor from the lower one of this.
        link.connection().write(&there, HALF + 1, &tensor, 3, HALF - 3)?;
        link.connection().flush(Deadline::after(Duration::from_secs(30)))?;
        let beyond = link.connection().write(&there, HALF + 1, &tensor, 0, HALF + 1).unwrap_err();
        assert_eq!(beyond.id(), "mem.bounds");
        comm.barrier()?;
        let first = TENSOR.0 + HALF + 1;
        let wrong = (0..SIZE).zip(segment.to_vec()?).find(|(at, found)| {
            let expected = match at.checked_sub(first).filter(|at| *at < HALF - 3) {
                Some(at) => byte(peer, TENSOR.0 + 3 + at),
                None => byte(me, *at),
            };
            *found != expected
        });
        assert_eq!(wrong, None, "rank {me}");
        comm.barrier()
    });
    ended.unwrap();
    assert_eq!(fake.live().total(), 0, "{:?}", fake.live());
}
