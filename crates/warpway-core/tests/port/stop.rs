//! Start, stop and drop, in any order.

use std::sync::Arc;
use std::time::Duration;

use warpway_core::proxy::{ProxyService, ProxyServiceConfig};
use warpway_core::{Deadline, ErrorCode};

use crate::fake::{LIMIT, Link, PATIENCE, SIGNAL, eventually, patience, service, waiter};

/// N34: what a stop leaves undone ends with an error, and stays an error after the next start.
#[test]
fn n34_stop_never_pretends_that_a_flush_completed() {
    let waiter = waiter(0);
    let (link, service) = (Link::gated(&waiter, 4), service(&waiter));
    let semaphore = service.add_semaphore(&link.semaphore).unwrap();
    let handle = service.base_port_channel(semaphore).unwrap().with_timeout(PATIENCE.into()).device_handle();
    std::thread::scope(|scope| {
        handle.signal().unwrap();
        // One flush waits for a posted operation, two more are behind a full queue.
        let waits: Vec<_> = (0..3)
            .map(|round| {
                let flush = scope.spawn(|| handle.flush());
                let taken_up = 2 + 5 * round;
                eventually("the flush is taken up", || service.fifo().unwrap().tail() == taken_up);
                for _ in 0..4 {
                    handle.signal().unwrap();
                }
                flush
            })
            .collect();
        let report = service.stop_proxy(Deadline::after(Duration::from_millis(30))).unwrap();
        // Of 13 signals 4 are posted; 9 are left, and three flushes.
        assert_eq!(report.rejected, 9 + 3);
        for wait in waits {
            let error = wait.join().unwrap().unwrap_err();
            assert_eq!((error.code(), error.id()), (ErrorCode::Aborted, "proxy.stopped"));
        }
    });
    assert_eq!(handle.flush().unwrap_err().id(), "proxy.stopped", "no new request while it is stopped");
    assert_eq!(link.wire.posted(), 4);
    link.wire.release_all();
    service.start_proxy().unwrap();
    // Nobody waited for the nine signals: the first flush tells.
    assert_eq!(handle.flush().unwrap_err().id(), "proxy.stopped");
    handle.signal().unwrap();
    handle.flush().unwrap();
    assert_eq!(link.wire.ops(), vec![SIGNAL; 5]);
    assert!(waiter.health.check().is_ok());
}

/// N34: a waiter that looks late still learns that its flush was given up, whatever completed since.
#[test]
fn n34_a_flush_given_up_stays_so_after_later_ones_complete() {
    let waiter = waiter(0);
    let (link, service) = (Link::gated(&waiter, 4), service(&waiter));
    let semaphore = service.add_semaphore(&link.semaphore).unwrap();
    let handle = service.base_port_channel(semaphore).unwrap().with_timeout(PATIENCE.into()).device_handle();
    std::thread::scope(|scope| {
        for _ in 0..20 {
            let signal = handle.signal().unwrap();
            let flush = scope.spawn(|| handle.flush());
            // The flush is the next request; the signal may have been taken up long ago.
            eventually("the flush is taken up", || {
                service.fifo().unwrap().tail() > signal + 1 || flush.is_finished()
            });
            service.stop_proxy(Deadline::after(Duration::from_millis(1))).unwrap();
            link.wire.release_all();
            service.start_proxy().unwrap();
            handle.flush().unwrap();
            assert_eq!(flush.join().unwrap().unwrap_err().id(), "proxy.stopped");
            link.wire.release(link.wire.posted());
        }
    });
}

#[test]
fn a_stop_completes_what_can_be_completed() {
    let waiter = waiter(0);
    let (link, service) = (Link::gated(&waiter, 4), service(&waiter));
    let semaphore = service.add_semaphore(&link.semaphore).unwrap();
    let handle = service.base_port_channel(semaphore).unwrap().with_timeout(PATIENCE.into()).device_handle();
    std::thread::scope(|scope| {
        for _ in 0..100 {
            handle.signal().unwrap();
        }
        let flush = scope.spawn(|| handle.flush());
        eventually("everything is taken up", || service.fifo().unwrap().tail() == 101);
        let stop = scope.spawn(|| service.stop_proxy(patience()).unwrap());
        std::thread::sleep(Duration::from_millis(10));
        assert!(!stop.is_finished());
        link.wire.release_all();
        assert_eq!(stop.join().unwrap().rejected, 0);
        flush.join().unwrap().unwrap();
    });
    assert_eq!(link.wire.ops(), vec![SIGNAL; 100]);
}

#[test]
fn a_service_that_was_never_started_rejects_at_stop() {
    let waiter = waiter(0);
    let link = Link::open(&waiter);
    let service = ProxyService::new(ProxyServiceConfig::new(waiter)).unwrap();
    let semaphore = service.add_semaphore(&link.semaphore).unwrap();
    let handle = service.base_port_channel(semaphore).unwrap().with_timeout(PATIENCE.into()).device_handle();
    std::thread::scope(|scope| {
        handle.signal().unwrap();
        let flush = scope.spawn(|| handle.flush());
        eventually("the flush is pushed", || handle.signal().unwrap() > 2);
        let rejected = service.stop_proxy(patience()).unwrap().rejected;
        assert!(rejected >= 3, "{rejected}");
        assert_eq!(flush.join().unwrap().unwrap_err().id(), "proxy.stopped");
    });
    assert_eq!(link.wire.ops(), []);
}

/// N31: channels keep the service, not just its thread, and nothing outlives the last of them.
#[test]
fn n31_channels_keep_the_service_alive() {
    let waiter = waiter(0);
    let link = Link::open(&waiter);
    let running = service(&waiter);
    let semaphore = running.add_semaphore(&link.semaphore).unwrap();
    let channel = running.base_port_channel(semaphore).unwrap().with_timeout(LIMIT);
    drop(running);
    let handle = channel.device_handle();
    drop(channel);
    let wire = Arc::clone(&link.wire);
    drop(link);
    handle.signal().unwrap();
    handle.flush().unwrap();
    assert_eq!(wire.ops(), [SIGNAL]);
    drop(handle);
    assert_eq!(Arc::strong_count(&wire), 1, "connection and thread are gone");
}

/// Every order of dropping service, channel, handle and link, running or stopped.
#[test]
fn any_order_of_drops() {
    for order in 0..24usize {
        for stopped in [false, true] {
            let waiter = waiter(0);
            let link = Link::open(&waiter);
            let wire = Arc::clone(&link.wire);
            let service = service(&waiter);
            let semaphore = service.add_semaphore(&link.semaphore).unwrap();
            let channel = service.base_port_channel(semaphore).unwrap().with_timeout(LIMIT);
            let handle = channel.device_handle();
            handle.signal().unwrap();
            if stopped {
                service.stop_proxy(patience()).unwrap();
            }
            let mut things: Vec<Box<dyn std::any::Any>> =
                vec![Box::new(service), Box::new(channel), Box::new(handle), Box::new(link)];
            let mut rest = order;
            for left in (1..=4).rev() {
                drop(things.swap_remove(rest % left));
                rest /= left;
            }
            assert_eq!(wire.ops(), [SIGNAL], "what was pushed is carried out");
            assert_eq!(Arc::strong_count(&wire), 1);
        }
    }
}

/// N32: starting twice is defined, several services work side by side.
#[test]
fn n32_several_services_started_twice() {
    let waiter = waiter(0);
    let link = Link::open(&waiter);
    let services: Vec<_> = (0..5).map(|_| service(&waiter)).collect();
    for service in &services {
        service.start_proxy().unwrap();
        let semaphore = service.add_semaphore(&link.semaphore).unwrap();
        let handle = service.base_port_channel(semaphore).unwrap().with_timeout(LIMIT).device_handle();
        handle.signal().unwrap();
        handle.flush().unwrap();
    }
    assert_eq!(link.wire.ops(), vec![SIGNAL; 5]);
}
