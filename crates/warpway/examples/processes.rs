//! Tutorial 2: ranks that are processes, started by a launcher or by hand.
//!
//! `warpway launch -n 4 -- target/release/examples/processes`; docs/tutorials/02-processes.md explains it.

use std::path::Path;
use std::time::Duration;
use std::{fs, process, thread};

use anyhow::{Context as _, bail};
use warpway::{Bootstrap, Communicator, Context, Deadline, Share, UniqueId, UniqueIdRoot};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (comm, dies) = match words[..] {
        // A launcher has put rank, number of ranks and meeting place into the environment.
        [] => (Communicator::from_env()?, false),
        [file, rank, ranks] => (join_by_file(Path::new(file), rank.parse()?, ranks.parse()?)?, false),
        [file, rank, ranks, "die"] => (join_by_file(Path::new(file), rank.parse()?, ranks.parse()?)?, true),
        _ => bail!("usage: processes [ID_FILE RANK RANKS [die]]"),
    };
    exchange_process_ids(&comm, dies)
}

/// Joins without a launcher: rank 0 makes a unique id, any channel carries it to the others (here: a file).
fn join_by_file(file: &Path, rank: u32, n_ranks: u32) -> anyhow::Result<Communicator> {
    let context = Context::from_env()?;
    if rank == 0 {
        // The root is where the ranks meet; it has to live until all have joined.
        let root = UniqueIdRoot::create(context.config())?;
        // Written under another name first, so that nobody reads half an id. It holds the secret of the
        // job: whoever can read it can join.
        let unfinished = file.with_extension("unfinished");
        fs::write(&unfinished, root.id().to_bytes())?;
        fs::rename(&unfinished, file)?;
        let comm = context.join_id(root.id(), rank, n_ranks)?;
        fs::remove_file(file)?;
        return Ok(comm);
    }
    let deadline = Deadline::after(Duration::from_secs(30));
    while !file.exists() {
        anyhow::ensure!(!deadline.expired(), "rank 0 has not written {}", file.display());
        thread::sleep(Duration::from_millis(10));
    }
    let id = UniqueId::from_bytes(&fs::read(file).context("reading the id")?)?;
    Ok(context.join_id(&id, rank, n_ranks)?)
}

/// Every rank puts its process id into the memory of every other; the bootstrap carries the same numbers
/// another way, to compare.
fn exchange_process_ids(comm: &Communicator, dies: bool) -> anyhow::Result<()> {
    let (rank, n_ranks) = (comm.rank(), comm.n_ranks());

    // The bootstrap carries small messages for set-up, between any ranks, on any hosts.
    let mut expected = vec![[0; 4]; n_ranks as usize];
    expected[rank as usize] = process::id().to_le_bytes();
    comm.bootstrap().all_gather(expected.as_flattened_mut(), 4, comm.bootstrap_deadline())?;
    let expected: Vec<u32> = expected.into_iter().map(u32::from_le_bytes).collect();

    // A connection with every rank (itself included: there is no special case), and a channel on each.
    let peers = comm.connect_all(None)?;
    let ids = comm.alloc::<u32>(n_ranks.into())?;
    ids.write(rank.into(), &[process::id()])?;
    let mut channels = Vec::new();
    for peer in peers.iter().filter(|peer| peer.rank() != rank) {
        let remote = peer.exchange_memory(&ids)?;
        channels.push(comm.block_channel(&peer.memory_channel(&ids, &remote)?)?);
    }
    // My slot goes to the same place in everybody's memory, then theirs are awaited.
    comm.launch(1, |_block| {
        for channel in &channels {
            if dies {
                // As if it had crashed, while the peer waits: no destructor runs, nobody is told.
                channel.wait()?;
                process::exit(7);
            }
            channel.put_same(4 * u64::from(rank), 4, Share::ALL)?;
            channel.signal()?;
        }
        channels.iter().try_for_each(|channel| channel.wait())
    })?;

    anyhow::ensure!(ids.to_vec()? == expected, "{:?} instead of {expected:?}", ids.to_vec()?);
    println!("rank {rank}: the process ids of {n_ranks} ranks are where they belong");
    // A rank that leaves while others still need it is an error to them, so all leave together.
    comm.barrier()?;
    Ok(())
}
