//! Tutorial 1: two ranks in one process send a number to and fro.
//!
//! `cargo run --release -p warpway --example ping_pong`; docs/tutorials/01-ping-pong.md explains it.

use warpway::{Communicator, Config, Context, Result, Share, in_process};

const ROUND_TRIPS: u64 = 1000;

fn main() -> anyhow::Result<()> {
    // Two threads of this process, each with a communicator of its own: nothing else has to be started, and
    // every call below is the same for ranks that are processes.
    let context = Context::new(Config::default());
    let last = in_process(2, &context, ping_pong)?;
    for (rank, last) in last.iter().enumerate() {
        println!("rank {rank}: {ROUND_TRIPS} round trips, the last number was {last}");
    }
    Ok(())
}

/// What both ranks do. Rank 0 sends even numbers, rank 1 answers each with the next odd one.
fn ping_pong(comm: &Communicator) -> Result<u64> {
    // Set-up, on the host: a connection, memory, and a channel from my `outbox` to the peer's `inbox`.
    let peer = comm.connect(1 - comm.rank())?;
    let (outbox, inbox) = (comm.alloc::<u64>(1)?, comm.alloc::<u64>(1)?);
    let peers_inbox = peer.exchange_memory(&inbox)?;
    let channel = comm.block_channel(&peer.memory_channel(&outbox, &peers_inbox)?)?;

    let send = |number: u64| {
        outbox.write(0, &[number])?;
        channel.put(0, 0, outbox.bytes(), Share::ALL)?;
        channel.signal()
    };
    let receive = || -> Result<u64> {
        channel.wait()?;
        let mut number = [0];
        inbox.read(0, &mut number)?;
        Ok(number[0])
    };

    // The kernel: one block that puts, signals and waits. No call of the host is involved any more.
    comm.launch(1, |_block| {
        for trip in 0..ROUND_TRIPS {
            if comm.rank() == 0 {
                send(2 * trip)?;
                assert_eq!(receive()?, 2 * trip + 1);
            } else {
                let number = receive()?;
                assert_eq!(number, 2 * trip);
                send(number + 1)?;
            }
        }
        Ok(())
    })?;

    let mut last = [0];
    inbox.read(0, &mut last)?;
    Ok(last[0])
}
