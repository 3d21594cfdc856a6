//! A graph that is captured once and launched very often, with new data each time, mixed with launches beside it.

use std::time::Duration;

use warpway::core::channel::DeviceHandle;
use warpway::cuda::{
    EpochsHandle, GpuEpochs, GpuMemoryChannel, GpuSyncer, Kernel, KernelArgument, MemoryChannelDeviceHandle,
};
use warpway::{
    Communicator, Deadline, Gpu, GpuBuffer, GpuGraph, LaunchShape, Plain, Result, Stream, Transport,
};

use crate::ranks_channels::kernel;
use crate::rig::{Ranks, rounds};

const REPLAYS: u64 = 100_000;
/// Each of them is followed by a launch beside the graph.
const EAGER: u64 = 1000;
/// Words of a message, by put and as packets.
const WORDS: u64 = 500;

const SHAPE: LaunchShape = LaunchShape { blocks: 4, threads: 128, shared_bytes: 0 };

/// As in `ranks.cu`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Replay {
    data: MemoryChannelDeviceHandle,
    packets: MemoryChannelDeviceHandle,
    barrier: u64,
    epochs: EpochsHandle,
    received: u64,
    words: u64,
    rank: u64,
    peer: u64,
    wrong: u64,
}

type Handle = DeviceHandle<MemoryChannelDeviceHandle, GpuMemoryChannel>;

/// All that a launch uses.
struct Replayed {
    gpu: Gpu,
    stream: Stream,
    kernel: Kernel,
    parameters: Replay,
    epochs: GpuEpochs,
    wrong: GpuBuffer<u64>,
    _kept: (Handle, Handle, GpuSyncer, GpuBuffer<u64>),
}

impl Replayed {
    fn new(comm: &Communicator) -> Result<Self> {
        let (gpu, me) = (comm.gpu()?, comm.rank());
        let peer = comm.connect_by(1 - me, Transport::CudaIpc)?;
        let (source, received) = (gpu.alloc::<u64>(2 * WORDS)?, gpu.alloc::<u64>(2 * WORDS)?);
        let packets = gpu.alloc::<u64>(4 * WORDS)?;
        let (remote, remote_packets) = (peer.exchange_memory(&received)?, peer.exchange_memory(&packets)?);
        let data = gpu.memory_channel(&peer.memory_channel(&source, &remote)?)?;
        let packets = gpu.memory_channel(&peer.packet_channel(&source, &remote_packets, &packets)?)?;
        let (barrier, epochs, wrong) = (gpu.syncer(1)?, gpu.epochs(1)?, gpu.alloc(2)?);
        let parameters = Replay {
            data: *data,
            packets: *packets,
            barrier: barrier.address(),
            epochs: (&epochs).value(),
            received: received.address(),
            words: WORDS,
            rank: me.into(),
            peer: (1 - me).into(),
            wrong: wrong.address(),
        };
        let (stream, kernel) = (gpu.stream()?, kernel(&gpu, "replay")?);
        Ok(Self { gpu, stream, kernel, parameters, epochs, wrong, _kept: (data, packets, barrier, received) })
    }

    fn launch(&self) -> Result<()> {
        // SAFETY: the parameters of `replay`; `self` keeps what they name, and is dropped when all has ended.
        unsafe { self.gpu.launch(&self.kernel, SHAPE, (Plain(self.parameters),), &self.stream) }
    }

    fn graph(&self) -> Result<GpuGraph> {
        self.gpu.capture(&self.stream, || self.launch())
    }

    fn finish(&self, launches: u64) -> Result<()> {
        self.gpu.synchronize(&self.stream, Deadline::after(Duration::from_secs(60)))?;
        assert_eq!((self.wrong.to_vec()?, self.epochs.get(0)?), (vec![0, launches], launches));
        Ok(())
    }
}

fn replay(comm: &Communicator) -> Result<()> {
    let replayed = Replayed::new(comm)?;
    let graph = replayed.graph()?;
    comm.barrier()?;
    let mut launches = 0;
    for turn in 0..rounds(REPLAYS) {
        graph.launch(&replayed.stream)?;
        launches += 1;
        if turn % EAGER == 0 {
            replayed.launch()?;
            launches += 1;
        }
    }
    replayed.finish(launches)?;
    comm.barrier()
}

/// Two communicators of the same ranks, on streams of their own, in another order on each rank.
fn two_communicators(comm: &Communicator) -> Result<()> {
    let other = comm.split(0, -(comm.rank() as i32))?.unwrap();
    let both = [Replayed::new(comm)?, Replayed::new(&other)?];
    let graphs = [both[0].graph()?, both[1].graph()?];
    comm.barrier()?;
    let turns = rounds(5000);
    for turn in 0..turns {
        let first = (turn + u64::from(comm.rank())) as usize % 2;
        for which in [first, 1 - first] {
            graphs[which].launch(&both[which].stream)?;
        }
    }
    for replayed in &both {
        replayed.finish(turns)?;
    }
    comm.barrier()
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn many_replays_of_two_threads() {
    Ranks::new(2).threads(replay);
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn many_replays_of_two_processes() {
    Ranks::new(2).processes(replay);
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn two_communicators_of_two_threads() {
    Ranks::new(2).threads(two_communicators);
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn two_communicators_of_two_processes() {
    Ranks::new(2).processes(two_communicators);
}
