//! Ranks that die while plans run.

use std::time::Duration;

use warpway_tests::{Job, Leftovers, Settings, in_parallel};

/// Each with fresh ranks, another victim and another moment.
const REPETITIONS: u32 = 9;

#[test]
fn a_rank_that_is_killed_is_named_by_the_others() {
    kill(&Settings::new(3, "plans --endless"));
}

#[test]
fn a_rank_of_another_host_that_is_killed_while_plans_run() {
    kill(&Settings::new(4, "host-plans --endless").on_hosts(&[0, 0, 1, 1]));
}

#[test]
fn a_rank_of_another_host_that_is_killed_while_plans_are_set_up() {
    kill(&Settings::new(4, "host-plans --endless --set-up").on_hosts(&[0, 0, 1, 1]));
}

fn kill(settings: &Settings) {
    in_parallel(REPETITIONS, |turn| {
        let victim = turn % settings.n_ranks;
        let mut job = Job::start(env!("CARGO_BIN_EXE_rank"), settings);
        job.await_mark(0..settings.n_ranks, "ready");
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
