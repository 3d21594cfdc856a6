//! What the service does with requests.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use warpway_core::channel::PortCopy;
use warpway_core::fifo::{MemoryId, SemaphoreId, Trigger, TriggerKind};
use warpway_core::proxy::{ProxyService, ProxyServiceConfig};
use warpway_core::{ErrorCode, Timeout};

use crate::fake::{
    Fault, LIMIT, Link, Op, PATIENCE, PEER, SIGNAL, eventually, local_memory, patience, remote_memory,
    service, waiter,
};

const MIB: u64 = 1 << 20;

fn write(destination: u64, offset: u64, source: u64, size: u64) -> Op {
    Op::Write { destination, destination_offset: offset, source, source_offset: offset, size }
}

#[test]
fn the_parts_of_one_request_are_posted_in_order() {
    let waiter = waiter(0);
    let (link, service) = (Link::open(&waiter), service(&waiter));
    let source = local_memory(MIB);
    let semaphore = service.add_semaphore(&link.semaphore).unwrap();
    let destination = service.add_memory(&remote_memory(0x10_0000, MIB)).unwrap();
    let trigger = Trigger {
        kind: TriggerKind::DATA | TriggerKind::FLAG | TriggerKind::ATOMIC_ADD | TriggerKind::SYNC,
        semaphore,
        destination,
        source: service.add_memory(&source).unwrap(),
        destination_offset: 4096,
        source_offset: 17,
        size: 4095,
        value: -5,
    };
    let position = service.fifo().unwrap().push(&trigger, LIMIT).unwrap();
    service.fifo().unwrap().sync(position, LIMIT).unwrap();
    let source = source.original_address();
    let data =
        Op::Write { destination: 0x10_0000, destination_offset: 4096, source, source_offset: 17, size: 4095 };
    let add = Op::Add { destination: 0x10_0000, offset: 4096, delta: -5 };
    assert_eq!(link.wire.ops(), [data, SIGNAL, add]);
}

/// The queue fills up within a request: each part is posted exactly once, in order.
#[test]
fn a_request_is_continued_where_the_queue_was_full() {
    let waiter = waiter(0);
    let (link, service) = (Link::gated(&waiter, 1), service(&waiter));
    let source = local_memory(MIB);
    let semaphore = service.add_semaphore(&link.semaphore).unwrap();
    let destination = service.add_memory(&remote_memory(0x10_0000, MIB)).unwrap();
    let source_id = service.add_memory(&source).unwrap();
    let channel = service.port_channel(semaphore, destination, source_id).unwrap().device_handle();
    for n in 0..3 {
        channel.put_with_signal(n * 100, n * 100, n).unwrap();
    }
    let expected: Vec<_> =
        (0..3).flat_map(|n| [write(0x10_0000, n * 100, source.original_address(), n), SIGNAL]).collect();
    for n in 1..=6 {
        eventually("the next part", || link.wire.posted() == n);
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(link.wire.ops(), expected[..n as usize], "no part before the one before is complete");
        link.wire.release(n);
    }
}

#[test]
fn requests_of_one_connection_keep_their_order() {
    let waiter = waiter(0);
    let (link, service) = (Link::gated(&waiter, 3), service(&waiter));
    let source = local_memory(MIB);
    let destination = service.add_memory(&remote_memory(0x10_0000, MIB)).unwrap();
    let source_id = service.add_memory(&source).unwrap();
    // Two semaphores of one connection are one lane.
    let handles: Vec<_> = (0..2)
        .map(|_| {
            let semaphore = service.add_semaphore(&link.semaphore).unwrap();
            service.port_channel(semaphore, destination, source_id).unwrap().device_handle()
        })
        .collect();
    let mut expected = Vec::new();
    let (wire, done) = (&link.wire, AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Completions trickle in.
            while !done.load(Ordering::SeqCst) {
                wire.release(wire.posted());
                std::thread::yield_now();
            }
        });
        for n in 0..997u64 {
            let channel = &handles[(n % 2) as usize];
            match n % 3 {
                0 => {
                    channel.put(n, n, n).unwrap();
                    expected.push(write(0x10_0000, n, source.original_address(), n));
                }
                1 => {
                    channel.signal().unwrap();
                    expected.push(SIGNAL);
                }
                _ => {
                    channel.atomic_add(n * 8, n as i64 - 500).unwrap();
                    expected.push(Op::Add { destination: 0x10_0000, offset: n * 8, delta: n as i64 - 500 });
                }
            }
        }
        handles[0].flush().unwrap();
        done.store(true, Ordering::SeqCst);
    });
    assert_eq!(link.wire.ops(), expected);
}

/// N29: a stale id is an error that names it, never another object's memory.
#[test]
fn n29_a_stale_memory_id_is_an_error() {
    let waiter = waiter(2);
    let (link, service) = (Link::open(&waiter), service(&waiter));
    let semaphore = service.add_semaphore(&link.semaphore).unwrap();
    let channel = service.base_port_channel(semaphore).unwrap().with_timeout(LIMIT).device_handle();
    let source = service.add_memory(&local_memory(MIB)).unwrap();
    let stale = service.add_memory(&remote_memory(0x10_0000, MIB)).unwrap();
    service.remove_memory(stale).unwrap();
    let other = service.add_memory(&remote_memory(0x20_0000, MIB)).unwrap();
    assert_eq!(
        (stale.index(), stale.generation() + 1),
        (other.index(), other.generation()),
        "the place is reused"
    );
    let copy = PortCopy { destination: stale, destination_offset: 0, source, source_offset: 0, size: 8 };
    channel.put(&copy).unwrap();
    let error = channel.flush().unwrap_err();
    assert_eq!(error.id(), "proxy.stale_id");
    assert!(error.to_string().contains(&format!("{:#010x}", stale.bits())), "{error}");
    assert_eq!(error.peer(), Some(PEER));
    assert_eq!(link.wire.ops(), [], "nothing reached the connection");
}

#[test]
fn n29_a_stale_semaphore_id_fails_the_service() {
    let (own, communicator) = (waiter(0), waiter(0));
    let (link, service) = (Link::open(&communicator), service(&own));
    let semaphore = service.add_semaphore(&link.semaphore).unwrap();
    let channel = service.base_port_channel(semaphore).unwrap().with_timeout(LIMIT).device_handle();
    service.remove_semaphore(semaphore).unwrap();
    assert_eq!(service.base_port_channel(semaphore).unwrap_err().id(), "proxy.stale_id");
    assert_eq!(service.remove_semaphore(semaphore).unwrap_err().id(), "proxy.stale_id");
    let error = channel.flush().unwrap_err();
    assert_eq!((error.code(), error.id()), (ErrorCode::InvalidUsage, "proxy.stale_id"));
    assert!(own.health.is_failed() && !communicator.health.is_failed());
}

/// A channel may go right after its last request.
#[test]
fn removals_queue_behind_requests() {
    let waiter = waiter(2);
    let link = Link::open(&waiter);
    let service = ProxyService::new(ProxyServiceConfig::new(waiter.clone())).unwrap();
    let source = local_memory(MIB);
    let semaphore = service.add_semaphore(&link.semaphore).unwrap();
    let destination = service.add_memory(&remote_memory(0x10_0000, MIB)).unwrap();
    let source_id = service.add_memory(&source).unwrap();
    let channel = service.port_channel(semaphore, destination, source_id).unwrap();
    let channel = channel.with_timeout(LIMIT).device_handle();
    // Nothing is taken up yet.
    channel.put_with_signal(8, 8, 16).unwrap();
    service.remove_semaphore(semaphore).unwrap();
    service.remove_memory(destination).unwrap();
    service.remove_memory(source_id).unwrap();
    // For everybody but the request they are gone, and their places are not free.
    assert_eq!(service.remove_semaphore(semaphore).unwrap_err().id(), "proxy.stale_id");
    assert_eq!(service.remove_memory(destination).unwrap_err().id(), "proxy.stale_id");
    assert_eq!(service.memory(destination).unwrap_err().id(), "proxy.stale_id");
    assert_eq!(service.base_port_channel(semaphore).unwrap_err().id(), "proxy.stale_id");
    let other = service.add_memory(&remote_memory(0x20_0000, MIB)).unwrap();
    assert!(![destination.index(), source_id.index()].contains(&other.index()));
    service.start_proxy().unwrap();
    eventually("both parts", || link.wire.posted() == 2);
    assert_eq!(link.wire.ops(), [write(0x10_0000, 8, source.original_address(), 16), SIGNAL]);
    // Then the places are free, and a later request finds nothing.
    let place = || service.add_memory(&source).unwrap();
    eventually("a free place", || [destination.index(), source_id.index()].contains(&place().index()));
    assert!(!waiter.health.is_failed());
    assert_eq!(channel.flush().unwrap_err().id(), "proxy.stale_id");
    assert_eq!(link.wire.posted(), 2);
}

#[test]
fn a_range_outside_the_memory_fails_the_communicator() {
    let waiter = waiter(2);
    let (link, service) = (Link::open(&waiter), service(&waiter));
    let semaphore = service.add_semaphore(&link.semaphore).unwrap();
    let channel = service.base_port_channel(semaphore).unwrap().with_timeout(LIMIT).device_handle();
    let source = service.add_memory(&local_memory(100)).unwrap();
    let destination = service.add_memory(&remote_memory(0x10_0000, 100)).unwrap();
    channel
        .put(&PortCopy { destination, destination_offset: 93, source, source_offset: 0, size: 8 })
        .unwrap();
    assert_eq!(channel.flush().unwrap_err().id(), "mem.bounds");
    assert_eq!(link.wire.ops(), []);
    assert_eq!(waiter.health.failure().unwrap().culprit, Some(PEER));
}

/// N36: a connection whose queue is full does not hold up others.
#[test]
fn n36_a_blocked_connection_does_not_block_another() {
    let waiter = waiter(0);
    let service = service(&waiter);
    let (blocked, free) = (Link::gated(&waiter, 2), Link::open(&waiter));
    let handle = |link: &Link| {
        let semaphore = service.add_semaphore(&link.semaphore).unwrap();
        service.base_port_channel(semaphore).unwrap().with_timeout(LIMIT).device_handle()
    };
    let (slow, fast) = (handle(&blocked), handle(&free));
    // More than the FIFO has slots: the blocked ones must leave the ring.
    for n in 1..=2_000 {
        slow.signal().unwrap();
        fast.signal().unwrap();
        if n % 100 == 0 {
            fast.flush().unwrap();
            assert_eq!(free.wire.posted(), n);
        }
    }
    assert_eq!(blocked.wire.posted(), 2);
    blocked.wire.release_all();
    slow.flush().unwrap();
    assert_eq!(blocked.wire.ops(), vec![SIGNAL; 2_000]);
}

/// What is set aside is bounded; the service resumes where it paused.
#[test]
fn parked_requests_are_bounded() {
    let waiter = waiter(0);
    let mut config = ProxyServiceConfig::new(waiter.clone());
    config.max_parked = 5;
    config.proxy.fifo_size = 8;
    let service = ProxyService::new(config).unwrap();
    service.start_proxy().unwrap();
    let link = Link::gated(&waiter, 1);
    let semaphore = service.add_semaphore(&link.semaphore).unwrap();
    let channel = service.base_port_channel(semaphore).unwrap();
    let handle = channel.clone().with_timeout(Timeout::after(Duration::from_millis(50))).device_handle();
    let mut pushed = 0;
    let error = loop {
        match handle.signal() {
            Ok(_) => pushed += 1,
            Err(error) => break error,
        }
    };
    assert_eq!((error.id(), error.peer()), ("wait.timeout", Some(PEER)));
    assert_eq!(pushed, 1 + 5 + 8, "one posted, five set aside, eight in the ring");
    link.wire.release_all();
    channel.with_timeout(LIMIT).device_handle().flush().unwrap();
    assert_eq!(link.wire.ops(), vec![SIGNAL; pushed]);
}

/// N35: a flush completes when its own requests are complete, under traffic that never ends.
#[test]
fn n35_a_flush_completes_under_continuous_traffic() {
    let waiter = waiter(0);
    let (link, service) = (Link::gated(&waiter, 1 << 20), service(&waiter));
    let semaphore = service.add_semaphore(&link.semaphore).unwrap();
    let channel = service.base_port_channel(semaphore).unwrap().with_timeout(PATIENCE.into());
    let (handle, done) = (channel.device_handle(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                handle.signal().unwrap();
            }
        });
        for round in 0..5 {
            eventually("traffic", || link.wire.posted() > 100 * round);
            let flush = scope.spawn(|| handle.flush().unwrap());
            std::thread::sleep(Duration::from_millis(5));
            assert!(!flush.is_finished(), "nothing that it waits for is complete");
            // Complete what has been posted, which is never everything: more comes all the time.
            eventually("the flush ends", || {
                let posted = link.wire.posted();
                eventually("more traffic", || link.wire.posted() > posted);
                link.wire.release(posted);
                flush.is_finished()
            });
        }
        done.store(true, Ordering::SeqCst);
    });
    link.wire.release_all();
}

/// N35: flushes are told apart by position: the earlier one is released first.
#[test]
fn n35_flushes_are_released_one_by_one() {
    let waiter = waiter(0);
    let (link, service) = (Link::gated(&waiter, 1 << 20), service(&waiter));
    let semaphore = service.add_semaphore(&link.semaphore).unwrap();
    let handle = service.base_port_channel(semaphore).unwrap().with_timeout(PATIENCE.into()).device_handle();
    std::thread::scope(|scope| {
        let flushes: Vec<_> = (1..=3u64)
            .map(|n| {
                handle.signal().unwrap();
                let flush = scope.spawn(|| handle.flush().unwrap());
                // A signal and a flush each: the next round begins when the proxy has taken up both.
                eventually("the flush is taken up", || service.fifo().unwrap().tail() == 2 * n);
                flush
            })
            .collect();
        for (i, flush) in flushes.into_iter().enumerate() {
            std::thread::sleep(Duration::from_millis(5));
            assert!(!flush.is_finished());
            link.wire.release(i as u64 + 1);
            flush.join().unwrap();
        }
    });
}

/// N33: an engine that panics or breaks fails its own communicator; another one is served as before.
#[test]
fn n33_a_failing_connection_leaves_other_communicators_alone() {
    for (fault, id) in [(Fault::Panic, "proxy.panicked"), (Fault::Break, "conn.broken")] {
        let (own, sick, well) = (waiter(0), waiter(1), waiter(2));
        let service = service(&own);
        let (bad, good) = (Link::open(&sick), Link::open(&well));
        let handle = |link: &Link| {
            let semaphore = service.add_semaphore(&link.semaphore).unwrap();
            service.base_port_channel(semaphore).unwrap().with_timeout(LIMIT).device_handle()
        };
        let (bad_handle, good_handle) = (handle(&bad), handle(&good));
        bad.wire.inject(fault);
        bad_handle.signal().unwrap();
        eventually("the failure", || sick.health.is_failed());
        let error = bad_handle.flush().unwrap_err();
        assert_eq!((error.id(), error.peer()), (id, Some(PEER)));
        for _ in 0..10 {
            good_handle.signal().unwrap();
        }
        good_handle.flush().unwrap();
        assert_eq!(good.wire.ops(), vec![SIGNAL; 10]);
        assert!(well.health.check().is_ok() && own.health.check().is_ok());
        let lines = sick.recorder.snapshot();
        assert!(lines.iter().any(|line| line.operation.to_string() == "proxy_request"), "{lines:?}");
        assert_eq!(service.stop_proxy(patience()).unwrap().rejected, 0);
    }
}

/// A failed communicator gives up what is set aside, so that a stop has nothing to wait for.
#[test]
fn an_abort_empties_the_queues_of_its_communicator() {
    let (own, communicator) = (waiter(0), waiter(1));
    let (link, service) = (Link::gated(&communicator, 1), service(&own));
    let semaphore = service.add_semaphore(&link.semaphore).unwrap();
    let handle = service.base_port_channel(semaphore).unwrap().with_timeout(Timeout::NONE).device_handle();
    std::thread::scope(|scope| {
        for _ in 0..20 {
            handle.signal().unwrap();
        }
        let flush = scope.spawn(|| handle.flush());
        eventually("the flush is taken up", || service.fifo().unwrap().tail() == 21);
        communicator.health.abort("test");
        assert_eq!(flush.join().unwrap().unwrap_err().code(), ErrorCode::Aborted);
    });
    assert_eq!(service.stop_proxy(patience()).unwrap().rejected, 0, "nothing is left to wait for");
    assert_eq!(link.wire.posted(), 1);
    assert!(own.health.check().is_ok());
}

/// N28: offsets and sizes beyond 4 GiB arrive unchanged.
#[test]
fn n28_large_offsets_and_sizes_pass_unchanged() {
    const GIB: u64 = 1 << 30;
    let waiter = waiter(0);
    let (link, service) = (Link::open(&waiter), service(&waiter));
    let source = local_memory(1 << 40);
    let semaphore = service.add_semaphore(&link.semaphore).unwrap();
    let destination = service.add_memory(&remote_memory(0x10_0000, 1 << 62)).unwrap();
    let source_id = service.add_memory(&source).unwrap();
    let channel = service.port_channel(semaphore, destination, source_id).unwrap().with_timeout(LIMIT);
    let handle = channel.device_handle();
    let cases =
        [(5 * GIB + 3, 7 * GIB + 1, 9 * GIB + 17), ((1 << 61) + 1, (1 << 39) + 5, 1), (1 << 62, 1 << 40, 0)];
    for (destination_offset, source_offset, size) in cases {
        handle.put(destination_offset, source_offset, size).unwrap();
    }
    handle.atomic_add((1 << 62) - 8, i64::MIN).unwrap();
    handle.flush().unwrap();
    let source = source.original_address();
    let mut expected: Vec<_> = cases
        .into_iter()
        .map(|(destination_offset, source_offset, size)| Op::Write {
            destination: 0x10_0000,
            destination_offset,
            source,
            source_offset,
            size,
        })
        .collect();
    expected.push(Op::Add { destination: 0x10_0000, offset: (1 << 62) - 8, delta: i64::MIN });
    assert_eq!(link.wire.ops(), expected);
}

/// N30, N37: ids come and go while the service runs.
#[test]
fn n30_ids_can_be_added_while_the_service_runs() {
    let waiter = waiter(0);
    let (link, service) = (Link::open(&waiter), service(&waiter));
    let source = local_memory(MIB);
    let source_id = service.add_memory(&source).unwrap();
    assert_eq!(service.next_memory_id(0).unwrap_err().id(), "proxy.usage");
    std::thread::scope(|scope| {
        for thread in 1..=4u64 {
            let (service, link) = (&service, &link);
            scope.spawn(move || {
                let semaphore = service.add_semaphore(&link.semaphore).unwrap();
                for n in 0..200 {
                    let first = service.next_memory_id(2).unwrap();
                    let second = first.offset(1).unwrap();
                    service.set_memory(second, &remote_memory(thread << 32 | n << 16, 64)).unwrap();
                    let channel = service.port_channel(semaphore, second, source_id).unwrap();
                    channel
                        .with_timeout(LIMIT)
                        .device_handle()
                        .put_with_signal_and_flush(n % 64, 0, 0)
                        .unwrap();
                    service.remove_memory(second).unwrap();
                    service.remove_memory(first).unwrap();
                }
                service.remove_semaphore(semaphore).unwrap();
            });
        }
    });
    let mut sums = [0u64; 5];
    for op in link.wire.ops() {
        if let Op::Write { destination, destination_offset, .. } = op {
            let n = destination >> 16 & 0xffff;
            assert_eq!(destination_offset, n % 64);
            sums[(destination >> 32) as usize] += n;
        }
    }
    assert_eq!(sums, [0, 19_900, 19_900, 19_900, 19_900]);
    assert!(waiter.health.check().is_ok());
}

#[test]
fn requests_that_no_channel_makes_are_checked_by_the_service() {
    let waiter = waiter(0);
    let (link, service) = (Link::open(&waiter), service(&waiter));
    let semaphore = service.add_semaphore(&link.semaphore).unwrap();
    let unknown = MemoryId::from_bits(0x00ff_ffff);
    let add = Trigger { destination: unknown, ..Trigger::new(TriggerKind::ATOMIC_ADD, semaphore) };
    service.fifo().unwrap().push(&add, LIMIT).unwrap();
    eventually("the failure", || waiter.health.is_failed());
    assert_eq!(waiter.health.check().unwrap_err().id(), "proxy.stale_id");
    let never = SemaphoreId::from_bits(0x0100_0000);
    assert_eq!(service.base_port_channel(never).unwrap_err().id(), "proxy.stale_id");
}
