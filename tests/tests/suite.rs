//! The behavioural suite: ranks as processes and as threads, by shared memory and TCP; and many ranks.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "test code, which the lints do not recognise outside of #[test]"
)]

use std::time::{Duration, Instant};

use warpway::core::config::{BootstrapToken, ConfigBuilder};
use warpway::{Config, Context, Environment, Transport, in_process};
use warpway_tests::{End, Job, Leftovers, Line, Meeting, Settings, suite};

fn processes(n_ranks: u32, way: &str, meeting: Meeting) {
    let patience = Duration::from_secs(60);
    let settings = Settings { patience, meeting, ..Settings::new(n_ranks, &format!("suite {way}")) };
    let job = Job::start(env!("CARGO_BIN_EXE_rank"), &settings);
    job.finish(&[], &Leftovers::default()).iter().for_each(End::succeeded);
}

fn threads(n_ranks: u32, transport: Transport) {
    let builder: ConfigBuilder = Config::builder().bootstrap_token(Some(BootstrapToken::new("threads")));
    let config = builder.read(&Environment::default()).unwrap().config;
    let results = in_process(n_ranks, &Context::new(config), |comm| suite::everything(comm, transport));
    assert_eq!(results.unwrap().len(), n_ranks as usize);
}

#[test]
fn processes_in_shared_memory() {
    (1..=4).for_each(|n| processes(n, "shared", Meeting::Unix));
}

#[test]
fn processes_over_tcp() {
    (1..=4).for_each(|n| processes(n, "tcp", Meeting::Tcp));
}

/// More ranks than cores.
#[test]
fn many_processes() {
    processes(8, "shared", Meeting::Unix);
    processes(5, "tcp", Meeting::Unix);
}

#[test]
fn threads_in_shared_memory() {
    [1, 2, 3, 6].into_iter().for_each(|n| threads(n, Transport::SharedMemory));
}

#[test]
fn threads_over_tcp() {
    [1, 2, 3, 5].into_iter().for_each(|n| threads(n, Transport::Ethernet));
}

/// Collectives alone, for every number of ranks up to eight.
#[test]
fn collectives_of_one_to_eight_ranks() {
    for n in 1..=8 {
        let config = Config::builder().read(&Environment::default()).unwrap().config;
        for transport in [Transport::SharedMemory, Transport::Ethernet] {
            let results = in_process(n, &Context::new(config.clone()), |comm| {
                suite::all_gather(comm, transport, &[1, 17, 4095])?;
                suite::all_reduce(comm, transport, &[1, 17, 4095])
            });
            results.unwrap();
        }
    }
}

#[test]
fn sixty_four_ranks_start() {
    let patience = Duration::from_secs(40);
    let settings = Settings { patience, ..Settings::new(64, "join") };
    let start = Instant::now();
    let ends = Job::start(env!("CARGO_BIN_EXE_rank"), &settings).finish(&[], &Leftovers::default());
    let all = start.elapsed();
    let joined = |end: &End| match end.lines.first() {
        Some(Line::Figure(name, microseconds)) if name == "joined_us" => Duration::from_micros(*microseconds),
        other => panic!("rank {}: {other:?}", end.rank),
    };
    ends.iter().for_each(End::succeeded);
    let longest = ends.iter().map(joined).max().unwrap();
    println!("64 ranks: joined after {longest:?} at most, start to end {all:?}");
    assert!(all < Duration::from_secs(20), "{all:?}");
}
