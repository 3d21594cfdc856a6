//! What happens when a peer dies, hangs, lies about its endpoint or never calls.
#![allow(clippy::unwrap_used, reason = "test code, which the lint does not recognise outside of #[test]")]

mod ranks;

use std::any::Any;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ranks::{LIMIT, Pair, Rank, bytes, eventually, fill, import, imported, limit, only};
use warpway_core::connection::Connection;
use warpway_core::endpoint::Endpoint;
use warpway_core::engine::Engine;
use warpway_core::memory::{Access, EthernetExport, RegisteredMemory};
use warpway_core::semaphore::{Semaphore, TokenSlot};
use warpway_core::testing::LocalJob;
use warpway_core::token::TOKEN_BYTES;
use warpway_core::{Deadline, ErrorCode};
use warpway_net::TcpConfig;

fn ipv4(endpoint: &Endpoint) -> SocketAddr {
    *endpoint.addresses.iter().find(|a| a.ip() == Ipv4Addr::LOCALHOST).unwrap()
}

/// A pair joined through a relay.
fn relayed(pair: &Pair) -> (ranks::Relay, [warpway_core::connection::Connection; 2]) {
    let [a, b] = &pair.ranks;
    let (here, there) = (a.endpoint_with_queue(16), b.endpoint());
    let relay = ranks::Relay::start(ipv4(&there));
    let address = relay.address;
    let ends = pair.join(here, there, |endpoint| endpoint.addresses = vec![address]);
    (relay, ends)
}

#[test]
fn a_socket_that_breaks_in_the_middle_of_a_write_fails_both_communicators() {
    const SIZE: u64 = 64 << 20;
    let pair = Pair::new();
    let (source, data) = (pair.ranks[0].memory(SIZE, Access::ALL), pair.ranks[1].memory(SIZE, Access::ALL));
    let (mut relay, [here, there]) = relayed(&pair);
    let remote = import(&data);
    for _ in 0..8 {
        here.write(&remote, 0, &source, 0, SIZE).unwrap();
    }
    std::thread::scope(|scope| {
        scope.spawn(|| relay.cut());
        let error = here.flush(limit()).unwrap_err();
        assert_eq!((error.code(), error.peer()), (ErrorCode::RemoteError, Some(1)), "{error}");
    });
    eventually("both failures", || pair.ranks.iter().all(|rank| rank.health().is_failed()));
    for (rank, culprit) in pair.ranks.iter().zip([1, 0]) {
        let failure = rank.health().failure().unwrap();
        assert_eq!((failure.id(), failure.culprit), ("conn.broken", Some(culprit)), "{failure}");
    }
    // Every later call gives the failure.
    assert!(there.atomic_add(&import(&source), 0, 1).is_err());
    assert!(here.completed().is_err());
    // The memory of writes that will never be sent is free again.
    drop(relay);
    eventually("the end of the links", || pair.ranks.iter().all(|r| r.engine.statistics().links == 0));
}

/// A token whose lease ends goes to another semaphore, which a signal that is still on its way would wake.
#[test]
fn a_signals_token_is_kept_until_it_has_arrived() {
    let pair = Pair::new();
    let [a, b] = &pair.ranks;
    let tokens = |rank: &Rank| rank.memory(TOKEN_BYTES, Access::ALL | Access::TOKENS);
    let (inbound, data) = (tokens(a), tokens(b));
    let (relay, [here, _there]) = relayed(&pair);
    let lease: Arc<dyn Any + Send + Sync> = Arc::new(());
    let semaphore = |connection: &Connection| {
        let slot = |memory, lease| TokenSlot { memory, offset: 0, lease };
        let remote = slot(import(&data), Some(Arc::clone(&lease)));
        Semaphore::new(connection.clone(), slot(inbound.clone(), None), remote, 0).unwrap()
    };
    relay.stalled.store(true, Ordering::SeqCst);
    let dropped = semaphore(&here);
    dropped.signal().unwrap();
    dropped.signal().unwrap();
    drop(dropped);
    assert_eq!((Arc::strong_count(&lease), data.token("test", 0).unwrap().load()), (3, 0));
    relay.stalled.store(false, Ordering::SeqCst);
    eventually("the end of the lease", || Arc::strong_count(&lease) == 1);
    assert_eq!(data.token("test", 0).unwrap().load(), 2);
    // Nor for ever, where nothing arrives any more.
    relay.stalled.store(true, Ordering::SeqCst);
    // It may still pass, where the relay was reading already.
    semaphore(&here).signal().unwrap();
    drop(relay);
    eventually("the end of the lease", || Arc::strong_count(&lease) == 1);
    // The lease ends before the word of the failure has gone round.
    eventually("the failure of both", || pair.ranks.iter().all(|rank| rank.health().is_failed()));
}

/// After a split with the order reversed: errors name ranks of the communicator, not of the job.
#[test]
fn errors_count_in_ranks_of_the_communicator() {
    let pair = Pair::reversed();
    let [a, b] = &pair.ranks;
    let data = b.memory(64, Access::ALL);
    let (remote, own) = (import(&data), import(&a.memory(64, Access::ALL)));
    let (here, there) = (a.endpoint(), b.endpoint());
    let soon = || Deadline::after(Duration::from_millis(100));
    let error = b.engine.connect(&b.context, &there, &here, soon()).err().unwrap();
    assert_eq!((error.id(), error.peer()), ("conn.unreachable", Some(1)));
    let nowhere = Endpoint { addresses: Vec::new(), ..there };
    let error = a.engine.connect(&a.context, &here, &nowhere, limit()).err().unwrap();
    assert_eq!((error.id(), error.peer()), ("conn.unreachable", Some(0)));

    let [here, _there] = pair.connect();
    let error = here.atomic_add(&own, 0, 1).unwrap_err();
    assert_eq!(error.id(), "mem.side", "a memory of another rank than the peer: {error}");
    drop(data);
    here.atomic_add(&remote, 0, 1).unwrap();
    let error = here.flush(limit()).unwrap_err();
    assert_eq!((error.id(), error.peer()), ("conn.refused", Some(0)), "{error}");
    pair.assert_healthy();

    let (mut relay, [here, _there]) = relayed(&pair);
    relay.cut();
    eventually("both failures", || pair.ranks.iter().all(|rank| rank.health().is_failed()));
    for (rank, culprit) in pair.ranks.iter().zip([0, 1]) {
        let failure = rank.health().failure().unwrap();
        let found = (failure.id(), failure.culprit, failure.rank);
        assert_eq!(found, ("conn.broken", Some(culprit), 1 - culprit), "{failure}");
    }
    assert_eq!(here.flush(limit()).unwrap_err().peer(), Some(0));
}

#[test]
fn a_peer_that_does_not_read_stops_its_own_connection_only() {
    const SIZE: u64 = 16 << 20;
    let config = TcpConfig::default();
    let pair = Pair::with_config(config);
    let (source, data) = (pair.ranks[0].memory(SIZE, Access::ALL), pair.ranks[1].memory(SIZE, Access::ALL));
    fill(&source, |i| (i >> 4) as u8);
    let remote = import(&data);
    let (relay, [slow, _there]) = relayed(&pair);
    relay.stalled.store(true, Ordering::SeqCst);
    let [fast, _keep] = pair.connect();
    std::thread::scope(|scope| {
        let blocked = scope.spawn(|| {
            // Sixteen fit into the queue, one or two are on their way.
            for _ in 0..32 {
                slow.write(&remote, 0, &source, 0, SIZE).unwrap();
            }
        });
        eventually("a full queue", || slow.try_flush().0 >= 16);
        let counter = pair.ranks[1].memory(64, Access::ALL);
        for value in 1..=500u64 {
            fast.atomic_add(&import(&counter), 0, 1).unwrap();
            fast.flush(limit()).unwrap();
            assert_eq!(bytes(&counter)[..8], value.to_le_bytes());
        }
        assert!(!blocked.is_finished());
        assert!(slow.try_flush().0 < 32, "the queue is bounded");
        let error = slow.flush(Deadline::after(Duration::from_millis(50))).unwrap_err();
        assert_eq!(
            (error.id(), error.code(), error.peer()),
            ("conn.flush_timeout", ErrorCode::Timeout, Some(1))
        );
        relay.stalled.store(false, Ordering::SeqCst);
        blocked.join().unwrap();
    });
    slow.flush(Deadline::after(3 * LIMIT)).unwrap();
    assert!(bytes(&data) == bytes(&source));
    pair.assert_healthy();
}

#[test]
fn an_abort_releases_who_waits_for_a_peer_that_does_not_read() {
    const SIZE: u64 = 16 << 20;
    let pair = Pair::new();
    let (source, data) = (pair.ranks[0].memory(SIZE, Access::ALL), pair.ranks[1].memory(SIZE, Access::ALL));
    let remote = import(&data);
    let (relay, [slow, _there]) = relayed(&pair);
    relay.stalled.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            loop {
                if let Err(error) = slow.write(&remote, 0, &source, 0, SIZE) {
                    return error;
                }
            }
        });
        eventually("a full queue", || slow.try_flush().0 >= 16);
        let flusher = scope.spawn(|| slow.flush(Deadline::NEVER).unwrap_err());
        // Also a flush that begins only after the abort ends with it.
        pair.ranks[0].health().abort("enough");
        for error in [writer.join().unwrap(), flusher.join().unwrap()] {
            assert_eq!(error.code(), ErrorCode::Aborted, "{error}");
        }
    });
}

/// A second process: rank 1 of the job. Prints its endpoint and memory, connects, and waits to be killed.
#[test]
fn peer_process() {
    if std::env::var_os("WARPWAY_TEST_PEER").is_none() {
        return;
    }
    let mut first = String::new();
    std::io::stdin().read_line(&mut first).unwrap();
    let job = LocalJob::of_processes(2);
    let rank = Rank::new(&job, 1, TcpConfig::default());
    let data = rank.memory(64 << 20, Access::ALL);
    let endpoint = rank.endpoint();
    let remote = Endpoint { owner: 0, id: first.trim().parse().unwrap(), ..endpoint.clone() };
    println!("\ncard {} {} {}", endpoint.id, ranks::memory_id(&data), ipv4(&endpoint));
    let _connection = rank.connect(&endpoint, &remote).unwrap();
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
fn a_process_killed_in_the_middle_of_a_write_is_named() {
    let job = LocalJob::of_processes(2);
    let rank = Rank::new(&job, 0, TcpConfig::default());
    let local = rank.endpoint();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "peer_process", "--nocapture"])
        .env("WARPWAY_TEST_PEER", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(child.stdin.as_mut().unwrap(), "{}", local.id).unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let card = lines.map_while(Result::ok).find(|line| line.starts_with("card ")).unwrap();
    let fields: Vec<_> = card.split(' ').collect();
    let remote = Endpoint {
        owner: 1,
        id: fields[1].parse().unwrap(),
        addresses: vec![fields[3].parse().unwrap()],
        ..local.clone()
    };
    let source = rank.memory(64 << 20, Access::ALL);
    let memory_id = fields[2].parse().unwrap();
    let data: RegisteredMemory = imported(&source, |record| {
        record.owner = 1;
        record.ethernet = Some(EthernetExport { memory_id });
    });
    let connection = rank.connect(&local, &remote).unwrap();
    connection.write(&data, 0, &source, 0, 64 << 20).unwrap();
    connection.flush(limit()).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            loop {
                if let Err(error) = connection.write(&data, 0, &source, 0, 64 << 20) {
                    return error;
                }
            }
        });
        eventually("writes under way", || connection.try_flush().0 > 3);
        child.kill().unwrap();
        child.wait().unwrap();
        let error = writer.join().unwrap();
        assert_eq!((error.code(), error.peer()), (ErrorCode::RemoteError, Some(1)), "{error}");
    });
    eventually("the failure", || rank.health().is_failed());
    let failure = rank.health().failure().unwrap();
    assert_eq!((failure.id(), failure.culprit), ("conn.broken", Some(1)));
    assert!(failure.to_string().contains("rank 1"), "{failure}");
}

#[test]
fn a_peer_that_closes_in_good_order_is_no_failure() {
    let pair = Pair::new();
    let data = pair.ranks[1].memory(64, Access::ALL);
    let [here, there] = pair.connect();
    here.atomic_add(&import(&data), 0, 1).unwrap();
    here.flush(limit()).unwrap();
    drop(there);
    // Half closed: the peer's engine still applies what comes.
    here.atomic_add(&import(&data), 0, 1).unwrap();
    here.flush(limit()).unwrap();
    assert_eq!(bytes(&data)[0], 2);
    let Pair { job: _job, ranks: [first, second] } = pair;
    drop(second);
    eventually("the end of the link", || first.engine.statistics().links == 0);
    let error = here.atomic_add(&import(&data), 0, 1).unwrap_err();
    assert_eq!((error.id(), error.peer()), ("conn.closed", Some(1)));
    // What it had got before is complete all the same.
    here.flush(limit()).unwrap();
    assert!(first.health().failure().is_none());
}

/// A peer leaves as soon as it has what it waits for. That is complete here; whatever else is still under way to it is lost,
/// and no failure.
#[test]
fn what_a_peer_waited_for_before_it_left_is_complete() {
    for turn in 0..100 {
        let Pair { job: _job, ranks: [first, second] } = Pair::new();
        let data = second.memory(64, Access::ALL);
        let (a, b) = (first.endpoint(), second.endpoint());
        let (here, there) = std::thread::scope(|scope| {
            let there = scope.spawn(|| second.connect(&b, &a).unwrap());
            (first.connect(&a, &b).unwrap(), there.join().unwrap())
        });
        let remote = import(&data);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                eventually("the last one", || bytes(&data)[0] == 10);
                drop((there, second));
                data
            });
            for _ in 0..9 {
                here.atomic_add(&remote, 0, 1).unwrap();
            }
            let last = here.atomic_add(&remote, 0, 1).unwrap();
            if turn % 2 == 0 {
                here.flush_to(last, limit()).unwrap();
            }
            let error = loop {
                if let Err(error) = here.atomic_add(&remote, 8, 1) {
                    break error;
                }
            };
            assert_eq!((error.id(), error.peer()), ("conn.closed", Some(1)), "turn {turn}: {error}");
            here.flush_to(last, limit()).unwrap();
        });
        assert!(first.health().failure().is_none(), "turn {turn}: {:?}", first.health().failure());
    }
}

#[test]
fn strangers_are_turned_away_and_ranks_still_meet() {
    let mut config = TcpConfig::default();
    config.handshake_timeout = Duration::from_secs(1);
    let pair = Pair::with_config(config);
    let target = pair.ranks[1].endpoint();
    let address = ipv4(&target);
    let noise: Vec<u8> = (0..4096u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    // Noise, too little of it, a foreign protocol, and nothing at all.
    let mut noisy = TcpStream::connect(address).unwrap();
    noisy.write_all(&noise).unwrap();
    let mut http = TcpStream::connect(address).unwrap();
    http.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: a program that is not a rank\r\n\r\n")
        .unwrap();
    let mut short = TcpStream::connect(address).unwrap();
    short.write_all(&noise[..71]).unwrap();
    eventually("two strays", || pair.ranks[1].engine.statistics().strays >= 2);
    assert_ne!(noisy.read(&mut [0; 64]).ok(), Some(64), "a stranger learns nothing");
    // More silent ones than may wait.
    let silent: Vec<_> = (0..100).map(|_| TcpStream::connect(address).unwrap()).collect();
    let data = pair.ranks[1].memory(64, Access::ALL);
    let [here, _there] = pair.join(pair.ranks[0].endpoint(), target, only(Ipv4Addr::LOCALHOST.into()));
    here.atomic_add(&import(&data), 0, 1).unwrap();
    here.flush(limit()).unwrap();
    eventually("all strays", || pair.ranks[1].engine.statistics().strays == 103);
    drop((silent, short));
    here.atomic_add(&import(&data), 0, 1).unwrap();
    here.flush(limit()).unwrap();
    pair.assert_healthy();
}

#[test]
fn connecting_gives_up_in_time_and_says_why() {
    let pair = Pair::new();
    let [a, b] = &pair.ranks;
    let soon = || Deadline::after(Duration::from_millis(200));
    let (here, mut there) = (a.endpoint(), b.endpoint());
    // Rank 1 waits for a dialler that does not come.
    let error = b.engine.connect(&b.context, &there, &here, soon()).err().unwrap();
    assert_eq!((error.id(), error.peer()), ("conn.unreachable", Some(0)));
    // Rank 0 dials where nobody listens.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    there.addresses = vec![free];
    let error = a.engine.connect(&a.context, &here, &there, soon()).err().unwrap();
    assert_eq!((error.id(), error.peer()), ("conn.unreachable", Some(1)));
    assert!(error.to_string().contains(&free.to_string()), "{error}");
    there.addresses.clear();
    let error = a.engine.connect(&a.context, &here, &there, limit()).err().unwrap();
    assert!(error.to_string().contains("no address"), "{error}");
    // An endpoint that its engine does not know.
    let unknown = Endpoint { id: 12345, ..b.endpoint() };
    let connection = a.connect(&here, &unknown).unwrap();
    let data = imported(&b.memory(64, Access::ALL), |_| {});
    let error = connection.atomic_add(&data, 0, 1).and_then(|_| connection.flush(limit())).unwrap_err();
    assert_eq!(error.peer(), Some(1), "{error}");
}
