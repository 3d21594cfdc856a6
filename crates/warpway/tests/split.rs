//! After a split, everything counts in ranks of the child, whatever the transport and whoever finds the error.
#![allow(clippy::unwrap_used, reason = "test code, which the lint does not recognise outside of #[test]")]

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use warpway::core::bootstrap::NameFilter;
use warpway::{
    Access, Communicator, Config, Context, ErrorCode, Timeout, Transport, TransportFlags, UniqueId,
    UniqueIdRoot, in_process,
};

fn config() -> Config {
    let mut config = Config::default();
    config.socket_ifname = NameFilter::Exact(vec!["lo".into()]);
    config.device_timeout = Timeout::after(Duration::from_secs(10));
    config
}

/// The ranks in reverse.
fn reversed(comm: &Communicator) -> Communicator {
    comm.split(0, -(comm.rank() as i32)).unwrap().unwrap()
}

#[test]
fn refusals_name_ranks_of_the_child() {
    in_process(3, &Context::new(config()), |comm| {
        let child = reversed(comm);
        assert_eq!(child.rank(), 2 - comm.rank());
        let next = (child.rank() + 1) % 3;
        let before = (child.rank() + 2) % 3;
        for transport in [Transport::SharedMemory, Transport::Ethernet] {
            let peers = child.connect_all(Some(transport))?;
            let data = child.alloc::<u64>(17)?;
            let region = data.memory().region().unwrap().clone();
            let read_only = child.core().register_memory(region, TransportFlags::HOST, Access::READ)?;
            peers[before as usize].send_memory(&read_only)?;
            let remote = peers[next as usize].recv_memory()?;
            assert_eq!((remote.owner(), remote.owner_rank()), (2 - next, next));
            let connection = peers[next as usize].connection();
            let error = connection.write(&remote, 0, data.memory(), 0, 8).unwrap_err();
            assert_eq!((error.id(), error.peer()), ("mem.access", Some(next)), "{error}");
            child.barrier()?;
        }
        comm.barrier()
    })
    .unwrap();
}

/// A rank that finds another one at fault tells the rest whom it blames, not that it is to blame itself.
#[test]
fn whom_one_rank_blames_all_blame() {
    in_process(3, &Context::new(config()), |comm| {
        let child = reversed(comm);
        // By rank in the child: 1 blames 0, then 2 (which is the job's 0) must hear of it.
        if child.rank() == 1 {
            let error = warpway::Error::Internal { place: "test", what: "something" };
            child.core().health().fail_local("test", Some(0), error);
        }
        let deadline = Instant::now() + Duration::from_secs(10);
        while child.async_error().is_none() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        let failure = child.core().health().failure().unwrap();
        assert_eq!(failure.culprit, Some(0), "{failure}");
        if child.rank() != 1 {
            assert_eq!(failure.id(), "peer.failed");
            let told = match child.rank() {
                0 => "rank 1 blames this rank: ",
                _ => "rank 0 failed: rank 1 reports: ",
            };
            assert!(failure.to_string().contains(told), "{failure}");
        }
        comm.barrier()
    })
    .unwrap();
}

/// Rank `rank` of three, in a process of its own: connects in the reversed child and waits for the end.
#[test]
fn rank_process() {
    let Ok(rank) = std::env::var("WARPWAY_TEST_RANK") else { return };
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let hex = line.trim().as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let id = UniqueId::from_bytes(&hex.chunks(2).map(byte).collect::<Vec<_>>()).unwrap();
    let comm = Context::new(config()).join_id(&id, rank.parse().unwrap(), 3).unwrap();
    let child = reversed(&comm);
    let peers = child.connect_all(Some(Transport::Ethernet)).unwrap();
    let _semaphore = peers[2].semaphore().unwrap();
    println!("\nready");
    let _ = std::io::stdin().read(&mut [0]);
}

fn spawn(rank: u32, id: &UniqueId) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "rank_process", "--nocapture"])
        .env("WARPWAY_TEST_RANK", rank.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let hex: String = id.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    writeln!(child.stdin.as_mut().unwrap(), "{hex}").unwrap();
    child
}

/// Job rank 2 is the child's rank 0.
#[test]
fn a_killed_process_is_named_by_its_rank_in_the_child() {
    let root = UniqueIdRoot::create(&config()).unwrap();
    let mut others = [1, 2].map(|rank| spawn(rank, root.id()));
    let comm = Context::new(config()).join_id(root.id(), 0, 3).unwrap();
    let child = reversed(&comm);
    let peers = child.connect_all(Some(Transport::Ethernet)).unwrap();
    let semaphores = [0, 1].map(|peer: usize| peers[peer].semaphore().unwrap());
    for other in &mut others {
        let mut lines = BufReader::new(other.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(lines.any(|line| line == "ready"));
    }
    others[1].kill().unwrap();
    others[1].wait().unwrap();
    let started = Instant::now();
    let error = semaphores[0].wait(Timeout::after(Duration::from_secs(10))).unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(10), "noticed, not timed out");
    assert_eq!((error.code(), error.peer()), (ErrorCode::RemoteError, Some(0)), "{error}");
    let error = child.async_error().unwrap();
    assert_eq!((error.code(), error.peer()), (ErrorCode::RemoteError, Some(0)), "{error}");
    let deadline = Instant::now() + Duration::from_secs(10);
    while comm.async_error().is_none() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(2));
    }
    let error = comm.async_error().unwrap();
    assert_eq!((error.code(), error.peer()), (ErrorCode::RemoteError, Some(2)), "the job's number: {error}");
    others[0].kill().unwrap();
    others[0].wait().unwrap();
}
