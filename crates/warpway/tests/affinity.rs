//! Ranks that a launcher has pinned: they spin in waits if all of them can run at the same time.
#![allow(clippy::unwrap_used, reason = "test code, which the lint does not recognise outside of #[test]")]

use std::process::{Command, Stdio};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use warpway::Communicator;
use warpway::core::bootstrap::Processors;

/// Prints whether this rank spins, and whether its half of a split does.
#[test]
fn rank_process() {
    let Ok(processor) = std::env::var("TEST_PROCESSOR") else { return };
    if let Ok(processor) = processor.parse() {
        let mut only = CpuSet::new();
        only.set(processor);
        sched_setaffinity(None, &only).unwrap();
    }
    let comm = Communicator::from_env().unwrap();
    let alone = comm.split(comm.rank() as i32, 0).unwrap().unwrap();
    let spins = |comm: &Communicator| comm.core().waiter().policy.spins > 0;
    println!("\nspins {} {}", spins(&comm), spins(&alone));
    comm.barrier().unwrap();
}

/// What two ranks on these processors print.
fn pinned(name: &str, processors: [&str; 2]) -> Vec<String> {
    let start = |(rank, processor): (usize, &str)| {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "rank_process", "--nocapture"])
            .env("TEST_PROCESSOR", processor)
            .env("WARPWAY_COMM_ID", "127.0.0.1:29613")
            .env("WARPWAY_SOCKET_IFNAME", "lo")
            .env("WARPWAY_BOOTSTRAP_TOKEN", format!("affinity {name} {}", std::process::id()))
            .env("WARPWAY_RANK", rank.to_string())
            .env("WARPWAY_WORLD_SIZE", "2")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let ranks: Vec<_> = processors.into_iter().enumerate().map(start).collect();
    let said = ranks.into_iter().map(|rank| {
        let output = String::from_utf8(rank.wait_with_output().unwrap().stdout).unwrap();
        output.lines().find_map(|line| line.strip_prefix("spins ")).unwrap_or(&output).to_owned()
    });
    said.collect()
}

#[test]
fn pinned_ranks_spin_if_each_has_a_processor() {
    let here = sched_getaffinity(None).unwrap();
    let usable: Vec<String> =
        (0..CpuSet::MAX_CPU).filter(|n| here.is_set(*n)).map(|n| n.to_string()).collect();
    let quota = Processors::of_this_thread().quota();
    let [first, second, ..] = usable.as_slice() else {
        eprintln!("skipped: one processor is too few for two ranks");
        return;
    };
    if quota.is_some_and(|quota| quota < 2000) {
        eprintln!("skipped: the quota of {quota:?} thousandths of a processor is too small for two ranks");
        return;
    }
    assert_eq!(pinned("apart", [first, second]), ["true true", "true true"]);
    assert_eq!(pinned("together", [second, second]), ["false true", "false true"]);
    assert_eq!(pinned("half", ["all", first]), ["true true", "true true"]);
}
