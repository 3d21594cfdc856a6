//! What arrives, byte for byte.

use std::time::Duration;

use warpway::{
    Access, BufferView, Call, Communicator, DataType, HostBuffer, Incoming, Outgoing, ReduceOp,
    RegisteredMemory, Result, Transport, TransportFlags, in_process_with,
};
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

/// Ranks add collectives before, between and behind their messages.
#[test]
fn collectives_of_a_group_come_after_its_messages_in_their_order() {
    threads(&[0; 3], |comm| {
        let (rank, n) = (comm.rank(), comm.n_ranks());
        let (next, previous) = ((rank + 1) % n, (rank + n - 1) % n);
        let data = vec![rank + 1; 5];
        let mut come = vec![0u32; 5];
        let (mut sum, mut all) = (vec![rank + 1; 7], vec![0u32; 3]);
        comm.group(|group| {
            let reduce = Call::all_reduce(&mut sum, ReduceOp::Sum);
            let gather = Call::all_gather(&data[..1], &mut all);
            match rank {
                0 => {
                    group.collective(reduce)?;
                    group.send(&data, next)?;
                    group.collective(gather)?;
                    group.recv(&mut come, previous)
                }
                _ => {
                    group.recv(&mut come, previous)?;
                    group.send(&data, next)?;
                    group.collective(reduce)?;
                    group.collective(gather)
                }
            }
        })?;
        assert_eq!(come, vec![previous + 1; 5]);
        assert_eq!((sum, all), (vec![6; 7], vec![1, 2, 3]));
        Ok(())
    });
}

/// Large messages in memory that the peer cannot map, or may not touch, go through the ring.
#[test]
fn memory_that_the_peer_cannot_use_is_copied() {
    for (flags, access) in [
        (TransportFlags::from(Transport::Ethernet), Access::ALL),
        (TransportFlags::from(Transport::SharedMemory), Access::ATOMIC),
    ] {
        threads(&[0; 2], |comm| {
            const BYTES: u64 = (1 << 20) + 7;
            let peer = 1 - comm.rank();
            let register = |value: u8| -> Result<(HostBuffer<u8>, RegisteredMemory)> {
                let data = HostBuffer::allocate(BYTES)?;
                data.fill(value)?;
                let memory = comm.core().register_memory(data.region().cloned().unwrap(), flags, access)?;
                Ok((data, memory))
            };
            let ((_, out), (come, into)) = (register(comm.rank() as u8 + 1)?, register(9)?);
            let all = |memory| BufferView::new(memory, 0, BYTES);
            let (out, into) =
                (Outgoing::new(all(&out), DataType::Uint8), Incoming::new(all(&into), DataType::Uint8));
            comm.send_recv(out, peer, into, peer)?;
            assert!(come.to_vec()?.iter().all(|byte| *byte == peer as u8 + 1));
            comm.barrier()
        });
    }
}
