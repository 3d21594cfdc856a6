//! Tutorial 7: kernels of two ranks put, signal, wait and exchange packets, on one GPU or two.
//!
//! `target/release/examples/gpu_channels` (ranks as threads), or
//! `warpway launch -n 2 -- target/release/examples/gpu_channels` (as processes);
//! docs/tutorials/07-gpu.md explains it.

use std::time::Duration;

use warpway::cuda::jit::Program;
use warpway::{Communicator, Context, Deadline, LaunchShape, Result, Transport, in_process};

/// The kernels.
const SOURCE: &str = include_str!("gpu_channels.cu");

/// An odd number of elements: threads get shares of any size.
const LEN: u64 = 1_000_003;
/// Few enough that packets are the faster way.
const FEW: u64 = 1001;
const REPLAYS: u32 = 10;

fn main() -> Result<()> {
    if std::env::var_os("WARPWAY_WORLD_SIZE").is_some() {
        return run(&Communicator::from_env()?);
    }
    in_process(2, &Context::from_env()?, run).map(drop)
}

fn run(comm: &Communicator) -> Result<()> {
    let gpu = comm.gpu()?;
    let stream = gpu.stream()?;
    let program = gpu.load(&Program::new("gpu_channels.cu", SOURCE).device_headers())?;
    let (swap, add_packets) = (program.kernel("swap")?, program.kernel("add_packets")?);

    let peer = comm.connect_by(1 - comm.rank(), Transport::CudaIpc)?;
    let (outgoing, incoming) = (gpu.alloc::<u32>(LEN)?, gpu.alloc::<u32>(LEN)?);
    let remote = peer.exchange_memory(&incoming)?;
    let channel = gpu.memory_channel(&peer.memory_channel(&outgoing, &remote)?)?;
    let barrier = gpu.syncer(0)?;

    outgoing.write(0, &numbers(comm.rank()))?;
    let shape = LaunchShape::new(8, 512);
    // SAFETY: the arguments are those of `swap`.
    unsafe { gpu.launch(&swap, shape, (&channel, &barrier, outgoing.bytes()), &stream)? };
    gpu.synchronize(&stream, Deadline::after(Duration::from_secs(10)))?;
    assert!(incoming.to_vec()? == numbers(peer.rank()), "wrong data");

    // Two halves of packets, each twice as long as the data.
    let (sums, packets) = (gpu.alloc::<f32>(FEW)?, gpu.alloc::<u64>(2 * FEW)?);
    let remote = peer.exchange_memory(&packets)?;
    let channel = gpu.memory_channel(&peer.packet_channel(&sums, &remote, &packets)?)?;
    let epochs = gpu.epochs(1)?;

    sums.fill((1 + comm.rank()) as f32)?;
    let graph = gpu.capture(&stream, || {
        // SAFETY: the arguments are those of `add_packets`.
        unsafe {
            gpu.launch(&add_packets, LaunchShape::new(1, 512), (&channel, &epochs, &sums, FEW), &stream)
        }
    })?;
    for _ in 0..REPLAYS {
        graph.launch(&stream)?;
    }
    gpu.synchronize(&stream, Deadline::after(Duration::from_secs(10)))?;
    // 1 + 2 = 3, then 3 + 3, 6 + 6, …
    assert_eq!(sums.to_vec()?, [(3 << (REPLAYS - 1)) as f32; FEW as usize]);

    println!("rank {}: {LEN} numbers each way, {REPLAYS} sums of {FEW} by packets, all correct", comm.rank());
    comm.barrier()
}

/// Other numbers for each rank.
fn numbers(rank: u32) -> Vec<u32> {
    (0..LEN as u32).map(|i| i.wrapping_mul(2_654_435_761) ^ rank).collect()
}
