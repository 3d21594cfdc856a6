//! Memory channels between two ranks: exact data whatever the size and alignment, and nothing beside it.

use warpway::core::channel::DeviceHandle;
use warpway::cuda::{GpuMemoryChannel, GpuSyncer, Kernel, MemoryChannelDeviceHandle};
use warpway::{Communicator, Deadline, Gpu, GpuBuffer, LaunchShape, Result, Stream, Transport};

use crate::rig::{Ranks, Source};

/// Bytes of the memories.
const LENGTH: u64 = (1 << 20) + 257;

const SHAPES: [LaunchShape; 3] = [
    LaunchShape { blocks: 1, threads: 32, shared_bytes: 0 },
    LaunchShape { blocks: 3, threads: 96, shared_bytes: 0 },
    LaunchShape { blocks: 16, threads: 512, shared_bytes: 0 },
];

/// Offset in the peer's memory, offset in this rank's, bytes.
const PIECES: [(u64, u64, u64); 22] = [
    (0, 0, 0),
    (0, 0, 1),
    (1, 1, 3),
    (5, 9, 4),
    (3, 7, 7),
    (8, 0, 8),
    (15, 15, 15),
    (16, 32, 16),
    (2, 14, 17),
    (31, 1, 31),
    (1, 31, 33),
    (0, 0, 100),
    (13, 13, 255),
    (4, 12, 257),
    (0, 16, 4095),
    (7, 9, 4097),
    (12, 4, 65_537),
    (0, 0, 1 << 20),
    (1, 1, 1 << 20),
    (3, 250, 1 << 20),
    (257, 0, 1 << 20),
    (0, 0, LENGTH),
];

pub(crate) fn soon() -> Deadline {
    Deadline::after(std::time::Duration::from_secs(30))
}

pub(crate) fn kernel(gpu: &Gpu, name: &str) -> Result<Kernel> {
    gpu.load(&Source::RANKS.program())?.kernel(name)
}

/// A channel to the other of two ranks.
pub(crate) struct Pair {
    pub(crate) gpu: Gpu,
    pub(crate) stream: Stream,
    pub(crate) mine: GpuBuffer<u8>,
    /// Where the peer puts.
    pub(crate) received: GpuBuffer<u8>,
    pub(crate) handle: DeviceHandle<MemoryChannelDeviceHandle, GpuMemoryChannel>,
    pub(crate) barrier: GpuSyncer,
    pub(crate) outcome: GpuBuffer<u64>,
}

impl Pair {
    pub(crate) fn new(comm: &Communicator, length: u64) -> Result<Self> {
        let gpu = comm.gpu()?;
        let peer = comm.connect_by(1 - comm.rank(), Transport::CudaIpc)?;
        let (mine, received) = (gpu.alloc(length)?, gpu.alloc(length)?);
        let remote = peer.exchange_memory(&received)?;
        let handle = gpu.memory_channel(&peer.memory_channel(&mine, &remote)?)?;
        let (barrier, outcome) = (gpu.syncer(1)?, gpu.alloc(1)?);
        Ok(Self { stream: gpu.stream()?, gpu, mine, received, handle, barrier, outcome })
    }
}

/// Of a rank in a turn; no two neighbours alike.
fn pattern(rank: u32, turn: u64, at: u64) -> u8 {
    (u64::from(rank) * 101 + turn * 37 + at * 29 + at / 256) as u8
}

fn patterns(rank: u32, turn: u64, length: u64) -> Vec<u8> {
    (0..length).map(|at| pattern(rank, turn, at)).collect()
}

fn put_exactly(comm: &Communicator) -> Result<()> {
    let pair = Pair::new(comm, LENGTH)?;
    let put = kernel(&pair.gpu, "put_signal_wait")?;
    let me = comm.rank();
    for (turn, (target, origin, bytes)) in (0..).zip(PIECES) {
        let (target, origin) = if bytes == LENGTH { (0, 0) } else { (target, origin) };
        for shape in SHAPES {
            let (data, canaries) = (patterns(me, turn, LENGTH), patterns(7, turn, LENGTH));
            pair.mine.write(0, &data)?;
            pair.received.write(0, &canaries)?;
            pair.outcome.write(0, &[9])?;
            comm.barrier()?;
            let arguments = (&pair.handle, &pair.barrier, target, origin, bytes, &pair.outcome);
            // SAFETY: the parameters of `put_signal_wait`; both ranges are within the memories.
            unsafe { pair.gpu.launch(&put, shape, arguments, &pair.stream)? };
            pair.gpu.synchronize(&pair.stream, soon())?;
            let mut expected = canaries;
            for at in 0..bytes {
                expected[(target + at) as usize] = pattern(1 - me, turn, origin + at);
            }
            assert_eq!(pair.outcome.to_vec()?, [0], "{bytes} bytes, {shape:?}");
            let found = pair.received.to_vec()?;
            let wrong = (0..LENGTH as usize).find(|at| found[*at] != expected[*at]);
            assert_eq!(wrong, None, "{bytes} bytes from {origin} to {target}, {shape:?}");
            assert!(pair.mine.to_vec()? == data, "the source of {bytes} bytes has changed");
        }
    }
    comm.barrier()
}

/// Data of a packet message at most.
const MESSAGE: u64 = 5000;
/// Bytes of the packets of one message: twice the data, in whole packets.
const HALF: u64 = MESSAGE.div_ceil(8) * 16;

fn packets_exactly(comm: &Communicator) -> Result<()> {
    let (gpu, me) = (comm.gpu()?, comm.rank());
    let peer = comm.connect_by(1 - me, Transport::CudaIpc)?;
    let packets = gpu.alloc::<u8>(2 * HALF)?;
    let memory = gpu.alloc::<u8>(2 * MESSAGE)?;
    let remote = peer.exchange_memory(&packets)?;
    let handle = gpu.memory_channel(&peer.packet_channel(&memory, &remote, &packets)?)?;
    let (epochs, outcome, stream) = (gpu.epochs(1)?, gpu.alloc::<u64>(1)?, gpu.stream()?);
    let exchange = kernel(&gpu, "exchange_packets")?;
    // The flag starts again on the way.
    let first = u64::from(u32::MAX) - 50;
    epochs.set(0, first)?;
    let sizes = (0..=66).chain([127, 128, 129, 1000, 4095, MESSAGE - 1, MESSAGE]);
    let mut launches = 0;
    for (turn, bytes) in (0..).zip(sizes) {
        for shape in SHAPES {
            let (data, canaries) = (patterns(me, turn, MESSAGE), patterns(7, turn, MESSAGE));
            memory.write(0, &data)?;
            memory.write(MESSAGE, &canaries)?;
            comm.barrier()?;
            let arguments = (&handle, &epochs, MESSAGE, bytes, HALF, &outcome);
            // SAFETY: the parameters of `exchange_packets`; all ranges are within the memories.
            unsafe { gpu.launch(&exchange, shape, arguments, &stream)? };
            gpu.synchronize(&stream, soon())?;
            launches += 1;
            let mut expected = data;
            expected.extend(
                (0..MESSAGE).map(
                    |at| {
                        if at < bytes { pattern(1 - me, turn, at) } else { canaries[at as usize] }
                    },
                ),
            );
            assert!(memory.to_vec()? == expected, "{bytes} bytes, {shape:?}");
        }
    }
    assert_eq!((outcome.to_vec()?, epochs.get(0)?), (vec![0], first + launches));
    comm.barrier()
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn puts_of_two_threads() {
    Ranks::new(2).threads(put_exactly);
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn puts_of_two_processes() {
    Ranks::new(2).processes(put_exactly);
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn packets_of_two_threads() {
    Ranks::new(2).threads(packets_exactly);
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn packets_of_two_processes() {
    Ranks::new(2).processes(packets_exactly);
}
