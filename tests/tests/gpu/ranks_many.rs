//! More ranks than GPUs: an all-gather of 4 and 8 ranks on 2 devices, one stream each.

use warpway::core::semaphore::MemoryDevice2DeviceSemaphore;
use warpway::{Communicator, LaunchShape, MemoryChannel, Result, Transport};

use crate::ranks_channels::{kernel, soon};
use crate::rig::Ranks;

/// Bytes of a rank's share in each round.
const SHARES: [u64; 5] = [1, 16, 1000, 4099, 100_003];

fn all_gather(comm: &Communicator) -> Result<()> {
    let (gpu, me, n) = (comm.gpu()?, comm.rank(), comm.n_ranks());
    let longest = SHARES.into_iter().max().unwrap();
    let all = gpu.alloc::<u8>(u64::from(n) * longest)?;
    let others: Vec<_> =
        comm.connect_all(Some(Transport::CudaIpc))?.into_iter().filter(|peer| peer.rank() != me).collect();
    // Everything is started with all before anything is waited for.
    for peer in &others {
        peer.send_memory(&all)?;
    }
    let remotes: Vec<_> = others.iter().map(|peer| peer.recv_memory()).collect::<Result<_>>()?;
    let semaphores: Vec<_> = others.iter().map(|peer| peer.start_semaphore()).collect::<Result<_>>()?;
    let mut handles = Vec::new();
    for (remote, semaphore) in remotes.into_iter().zip(semaphores) {
        let semaphore = MemoryDevice2DeviceSemaphore::new(semaphore.wait(soon())?)?;
        let channel = MemoryChannel::new(semaphore, remote, all.memory().clone(), None)?;
        handles.push(gpu.memory_channel(&channel)?);
    }
    let (handles, failed, stream) = (gpu.handle_array(&handles)?, gpu.alloc::<u64>(1)?, gpu.stream()?);
    let gather = kernel(&gpu, "all_gather")?;
    let shape = LaunchShape::new(n - 1, 128);
    let byte = |rank: u32, round: usize, at: u64| {
        (u64::from(rank) * 83 + round as u64 * 31 + at * 7 + at / 256) as u8
    };
    for (round, share) in SHARES.into_iter().cycle().take(4 * SHARES.len()).enumerate() {
        let offset = u64::from(me) * share;
        all.fill(0xee)?;
        all.write(offset, &(0..share).map(|at| byte(me, round, at)).collect::<Vec<u8>>())?;
        comm.barrier()?;
        // SAFETY: the parameters of `all_gather`; all shares are within the memories.
        unsafe { gpu.launch(&gather, shape, (&handles, offset, share, &failed), &stream)? };
        gpu.synchronize(&stream, soon())?;
        let mut expected: Vec<u8> =
            (0..n).flat_map(|rank| (0..share).map(move |at| byte(rank, round, at))).collect();
        expected.resize(all.bytes() as usize, 0xee);
        assert!(all.to_vec()? == expected, "round {round}: {share} bytes of each rank");
        assert_eq!(failed.to_vec()?, [0]);
        comm.barrier()?;
    }
    // A barrier of all ranks on the devices, launched many times without the host in between.
    let meet = kernel(&gpu, "signal_all")?;
    let graph = gpu.capture(&stream, || {
        // SAFETY: the parameters of `signal_all`.
        unsafe { gpu.launch(&meet, LaunchShape::new(n - 1, 32), (&handles, &failed), &stream) }
    })?;
    comm.barrier()?;
    for _ in 0..50 {
        graph.launch(&stream)?;
    }
    gpu.synchronize(&stream, soon())?;
    assert_eq!(failed.to_vec()?, [0]);
    comm.barrier()
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn four_threads() {
    Ranks::new(4).threads(all_gather);
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn eight_threads() {
    Ranks::new(8).threads(all_gather);
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn four_processes() {
    Ranks::new(4).processes(all_gather);
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn eight_processes() {
    Ranks::new(8).processes(all_gather);
}
