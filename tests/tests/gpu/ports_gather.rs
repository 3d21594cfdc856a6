//! The customised all-gather: a warp per peer, each sends this rank's part by put with signal, flushes, and waits.

use warpway::cuda::PortConfig;
use warpway::{Communicator, LaunchShape, Result, Transport};

use crate::ports_channels::kernel;
use crate::ranks_channels::soon;
use crate::rig::{Ranks, rounds};

fn all_gather(comm: &Communicator) -> Result<()> {
    let (gpu, me, n) = (comm.gpu()?, comm.rank(), comm.n_ranks());
    let ports = gpu.port_service(&PortConfig::default())?;
    let peers = comm.connect_all(Some(Transport::CudaIpc))?;
    let kernel = kernel(&gpu, "port_all_gather")?;
    let stream = gpu.stream()?;
    for bytes in [8, 1000, 65_536, (1 << 20) + 4] {
        let memory = gpu.alloc::<u8>(bytes * u64::from(n))?;
        let others = || peers.iter().filter(|peer| peer.rank() != me);
        others().try_for_each(|peer| peer.send_memory(&memory))?;
        let remotes = others().map(|peer| peer.recv_memory()).collect::<Result<Vec<_>>>()?;
        // Started with all peers before any is waited for: no order of ranks can deadlock.
        let semaphores = others().map(|peer| peer.start_semaphore()).collect::<Result<Vec<_>>>()?;
        let service = ports.service();
        let source = service.add_memory(memory.memory())?;
        let mut handles = Vec::new();
        for (semaphore, remote) in semaphores.into_iter().zip(&remotes) {
            let id = service.add_semaphore(&semaphore.wait(soon())?)?;
            let channel = service.port_channel(id, service.add_memory(remote)?, source)?;
            handles.push(ports.port_channel(&channel)?);
        }
        let channels = gpu.handle_array(&handles)?;
        let outcome = gpu.alloc::<u64>(1)?;
        let part = |rank: u32, turn: u64| -> Vec<u8> {
            (0..bytes).map(|i| (i * 31 + i / 251 + turn * 7 + u64::from(rank) * 59) as u8).collect()
        };
        for turn in 0..rounds(20).max(3) {
            memory.fill(0xa5)?;
            memory.write(bytes * u64::from(me), &part(me, turn))?;
            comm.barrier()?;
            let shape = LaunchShape { blocks: 1, threads: 32 * (n - 1), shared_bytes: 0 };
            let offset = bytes * u64::from(me);
            let arguments = (&channels, handles.len() as u64, offset, bytes, &outcome);
            // SAFETY: the parameters of `port_all_gather`; the part is within all memories, which have the same size.
            unsafe { gpu.launch(&kernel, shape, arguments, &stream)? };
            gpu.synchronize(&stream, soon())?;
            assert_eq!(outcome.to_vec()?, [0], "flushes and waits that failed");
            let expected: Vec<u8> = (0..n).flat_map(|rank| part(rank, turn)).collect();
            assert!(memory.to_vec()? == expected, "rank {me}, {bytes} bytes, turn {turn}");
            comm.barrier()?;
        }
    }
    comm.barrier()
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn two_ranks_threads() {
    Ranks::new(2).threads(all_gather);
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn two_ranks_processes() {
    Ranks::new(2).processes(all_gather);
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn four_ranks() {
    Ranks::new(4).threads(all_gather);
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn eight_ranks() {
    Ranks::new(8).threads(all_gather);
}
