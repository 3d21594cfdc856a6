//! Tutorial 3: two ranks exchange arrays in both directions at once, each with several blocks.
//!
//! `warpway launch -n 2 -- target/release/examples/memory_channel`; docs/tutorials/03-memory-channel.md
//! explains it.

use warpway::Communicator;

/// An odd number of elements: blocks get shares of any size.
const LEN: u64 = 1_000_003;
const BLOCKS: u32 = 3;
const ROUNDS: u32 = 5;

fn main() -> anyhow::Result<()> {
    let comm = Communicator::from_env()?;
    anyhow::ensure!(comm.n_ranks() == 2, "this program is for 2 ranks, not {}", comm.n_ranks());

    let peer = comm.connect(1 - comm.rank())?;
    let (outgoing, incoming) = (comm.alloc::<u32>(LEN)?, comm.alloc::<u32>(LEN)?);
    let remote = peer.exchange_memory(&incoming)?;
    let channel = comm.block_channel(&peer.memory_channel(&outgoing, &remote)?)?;

    for round in 0..ROUNDS {
        outgoing.write(0, &numbers(comm.rank(), round))?;

        comm.launch(BLOCKS, |block| {
            // All blocks copy, each its share of the bytes.
            channel.put_same(0, outgoing.bytes(), block.share())?;
            // A signal covers what its own thread has done or has seen done; the barrier makes block 0 see
            // the puts of the others.
            block.barrier()?;
            if block.index() == 0 {
                channel.signal()?;
                channel.wait()?;
            }
            // What block 0 has seen by its wait, all blocks see after this.
            block.barrier()
        })?;

        // The wait has returned: `incoming` is complete. My puts have returned: `outgoing` is mine again.
        anyhow::ensure!(incoming.to_vec()? == numbers(peer.rank(), round), "round {round}: wrong data");

        // Without this the peer's next put could overwrite `incoming` while I still compare: the second
        // pair of signals says "I have read yours, you may put again".
        comm.launch(1, |_block| {
            channel.signal()?;
            channel.wait()
        })?;
    }
    println!("rank {}: {ROUNDS} rounds of {LEN} numbers each way, all correct", comm.rank());
    Ok(())
}

/// Other numbers for each rank and round, so that old or misplaced data cannot pass for new.
fn numbers(rank: u32, round: u32) -> Vec<u32> {
    (0..LEN as u32).map(|i| i.wrapping_mul(2_654_435_761) ^ (round << 8 | rank)).collect()
}
