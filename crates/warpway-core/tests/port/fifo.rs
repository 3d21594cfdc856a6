//! The FIFO between host threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use warpway_core::fifo::{Fifo, MemoryId, SemaphoreId, Trigger, TriggerKind};
use warpway_core::{ErrorCode, Timeout};

use crate::fake::{LIMIT, PATIENCE, waiter};

fn trigger(producer: u64, n: u64) -> Trigger {
    Trigger {
        kind: TriggerKind::DATA | TriggerKind::FLAG,
        semaphore: SemaphoreId::from_bits(producer as u32),
        destination: MemoryId::from_bits(n as u32),
        source: MemoryId::from_bits(!n as u32),
        destination_offset: n << 20,
        source_offset: producer << 32 | n,
        size: n.wrapping_mul(0x9e37_79b9) & 0xffff_ffff_ffff,
        value: -(n as i64),
    }
}

fn many_producers(size: u64, producers: u64, each: u64) {
    let mut fifo = Fifo::new(size, waiter(0)).unwrap();
    let handle = fifo.handle();
    let positions = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for producer in 0..producers {
            let (handle, positions) = (handle.clone(), &positions);
            scope.spawn(move || {
                for n in 0..each {
                    let position = handle.push(&trigger(producer, n), Timeout::from(PATIENCE)).unwrap();
                    positions.fetch_add(position, Ordering::Relaxed);
                }
            });
        }
        let mut next = vec![0; producers as usize];
        let total = producers * each;
        while fifo.tail() < total {
            let Some(found) = fifo.poll() else {
                fifo.sleep(Duration::from_millis(10), || false);
                continue;
            };
            let found = found.unwrap();
            let producer = u64::from(found.semaphore.bits());
            // Exact content, and the order of each producer.
            assert_eq!(found, trigger(producer, next[producer as usize]));
            next[producer as usize] += 1;
            assert!(fifo.pop());
            assert!(!fifo.pop(), "one poll, one pop");
        }
        assert!(fifo.poll().is_none());
        assert!(next.iter().all(|n| *n == each));
    });
    let total = producers * each;
    // Each position was given once: they sum up to 0 + 1 + … + (total − 1).
    assert_eq!(positions.into_inner(), total * (total - 1) / 2);
    assert_eq!((fifo.head(), fifo.tail(), handle.tail()), (total, total, total));
}

#[test]
fn eight_producers_on_small_and_large_rings() {
    many_producers(2, 8, 1_003);
    many_producers(16, 8, 4_095);
    many_producers(512, 8, 10_007);
}

#[test]
fn more_producers_than_slots() {
    many_producers(2, 33, 101);
}

#[test]
fn a_push_that_gives_up_has_pushed_nothing() {
    let mut fifo = Fifo::new(2, waiter(5)).unwrap();
    let handle = fifo.handle();
    for n in 0..2 {
        assert_eq!(handle.push(&trigger(0, n), Timeout::ZERO).unwrap(), n);
    }
    let error = handle.push(&trigger(0, 9), Timeout::after(Duration::from_millis(20))).unwrap_err();
    assert_eq!((error.code(), error.id()), (ErrorCode::Timeout, "wait.timeout"));
    assert!(error.to_string().starts_with("rank 5: fifo_push"), "{error}");
    assert_eq!(fifo.head(), 2);
    for n in 0..2 {
        assert!(!handle.poll(n));
        assert_eq!(fifo.poll().unwrap().unwrap(), trigger(0, n));
        assert!(fifo.pop());
        assert!(handle.poll(n));
    }
    assert!(fifo.poll().is_none());
    assert_eq!(handle.push(&trigger(0, 2), Timeout::ZERO).unwrap(), 2);
    assert_eq!(fifo.poll().unwrap().unwrap(), trigger(0, 2));
}

#[test]
fn sync_and_full_pushes_sleep_until_the_consumer_pops() {
    let mut fifo = Fifo::new(2, waiter(0)).unwrap();
    let handle = fifo.handle();
    handle.push(&trigger(0, 0), LIMIT).unwrap();
    handle.push(&trigger(0, 1), LIMIT).unwrap();
    std::thread::scope(|scope| {
        let pusher = scope.spawn(|| handle.push(&trigger(0, 2), Timeout::from(PATIENCE)));
        let syncer = scope.spawn(|| handle.sync(1, Timeout::from(PATIENCE)));
        std::thread::sleep(Duration::from_millis(30));
        assert!(!pusher.is_finished() && !syncer.is_finished());
        assert!(fifo.poll().is_some() && fifo.pop());
        assert_eq!(pusher.join().unwrap().unwrap(), 2);
        assert!(fifo.poll().is_some() && fifo.pop());
        syncer.join().unwrap().unwrap();
    });
    let error = handle.sync(2, Timeout::after(Duration::from_millis(10))).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Timeout);
}

#[test]
fn abort_and_close_end_a_push_that_waits() {
    let waiter = waiter(0);
    let mut fifo = Fifo::new(2, waiter.clone()).unwrap();
    let handle = fifo.handle();
    for n in 0..2 {
        handle.push(&trigger(0, n), LIMIT).unwrap();
    }
    std::thread::scope(|scope| {
        let pusher = scope.spawn(|| handle.push(&trigger(0, 2), Timeout::NONE));
        std::thread::sleep(Duration::from_millis(20));
        handle.close();
        let error = pusher.join().unwrap().unwrap_err();
        assert_eq!((error.code(), error.id()), (ErrorCode::Aborted, "proxy.stopped"));
    });
    assert!(fifo.poll().is_some(), "what was pushed before stays");
    handle.open();
    std::thread::scope(|scope| {
        let pusher = scope.spawn(|| handle.push(&trigger(0, 2), Timeout::NONE));
        std::thread::sleep(Duration::from_millis(20));
        waiter.health.abort("test");
        assert_eq!(pusher.join().unwrap().unwrap_err().code(), ErrorCode::Aborted);
    });
    assert_eq!(fifo.head(), 2);
}

/// N28: what the encoding does not hold is refused where it is encoded.
#[test]
fn n28_a_range_that_does_not_fit_is_refused_and_not_pushed() {
    let fifo = Fifo::new(2, waiter(0)).unwrap();
    let bad = Trigger { destination_offset: u64::MAX - 7, size: 8, ..trigger(0, 0) };
    let error = fifo.handle().push(&bad, LIMIT).unwrap_err();
    assert_eq!((error.code(), error.id()), (ErrorCode::InvalidUsage, "fifo.range"));
    assert_eq!(fifo.head(), 0);
}
