//! A proxy service whose requests come from a device: the host plays the kernels.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use warpway_core::fifo::{EncodedTrigger, SemaphoreId, Trigger, TriggerKind};
use warpway_core::proxy::{PROXY_STOPPED, PollPolicy, ProxyService, ProxyServiceConfig};
use warpway_core::wait::Waiter;
use warpway_core::{Deadline, ErrorCode};

use crate::fake::{LIMIT, Link, Op, SIGNAL, eventually, local_memory, patience, remote_memory, waiter};
use crate::ring::{DeviceRing, Status};

fn service(waiter: &Waiter, ring: &Arc<DeviceRing>) -> ProxyService {
    let mut config = ProxyServiceConfig::new(waiter.clone());
    config.proxy.source = Some(Arc::clone(ring) as _);
    // Naps begin at once, so that they are part of every test.
    config.proxy.poll = PollPolicy { spins: 2, awake: Duration::ZERO, ..config.proxy.poll };
    ProxyService::new(config).unwrap()
}

fn sync(semaphore: SemaphoreId) -> Trigger {
    Trigger::new(TriggerKind::SYNC, semaphore)
}

fn flag(semaphore: SemaphoreId) -> Trigger {
    Trigger::new(TriggerKind::FLAG, semaphore)
}

fn await_flush(ring: &DeviceRing, lane: usize, position: u64) -> Status {
    eventually("the flush ends", || ring.flushed(lane, position) != Status::Pending);
    ring.flushed(lane, position)
}

/// Every kind of request, over many laps of a ring that is full most of the time, by several producers at once.
#[test]
fn requests_of_a_device_are_carried_out_in_the_order_of_their_positions() {
    const PRODUCERS: u64 = 8;
    const EACH: u64 = 500;
    let (waiter, ring) = (waiter(0), DeviceRing::new(8));
    let (link, service) = (Link::open(&waiter), service(&waiter, &ring));
    service.start_proxy().unwrap();
    let semaphore = service.add_semaphore(&link.semaphore).unwrap();
    let destination = service.add_memory(&remote_memory(0x9000, 1 << 40)).unwrap();
    let source = service.add_memory(&local_memory(1 << 20)).unwrap();
    let expected: Vec<AtomicU64> = (0..PRODUCERS * EACH).map(|_| AtomicU64::new(u64::MAX)).collect();
    std::thread::scope(|scope| {
        for producer in 0..PRODUCERS {
            let (ring, expected) = (&ring, &expected);
            scope.spawn(move || {
                for n in 0..EACH {
                    let number = producer * EACH + n;
                    let kind = TriggerKind::DATA | TriggerKind::FLAG | TriggerKind::ATOMIC_ADD;
                    let position = ring
                        .push(&Trigger {
                            destination,
                            source,
                            destination_offset: 8 * number,
                            source_offset: number,
                            size: 3,
                            value: -(number as i64),
                            ..Trigger::new(kind, semaphore)
                        })
                        .unwrap();
                    expected[position as usize].store(number, Ordering::Relaxed);
                }
            });
        }
    });
    let last = ring.push(&sync(semaphore)).unwrap();
    assert_eq!(last, PRODUCERS * EACH, "each position was given once");
    assert_eq!(await_flush(&ring, 0, last), Status::Ok);
    let original = service.memory(source).unwrap().original_address();
    let expected: Vec<Op> = expected
        .iter()
        .map(|number| number.load(Ordering::Relaxed))
        .flat_map(|number| {
            [
                Op::Write {
                    destination: 0x9000,
                    destination_offset: 8 * number,
                    source: original,
                    source_offset: number,
                    size: 3,
                },
                SIGNAL,
                Op::Add { destination: 0x9000, offset: 8 * number, delta: -(number as i64) },
            ]
        })
        .collect();
    assert!(link.wire.ops() == expected, "data, flag, addition; by position");
    assert!(waiter.health.check().is_ok());
    assert_eq!(ring.tail.load(Ordering::Acquire), last + 1);
}

/// N35, on two connections: each flush ends with its own requests, in whatever order connections complete.
#[test]
fn n35_words_of_two_connections_are_independent() {
    let (waiter, ring) = (waiter(0), DeviceRing::new(16));
    let links = [Link::gated(&waiter, 100), Link::telling(&waiter, 100)];
    let service = service(&waiter, &ring);
    let ids = [0, 1].map(|i| service.add_semaphore(&links[i].semaphore).unwrap());
    // A second channel of a connection shares its word.
    let again = service.add_semaphore(&links[0].semaphore).unwrap();
    let channels = [ids[0], ids[1], again].map(|id| service.base_port_channel(id).unwrap());
    assert_eq!(channels[0].flush_word(), channels[2].flush_word());
    assert_ne!(channels[0].flush_word(), channels[1].flush_word());
    service.start_proxy().unwrap();
    for id in ids {
        ring.push(&flag(id)).unwrap();
        ring.push(&sync(id)).unwrap();
        ring.push(&flag(id)).unwrap();
    }
    let last = ring.push(&sync(ids[0])).unwrap();
    eventually("all are taken up", || ring.consumed(last) == Status::Ok);
    assert_eq!((ring.word(0), ring.word(1)), (0, 0));
    links[1].wire.release(1);
    assert_eq!(await_flush(&ring, 1, 4), Status::Ok);
    assert_eq!((ring.word(0), ring.word(1)), (0, 5));
    links[0].wire.release(1);
    assert_eq!(await_flush(&ring, 0, 1), Status::Ok);
    assert_eq!(ring.flushed(0, last), Status::Pending);
    links[0].wire.release_all();
    assert_eq!(await_flush(&ring, 0, last), Status::Ok);
    assert_eq!(ring.word(0), last + 1);
}

/// An element whose words arrive in any order, after a long pause of its producer: it is taken when all are there.
#[test]
fn a_producer_that_is_slow_between_position_and_element() {
    let (waiter, ring) = (waiter(0), DeviceRing::new(4));
    let (link, service) = (Link::open(&waiter), service(&waiter, &ring));
    service.start_proxy().unwrap();
    let semaphore = service.add_semaphore(&link.semaphore).unwrap();
    let slow = ring.take_position();
    let fast = ring.push(&sync(semaphore)).unwrap();
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!((ring.consumed(slow), ring.flushed(0, fast)), (Status::Pending, Status::Pending));
    ring.write(slow, &flag(semaphore).encode().unwrap());
    assert_eq!(await_flush(&ring, 0, fast), Status::Ok);
    assert_eq!(link.wire.ops(), [SIGNAL]);
}

#[test]
fn the_host_cannot_push() {
    let (waiter, ring) = (waiter(0), DeviceRing::new(4));
    let (link, service) = (Link::open(&waiter), service(&waiter, &ring));
    service.start_proxy().unwrap();
    let semaphore = service.add_semaphore(&link.semaphore).unwrap();
    let channel = service.base_port_channel(semaphore).unwrap().with_timeout(LIMIT);
    let error = channel.device_handle().signal().unwrap_err();
    assert_eq!((error.id(), error.code()), ("proxy.usage", ErrorCode::InvalidUsage));
    assert!(error.to_string().contains("from a device"), "{error}");
    assert_eq!(service.fifo().unwrap_err().id(), "proxy.usage");
    assert_eq!(channel.device_handle().flush().unwrap_err().id(), "proxy.usage");
    assert_eq!(link.wire.ops(), []);
}

/// N34: kernels that wait when the service stops leave with an error; what they wait for is never shown as done.
#[test]
fn n34_a_stop_aborts_kernels_and_is_final() {
    let (waiter, ring) = (waiter(0), DeviceRing::new(4));
    let (link, service) = (Link::gated(&waiter, 2), service(&waiter, &ring));
    let semaphore = service.add_semaphore(&link.semaphore).unwrap();
    service.start_proxy().unwrap();
    // Two posted, a flush that waits for them, then a full ring behind them.
    for trigger in [flag(semaphore), flag(semaphore), sync(semaphore)] {
        ring.push(&trigger).unwrap();
    }
    eventually("the flush is taken up", || ring.consumed(2) == Status::Ok);
    let report = service.stop_proxy(Deadline::after(Duration::from_millis(20))).unwrap();
    assert_eq!(report.rejected, 1, "the flush");
    assert_eq!(ring.flushed(0, 2), Status::Aborted);
    assert_eq!(ring.consumed(2), Status::Ok, "taken up before the stop");
    // Pushes find room until the ring is full, and are told by their flush, then by the push.
    assert_eq!(ring.push(&flag(semaphore)), Some(3));
    for position in 4..7 {
        assert_eq!(ring.push(&sync(semaphore)), Some(position));
        assert_eq!((ring.flushed(0, position), ring.consumed(position)), (Status::Aborted, Status::Aborted));
    }
    assert_eq!(ring.push(&flag(semaphore)), None);
    // A channel made now is stopped as well.
    let other = Link::open(&waiter);
    let late = service.add_semaphore(&other.semaphore).unwrap();
    assert_eq!(ring.flushed(1, 0), Status::Aborted);
    link.wire.release_all();
    let error = service.start_proxy().unwrap_err();
    assert_eq!(error.id(), "proxy.usage", "{error}");
    assert_eq!(service.stop_proxy(patience()).unwrap().rejected, 4);
    assert_eq!((ring.flushed(0, 2), ring.flushed(1, 0)), (Status::Aborted, Status::Aborted));
    assert_eq!([3, 4, 5, 6].map(|position| ring.consumed(position)), [Status::Aborted; 4], "rejected");
    assert_eq!((link.wire.posted(), other.wire.posted(), late.generation()), (2, 0, 0));
    assert!(waiter.health.check().is_ok());
}

/// A stop that leaves nothing undone can be taken back: kernels that looked in between had been told so, others go on.
#[test]
fn a_clean_stop_and_another_start() {
    let (waiter, ring) = (waiter(0), DeviceRing::new(4));
    let (link, service) = (Link::open(&waiter), service(&waiter, &ring));
    let semaphore = service.add_semaphore(&link.semaphore).unwrap();
    for round in 0..5 {
        // Before the first start nothing is stopped yet.
        let position = ring.push(&sync(semaphore)).unwrap();
        let before = if round == 0 { Status::Pending } else { Status::Aborted };
        assert_eq!((ring.flushed(0, position), ring.consumed(position)), (before, before));
        service.start_proxy().unwrap();
        assert_eq!(await_flush(&ring, 0, position), Status::Ok);
        ring.push(&flag(semaphore)).unwrap();
        assert_eq!(service.stop_proxy(patience()).unwrap().rejected, 0);
        assert_eq!(ring.word(0), (position + 1) | PROXY_STOPPED);
        assert_eq!(ring.tail.load(Ordering::Acquire), (position + 2) | PROXY_STOPPED);
    }
    assert_eq!(link.wire.ops(), vec![SIGNAL; 5]);
}

/// A kernel that took a position and was aborted leaves a hole. A stop is not held up by it, and nothing behind it is
/// taken for its element.
#[test]
fn a_hole_ends_at_the_stop() {
    let (waiter, ring) = (waiter(0), DeviceRing::new(4));
    let (link, service) = (Link::open(&waiter), service(&waiter, &ring));
    let semaphore = service.add_semaphore(&link.semaphore).unwrap();
    service.start_proxy().unwrap();
    ring.take_position();
    let behind = ring.push(&sync(semaphore)).unwrap();
    assert_eq!(service.stop_proxy(Deadline::after(Duration::from_millis(20))).unwrap().rejected, 0);
    assert_eq!((ring.flushed(0, behind), ring.consumed(behind)), (Status::Aborted, Status::Aborted));
    assert_eq!(service.start_proxy().unwrap_err().id(), "proxy.usage");
    assert_eq!(link.wire.ops(), []);
}

/// N29: an id that names nothing, and numbers that no kernel of ours writes. Who sent them is unknown, so all leave.
#[test]
fn n29_bad_elements_release_every_waiter_with_an_error() {
    let stale = |semaphore: SemaphoreId| flag(SemaphoreId::from_bits(semaphore.bits() + 1)).encode().unwrap();
    let malformed = |semaphore: SemaphoreId| {
        let mut element = flag(semaphore).encode().unwrap();
        element.0[1][1] = 1 << 40;
        element
    };
    let cases: [(&dyn Fn(SemaphoreId) -> EncodedTrigger, &str); 2] =
        [(&stale, "proxy.stale_id"), (&malformed, "fifo.range")];
    for (element, id) in cases {
        // The connection is another communicator's, so it goes on.
        let (waiter, theirs, ring) = (waiter(5), waiter(5), DeviceRing::new(4));
        let (link, service) = (Link::gated(&theirs, 8), service(&waiter, &ring));
        let semaphore = service.add_semaphore(&link.semaphore).unwrap();
        service.start_proxy().unwrap();
        ring.push(&flag(semaphore)).unwrap();
        let pending = ring.push(&sync(semaphore)).unwrap();
        let position = ring.take_position();
        ring.write(position, &element(semaphore));
        eventually("the waiter leaves", || ring.flushed(0, pending) != Status::Pending);
        assert_eq!(ring.flushed(0, pending), Status::Aborted);
        let error = waiter.health.check().unwrap_err();
        assert_eq!(error.id(), id);
        assert!(error.to_string().contains("rank 5"), "{error}");
        // What completes later is not shown: the lost request may have been of this connection.
        link.wire.release_all();
        let later = ring.push(&sync(semaphore)).unwrap();
        assert_eq!(service.stop_proxy(patience()).unwrap().rejected, 0);
        assert_eq!(ring.consumed(later), Status::Ok);
        assert_eq!((ring.flushed(0, position), ring.flushed(0, later)), (Status::Aborted, Status::Aborted));
        assert!(theirs.health.check().is_ok());
        service.start_proxy().unwrap();
        assert_eq!(ring.flushed(0, position), Status::Aborted, "also after another start");
    }
}

/// A range beyond the memory: the error names rank and peer, waiters of that connection leave, others go on.
#[test]
fn a_request_out_of_range_breaks_its_connection_only() {
    let (here, other, ring) = (waiter(2), waiter(2), DeviceRing::new(8));
    let links = [Link::open(&here), Link::open(&other)];
    let service = service(&other, &ring);
    let ids = [0, 1].map(|i| service.add_semaphore(&links[i].semaphore).unwrap());
    let destination = service.add_memory(&remote_memory(0x9000, 64)).unwrap();
    let source = service.add_memory(&local_memory(64)).unwrap();
    service.start_proxy().unwrap();
    let kind = TriggerKind::DATA | TriggerKind::FLAG | TriggerKind::SYNC;
    let trigger = |semaphore, size| Trigger { destination, source, size, ..Trigger::new(kind, semaphore) };
    let bad = ring.push(&trigger(ids[0], 65)).unwrap();
    assert_eq!(await_flush(&ring, 0, bad), Status::Aborted);
    let good = ring.push(&trigger(ids[1], 64)).unwrap();
    assert_eq!(await_flush(&ring, 1, good), Status::Ok);
    let later = ring.push(&sync(ids[0])).unwrap();
    eventually("it is consumed", || ring.consumed(later) == Status::Ok);
    assert_eq!(ring.flushed(0, later), Status::Aborted);
    let error = here.health.check().unwrap_err();
    assert_eq!(error.id(), "mem.bounds");
    let text = error.to_string();
    assert!(text.contains("rank 2") && text.contains("65"), "{text}");
    assert_eq!(here.health.failure().unwrap().culprit, Some(crate::fake::PEER));
    assert!(other.health.check().is_ok());
    assert_eq!((links[0].wire.posted(), links[1].wire.posted()), (0, 2));
}

/// A device that does not answer: the stop ends, says so, and kernels are released all the same.
#[test]
fn a_dead_device_does_not_hold_up_the_stop() {
    let (waiter, ring) = (waiter(0), DeviceRing::new(4));
    let (link, service) = (Link::gated(&waiter, 8), service(&waiter, &ring));
    let semaphore = service.add_semaphore(&link.semaphore).unwrap();
    service.start_proxy().unwrap();
    ring.push(&flag(semaphore)).unwrap();
    let pending = ring.push(&sync(semaphore)).unwrap();
    eventually("it is consumed", || ring.consumed(pending) == Status::Ok);
    ring.dead.store(true, Ordering::Relaxed);
    assert_eq!(service.stop_proxy(Deadline::after(Duration::from_millis(20))).unwrap().rejected, 1);
    assert_eq!(ring.flushed(0, pending), Status::Aborted);
    assert_eq!(waiter.health.check().unwrap_err().id(), "system");
}

/// A completion that the connection tells wakes the proxy out of a nap, a stop as well.
#[test]
fn naps_end_when_the_bell_rings() {
    let (waiter, ring) = (waiter(0), DeviceRing::new(4));
    let link = Link::telling(&waiter, 8);
    let mut config = ProxyServiceConfig::new(waiter.clone());
    config.proxy.source = Some(Arc::clone(&ring) as _);
    let hour = Duration::from_secs(3600);
    config.proxy.poll =
        PollPolicy { spins: 0, awake: Duration::from_millis(50), shortest_nap: hour, longest_nap: hour };
    let service = ProxyService::new(config).unwrap();
    let semaphore = service.add_semaphore(&link.semaphore).unwrap();
    ring.push(&flag(semaphore)).unwrap();
    let pending = ring.push(&sync(semaphore)).unwrap();
    service.start_proxy().unwrap();
    eventually("it is consumed", || ring.consumed(pending) == Status::Ok);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(ring.flushed(0, pending), Status::Pending);
    link.wire.release_all();
    assert_eq!(await_flush(&ring, 0, pending), Status::Ok);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(service.stop_proxy(patience()).unwrap().rejected, 0);
}

/// Nobody flushes: while nothing comes the proxy asks the connection to let go of what is complete, until it has.
#[test]
fn what_is_complete_is_let_go_of_while_nothing_comes() {
    let (waiter, ring) = (waiter(0), DeviceRing::new(4));
    let link = Link::gated(&waiter, 8);
    let service = service(&waiter, &ring);
    let semaphore = service.add_semaphore(&link.semaphore).unwrap();
    service.start_proxy().unwrap();
    assert_eq!(link.wire.asked_to_let_go(), 0);
    for round in 1..=3 {
        ring.push(&flag(semaphore)).unwrap();
        eventually("it is carried out", || link.wire.posted() == round);
        let before = link.wire.asked_to_let_go();
        eventually("it is asked again and again", || link.wire.asked_to_let_go() > before + 2);
        link.wire.release(round);
        settled(&link);
    }
    // A failure that no request meets is a failure all the same.
    ring.push(&flag(semaphore)).unwrap();
    eventually("it is carried out", || link.wire.posted() == 4);
    link.wire.break_down();
    eventually("it is noticed", || waiter.health.is_failed());
    assert_eq!(waiter.health.check().unwrap_err().id(), "conn.broken");
    assert_eq!(service.stop_proxy(patience()).unwrap().rejected, 0);
}

/// Host threads wake the proxy; before it sleeps for good it does the same.
#[test]
fn what_host_threads_have_asked_for_is_let_go_of() {
    let waiter = waiter(0);
    let (link, service) = (Link::gated(&waiter, 8), crate::fake::service(&waiter));
    let semaphore = service.add_semaphore(&link.semaphore).unwrap();
    let position = service.fifo().unwrap().push(&flag(semaphore), LIMIT).unwrap();
    service.fifo().unwrap().sync(position, LIMIT).unwrap();
    let before = link.wire.asked_to_let_go();
    eventually("it is asked again and again", || link.wire.asked_to_let_go() > before + 2);
    link.wire.release_all();
    settled(&link);
}

/// Waits until the proxy has stopped asking.
#[track_caller]
fn settled(link: &Link) {
    let mut last = link.wire.asked_to_let_go();
    eventually("it asks no more", || {
        std::thread::sleep(Duration::from_millis(20));
        std::mem::replace(&mut last, link.wire.asked_to_let_go()) == last
    });
}
