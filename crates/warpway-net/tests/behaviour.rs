//! What a connection does when nothing goes wrong.
#![allow(clippy::unwrap_used, reason = "test code, which the lint does not recognise outside of #[test]")]

mod ranks;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use ranks::{LIMIT, Pair, bytes, eventually, fill, import, limit, only};
use warpway_core::connection::Connection;
use warpway_core::memory::{Access, RegisteredMemory};
use warpway_core::semaphore::{Semaphore, TokenSlot};
use warpway_core::token::TOKEN_BYTES;
use warpway_core::{Deadline, Timeout};

const SIZES: [u64; 10] = [0, 1, 3, 17, 511, 513, 4095, 65_536, 1_000_003, (1 << 20) + 1];
const MARGIN: u64 = 64;
const CANARY: u8 = 0xa5;

fn write_every_size(connection: &Connection, destination: &RegisteredMemory, source: &RegisteredMemory) {
    let remote = import(destination);
    for (round, size) in SIZES.into_iter().enumerate() {
        let (at, from) = (MARGIN + round as u64, 3 * round as u64);
        let byte = |i: usize| (i.wrapping_mul(31) ^ (i >> 9) ^ (round * 7 + 1)) as u8;
        fill(destination, |_| CANARY);
        fill(source, byte);
        connection.write(&remote, at, source, from, size).unwrap();
        connection.flush(limit()).unwrap();
        let got = bytes(destination);
        let (at, end) = (at as usize, (at + size) as usize);
        assert!(got[..at].iter().all(|b| *b == CANARY), "before {size} bytes");
        assert!(got[end..].iter().all(|b| *b == CANARY), "after {size} bytes");
        let wrong = (at..end).find(|i| got[*i] != byte(i - at + from as usize));
        assert_eq!(wrong, None, "{size} bytes");
    }
}

fn both_directions(ip: IpAddr) {
    let pair = Pair::new();
    let [a, b] = &pair.ranks;
    let size = SIZES[9] + 4 * MARGIN;
    let memories = [a.memory(size, Access::ALL), b.memory(size, Access::ALL)];
    let sources = [a.memory(size, Access::ALL), b.memory(size, Access::ALL)];
    let ends = pair.connect_by(only(ip));
    write_every_size(&ends[0], &memories[1], &sources[0]);
    write_every_size(&ends[1], &memories[0], &sources[1]);
    pair.assert_healthy();
}

#[test]
fn writes_of_every_size_by_ipv4() {
    both_directions(Ipv4Addr::LOCALHOST.into());
}

#[test]
fn writes_of_every_size_by_ipv6() {
    if std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
        both_directions(Ipv6Addr::LOCALHOST.into());
    } else {
        eprintln!("no IPv6 loopback here: not tested");
    }
}

#[test]
fn a_signal_arrives_after_the_writes_before_it() {
    const ROUNDS: u64 = 300;
    const SIZE: u64 = 200_003;
    let pair = Pair::new();
    let [a, b] = &pair.ranks;
    let (source, data) = (a.memory(SIZE, Access::ALL), b.memory(SIZE, Access::ALL));
    let tokens = [a, b].map(|rank| rank.memory(2 * TOKEN_BYTES, Access::ALL | Access::TOKENS));
    let [here, there] = pair.connect();
    let slot =
        |memory: &RegisteredMemory| TokenSlot { memory: memory.clone(), offset: TOKEN_BYTES, lease: None };
    let (mine, theirs) = (slot(&tokens[0]), slot(&tokens[1]));
    let sender = Semaphore::new(here.clone(), mine.clone(), slot(&import(&tokens[1])), 1).unwrap();
    let receiver = Semaphore::new(there, theirs, slot(&import(&tokens[0])), 1).unwrap();
    let remote = import(&data);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                receiver.wait(Timeout::after(LIMIT)).unwrap();
                let got = bytes(&data);
                let wrong = got.iter().position(|b| *b != round as u8);
                assert_eq!(wrong, None, "round {round}");
                receiver.signal().unwrap();
            }
        });
        for round in 1..=ROUNDS {
            fill(&source, |_| round as u8);
            // In two parts of different sizes, so that both ways of sending are used.
            here.write(&remote, 0, &source, 0, 100).unwrap();
            here.write(&remote, 100, &source, 100, SIZE - 100).unwrap();
            sender.signal().unwrap();
            sender.wait(Timeout::after(LIMIT)).unwrap();
        }
    });
    pair.assert_healthy();
}

#[test]
fn adds_of_many_threads_and_connections_are_all_counted() {
    const THREADS: i64 = 4;
    const ADDS: i64 = 2_000;
    let pair = Pair::new();
    let counters = pair.ranks[1].memory(24, Access::ALL);
    let remote = import(&counters);
    let connections = [pair.connect(), pair.connect()];
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            for [here, _] in &connections {
                let remote = &remote;
                scope.spawn(move || {
                    for i in 0..ADDS {
                        here.atomic_add(remote, 8, i * (thread + 1)).unwrap();
                        here.atomic_add(remote, 8, -1).unwrap();
                    }
                    here.flush(limit()).unwrap();
                });
            }
        }
    });
    let each: i64 = (1..=THREADS).map(|t| t * ADDS * (ADDS - 1) / 2 - ADDS).sum();
    let got = bytes(&counters);
    assert_eq!(i64::from_le_bytes(got[8..16].try_into().unwrap()), 2 * each);
    assert!(got[..8].iter().chain(&got[16..]).all(|b| *b == 0));
    pair.assert_healthy();
}

#[test]
fn stores_replace_words_and_update_the_local_copy() {
    let pair = Pair::new();
    let words = pair.ranks[1].memory(64, Access::ALL);
    let remote = import(&words);
    let [here, _there] = pair.connect();
    let mut local = 0;
    for value in [1, u64::MAX, 0x0123_4567_89ab_cdef] {
        here.update_and_sync(&remote, 40, &mut local, value).unwrap();
        here.flush(limit()).unwrap();
        assert_eq!(local, value);
        assert_eq!(bytes(&words)[40..48], value.to_le_bytes());
    }
    let error = here.update_and_sync(&remote, 44, &mut local, 5).unwrap_err();
    assert_eq!(error.id(), "mem.alignment");
    assert_eq!(local, 0x0123_4567_89ab_cdef);
}

#[test]
fn positions_grow_by_one_and_a_flush_covers_what_was_posted() {
    let pair = Pair::new();
    let (source, data) =
        (pair.ranks[0].memory(1 << 20, Access::ALL), pair.ranks[1].memory(1 << 20, Access::ALL));
    let remote = import(&data);
    let [here, _there] = pair.connect();
    here.flush(Deadline::after(Duration::ZERO)).unwrap();
    for expected in 1..=100 {
        let position = here.write(&remote, 0, &source, 0, 1 << 20).unwrap();
        assert_eq!(position.0, expected);
    }
    let last = here.try_flush();
    assert_eq!(last.0, 100);
    here.flush_to(last, limit()).unwrap();
    assert_eq!(here.completed().unwrap(), last);
    assert_eq!(here.in_flight().unwrap(), 0);
}

#[test]
fn an_endpoint_joined_with_itself_and_two_of_one_rank() {
    let pair = Pair::new();
    let rank = &pair.ranks[0];
    let (source, data) = (rank.memory(100_000, Access::ALL), rank.memory(100_000, Access::ALL));
    fill(&source, |i| i as u8 ^ 3);
    let endpoint = rank.endpoint();
    let own = rank.connect(&endpoint, &endpoint).unwrap();
    own.write(&import(&data), 0, &source, 0, 100_000).unwrap();
    own.flush(limit()).unwrap();
    assert!(bytes(&data) == bytes(&source));
    let (first, second) = (rank.endpoint(), rank.endpoint());
    let ends = std::thread::scope(|scope| {
        let other = scope.spawn(|| rank.connect(&second, &first).unwrap());
        [rank.connect(&first, &second).unwrap(), other.join().unwrap()]
    });
    for (end, at) in ends.iter().zip([8, 16]) {
        end.atomic_add(&import(&data), at, 1).unwrap();
        end.flush(limit()).unwrap();
    }
    assert_eq!(bytes(&data)[8], (8 ^ 3) + 1);
    assert_eq!(bytes(&data)[16], (16 ^ 3) + 1);
    pair.assert_healthy();
}

#[test]
fn many_connections_at_once_in_both_directions() {
    const CONNECTIONS: usize = 8;
    const SIZE: u64 = 3_000_001;
    let pair = Pair::new();
    let ends: Vec<_> = (0..CONNECTIONS).map(|_| pair.connect()).collect();
    std::thread::scope(|scope| {
        for (index, pair_of_ends) in ends.iter().enumerate() {
            for (side, end) in pair_of_ends.iter().enumerate() {
                let (near, far) = (&pair.ranks[side], &pair.ranks[1 - side]);
                scope.spawn(move || {
                    let (source, data) = (near.memory(SIZE, Access::ALL), far.memory(SIZE, Access::ALL));
                    let remote = import(&data);
                    for round in 0..4 {
                        fill(&source, |i| (i >> 3) as u8 ^ (index * 2 + side + round * 50) as u8);
                        end.write(&remote, 0, &source, 0, SIZE).unwrap();
                        end.flush(limit()).unwrap();
                        assert!(bytes(&data) == bytes(&source), "connection {index}, side {side}");
                    }
                });
            }
        }
    });
    pair.assert_healthy();
}

#[test]
fn what_was_posted_before_a_drop_still_arrives() {
    const SIZE: u64 = 20_000_003;
    let pair = Pair::new();
    let data = pair.ranks[1].memory(SIZE, Access::ALL);
    let [here, there] = pair.connect();
    {
        let source = pair.ranks[0].memory(SIZE, Access::ALL);
        fill(&source, |i| (i % 251) as u8);
        here.write(&import(&data), 0, &source, 0, SIZE).unwrap();
        // Memory and connection go at once; the queue holds what it needs.
    }
    drop(here);
    eventually("the last byte", || bytes(&data)[SIZE as usize - 1] == ((SIZE - 1) % 251) as u8);
    assert!(bytes(&data).iter().enumerate().all(|(i, b)| *b == (i % 251) as u8));
    drop(there);
    eventually("the end of the links", || pair.ranks.iter().all(|rank| rank.engine.statistics().links == 0));
    pair.assert_healthy();
}

#[test]
fn engines_end_without_leaving_threads_or_descriptors() {
    let count = |directory: &str| std::fs::read_dir(directory).unwrap().count();
    let engine_threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names = tasks.filter_map(|t| std::fs::read_to_string(t.ok()?.path().join("comm")).ok());
        names.filter(|name| name.starts_with("warpway-tcp")).count()
    };
    let before = count("/proc/self/fd");
    for _ in 0..5 {
        let pair = Pair::new();
        let (source, data) =
            (pair.ranks[0].memory(100_000, Access::ALL), pair.ranks[1].memory(100_000, Access::ALL));
        let ends = [pair.connect(), pair.connect()];
        for [here, _] in &ends {
            here.write(&import(&data), 0, &source, 0, 100_000).unwrap();
            here.flush(limit()).unwrap();
        }
        // A new thread gives itself its name, and a joined one stays in /proc for a moment.
        eventually("the threads of two engines", || engine_threads() == 4);
        let health: Vec<_> = pair.ranks.iter().map(|rank| Arc::clone(&rank.context.waiter.health)).collect();
        // The engines first: connections keep the threads until they are gone too.
        drop(pair);
        ends[0][0].write(&import(&data), 0, &source, 0, 1).unwrap();
        ends[0][0].flush(limit()).unwrap();
        drop(ends);
        eventually("the end of the threads", || engine_threads() == 0);
        drop((source, data));
        assert!(health.iter().all(|h| h.failure().is_none()));
    }
    eventually("closed descriptors", || count("/proc/self/fd") <= before);
}
