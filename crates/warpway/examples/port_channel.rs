//! Tutorial 4: the same exchange by requests to a proxy, over shared memory or over TCP.
//!
//! `warpway launch -n 2 -- target/release/examples/port_channel tcp`; docs/tutorials/04-port-channel.md
//! explains it.

use warpway::{Communicator, Transport};

const LEN: u64 = 1_000_003;
const ROUNDS: u32 = 5;

fn main() -> anyhow::Result<()> {
    let transport = match std::env::args().nth(1).as_deref() {
        Some("shared") => Transport::SharedMemory,
        Some("tcp") => Transport::Ethernet,
        _ => anyhow::bail!("usage: port_channel shared|tcp"),
    };
    let comm = Communicator::from_env()?;
    anyhow::ensure!(comm.n_ranks() == 2, "this program is for 2 ranks, not {}", comm.n_ranks());

    // The only line that knows the transport. `comm.connect` would choose: shared memory on one host.
    let peer = comm.connect_by(1 - comm.rank(), transport)?;
    let (outgoing, incoming) = (comm.alloc::<u32>(LEN)?, comm.alloc::<u32>(LEN)?);
    let remote = peer.exchange_memory(&incoming)?;

    // A thread that carries out what kernels ask for. One service may serve many channels.
    let service = comm.proxy_service()?;
    let channel = peer.port_channel(&service, &outgoing, &remote)?.device_handle();

    for round in 0..ROUNDS {
        outgoing.write(0, &numbers(comm.rank(), round))?;

        comm.launch(1, |_block| {
            // Returns as soon as the request is in the FIFO; the bytes leave later.
            channel.put_with_signal(0, 0, outgoing.bytes())?;
            // Returns when they have left: from here on `outgoing` may be written again.
            channel.flush()?;
            // Returns when the peer's have arrived: from here on `incoming` may be read.
            channel.wait()
        })?;
        anyhow::ensure!(incoming.to_vec()? == numbers(peer.rank(), round), "round {round}: wrong data");

        // "I have read yours, you may put again."
        comm.launch(1, |_block| {
            channel.signal()?;
            channel.wait()
        })?;
    }
    println!("rank {}: {ROUNDS} rounds of {LEN} numbers over {transport}, all correct", comm.rank());
    // The last signal may still be in the FIFO: nobody leaves before all have been taken.
    comm.barrier()?;
    Ok(())
}

/// Other numbers for each rank and round, so that old or misplaced data cannot pass for new.
fn numbers(rank: u32, round: u32) -> Vec<u32> {
    (0..LEN as u32).map(|i| i.wrapping_mul(2_654_435_761) ^ (round << 8 | rank)).collect()
}
