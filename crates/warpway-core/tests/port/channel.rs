//! What a port channel checks and waits for by itself.

use std::time::Duration;

use warpway_core::channel::PortChannel;
use warpway_core::{ErrorCode, Timeout};

use crate::fake::{LIMIT, Link, PEER, SIGNAL, local_memory, remote_memory, service, waiter};

#[test]
fn bad_arguments_are_refused_before_anything_is_pushed() {
    let waiter = waiter(0);
    let (link, service) = (Link::open(&waiter), service(&waiter));
    let semaphore = service.add_semaphore(&link.semaphore).unwrap();
    let destination = service.add_memory(&remote_memory(0x10_0000, 4096)).unwrap();
    let source = service.add_memory(&local_memory(4096)).unwrap();
    let base = service.base_port_channel(semaphore).unwrap().with_timeout(LIMIT);
    let refused = PortChannel::new(base.clone(), source, destination).unwrap_err();
    assert_eq!(refused.id(), "mem.side");
    let handle = PortChannel::new(base.clone(), destination, source).unwrap().device_handle();
    for (destination_offset, source_offset, size) in
        [(4096, 0, 1), (0, 4090, 7), (u64::MAX, 0, 2), (1, u64::MAX - 1, 3), (0, 0, 4097)]
    {
        for put in [
            handle.put(destination_offset, source_offset, size),
            handle.put_with_signal(destination_offset, source_offset, size),
            handle.put_with_signal_and_flush(destination_offset, source_offset, size),
        ] {
            assert_eq!(put.unwrap_err().id(), "mem.bounds");
        }
    }
    for offset in [1, 4, 4095] {
        assert_eq!(
            base.device_handle().atomic_add(destination, offset, 1).unwrap_err().id(),
            "mem.alignment"
        );
    }
    for (offset, id) in [(4, "mem.alignment"), (4096, "mem.bounds"), (u64::MAX - 7, "mem.bounds")] {
        assert_eq!(handle.atomic_add(offset, 1).unwrap_err().id(), id);
    }
    assert_eq!(service.fifo().unwrap().tail(), 0);
    // The ends of the range are fine, and so is nothing.
    for (destination_offset, source_offset, size) in [(4096, 4096, 0), (0, 0, 4096), (4095, 4095, 1)] {
        handle.put(destination_offset, source_offset, size).unwrap();
    }
    handle.atomic_add(4088, 1).unwrap();
    handle.flush().unwrap();
    assert_eq!(link.wire.posted(), 4);
}

#[test]
fn each_signal_of_the_peer_is_taken_once() {
    let waiter = waiter(0);
    let (link, service) = (Link::open(&waiter), service(&waiter));
    let semaphore = service.add_semaphore(&link.semaphore).unwrap();
    let handle = service.base_port_channel(semaphore).unwrap().with_timeout(LIMIT).device_handle();
    assert!(!handle.poll().unwrap());
    link.inbound.add(3);
    assert!(handle.poll().unwrap());
    handle.wait().unwrap();
    assert!(handle.poll().unwrap());
    assert!(!handle.poll().unwrap());
    std::thread::scope(|scope| {
        let wait = scope.spawn(|| handle.wait());
        std::thread::sleep(Duration::from_millis(20));
        link.inbound.add(1);
        wait.join().unwrap().unwrap();
    });
}

#[test]
fn waits_are_bounded_and_name_the_peer() {
    let waiter = waiter(6);
    let (link, service) = (Link::gated(&waiter, 8), service(&waiter));
    let semaphore = service.add_semaphore(&link.semaphore).unwrap();
    let short = Timeout::after(Duration::from_millis(30));
    let handle = service.base_port_channel(semaphore).unwrap().with_timeout(short).device_handle();
    handle.signal().unwrap();
    for (error, operation) in [(handle.flush().unwrap_err(), "flush"), (handle.wait().unwrap_err(), "wait")] {
        assert_eq!((error.code(), error.peer()), (ErrorCode::Timeout, Some(PEER)));
        assert!(error.to_string().starts_with(&format!("rank 6: {operation} for rank 3")), "{error}");
    }
    // A flush that gave up breaks nothing.
    link.wire.release_all();
    handle.channel().clone().with_timeout(LIMIT).device_handle().flush().unwrap();
    assert_eq!(link.wire.ops(), [SIGNAL]);
    link.waiter.health.abort("test");
    assert_eq!(handle.signal().unwrap_err().code(), ErrorCode::Aborted);
    assert_eq!(handle.flush().unwrap_err().code(), ErrorCode::Aborted);
    assert_eq!(handle.wait().unwrap_err().code(), ErrorCode::Aborted);
}
