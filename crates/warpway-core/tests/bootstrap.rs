//! Ranks as threads of one process: all ways to start, messages, collectives, refusals, strays.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use warpway_core::bootstrap::{
    Admission, Bootstrap, BootstrapError, ControlPlane, InterfaceChoice, JobSecret, JoinOptions, JoinPlan,
    RootLocation, ScopeGuard, ScopeId, TcpBootstrap, UniqueId, UniqueIdRoot, join_over,
};
use warpway_core::config::{BootstrapToken, Config, ConfigBuilder, Environment};
use warpway_core::{Cause, Deadline, Error, ErrorCode, Health, Timeout};

const LIMIT: Duration = Duration::from_secs(60);

fn soon() -> Deadline {
    Deadline::after(LIMIT)
}

fn options() -> JoinOptions {
    JoinOptions::from(LIMIT)
}

/// Settings made in code.
fn config(set: impl FnOnce(ConfigBuilder) -> ConfigBuilder) -> Config {
    set(Config::builder()).read(&Environment::default()).unwrap().config
}

fn with_token(token: &str) -> JoinOptions {
    JoinOptions { config: config(|c| c.bootstrap_token(Some(BootstrapToken::new(token)))), ..options() }
}

/// A name that no other test uses.
fn unix_root(test: &str) -> RootLocation {
    RootLocation::Unix { name: format!("warpway-test-{test}-{}", std::process::id()).into_bytes() }
}

fn plan(root: &RootLocation, rank: u32, n_ranks: u32) -> JoinPlan {
    JoinPlan {
        rank,
        n_ranks,
        root: root.clone(),
        secret: JobSecret::derive("test", &[b"secret"]),
        admission: Admission::Secret,
        root_rank: Some(0),
        interfaces: InterfaceChoice::default(),
    }
}

/// Runs `f` as every rank, each in a thread of its own; results by rank.
fn ranks<T: Send>(n: u32, f: impl Fn(u32) -> T + Sync) -> Vec<T> {
    let f = &f;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..n).map(|rank| scope.spawn(move || f(rank))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

/// The same with a job that stands.
fn job<T: Send>(test: &str, n: u32, f: impl Fn(&TcpBootstrap) -> T + Sync) -> Vec<T> {
    let root = unix_root(test);
    ranks(n, |rank| f(&TcpBootstrap::initialize_plan(&plan(&root, rank, n), options()).unwrap()))
}

/// What rank `from` sends to rank `to`: distinct for all, of the given length.
fn pattern(from: u32, to: u32, salt: u32, length: usize) -> Vec<u8> {
    let mut x = u64::from(from) << 40 | u64::from(to) << 20 | u64::from(salt) | 1 << 63;
    (0..length)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x as u8
        })
        .collect()
}

/// Every collective and a ring of messages, checked exactly.
fn exercise(b: &TcpBootstrap) {
    let (rank, n) = (b.rank(), b.n_ranks());
    assert_eq!(b.n_ranks_per_node(), n);
    assert_eq!(b.ipc_domain_size().unwrap(), n);
    assert_eq!(b.control().peers().iter().map(|p| p.rank).collect::<Vec<_>>(), (0..n).collect::<Vec<_>>());
    for (round, size) in [0usize, 1, 3, 17, 4095].into_iter().enumerate() {
        let salt = round as u32;
        // Canary-filled, so that a slot that is not written is noticed.
        let mut gathered = vec![0xc5; size * n as usize];
        gathered[rank as usize * size..][..size].copy_from_slice(&pattern(rank, 0, salt, size));
        b.all_gather(&mut gathered, size as u64, soon()).unwrap();
        let expected: Vec<u8> = (0..n).flat_map(|r| pattern(r, 0, salt, size)).collect();
        assert_eq!(gathered, expected, "all_gather of {size} bytes on rank {rank} of {n}");
        for root in 0..n {
            let mut buffer = if root == rank { pattern(root, 1, salt, size) } else { vec![0x5c; size] };
            b.broadcast(&mut buffer, root, soon()).unwrap();
            assert_eq!(buffer, pattern(root, 1, salt, size), "broadcast from {root}");
        }
        let (next, previous) = ((rank + 1) % n, (rank + n - 1) % n);
        b.send(&pattern(rank, next, salt, size), next, 5, soon()).unwrap();
        let mut buffer = vec![0xee; size + 2];
        assert_eq!(b.recv(&mut buffer, previous, 5, soon()).unwrap(), size as u64);
        assert_eq!(buffer[..size], pattern(previous, rank, salt, size));
        assert_eq!(buffer[size..], [0xee; 2]);
        b.barrier(soon()).unwrap();
        let odd: Vec<u32> = (0..n).rev().filter(|r| r % 2 == 1).collect();
        if rank % 2 == 1 {
            b.group_barrier(&odd, soon()).unwrap();
        }
    }
}

#[test]
fn all_sizes_over_unix_sockets() {
    for n in [1, 2, 3, 5, 8, 16] {
        job(&format!("sizes-{n}"), n, exercise);
    }
}

#[test]
fn unique_id_with_and_without_token() {
    for token in [None, Some(BootstrapToken::new("token"))] {
        let config = config(|c| c.bootstrap_token(token.clone()));
        let root = UniqueIdRoot::create(&config).unwrap();
        let bytes = root.id().to_bytes();
        ranks(3, |rank| {
            let id = UniqueId::from_bytes(&bytes).unwrap();
            let options = JoinOptions { config: config.clone(), ..options() };
            exercise(&TcpBootstrap::initialize_id(&id, rank, 3, options).unwrap());
        });
    }
}

fn free_port(ip: &str) -> SocketAddr {
    TcpListener::bind((ip, 0)).unwrap().local_addr().unwrap()
}

#[test]
fn explicit_addresses_of_both_families() {
    for ip in ["127.0.0.1", "::1"] {
        let address = free_port(ip).to_string();
        ranks(3, |rank| {
            let options = with_token("t");
            exercise(&TcpBootstrap::initialize_addr(&address, rank, 3, options).unwrap());
        });
    }
    // Without a token: same user, same host, over a Unix socket named after the address.
    let remote = TcpBootstrap::initialize_addr("192.0.2.1:999", 0, 2, options()).err().unwrap();
    assert_eq!(remote.id(), "config.missing", "{remote}");
    let address = free_port("127.0.0.1").to_string();
    ranks(2, |rank| exercise(&TcpBootstrap::initialize_addr(&address, rank, 2, options()).unwrap()));
}

/// Different host ids, so that ranks link by TCP and not by Unix sockets.
#[test]
fn links_over_tcp_between_hosts() {
    for ip in ["127.0.0.1", "::1"] {
        let root = RootLocation::Tcp { addresses: vec![free_port(ip)] };
        ranks(5, |rank| {
            let options =
                JoinOptions { config: config(|c| c.host_id(format!("host {}", rank / 2))), ..options() };
            let b = TcpBootstrap::initialize_plan(&plan(&root, rank, 5), options).unwrap();
            assert_eq!(b.n_ranks_per_node(), if rank == 4 { 1 } else { 2 });
            assert_eq!(b.ipc_domain_size().unwrap_err().id(), "bootstrap.domains");
            let mut all = vec![0; 5];
            all[rank as usize] = rank as u8 + 1;
            b.all_gather(&mut all, 1, soon()).unwrap();
            assert_eq!(all, [1, 2, 3, 4, 5]);
            let message = pattern(rank, 9, 9, 1_000_003);
            b.send_vec(&message, (rank + 3) % 5, 1, soon()).unwrap();
            let from = (rank + 2) % 5;
            assert_eq!(b.recv_vec(from, 1, soon()).unwrap(), pattern(from, 9, 9, 1_000_003));
            let refused = b.control().fetch_descriptor((rank + 2) % 5, 1, soon()).unwrap_err();
            assert!(refused.to_string().contains("another host"), "{refused}");
            b.barrier(soon()).unwrap();
        });
    }
}

#[test]
fn the_root_is_found_among_ports_where_others_listen() {
    // One listens and says nothing, one says something else, one is another job's root, one is free.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let noisy = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut addresses = vec![silent.local_addr().unwrap(), noisy.local_addr().unwrap()];
    let other = UniqueIdRoot::create(&Config::default()).unwrap();
    addresses.push(([127, 0, 0, 1], other.id().addresses()[0].port()).into());
    addresses.push(free_port("127.0.0.1"));
    noisy.set_nonblocking(true).unwrap();
    let stop = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while stop.load(Ordering::SeqCst) == 0 {
                if let Ok((mut client, _)) = noisy.accept() {
                    let _ = client.write_all(b"220 mail.example.org ESMTP\r\n");
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let root = RootLocation::Tcp { addresses: addresses.clone() };
        ranks(3, |rank| exercise(&TcpBootstrap::initialize_plan(&plan(&root, rank, 3), options()).unwrap()));
        stop.store(1, Ordering::SeqCst);
    });
}

#[test]
fn a_job_over_another_bootstrap() {
    job("over", 3, |outer| {
        let inner = join_over(outer, options()).unwrap();
        assert_eq!((inner.rank(), inner.n_ranks()), (outer.rank(), 3));
        exercise(&inner);
        assert_ne!(inner.control().job_nonce(), outer.control().job_nonce());
        outer.barrier(soon()).unwrap();
    });
}

#[test]
fn a_message_that_does_not_fit_is_discarded_alone() {
    job("truncated", 2, |b| {
        let peer = 1 - b.rank();
        b.send(&[1, 2, 3, 4], peer, 0, soon()).unwrap();
        b.send(&[5, 6], peer, 0, soon()).unwrap();
        let mut buffer = [0xaa; 3];
        let error = b.recv(&mut buffer, peer, 0, soon()).unwrap_err();
        let Error::Bootstrap(BootstrapError::Truncated { rank, peer: from, tag: 0, length: 4, capacity: 3 }) =
            error
        else {
            panic!("{error:?}");
        };
        assert_eq!((rank, from), (b.rank(), peer));
        assert_eq!(buffer, [0xaa; 3]);
        assert_eq!(b.recv(&mut buffer, peer, 0, soon()).unwrap(), 2);
        assert_eq!(buffer, [5, 6, 0xaa]);
    });
}

#[test]
fn many_tags_out_of_order() {
    job("tags", 3, |b| {
        let peers: Vec<u32> = (0..3).collect();
        for tag in 0..300 {
            for peer in &peers {
                for turn in 0..2 {
                    let message = pattern(b.rank(), *peer, tag * 2 + turn, 1 + tag as usize % 5);
                    b.send(&message, *peer, tag as i32, soon()).unwrap();
                }
            }
        }
        for tag in (0..300).rev() {
            for peer in peers.iter().rev() {
                for turn in 0..2 {
                    let expected = pattern(*peer, b.rank(), tag * 2 + turn, 1 + tag as usize % 5);
                    assert_eq!(b.recv_vec(*peer, tag as i32, soon()).unwrap(), expected);
                }
            }
        }
    });
}

#[test]
fn large_messages_both_ways_at_once() {
    const LENGTH: usize = 20_000_003;
    job("large", 2, |b| {
        let peer = 1 - b.rank();
        b.send_vec(&pattern(b.rank(), peer, 1, LENGTH), peer, 0, soon()).unwrap();
        b.send_vec(&[], peer, 0, soon()).unwrap();
        assert!(b.recv_vec(peer, 0, soon()).unwrap() == pattern(peer, b.rank(), 1, LENGTH));
        assert!(b.recv_vec(peer, 0, soon()).unwrap().is_empty());
    });
}

#[test]
fn what_was_sent_before_leaving_arrives() {
    job("leaving", 2, |b| {
        if b.rank() == 0 {
            // Rank 0 drops its bootstrap at once; the message is larger than any socket buffer.
            b.send_vec(&pattern(0, 1, 2, 5_000_000), 1, 0, soon()).unwrap();
        } else {
            std::thread::sleep(Duration::from_millis(100));
            assert!(b.recv_vec(0, 0, soon()).unwrap() == pattern(0, 1, 2, 5_000_000));
            let error = b.recv_vec(0, 0, soon()).unwrap_err();
            assert_eq!((error.id(), error.peer()), ("peer.left", Some(0)), "{error}");
            assert!(b.health().check().is_ok());
        }
    });
}

/// A rank that leaves while another writes to it has left, not died. Does not force the write to fail before the
/// goodbye has been read.
#[test]
fn writing_to_a_rank_that_leaves_does_not_make_it_a_death() {
    for round in 0..40 {
        let root = unix_root(&format!("writing-{round}"));
        ranks(2, |rank| {
            let b = TcpBootstrap::initialize_plan(&plan(&root, rank, 2), options()).unwrap();
            if rank == 1 {
                return;
            }
            let refused = (0..100_000).find_map(|_| b.send(&[7; 4096], 1, 3, soon()).err());
            if let Some(error) = refused {
                assert_eq!((error.id(), error.peer()), ("peer.left", Some(1)), "round {round}: {error}");
            }
            let error = b.recv_vec(1, 3, soon()).unwrap_err();
            assert_eq!((error.id(), error.peer()), ("peer.left", Some(1)), "round {round}: {error}");
        });
    }
}

#[test]
fn wrong_arguments_are_refused_where_they_are_made() {
    job("arguments", 2, |b| {
        let id = |result: warpway_core::Result<()>| result.unwrap_err().id();
        assert_eq!(id(b.send(&[], 2, 0, soon())), "bootstrap.peer");
        assert_eq!(id(b.recv(&mut [], 2, 0, soon()).map(drop)), "bootstrap.peer");
        assert_eq!(id(b.send(&[], 1, -1, soon())), "bootstrap.argument");
        assert_eq!(id(b.recv_vec(1, i32::MIN, soon()).map(drop)), "bootstrap.argument");
        assert_eq!(id(b.all_gather(&mut [0; 5], 3, soon())), "bootstrap.argument");
        assert_eq!(id(b.all_gather(&mut [], u64::MAX, soon())), "bootstrap.argument");
        assert_eq!(id(b.broadcast(&mut [], 2, soon())), "bootstrap.peer");
        assert_eq!(id(b.group_barrier(&[1 - b.rank()], soon())), "bootstrap.argument");
        assert_eq!(id(b.group_barrier(&[0, 1, 1], soon())), "bootstrap.argument");
        assert_eq!(id(b.group_barrier(&[0, 1, 2], soon())), "bootstrap.peer");
        let control = b.control();
        let health = Arc::new(Health::new(0));
        let open = |scope, members: &[u32]| control.open_scope(ScopeId(scope), members, Arc::clone(&health));
        assert_eq!(open(0, &[0, 1]).err().unwrap().id(), "bootstrap.argument");
        assert_eq!(open(u64::MAX, &[0, 1]).err().unwrap().id(), "bootstrap.argument");
        assert_eq!(open(7, &[0, 2]).err().unwrap().id(), "bootstrap.argument");
        // All of that has cost nothing.
        b.barrier(soon()).unwrap();
    });
    let bad = plan(&unix_root("bad"), 3, 3);
    assert_eq!(TcpBootstrap::initialize_plan(&bad, options()).err().unwrap().id(), "bootstrap.rank");
}

#[test]
fn a_receive_that_nobody_answers_ends_at_its_deadline() {
    job("deadline", 2, |b| {
        if b.rank() == 1 {
            let error = b.recv_vec(0, 3, Deadline::after(Duration::from_millis(50))).unwrap_err();
            assert_eq!(
                (error.id(), error.code(), error.peer()),
                ("bootstrap.timeout", ErrorCode::Timeout, Some(0))
            );
            assert!(error.to_string().contains("tag 3"), "{error}");
        }
        b.barrier(soon()).unwrap();
    });
}

#[test]
fn different_collective_calls_are_named() {
    job("mismatch", 2, |b| {
        let error = if b.rank() == 0 {
            b.barrier(soon()).unwrap_err()
        } else {
            b.all_gather(&mut [0; 6], 3, soon()).unwrap_err()
        };
        assert_eq!((error.id(), error.peer()), ("bootstrap.mismatch", Some(1 - b.rank())));
        let text = error.to_string();
        assert!(text.contains("barrier (collective call 1)"), "{text}");
        assert!(text.contains("all_gather of 3 bytes per rank (collective call 1)"), "{text}");
    });
}

#[test]
fn abort_ends_waits_everywhere_and_names_the_caller() {
    let errors = job("abort", 5, |b| {
        if b.rank() == 3 {
            std::thread::sleep(Duration::from_millis(50));
            assert!(b.abort("enough"));
            assert!(!b.abort("again"));
            return (b.barrier(soon()).unwrap_err(), Duration::ZERO);
        }
        let started = Instant::now();
        (b.barrier(soon()).unwrap_err(), started.elapsed())
    });
    for (rank, (error, elapsed)) in errors.into_iter().enumerate() {
        assert_eq!(
            (error.id(), error.code(), error.peer()),
            ("aborted", ErrorCode::Aborted, Some(3)),
            "{error}"
        );
        assert!(error.to_string().contains("enough"), "rank {rank}: {error}");
        assert!(error.to_string().contains("bootstrap_barrier"), "rank {rank}: {error}");
        assert!(elapsed < Duration::from_secs(10), "{elapsed:?}");
    }
}

#[test]
fn the_failure_of_a_scope_reaches_its_members_and_nobody_else() {
    job("scope", 4, |b| {
        let control = b.control();
        let members = [3, 1, 2];
        let Some(own) = members.iter().position(|m| *m == b.rank()) else {
            b.barrier(soon()).unwrap();
            b.barrier(soon()).unwrap();
            return;
        };
        let health = Arc::new(Health::new(own as u32));
        let scope = ScopeId(77);
        // Rank 2 opens the scope only after it has failed elsewhere.
        let early =
            (b.rank() != 2).then(|| control.open_scope(scope, &members, Arc::clone(&health)).unwrap());
        if b.rank() == 3 {
            let text = "the engine broke".to_owned();
            health.fail_local("engine", None, Error::Internal { place: "test", what: "the engine broke" });
            assert!(health.failure().unwrap().to_string().contains(&text));
        } else if b.rank() == 1 {
            let error = control.receive(scope, 3, 0, soon()).unwrap_err();
            assert_eq!(
                (error.id(), error.peer(), error.code()),
                ("peer.failed", Some(0), ErrorCode::RemoteError)
            );
            assert!(error.to_string().contains("the engine broke"), "{error}");
            assert!(error.to_string().contains("engine"), "{error}");
        }
        b.barrier(soon()).unwrap();
        let late = early.is_none().then(|| control.open_scope(scope, &members, Arc::clone(&health)).unwrap());
        let error = control.receive(scope, 3, 0, soon()).unwrap_err();
        assert!(health.is_failed(), "{error}");
        assert!(b.health().check().is_ok());
        b.barrier(soon()).unwrap();
        drop((early, late));
    });
}

#[test]
fn leaving_a_scope_is_told_to_its_members() {
    job("leave-scope", 3, |b| {
        let control = b.control();
        let members = [0, 1, 2];
        let health = Arc::new(Health::new(b.rank()));
        let scope = ScopeId(5);
        let guard = control.open_scope(scope, &members, Arc::clone(&health)).unwrap();
        if b.rank() == 0 {
            control.post(scope, 2, 9, b"last words").unwrap();
            drop(guard);
        } else {
            if b.rank() == 2 {
                assert_eq!(control.receive(scope, 0, 9, soon()).unwrap(), b"last words");
            }
            let error = control.receive(scope, 0, 9, soon()).unwrap_err();
            assert_eq!((error.id(), error.peer()), ("peer.left", Some(0)), "{error}");
            let until = Instant::now() + Duration::from_secs(10);
            while !health.has_departed(0) {
                assert!(Instant::now() < until);
                std::thread::sleep(Duration::from_millis(5));
            }
            assert!(!health.has_departed(1) && !health.is_failed());
        }
        b.barrier(soon()).unwrap();
    });
}

#[test]
fn sinks_get_what_came_before_and_after_in_order() {
    job("sinks", 3, |b| {
        let control = b.control();
        let scope = ScopeId(0);
        const TAG: i32 = -100;
        let send = |from: u8| {
            (from..from + 50).for_each(|i| control.post(scope, (b.rank() + 1) % 3, TAG, &[i]).unwrap())
        };
        send(0);
        b.barrier(soon()).unwrap();
        let seen: Arc<Mutex<BTreeMap<u32, Vec<u8>>>> = Arc::default();
        let sink_seen = Arc::clone(&seen);
        let subscription = control.subscribe(
            scope,
            TAG,
            Arc::new(move |peer, data| sink_seen.lock().unwrap().entry(peer).or_default().extend(data)),
        );
        send(50);
        let previous = (b.rank() + 2) % 3;
        let until = Instant::now() + LIMIT;
        while seen.lock().unwrap().get(&previous).is_none_or(|d| d.len() < 100) {
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(*seen.lock().unwrap(), BTreeMap::from([(previous, (0..100).collect())]));
        b.barrier(soon()).unwrap();
        drop(subscription);
        b.barrier(soon()).unwrap();
        send(100);
        b.barrier(soon()).unwrap();
        // Without a sink, messages wait for a receive again.
        for i in 100..150 {
            assert_eq!(control.receive(scope, previous, TAG, soon()).unwrap(), [i]);
        }
        assert_eq!(control.try_receive(scope, previous, TAG).unwrap(), None);
        assert_eq!(seen.lock().unwrap()[&previous].len(), 100);
        // A peer that has left would be an error of `try_receive`.
        b.barrier(soon()).unwrap();
    });
}

#[test]
fn descriptors_are_handed_out_while_they_are_offered() {
    job("descriptors", 2, |b| {
        let control = b.control();
        let peer = 1 - b.rank();
        let (mut reader, writer) = std::io::pipe().unwrap();
        let offer = control.offer_descriptor(Arc::new(OwnedFd::from(writer))).unwrap();
        b.send(&offer.descriptor.to_le_bytes(), peer, 0, soon()).unwrap();
        let mut number = [0; 8];
        b.recv(&mut number, peer, 0, soon()).unwrap();
        let number = u64::from_le_bytes(number);
        for turn in 0..3 {
            let fetched = control.fetch_descriptor(peer, number, soon()).unwrap();
            std::fs::File::from(fetched).write_all(&[b.rank() as u8 + turn]).unwrap();
        }
        let mut got = [0; 3];
        reader.read_exact(&mut got).unwrap();
        assert_eq!(got, [peer as u8, peer as u8 + 1, peer as u8 + 2]);
        let own = control.fetch_descriptor(b.rank(), offer.descriptor, soon()).unwrap();
        assert!(own.as_raw_fd() >= 0);
        let error = control.fetch_descriptor(peer, number + 1000, soon()).unwrap_err();
        assert_eq!((error.id(), error.peer()), ("bootstrap.descriptor", Some(peer)));
        b.barrier(soon()).unwrap();
        drop(offer);
        b.barrier(soon()).unwrap();
        assert!(control.fetch_descriptor(peer, number, soon()).is_err());
        assert!(control.fetch_descriptor(b.rank(), number, soon()).is_err());
        b.barrier(soon()).unwrap();
        drop(own);
        // The last writer is gone on both sides: the pipe ends.
        assert_eq!(reader.read(&mut got).unwrap(), 0);
    });
}

/// Joins with limits of 2 s and returns each rank's error.
fn failing(n: u32, join: impl Fn(u32) -> warpway_core::Result<TcpBootstrap> + Sync) -> Vec<Error> {
    let all = Barrier::new(n as usize);
    ranks(n, |rank| {
        all.wait();
        let started = Instant::now();
        let error = join(rank).err().unwrap_or_else(|| panic!("rank {rank} has joined"));
        assert!(started.elapsed() < Duration::from_secs(10), "rank {rank}: {:?}", started.elapsed());
        error
    })
}

const SHORT: Duration = Duration::from_secs(2);

#[test]
fn different_world_sizes_are_refused_everywhere() {
    let root = unix_root("world");
    for error in failing(3, |rank| TcpBootstrap::initialize_plan(&plan(&root, rank, 3 + rank / 2), SHORT)) {
        assert_eq!((error.id(), error.peer()), ("bootstrap.refused", Some(2)), "{error}");
        assert!(error.to_string().contains("rank 2 says that there are 4 ranks, the root 3"), "{error}");
    }
}

#[test]
fn two_ranks_with_one_number_are_refused_everywhere() {
    let root = unix_root("twice");
    for error in failing(4, |thread| TcpBootstrap::initialize_plan(&plan(&root, thread.min(2), 4), SHORT)) {
        assert_eq!((error.id(), error.peer()), ("bootstrap.refused", Some(2)), "{error}");
        assert!(error.to_string().contains("two processes say that they are rank 2"), "{error}");
    }
}

#[test]
fn a_rank_that_never_comes_is_named() {
    let root = unix_root("missing");
    for error in
        failing(3, |thread| TcpBootstrap::initialize_plan(&plan(&root, thread + thread / 2, 5), SHORT))
    {
        let Error::Bootstrap(BootstrapError::Missing { missing, .. }) = &error else { panic!("{error}") };
        assert_eq!(
            (missing.as_slice(), error.id(), error.code()),
            ([2, 4].as_slice(), "bootstrap.missing", ErrorCode::Timeout)
        );
    }
}

#[test]
fn another_token_or_id_does_not_get_in() {
    let address = free_port("127.0.0.1");
    let other = |rank| {
        let secret = JobSecret::derive("test", &[if rank == 1 { b"wrong".as_slice() } else { b"right" }]);
        JoinPlan { secret, ..plan(&RootLocation::Tcp { addresses: vec![address] }, rank, 2) }
    };
    let errors = failing(2, |rank| TcpBootstrap::initialize_plan(&other(rank), SHORT));
    assert_eq!(errors[0].id(), "bootstrap.missing", "{}", errors[0]);
    assert_eq!(errors[0].peer(), Some(1));
    assert!(["bootstrap.authentication", "bootstrap.unreachable"].contains(&errors[1].id()), "{}", errors[1]);

    let with_token = UniqueIdRoot::create(&with_token("a").config).unwrap();
    let error = TcpBootstrap::initialize_id(with_token.id(), 0, 1, SHORT).err().unwrap();
    assert_eq!(error.id(), "bootstrap.id");
    // Same addresses, another secret: a stale or forged id.
    let forged = UniqueId::new(with_token.id().addresses(), None).unwrap();
    let error = TcpBootstrap::initialize_id(&forged, 0, 1, SHORT).err().unwrap();
    assert_eq!(error.id(), "bootstrap.authentication", "{error}");
    assert!(with_token.stray_connections() > 0);
}

#[test]
fn a_used_id_does_not_start_a_second_job() {
    let root = UniqueIdRoot::create(&Config::default()).unwrap();
    let id = root.id().clone();
    ranks(2, |rank| TcpBootstrap::initialize_id(&id, rank, 2, options()).unwrap().barrier(soon()).unwrap());
    for error in failing(2, |rank| TcpBootstrap::initialize_id(&id, rank, 2, SHORT)) {
        assert_eq!(error.id(), "bootstrap.unreachable", "{error}");
    }
}

#[test]
fn no_root_is_unreachable_in_bounded_time() {
    let root = unix_root("nobody");
    let error = failing(1, |_| TcpBootstrap::initialize_plan(&plan(&root, 1, 2), SHORT)).remove(0);
    assert_eq!(error.id(), "bootstrap.unreachable");
    assert!(error.to_string().contains("nobody listens there"), "{error}");
}

/// Noise, silence, half a handshake, at the root's port and at the ranks' while the job starts.
#[test]
fn strays_neither_disturb_nor_get_in() {
    let address = free_port("127.0.0.1");
    let root = RootLocation::Tcp { addresses: vec![address] };
    let stop = AtomicUsize::new(0);
    let sent = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for kind in 0..4usize {
            let (stop, sent) = (&stop, &sent);
            scope.spawn(move || {
                let mut held = Vec::new();
                while stop.load(Ordering::SeqCst) == 0 {
                    if let Ok(mut client) = TcpStream::connect(address) {
                        sent.fetch_add(1, Ordering::SeqCst);
                        let _ = match kind {
                            0 => client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
                            // Nothing, and stays.
                            1 => Ok(()),
                            // The length of a first message and the beginning of it, and stays.
                            2 => client.write_all(&[48, 0, 1, 2, 3, 4, 5]),
                            // A whole first message, of noise.
                            _ => client.write_all(&[&[48, 0][..], &pattern(1, 2, 3, 48)].concat()),
                        };
                        if kind == 1 || kind == 2 {
                            held.push(client);
                        }
                    }
                    held.truncate(100);
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
        }
        let strays = ranks(8, |rank| {
            // The root stands, and the clients come, before the job can start.
            std::thread::sleep(Duration::from_millis(if rank == 0 { 0 } else { 200 }));
            let b = TcpBootstrap::initialize_plan(&plan(&root, rank, 8), options()).unwrap();
            exercise(&b);
            b.stray_connections()
        });
        assert!(strays[0] > 0, "the root counts those that were there before the job");
        stop.store(1, Ordering::SeqCst);
    });
    assert!(sent.load(Ordering::SeqCst) > 0);
}

#[test]
fn strays_at_a_standing_rank_are_counted() {
    let root = RootLocation::Tcp { addresses: vec![free_port("127.0.0.1")] };
    ranks(2, |rank| {
        let b = TcpBootstrap::initialize_plan(&plan(&root, rank, 2), options()).unwrap();
        let port = b.control().peers()[rank as usize].addresses[0].port();
        for _ in 0..5 {
            let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
            client.write_all(b"hello?").unwrap();
            // The rank closes: end or reset.
            let mut rest = Vec::new();
            let _ = client.read_to_end(&mut rest);
            assert!(rest.is_empty(), "a stranger learns nothing");
        }
        assert_eq!(b.stray_connections(), 5);
        b.barrier(soon()).unwrap();
    });
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

#[test]
fn nothing_is_left_behind() {
    job("warm-up", 2, exercise);
    let before = (open_descriptors(), threads());
    for turn in 0..5 {
        job(&format!("leak-{turn}"), 4, exercise);
        let root = unix_root(&format!("leak-failing-{turn}"));
        failing(2, |rank| TcpBootstrap::initialize_plan(&plan(&root, rank, 2 + rank), SHORT));
    }
    // The kernel takes a moment to remove a thread that has been joined from /proc.
    let until = Instant::now() + Duration::from_secs(10);
    while (open_descriptors(), threads()) != before {
        assert!(Instant::now() < until, "{:?} instead of {before:?}", (open_descriptors(), threads()));
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_sink_may_drop_the_last_reference() {
    let root = unix_root("self-drop");
    ranks(2, |rank| {
        let b = TcpBootstrap::initialize_plan(&plan(&root, rank, 2), options()).unwrap();
        b.barrier(soon()).unwrap();
        let control = b.control();
        let scope = ScopeId(9);
        if rank == 1 {
            b.barrier(soon()).unwrap();
            // Long enough for rank 0 to have dropped all but what its sink drops.
            std::thread::sleep(Duration::from_millis(200));
            control.post(scope, 0, -50, &[]).unwrap();
            return;
        }
        // An open scope keeps the mesh beyond the bootstrap.
        let guard = control.open_scope(scope, &[0, 1], Arc::new(Health::new(0))).unwrap();
        let dropped = Arc::new(AtomicUsize::new(0));
        let holder = Arc::new(Mutex::new(None));
        let (sink_holder, done) = (Arc::clone(&holder), Arc::clone(&dropped));
        let subscription = control.subscribe(
            scope,
            -50,
            Arc::new(move |_, _| {
                let taken: Option<(ScopeGuard, Arc<dyn ControlPlane>)> = sink_holder.lock().unwrap().take();
                drop(taken);
                done.store(1, Ordering::SeqCst);
            }),
        );
        *holder.lock().unwrap() = Some((guard, control));
        b.barrier(soon()).unwrap();
        drop(b);
        let until = Instant::now() + Duration::from_secs(10);
        while dropped.load(Ordering::SeqCst) == 0 {
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(subscription);
    });
}

#[test]
fn unlimited_timeouts_are_possible() {
    let root = unix_root("unlimited");
    ranks(2, |rank| {
        let b = TcpBootstrap::initialize_plan(&plan(&root, rank, 2), Timeout::NONE).unwrap();
        b.barrier(Deadline::NEVER).unwrap();
        assert!(!matches!(b.health().failure().map(|f| f.cause), Some(Cause::PeerDied)));
    });
}
