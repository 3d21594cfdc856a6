//! Ranks that die while messages are under way.

use std::time::Duration;

use warpway_tests::{Job, Leftovers, Meeting, Settings, in_parallel};

/// Each with fresh ranks, another victim and another moment.
const REPETITIONS: u32 = 9;

fn killed(hosts: &[u32]) {
    let host = |(rank, host): (u32, &u32)| (rank, "WARPWAY_HOSTID", format!("host {host}"));
    let settings = Settings {
        meeting: if hosts.is_empty() { Meeting::Unix } else { Meeting::Tcp },
        overrides: (0..).zip(hosts).map(host).collect(),
        ..Settings::new(3, "messages --endless")
    };
    in_parallel(REPETITIONS, |turn| {
        let victim = turn % 3;
        let mut job = Job::start(env!("CARGO_BIN_EXE_rank"), &settings);
        job.await_mark(0..3, "ready");
        std::thread::sleep(Duration::from_micros(u64::from(turn * turn) * 300));
        let leftovers = Leftovers::default();
        leftovers.observe(&job.processes());
        job.kill(victim);
        for end in job.finish(&[victim], &leftovers) {
            let fault = end.fault();
            assert_eq!(fault.culprit, Some(victim), "turn {turn}: {fault:?}");
            let told = ["peer.died", "peer.failed", "conn.broken"].contains(&fault.id.as_str());
            assert!(told && fault.message.contains(&format!("rank {victim}")), "turn {turn}: {fault:?}");
        }
    });
}

#[test]
fn a_rank_that_is_killed_is_named_by_the_others() {
    killed(&[]);
}

#[test]
fn a_rank_of_another_host_that_is_killed_is_named_by_the_others() {
    killed(&[0, 1, 2]);
}
