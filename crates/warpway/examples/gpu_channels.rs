//! Tutorial 7: kernels of two ranks send a number to and fro, put, signal, wait and exchange packets, on one GPU or two.
//!
//! `target/release/examples/gpu_channels` (ranks as threads), or
//! `warpway launch -n 2 -- target/release/examples/gpu_channels` (as processes);
//! docs/tutorials/07-gpu.md explains it.

use std::time::Duration;

use warpway::{Communicator, Context, Deadline, LaunchShape, Program, Result, Transport, in_process};

/// The kernels.
const SOURCE: &str = include_str!("gpu_channels.cu");

/// An odd number of elements: threads get shares of any size.
const LEN: u64 = 1_000_003;
/// Few enough that packets are the faster way.
const FEW: u64 = 1001;
const REPLAYS: u32 = 10;
const ROUND_TRIPS: u32 = 1000;

fn main() -> anyhow::Result<()> {
    match Communicator::from_env() {
        // No launcher: the ranks are threads of this process.
        Err(error) if error.id() == "config.launcher" => drop(in_process(2, &Context::from_env()?, run)?),
        joined => {
            let comm = joined?;
            anyhow::ensure!(comm.n_ranks() == 2, "this program is for 2 ranks, not {}", comm.n_ranks());
            run(&comm)?;
        }
    }
    Ok(())
}

fn run(comm: &Communicator) -> Result<()> {
    let gpu = comm.gpu()?;
    let stream = gpu.stream()?;
    let program = gpu.load(&Program::new("gpu_channels.cu", SOURCE).device_headers())?;
    let [ping_pong, swap, add_packets] =
        [program.kernel("ping_pong")?, program.kernel("swap")?, program.kernel("add_packets")?];

    let peer = comm.connect_by(1 - comm.rank(), Transport::CudaIpc)?;
    let (outgoing, incoming) = (gpu.alloc::<u32>(LEN)?, gpu.alloc::<u32>(LEN)?);
    let remote = peer.exchange_memory(&incoming)?;
    let channel = gpu.memory_channel(&peer.memory_channel(&outgoing, &remote)?)?;
    let barrier = gpu.syncer(0)?;
    // Both are ready: from here on kernels wait for each other.
    comm.barrier()?;

    let arguments = (&channel, &incoming, comm.rank(), ROUND_TRIPS);
    // SAFETY: the arguments are those of `ping_pong`.
    unsafe { gpu.launch(&ping_pong, LaunchShape::new(1, 1), arguments, &stream)? };
    gpu.synchronize(&stream, Deadline::after(Duration::from_secs(10)))?;
    let mut last = [0];
    incoming.read(0, &mut last)?;
    assert_eq!(last, [2 * ROUND_TRIPS - 1 - comm.rank()]);

    outgoing.write(0, &numbers(comm.rank()))?;
    // The peer has read its number: it may be overwritten.
    comm.barrier()?;
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
    comm.barrier()?;
    for _ in 0..REPLAYS {
        graph.launch(&stream)?;
    }
    gpu.synchronize(&stream, Deadline::after(Duration::from_secs(10)))?;
    // 1 + 2 = 3, then 3 + 3, 6 + 6, …
    assert_eq!(sums.to_vec()?, [(3 << (REPLAYS - 1)) as f32; FEW as usize]);

    println!(
        "rank {}: {ROUND_TRIPS} round trips, {LEN} numbers each way, {REPLAYS} sums of {FEW} by packets, all correct",
        comm.rank()
    );
    comm.barrier()
}

/// Other numbers for each rank.
fn numbers(rank: u32) -> Vec<u32> {
    (0..LEN as u32).map(|i| i.wrapping_mul(2_654_435_761) ^ rank).collect()
}
