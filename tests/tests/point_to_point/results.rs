//! What arrives, byte for byte.

use std::time::Duration;

use warpway::{Communicator, Result, in_process_with};
use warpway_tests::suite::{MESSAGE_SIZES, messages, pairs_only, random_messages};
use warpway_tests::{End, Job, Leftovers, Meeting, Settings, on_hosts};

const LIMIT: Duration = Duration::from_secs(60);

fn threads(hosts: &[u32], main: impl Fn(&Communicator) -> Result<()> + Sync) {
    in_process_with(&on_hosts(hosts, LIMIT), main).unwrap();
}

#[test]
fn every_size_between_threads_of_one_host() {
    for n in 1..=4 {
        threads(&vec![0; n], |comm| messages(comm, &MESSAGE_SIZES));
    }
}

#[test]
fn every_size_between_hosts() {
    threads(&[0, 1], |comm| messages(comm, &MESSAGE_SIZES));
    threads(&[0, 1, 0], |comm| messages(comm, &MESSAGE_SIZES));
}

#[test]
fn ten_thousand_messages_in_random_groups() {
    threads(&[0; 4], |comm| random_messages(comm, 10_000, 7));
}

#[test]
fn random_groups_between_hosts() {
    threads(&[0, 1, 0, 1], |comm| random_messages(comm, 1500, 8));
    threads(&[0, 1, 2], |comm| random_messages(comm, 500, 9));
}

#[test]
fn communicators_and_their_halves_have_messages_of_their_own() {
    threads(&[0, 1, 0, 1], |comm| {
        let half = comm.split((comm.rank() % 2) as i32, 0)?.unwrap();
        for seed in 0..20 {
            random_messages(&half, 10, seed)?;
            random_messages(comm, 10, seed)?;
        }
        Ok(())
    });
}

/// Ranks that never talk have no part in it: nothing is set up with them, and nobody waits for them.
#[test]
fn only_the_two_ranks_take_part() {
    threads(&[0; 3], |comm| {
        pairs_only(comm)?;
        let names: Vec<&str> =
            comm.core().flight_recorder().snapshot().iter().map(|line| line.operation.name()).collect();
        assert_eq!(names.contains(&"recv_memory"), comm.rank() < 2, "rank {}: {names:?}", comm.rank());
        Ok(())
    });
}

fn processes(n: u32, hosts: &[u32]) {
    let meeting = if hosts.is_empty() { Meeting::Unix } else { Meeting::Tcp };
    let settings = Settings { meeting, patience: LIMIT, ..Settings::new(n, "messages") };
    let host =
        |rank: u32| hosts.get(rank as usize).map(|host| (rank, "WARPWAY_HOSTID", format!("host {host}")));
    let settings = Settings { overrides: (0..n).filter_map(host).collect(), ..settings };
    let job = Job::start(env!("CARGO_BIN_EXE_rank"), &settings);
    job.finish(&[], &Leftovers::default()).iter().for_each(End::succeeded);
}

#[test]
fn processes_of_one_host() {
    processes(2, &[]);
    processes(4, &[]);
}

#[test]
fn processes_of_two_hosts() {
    processes(4, &[0, 1, 1, 0]);
}

/// A group is one line of the flight recorder, whatever it consists of.
#[test]
fn a_group_is_recorded_as_one_operation() {
    threads(&[0; 2], |comm| {
        let peer = 1 - comm.rank();
        random_messages(comm, 1, 3)?;
        let before = comm.core().flight_recorder().recorded();
        let (data, mut come) = (vec![3u16; 50_000], [vec![0u16; 50_000], vec![0u16; 50_000]]);
        let [first, second] = &mut come;
        comm.barrier()?;
        comm.group(|group| {
            group.send(&data, peer)?;
            group.recv(first, peer)?;
            group.recv(second, peer)?;
            group.send(&data, peer)
        })?;
        let recorder = comm.core().flight_recorder();
        let lines = recorder.snapshot();
        let groups: Vec<_> = lines
            .iter()
            .filter(|line| line.sequence >= before && line.operation.name() == "group")
            .map(|line| (line.object, line.bytes))
            .collect();
        assert_eq!(groups, [(4, 400_000)]);
        assert_eq!(come, [data.clone(), data]);
        Ok(())
    });
}
