//! Tutorial 5: a collective of your own: an all-gather in which each block serves one peer.
//!
//! `warpway launch -n 4 -- target/release/examples/all_gather`; docs/tutorials/05-all-gather.md explains it.

use warpway::{Buffer, Communicator, PortChannelHandle, Result};

/// Elements of each rank's part.
const PART: u64 = 4095;
const ROUNDS: u32 = 5;

fn main() -> anyhow::Result<()> {
    let comm = Communicator::from_env()?;
    anyhow::ensure!(comm.n_ranks() >= 2, "an all-gather takes at least 2 ranks");
    let gather = AllGather::new(&comm)?;
    let barrier = comm.make_barrier()?;

    for round in 0..ROUNDS {
        gather.data.fill(u32::MAX)?;
        gather.data.write(u64::from(comm.rank()) * PART, &part(comm.rank(), round))?;
        // Puts of quick ranks must not land in a buffer that is still being prepared …
        barrier.wait()?;
        gather.run()?;
        let expected: Vec<u32> = (0..comm.n_ranks()).flat_map(|rank| part(rank, round)).collect();
        anyhow::ensure!(gather.data.to_vec()? == expected, "round {round}: wrong data");
        // … or is still being read.
        barrier.wait()?;
    }
    let (rank, n_ranks) = (comm.rank(), comm.n_ranks());
    println!("rank {rank}: {ROUNDS} all-gathers of {n_ranks} x {PART} numbers, all correct");
    comm.barrier()?;
    Ok(())
}

/// In place: the part of rank r is elements `r * PART ..` of `data`, on every rank.
struct AllGather {
    comm: Communicator,
    data: Buffer<u32>,
    /// To every other rank.
    channels: Vec<PortChannelHandle>,
}

impl AllGather {
    /// Collective, once: connections, exchange of memories, channels.
    fn new(comm: &Communicator) -> Result<Self> {
        let data = comm.alloc(PART * u64::from(comm.n_ranks()))?;
        let peers = comm.connect_all(None)?;
        let service = comm.proxy_service()?;
        let mut channels = Vec::new();
        for peer in peers.iter().filter(|peer| peer.rank() != comm.rank()) {
            let remote = peer.exchange_memory(&data)?;
            channels.push(peer.port_channel(&service, &data, &remote)?.device_handle());
        }
        Ok(Self { comm: comm.clone(), data, channels })
    }

    /// As often as you like: one kernel, one block for each peer, no step that waits for a third rank.
    fn run(&self) -> Result<()> {
        let bytes = PART * size_of::<u32>() as u64;
        let own = u64::from(self.comm.rank()) * bytes;
        self.comm.launch(self.channels.len() as u32, |block| {
            let channel = &self.channels[block.index() as usize];
            // My part to the same place there; the peer's counter rises after the bytes have arrived.
            channel.put_with_signal(own, own, bytes)?;
            // My part has left and may be changed.
            channel.flush()?;
            // The peer's part has arrived and may be read.
            channel.wait()
        })
    }
}

/// Other numbers for each rank and round, so that old or misplaced data cannot pass for new.
fn part(rank: u32, round: u32) -> Vec<u32> {
    (0..PART as u32).map(|i| i.wrapping_mul(2_654_435_761) ^ (round << 8 | rank)).collect()
}
