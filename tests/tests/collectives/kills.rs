//! A rank is killed inside every collective, in shared memory and over TCP, wherever it is: the others are told who died.

use std::time::Duration;

use warpway::collectives::{Function, World};
use warpway_tests::matrix::{Case, mix};
use warpway_tests::{Job, Leftovers, in_parallel};

use crate::matrix::job;

/// Longer than it takes to set everything up on a busy machine.
const PATIENCE: Duration = Duration::from_secs(40);

/// Kills one of three ranks while all call `function`, `times` times with fresh ranks.
fn kill(function: Function, hosts: &[u32], times: u32) {
    let text: Vec<String> = hosts.iter().map(u32::to_string).collect();
    let scenario = format!("endless {function} --hosts {}", text.join(","));
    let settings = job(hosts, &scenario, PATIENCE);
    for turn in 0..times {
        let random = mix(function as u64 + 1, u64::from(turn) << 8 | u64::from(hosts[1]));
        let victim = random as u32 % 3;
        let mut job = Job::start(env!("CARGO_BIN_EXE_rank"), &settings);
        job.await_mark(0..3, "ready");
        std::thread::sleep(Duration::from_micros(random >> 32 & 0x3fff));
        job.kill(victim);
        for end in job.finish(&[victim], &Leftovers::default()) {
            let (fault, context) = (end.fault(), format!("{function} on hosts {hosts:?}, turn {turn}"));
            assert_eq!(fault.culprit, Some(victim), "{context}: {fault:?}");
            let told = ["peer.died", "peer.failed", "conn.broken"].contains(&fault.id.as_str());
            assert!(told, "{context}: {fault:?}");
            assert!(fault.message.contains(&format!("rank {victim}")), "{context}: {fault:?}");
        }
    }
}

fn every_function(hosts: &[u32], times: u32) {
    let world = World::by_host(hosts);
    let all = Function::NAMED.iter().map(|(function, _)| *function);
    let functions: Vec<Function> = all.filter(|function| Case::new(*function, 1, 1).fits(&world)).collect();
    in_parallel(functions.len() as u32, |at| kill(functions[at as usize], hosts, times));
}

#[test]
fn in_shared_memory() {
    every_function(&[0, 0, 0], 1);
}

#[test]
fn between_two_hosts() {
    every_function(&[0, 0, 1], 1);
}

#[test]
#[ignore = "takes minutes; run by hand after a change of waits or of the bootstrap"]
fn full_kills_in_collectives() {
    for hosts in [[0, 0, 0], [0, 0, 1], [0, 1, 2]] {
        every_function(&hosts, 20);
    }
}
