//! Port channels from end to end: kernels' calls, proxy, engine, memory and tokens of devices.

use std::sync::Arc;

use fake_cuda::{Fake, Live};
use warpway_core::Deadline;
use warpway_core::communicator::Communicator;
use warpway_core::config::{Config, Environment};
use warpway_core::endpoint::EndpointConfig;
use warpway_core::engine::Engine;
use warpway_core::fifo::{Trigger, TriggerKind};
use warpway_core::memory::{Access, RegisteredMemory, TokenMemory};
use warpway_core::testing::LocalJob;
use warpway_core::transport::Transport;
use warpway_cuda::jit::Compiler;
use warpway_cuda::{CudaEngine, DeviceChoice, DeviceMemory, Devices, PortConfig, PortService};

use crate::producer::{KernelChannel, Producer};
use crate::{eventually, soon};

const SIZE: u64 = 1 << 20;

/// A rank with memory of its device, and what a kernel of it does with a channel to the other rank.
struct Rank {
    kernel: KernelChannel,
    ports: PortService,
    mine: DeviceMemory,
    received: DeviceMemory,
    comm: Communicator,
}

/// There is no compiler: all works but additions, which need a kernel of their own.
fn ranks(fake: &Fake, producer: &Producer) -> Vec<Rank> {
    let mut nowhere = Config::default();
    nowhere.nvrtc = Some("/nowhere/libnvrtc.so".into());
    let compiler = Compiler::new(&nowhere, &Environment::default());
    let devices = Devices::new(fake.path(), compiler);
    let job = LocalJob::new(2);
    let memories = Arc::default();
    std::thread::scope(|scope| {
        let rank = |number: u32| {
            let (job, devices, memories) = (&job, &devices, Arc::clone(&memories));
            scope.spawn(move || {
                let engine = CudaEngine::new(devices, DeviceChoice { ordinal: None, local_rank: number });
                let mut parts = job.parts(number, vec![Arc::new(engine.clone()) as Arc<dyn Engine>]);
                parts.gpu_token_memory = Some(Arc::new(engine.tokens()) as Arc<dyn TokenMemory>);
                parts.local_memories = memories;
                let comm = Communicator::new(parts).unwrap();
                let context = engine.context().unwrap();
                let memory = || DeviceMemory::allocate(&context, SIZE, &[]).unwrap();
                let (mine, received) = (memory(), memory());
                let register = |memory: &DeviceMemory| -> RegisteredMemory {
                    let region = memory.region().unwrap();
                    comm.register_memory(region, Transport::CudaIpc.into(), Access::ALL).unwrap()
                };
                let (source, target) = (register(&mine), register(&received));
                let peer = 1 - number;
                let endpoint = EndpointConfig { transport: Transport::CudaIpc, ..EndpointConfig::default() };
                let connection = comm.connect(endpoint, peer, 0).unwrap().wait(soon()).unwrap();
                let config = PortConfig { fifo_size: 4, ..PortConfig::default() };
                let ports = PortService::new(&context, comm.waiter().clone(), 0, &config).unwrap();
                let service = ports.service();
                let _sent = comm.send_memory(&target, peer, 0).unwrap();
                let remote = comm.recv_memory(peer, 0).unwrap().wait(soon()).unwrap();
                let semaphore = service.build_and_add_semaphore(&comm, &connection, soon()).unwrap();
                let destination = service.add_memory(&remote).unwrap();
                let source = service.add_memory(&source).unwrap();
                let channel = service.port_channel(semaphore, destination, source).unwrap();
                service.start_proxy().unwrap();
                let kernel = producer.channel(fake, ports.port_channel(&channel).unwrap());
                Rank { kernel, ports, mine, received, comm }
            })
        };
        let threads = [rank(0), rank(1)];
        threads.map(|thread| thread.join().unwrap()).into()
    })
}

fn fill(fake: &Fake, memory: &DeviceMemory, byte: impl Fn(usize) -> u8) {
    let first = fake.host_address(memory.address()).unwrap();
    for i in 0..SIZE as usize {
        // SAFETY: within the allocation, which lives; nobody else touches it between a round's end and the next one.
        unsafe { first.add(i).write(byte(i)) };
    }
}

fn bytes(fake: &Fake, memory: &DeviceMemory) -> Vec<u8> {
    let first = fake.host_address(memory.address()).unwrap();
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts(first, SIZE as usize) }.to_vec()
}

/// Each way to send, both directions at once: what arrives when the wait returns is what was there before the call.
#[test]
fn data_arrives_before_its_signal() {
    let Some(producer) = Producer::load() else { return };
    let fake = Fake::open();
    fake.set("devices=2");
    let ranks = ranks(&fake, &producer);
    for round in 0..30u64 {
        let (at, from, size) = (round * 1001, round * 77, 1 + round * round * 900);
        let byte = |rank: usize, i: usize| (i * 31 + i / 251 + round as usize * 7 + rank * 101) as u8;
        for (rank, peer) in ranks.iter().enumerate() {
            fill(&fake, &peer.mine, |i| byte(rank, i));
            fill(&fake, &peer.received, |_| 0xa5);
        }
        std::thread::scope(|scope| {
            for rank in &ranks {
                scope.spawn(move || match round % 3 {
                    0 => {
                        assert_ne!(rank.kernel.put(at, from, size), u64::MAX);
                        rank.kernel.signal();
                        assert_eq!((rank.kernel.flush(), rank.kernel.wait()), (0, 0));
                    }
                    1 => {
                        rank.kernel.put_with_signal(at, from, size);
                        assert_eq!((rank.kernel.wait(), rank.kernel.flush()), (0, 0));
                    }
                    _ => {
                        assert_eq!(rank.kernel.put_with_signal_and_flush(at, from, size), 0);
                        while !rank.kernel.poll() {
                            std::thread::yield_now();
                        }
                    }
                });
            }
        });
        for (rank, here) in ranks.iter().enumerate() {
            assert!(!here.kernel.poll(), "one signal each");
            let expected = |i: usize| match (i as u64).checked_sub(at).filter(|i| *i < size) {
                Some(i) => byte(1 - rank, (i + from) as usize),
                None => 0xa5,
            };
            let found = bytes(&fake, &here.received);
            let wrong = (0..SIZE as usize).find(|i| found[*i] != expected(*i));
            assert_eq!(wrong, None, "round {round}, rank {rank}");
        }
    }
    assert!(ranks.iter().all(|rank| rank.comm.async_error().is_none()));
    drop(ranks);
    let deadline = soon();
    while fake.live() != Live::default() {
        assert!(!deadline.expired(), "{:?}", fake.live());
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// A memory whose id is removed goes when the requests that named it are done, though nobody flushes or asks for more.
#[test]
fn what_requests_have_used_goes_while_nothing_comes() {
    let Some(producer) = Producer::load() else { return };
    let fake = Fake::open();
    fake.set("devices=2");
    let ranks = ranks(&fake, &producer);
    let Rank { kernel, ports, mine, comm, .. } = &ranks[0];
    let fifo = producer.fifo(&fake, &ports.fifo_handle(0));
    let before = fake.live();
    let memory = DeviceMemory::allocate(mine.context(), SIZE, &[]).unwrap();
    let region = memory.region().unwrap();
    let registered = comm.register_memory(region, Transport::CudaIpc.into(), Access::ALL).unwrap();
    let source = ports.service().add_memory(&registered).unwrap();
    let channel = kernel.channel();
    let semaphore = channel.base().semaphore_id();
    let kind = TriggerKind::DATA | TriggerKind::FLAG;
    let mut trigger = Trigger::new(kind, semaphore);
    (trigger.destination, trigger.source, trigger.size) = (channel.destination_id(), source, SIZE);
    let position = fifo.push(trigger);
    assert_eq!(fifo.sync(position), 0);
    assert_eq!(ranks[1].kernel.wait(), 0);
    ports.service().remove_memory(source).unwrap();
    drop((memory, registered));
    eventually("the memory is freed", || fake.live() == before);
}

/// A range that the handle permits and the memory does not have: the flush fails, the error names rank, peer and sizes.
#[test]
fn a_request_that_the_proxy_refuses() {
    let Some(producer) = Producer::load() else { return };
    let fake = Fake::open();
    fake.set("devices=2");
    let ranks = ranks(&fake, &producer);
    fill(&fake, &ranks[1].received, |_| 0xa5);
    let liar = ranks[0].kernel.with_sizes(2 * SIZE);
    assert_ne!(liar.put_with_signal(1, 0, SIZE), u64::MAX, "the kernel sees nothing wrong");
    assert_eq!(liar.flush(), 2);
    let error = ranks[0].comm.async_error().unwrap();
    assert_eq!(error.id(), "mem.bounds");
    let text = error.to_string();
    assert!(text.contains("rank 0") && text.contains(&SIZE.to_string()), "{text}");
    assert!(bytes(&fake, &ranks[1].received).iter().all(|b| *b == 0xa5));
    assert!(!ranks[1].kernel.poll());
}

/// A stop lets nothing pass for done; a handle of another service is refused.
#[test]
fn a_stop_and_a_wrong_service() {
    let Some(producer) = Producer::load() else { return };
    let fake = Fake::open();
    fake.set("devices=2");
    let ranks = ranks(&fake, &producer);
    assert_eq!(
        ranks[0].ports.service().stop_proxy(Deadline::after(soon().remaining().unwrap())).unwrap().rejected,
        0
    );
    assert_eq!(ranks[0].kernel.flush(), 2);
    ranks[0].ports.service().start_proxy().unwrap();
    // The flush before was not counted as failed by anybody: it is carried out now, and so is the next one.
    assert_eq!(ranks[0].kernel.flush(), 0);
    let foreign = ranks[1].kernel.channel();
    let error = ranks[0].ports.port_channel(foreign).unwrap_err();
    assert_eq!(error.id(), "proxy.usage");
    assert!(error.to_string().contains("another proxy service"), "{error}");
}
