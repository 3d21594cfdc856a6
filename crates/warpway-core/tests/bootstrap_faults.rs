//! Ranks as processes that are killed: at check-in, during link set-up, while the others wait. Every survivor
//! names the victim. Each test starts copies of this binary that run `rank_process` and nothing else.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use warpway_core::bootstrap::{
    Admission, Bootstrap, InterfaceChoice, JobSecret, JoinOptions, JoinPlan, RootLocation, TcpBootstrap,
};
use warpway_core::config::{Config, Environment};
use warpway_core::{Deadline, Error};

const VARIABLE: &str = "WARPWAY_TEST_RANK_PROCESS";
/// Every wait of the product in these tests, in seconds; survivors must be told long before.
const LIMIT: u64 = 30;

/// `root name, rank, size, host id, limit in seconds, what to do`.
#[test]
fn rank_process() {
    let Ok(order) = std::env::var(VARIABLE) else { return };
    let fields: Vec<&str> = order.split(',').collect();
    let &[root, rank, n_ranks, host_id, limit, action] = fields.as_slice() else { panic!("{order}") };
    let root = match root.parse() {
        Ok(address) => RootLocation::Tcp { addresses: vec![address] },
        Err(_) => RootLocation::Unix { name: root.into() },
    };
    let rank: u32 = rank.parse().unwrap();
    let plan = JoinPlan {
        rank,
        n_ranks: n_ranks.parse().unwrap(),
        root,
        secret: JobSecret::derive("test", &[b"faults"]),
        admission: Admission::Secret,
        root_rank: Some(0),
        interfaces: InterfaceChoice::default(),
    };
    let config = Config::builder().host_id(host_id.into()).read(&Environment::default()).unwrap().config;
    let limit = Duration::from_secs(limit.parse().unwrap());
    println!("joining");
    let result = TcpBootstrap::initialize_plan(&plan, JoinOptions { timeout: limit.into(), config });
    let deadline = Deadline::after(limit);
    let result = result.and_then(|b| {
        println!("joined");
        match action {
            "barrier" => b.barrier(deadline),
            "all_gather" => b.all_gather(&mut vec![0; 8 * b.n_ranks() as usize], 8, deadline),
            // Of the victim, or of its neighbour.
            "recv" => b.recv_vec(b.n_ranks() - 1 - u32::from(rank + 1 == b.n_ranks()), 3, deadline).map(drop),
            "leave" => b.barrier(deadline).map(|()| println!("left")),
            "sleep" => {
                std::thread::sleep(limit);
                Ok(())
            }
            other => panic!("{other}"),
        }
    });
    match result {
        Ok(()) => println!("ok"),
        Err(error) => println!("error {} {}: {error}", culprit(&error), error.id()),
    }
}

fn culprit(error: &Error) -> String {
    error.peer().map_or_else(|| "nobody".into(), |rank| rank.to_string())
}

struct Rank {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Rank {
    fn start(root: &str, rank: u32, n_ranks: u32, host_id: &str, action: &str) -> Self {
        Self::with_limit(LIMIT, root, rank, n_ranks, host_id, action)
    }

    fn with_limit(limit: u64, root: &str, rank: u32, n_ranks: u32, host_id: &str, action: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["rank_process", "--exact", "--nocapture"])
            .env(VARIABLE, format!("{root},{rank},{n_ranks},{host_id},{limit},{action}"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// Reads until a line that begins with one of `beginnings`.
    fn line(&mut self, beginnings: &[&str]) -> String {
        let mut seen = String::new();
        loop {
            let start = seen.len();
            assert_ne!(self.lines.read_line(&mut seen).unwrap(), 0, "ended after {seen}");
            // The test harness writes the name of the test in front of the first line.
            let line = seen[start..].trim_end();
            if let Some(at) = beginnings.iter().find_map(|b| line.find(b)) {
                return line[at..].to_owned();
            }
        }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn finish(mut self) {
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success(), "{rest}");
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn root_name(test: &str) -> String {
    format!("warpway-fault-{test}-{}", std::process::id())
}

/// Starts `n` ranks, lets all say that they have joined, kills the victim, returns what the others say.
fn kill_while_others(action: &str, n: u32, victim: u32, root: &str, host_id: impl Fn(u32) -> String) {
    let mut ranks: Vec<Rank> = (0..n)
        .map(|r| Rank::start(root, r, n, &host_id(r), if r == victim { "sleep" } else { action }))
        .collect();
    for rank in &mut ranks {
        rank.line(&["joined"]);
    }
    std::thread::sleep(Duration::from_millis(50));
    let started = Instant::now();
    ranks[victim as usize].kill();
    for (r, mut rank) in ranks.into_iter().enumerate() {
        if r as u32 == victim {
            continue;
        }
        let line = rank.line(&["error", "ok"]);
        assert!(line.starts_with(&format!("error {victim} peer.died")), "rank {r} of {n}: {line}");
        let phase = match action {
            "recv" => "bootstrap_recv".to_owned(),
            other => format!("bootstrap_{other}"),
        };
        assert!(line.contains(&phase), "rank {r} does not say that it was in {phase}: {line}");
        rank.finish();
    }
    // The target is 2 s; a loaded machine gets more.
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

#[test]
fn killed_while_others_wait_in_barrier() {
    for (n, victim) in [(2, 1), (4, 0), (5, 4)] {
        kill_while_others("barrier", n, victim, &root_name(&format!("barrier-{n}")), |_| String::new());
    }
}

#[test]
fn killed_while_others_wait_in_all_gather() {
    kill_while_others("all_gather", 6, 3, &root_name("gather"), |_| String::new());
}

#[test]
fn killed_while_others_wait_for_a_message() {
    kill_while_others("recv", 4, 3, &root_name("recv"), |_| String::new());
}

#[test]
fn killed_over_tcp() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    kill_while_others("barrier", 3, 1, &free.to_string(), |rank| format!("host {rank}"));
}

/// All but one rank check in; one of them is killed; the rest hear of it although the last never comes.
#[test]
fn killed_during_check_in() {
    let root = root_name("check-in");
    let mut ranks: Vec<Rank> = (0..3).map(|r| Rank::start(&root, r, 4, "", "barrier")).collect();
    for rank in &mut ranks {
        rank.line(&["joining"]);
    }
    // Nothing tells that a rank has checked in; this is ample, and if not, the test sees another error.
    std::thread::sleep(Duration::from_millis(500));
    let started = Instant::now();
    ranks[2].kill();
    for rank in &mut ranks[..2] {
        let line = rank.line(&["error", "ok", "joined"]);
        assert!(line.starts_with("error 2 peer.died"), "{line}");
        assert!(line.contains("bootstrap check-in"), "{line}");
    }
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

/// The process that hosts the root is killed.
#[test]
fn root_killed_during_check_in() {
    let root = root_name("root");
    let mut ranks: Vec<Rank> = (0..3).map(|r| Rank::start(&root, r, 4, "", "barrier")).collect();
    for rank in &mut ranks {
        rank.line(&["joining"]);
    }
    std::thread::sleep(Duration::from_millis(500));
    ranks[0].kill();
    for rank in &mut ranks[1..] {
        let line = rank.line(&["error", "ok", "joined"]);
        assert!(line.starts_with("error 0 peer.died"), "{line}");
    }
}

/// Killed at many moments from its start on: whatever phase that hits, nobody hangs and nobody blames another.
#[test]
fn killed_at_any_moment() {
    for turn in 0..8u64 {
        let root = root_name(&format!("any-{turn}"));
        let victim = 1 + turn as u32 % 3;
        let mut ranks: Vec<Rank> = (0..4).map(|r| Rank::with_limit(2, &root, r, 4, "", "barrier")).collect();
        ranks[victim as usize].line(&["joining"]);
        std::thread::sleep(Duration::from_micros(200 * turn * turn));
        ranks[victim as usize].kill();
        for (r, rank) in ranks.iter_mut().enumerate().filter(|(r, _)| *r as u32 != victim) {
            let line = rank.line(&["error", "ok"]);
            // Before it had checked in, after that, and after the barrier.
            let accepted = [
                format!("error {victim} bootstrap.missing"),
                format!("error {victim} peer.died"),
                "ok".to_owned(),
            ];
            assert!(accepted.iter().any(|a| line.starts_with(a)), "turn {turn}, rank {r}: {line}");
        }
    }
}

/// The target is 2 s for everything on two cores; a loaded machine gets more.
#[test]
fn sixty_four_processes_start() {
    let root = root_name("64");
    let started = Instant::now();
    let mut ranks: Vec<Rank> = (0..64).map(|r| Rank::start(&root, r, 64, "", "leave")).collect();
    let spawned = started.elapsed();
    for rank in &mut ranks {
        rank.line(&["joined"]);
    }
    let joined = started.elapsed();
    for mut rank in ranks {
        assert_eq!(rank.line(&["left", "error"]), "left");
        rank.finish();
    }
    println!(
        "64 ranks: spawned after {spawned:?}, joined after {joined:?}, gone after {:?}",
        started.elapsed()
    );
    assert!(joined < Duration::from_secs(20), "{joined:?}");
}

/// An orderly end is no death.
#[test]
fn leaving_is_not_dying() {
    let root = root_name("leave");
    let ranks: Vec<Rank> = (0..5).map(|r| Rank::start(&root, r, 5, "", "leave")).collect();
    for mut rank in ranks {
        assert_eq!(rank.line(&["left", "error"]), "left");
        assert_eq!(rank.line(&["ok", "error"]), "ok");
        rank.finish();
    }
}
