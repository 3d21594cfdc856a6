//! Two hosts: ranks in network namespaces of their own, joined by one cable, which is then cut.
//!
//! Needs root, `ip`, `unshare` and `nsenter`; says so and passes where they are missing. The namespaces have no
//! names: they vanish with the processes in them, however this test ends.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code, which the lint does not recognise here")]

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use warpway::plan::{Repairs, testing};
use warpway::{Buffer, Communicator, DataType, Deadline, Error, Peer, PlanLaunch, Timeout, Transport};

/// Longer than anything here takes; only a hang reaches it.
const PATIENCE: Duration = Duration::from_secs(60);
/// Within which a lost host must be noticed: 15 s without an answer, and a slow machine.
const NOTICE: Duration = Duration::from_secs(30);
const SIZES: [u64; 5] = [1, 3, 17, 4095, 1_000_003];
const CANARY: u8 = 0xC5;
const BULK: u64 = 8 << 20;

fn byte(from: u32, to: u32, at: u64) -> u8 {
    (u64::from(from) * 89 + u64::from(to) * 37 + at * 7 + (at >> 8)) as u8
}

/// One rank: rank 0 and 1 are on the first host, rank 2 on the second.
#[test]
fn rank_process() {
    if std::env::var_os("TEST_OF_TWO_HOSTS").is_none() {
        return;
    }
    let comm = Communicator::from_env().unwrap();
    let far = |rank: u32| (rank == 2) != (comm.rank() == 2);
    let peers = comm.connect_all(None).unwrap();
    for peer in &peers {
        let expected = if far(peer.rank()) { Transport::Ethernet } else { Transport::SharedMemory };
        assert_eq!(peer.connection().transport(), expected);
    }
    for size in SIZES {
        exchange(&comm, &peers, size);
    }
    // Through both hosts and back.
    let plan = testing::send_recv_port(comm.n_ranks()).unwrap();
    let prepared = comm.prepare_unverified(&plan, &Repairs::default()).unwrap();
    let (input, output) = (comm.alloc::<u8>(BULK).unwrap(), comm.alloc::<u8>(BULK).unwrap());
    let launch = || prepared.run(&PlanLaunch::new(&input, &output, DataType::Uint8));
    input.write(0, &(0..BULK).map(|at| byte(comm.rank(), 9, at)).collect::<Vec<u8>>()).unwrap();
    launch().unwrap();
    let left = (comm.rank() + 2) % 3;
    assert!((0..).zip(output.to_vec().unwrap()).all(|(at, found)| found == byte(left, 9, at)));
    let semaphores: Vec<_> = peers.iter().map(|peer| peer.semaphore().unwrap()).collect();
    let bulk = comm.alloc::<u8>(BULK).unwrap();
    peers.iter().for_each(|peer| peer.send_memory(&bulk).unwrap());
    let remotes: Vec<_> = peers.iter().map(|peer| peer.recv_memory().unwrap()).collect();
    comm.barrier().unwrap();
    println!("\nready");
    let _ = std::io::stdin().lock().read_line(&mut String::new());

    let other = if comm.rank() == 2 { 0 } else { 2 };
    let (link, remote) = (peers[other].connection(), &remotes[other]);
    let started = Instant::now();
    let report = |what: &str, error: &Error| {
        // A launch may wait for a rank of this host, which waits for one of the other.
        let peer = if what == "plan" { error.culprit() } else { error.peer() };
        let (id, peer) = (error.id(), peer.map_or(-1, i64::from));
        println!("\nresult {what} {id} {peer} {}", started.elapsed().as_millis());
        eprintln!("rank {} {what}: {error}", comm.rank());
    };
    let deadline = || Deadline::after(PATIENCE);
    std::thread::scope(|scope| {
        let (report, deadline, bulk, launch) = (&report, &deadline, &bulk, &launch);
        scope.spawn(move || {
            loop {
                if let Err(error) = launch() {
                    return report("plan", &error);
                }
            }
        });
        scope.spawn(move || {
            loop {
                let written = link.write(remote, 0, bulk.memory(), 0, BULK);
                if let Err(error) = written.and_then(|_| link.flush(deadline())) {
                    return report("write", &error);
                }
            }
        });
        let wait = &semaphores[other];
        scope.spawn(move || {
            report("deadline", &wait.wait(Timeout::after(Duration::from_secs(2))).unwrap_err());
            report("wait", &wait.wait(Timeout::after(PATIENCE)).unwrap_err());
        });
        // Rank 2 does not come.
        if comm.rank() != 2 {
            let comm = &comm;
            scope.spawn(move || report("barrier", &comm.core().barrier(deadline()).unwrap_err()));
        }
    });
    drop((input, output, prepared, bulk, semaphores, remotes, peers, comm));
    println!("\nend {}", started.elapsed().as_millis());
    let _ = std::io::stdin().read(&mut [0]);
}

/// Everybody writes to everybody, between canaries, and looks at every byte.
fn exchange(comm: &Communicator, peers: &[Peer], size: u64) {
    let stride = size + 2;
    let source: Buffer<u8> = comm.alloc(size).unwrap();
    let target: Buffer<u8> = comm.alloc(stride * u64::from(comm.n_ranks())).unwrap();
    target.write(0, &vec![CANARY; target.len() as usize]).unwrap();
    peers.iter().for_each(|peer| peer.send_memory(&target).unwrap());
    let remotes: Vec<_> = peers.iter().map(|peer| peer.recv_memory().unwrap()).collect();
    let limit = || Deadline::after(PATIENCE);
    for (peer, remote) in peers.iter().zip(&remotes) {
        let bytes: Vec<u8> = (0..size).map(|at| byte(comm.rank(), peer.rank(), at)).collect();
        source.write(0, &bytes).unwrap();
        let at = u64::from(comm.rank()) * stride + 1;
        peer.connection().write(remote, at, source.memory(), 0, size).unwrap();
        peer.connection().flush(limit()).unwrap();
    }
    comm.barrier().unwrap();
    let mut found = vec![0; target.len() as usize];
    target.read(0, &mut found).unwrap();
    for (from, part) in (0..).zip(found.chunks(stride as usize)) {
        let mut expected: Vec<u8> = (0..size).map(|at| byte(from, comm.rank(), at)).collect();
        expected.insert(0, CANARY);
        expected.push(CANARY);
        assert!(part == expected, "{size} bytes from rank {from} to rank {}", comm.rank());
    }
    comm.barrier().unwrap();
}

/// A network namespace, which lives as long as a process that does nothing.
struct Host(Child);

impl Host {
    fn new() -> Self {
        let mut holder = Command::new("unshare");
        let host = Self(holder.args(["-n", "cat"]).stdin(Stdio::piped()).spawn().unwrap());
        let namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net")).ok();
        let (own, process) = (namespace("self"), host.process());
        eventually("a namespace", || namespace(&process).is_some_and(|found| Some(found) != own));
        host.ip("link set lo up");
        host
    }

    fn process(&self) -> String {
        self.0.id().to_string()
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.process(), "-n"]).arg(program);
        command
    }

    fn ip(&self, arguments: &str) {
        let output = self.command("ip").args(arguments.split(' ')).output().unwrap();
        let problem = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "ip {arguments}: {problem}");
    }

    fn rank(&self, rank: u32) -> Rank {
        let mut process = self
            .command(std::env::current_exe().unwrap())
            .args(["--exact", "rank_process", "--nocapture"])
            .env("TEST_OF_TWO_HOSTS", "1")
            .env("WARPWAY_COMM_ID", "10.77.0.1:29577")
            .env("WARPWAY_BOOTSTRAP_TOKEN", format!("two hosts {}", std::process::id()))
            .env("WARPWAY_RANK", rank.to_string())
            .env("WARPWAY_WORLD_SIZE", "3")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (output, lines) = (process.stdout.take().unwrap(), channel());
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = lines.0.send(line);
            }
        });
        let input = process.stdin.take().unwrap();
        Rank { process, input, lines: lines.1 }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Rank {
    process: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Rank {
    /// The rest of the next line that begins with `word`.
    #[track_caller]
    fn next(&self, word: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left).unwrap_or_else(|_| panic!("no line {word:?}"));
            if let Some(rest) = line.strip_prefix(word) {
                return rest.trim().to_owned();
            }
        }
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn eventually(what: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(10), "{what} has not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Why this machine cannot play two hosts.
fn obstacle() -> Option<String> {
    let attempt = |command: &str| -> std::io::Result<Output> {
        let mut words = command.split(' ');
        Command::new(words.next().unwrap_or_default()).args(words).output()
    };
    for command in ["nsenter --version", "unshare -n ip link add ww-probe type veth peer name ww-peer"] {
        match attempt(command) {
            Ok(output) if output.status.success() => {}
            Ok(output) => return Some(format!("{command}: {}", String::from_utf8_lossy(&output.stderr))),
            Err(error) => return Some(format!("{command}: {error}")),
        }
    }
    None
}

#[test]
fn ranks_of_two_hosts_exchange_data_and_name_the_host_that_is_lost() {
    if let Some(why) = obstacle() {
        eprintln!("skipped, this machine cannot play two hosts: {why}");
        return;
    }
    let hosts = [Host::new(), Host::new()];
    hosts[0].ip(&format!("link add cable type veth peer name cable netns {}", hosts[1].process()));
    for (host, address) in hosts.iter().zip(["10.77.0.1/24", "10.77.0.2/24"]) {
        host.ip(&format!("addr add {address} dev cable"));
        host.ip("link set cable up");
    }
    let mut ranks = [hosts[0].rank(0), hosts[0].rank(1), hosts[1].rank(2)];
    for rank in &ranks {
        rank.next("ready");
    }
    for rank in &mut ranks {
        rank.input.write_all(b"go\n").unwrap();
    }
    // In the middle of writes and waits.
    std::thread::sleep(Duration::from_millis(300));
    hosts[1].ip("link set cable down");
    for (number, rank) in ranks.iter().enumerate() {
        for _ in 0..if number == 2 { 4 } else { 5 } {
            let result = rank.next("result ");
            let fields: Vec<&str> = result.split(' ').collect();
            let &[what, id, peer, elapsed] = fields.as_slice() else { panic!("{result}") };
            let culprits: &[&str] = if number == 2 { &["0", "1"] } else { &["2"] };
            assert!(culprits.contains(&peer), "rank {number}: {result}");
            let elapsed = Duration::from_millis(elapsed.parse().unwrap());
            let expected: &[&str] = match what {
                "deadline" => &["wait.timeout"],
                // By the bootstrap's connections, or told by a rank that noticed first.
                _ => &["peer.died", "peer.failed", "conn.broken"],
            };
            assert!(expected.contains(&id), "rank {number}: {result}");
            assert!(elapsed < NOTICE, "rank {number}: {result}");
        }
        let end = Duration::from_millis(rank.next("end ").parse().unwrap());
        assert!(end < NOTICE + Duration::from_secs(10), "rank {number} ended after {end:?}");
    }
}
