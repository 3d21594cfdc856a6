//! The ring itself: kernels push, a handler takes.

use std::sync::{Arc, Mutex};

use fake_cuda::Live;
use warpway_core::ErrorCode;
use warpway_core::fifo::{MemoryId, SemaphoreId, Trigger, TriggerKind};
use warpway_core::proxy::{Flow, Proxy, ProxyConfig, TriggerSource};
use warpway_cuda::{Context, DeviceFifo, Site};

use crate::producer::{ABORTED, DeviceTrigger, NO_POSITION, OK, Producer};
use crate::{eventually, soon, start, waiter};

type Log = Arc<Mutex<Vec<(u64, Trigger)>>>;

fn proxy(
    fifo: &DeviceFifo,
    log: &Log,
) -> Proxy<impl FnMut(u64, Trigger) -> warpway_core::Result<Flow> + Send + use<>> {
    let log = Arc::clone(log);
    let mut config = ProxyConfig::new(waiter(0));
    config.source = Some(Arc::new(fifo.clone()));
    let handler = move |position, trigger| {
        log.lock().unwrap().push((position, trigger));
        Ok(Flow::Continue)
    };
    Proxy::new(handler, config).unwrap()
}

fn trigger(n: u64) -> Trigger {
    Trigger {
        destination: MemoryId::from_bits(0xa000_0000 + n as u32),
        source: MemoryId::from_bits(n as u32),
        destination_offset: n << 33,
        source_offset: n << 20 | 1,
        size: n + 1,
        value: -(n as i64),
        ..Trigger::new(TriggerKind::DATA, SemaphoreId::from_bits(!(n as u32)))
    }
}

/// Many more producers than slots, many laps, a full ring: every element arrives whole, once, at its position.
#[test]
fn elements_of_many_producers_arrive_whole_and_in_order() {
    let Some(producer) = Producer::load() else { return };
    const PRODUCERS: u64 = 20;
    const EACH: u64 = 300;
    let (fake, context) = start();
    let (fifo, log) = (DeviceFifo::new(&context, 8).unwrap(), Log::default());
    let kernel = producer.fifo(&fake, &fifo.handle(Site::default()));
    let proxy = proxy(&fifo, &log);
    proxy.start().unwrap();
    let pushed: Mutex<Vec<(u64, u64)>> = Mutex::default();
    std::thread::scope(|scope| {
        for p in 0..PRODUCERS {
            let (kernel, pushed) = (&kernel, &pushed);
            scope.spawn(move || {
                let mine: Vec<_> = (p * EACH..(p + 1) * EACH).map(|n| (kernel.push(trigger(n)), n)).collect();
                pushed.lock().unwrap().extend(mine);
            });
        }
    });
    let mut pushed = pushed.into_inner().unwrap();
    pushed.sort_unstable();
    let last = PRODUCERS * EACH - 1;
    assert_eq!(pushed.last().unwrap().0, last);
    assert_eq!(kernel.sync(last), OK);
    assert_eq!(fifo.head().unwrap(), last + 1);
    assert_eq!(proxy.stop(soon()).unwrap().rejected, 0);
    let expected: Vec<_> = pushed.iter().map(|(position, n)| (*position, trigger(*n))).collect();
    assert!(*log.lock().unwrap() == expected, "whole elements, in the order of their positions");
    assert_eq!(
        pushed.iter().map(|(position, _)| *position).collect::<Vec<_>>(),
        (0..=last).collect::<Vec<_>>()
    );
}

/// A kernel that finds the ring full of a stopped proxy leaves; what it had to wait for is not taken for consumed.
#[test]
fn a_stop_releases_kernels() {
    let Some(producer) = Producer::load() else { return };
    let (fake, context) = start();
    let (fifo, log) = (DeviceFifo::new(&context, 2).unwrap(), Log::default());
    let kernel = producer.fifo(&fake, &fifo.handle(Site::default()));
    let proxy = proxy(&fifo, &log);
    std::thread::scope(|scope| {
        assert_eq!([kernel.push(trigger(0)), kernel.push(trigger(1))], [0, 1]);
        let waits = [scope.spawn(|| kernel.push(trigger(2))), scope.spawn(|| kernel.push(trigger(3)))];
        eventually("both have their positions", || fifo.head().unwrap() == 4);
        // It has never run, so nothing is carried out.
        assert_eq!(proxy.stop(soon()).unwrap().rejected, 2);
        assert_eq!(waits.map(|wait| wait.join().unwrap()), [NO_POSITION; 2]);
    });
    assert_eq!([0, 1, 2, 3].map(|position| kernel.sync(position)), [ABORTED; 4]);
    assert_eq!(proxy.start().unwrap_err().id(), "proxy.usage");
    assert_eq!(log.lock().unwrap().len(), 0);
}

/// What a request does not fit is refused by the kernel, and takes no position.
#[test]
fn a_request_that_does_not_fit_takes_no_position() {
    let Some(producer) = Producer::load() else { return };
    let (fake, context) = start();
    let fifo = DeviceFifo::new(&context, 4).unwrap();
    let kernel = producer.fifo(&fake, &fifo.handle(Site::default()));
    let wrong = |kind, destination_offset, size| DeviceTrigger {
        kind,
        destination_offset,
        size,
        ..DeviceTrigger::from(trigger(5))
    };
    for wrong in [wrong(0, 0, 1), wrong(16, 0, 1), wrong(1, u64::MAX, 1), wrong(1, 1, u64::MAX)] {
        assert_eq!(kernel.push(wrong), NO_POSITION);
    }
    assert_eq!((fifo.head().unwrap(), fifo.front(0)), (0, None));
    assert_eq!(kernel.push(trigger(5)), 0);
    assert_eq!(fifo.front(0), Some(trigger(5).encode().unwrap()));
    assert_eq!((fifo.front(1), fifo.front(4)), (None, None));
}

#[test]
fn sizes_are_checked_and_nothing_is_left() {
    let (fake, context) = start();
    for size in [0, 1, 3, 511, (1 << 20) + 1, 1 << 21, 1 << 63, u64::MAX] {
        let error = DeviceFifo::new(&context, size).unwrap_err();
        assert_eq!((error.id(), error.code()), ("fifo.size", ErrorCode::InvalidUsage));
    }
    for size in [2, 512, 1 << 20] {
        let fifo = DeviceFifo::new(&context, size).unwrap();
        assert_eq!(fifo.size(), size);
        // More words than one chunk has; each is zeroed, also one that was used.
        let words: Vec<_> = (0..200).map(|_| fifo.progress_word().unwrap()).collect();
        let mut addresses: Vec<u64> = words.iter().map(|word| word.address()).collect();
        addresses.sort_unstable();
        assert!(addresses.windows(2).all(|pair| pair[1] - pair[0] >= 128), "each on a line of its own");
        words.iter().for_each(|word| word.store(u64::MAX));
        drop(words);
        let again = fifo.progress_word().unwrap();
        // SAFETY: the word lives, and nobody else writes it.
        let value = unsafe { fake.host_address(again.address()).unwrap().cast::<u64>().read() };
        assert_eq!(value, 0);
    }
    drop(context);
    assert_eq!(fake.live(), Live::default());
}

/// Each call of the driver fails once: an error, and nothing is left.
#[test]
fn every_driver_call_may_fail() {
    let (fake, context) = start();
    let before = fake.live();
    let mut failed = 0;
    for function in [
        "cuMemHostAlloc",
        "cuMemHostGetDevicePointer",
        "cuMemAlloc",
        "cuStreamCreateWithPriority",
        "cuMemcpyHtoDAsync",
    ] {
        for nth in 1.. {
            fake.fail(function, nth, 2);
            let made = DeviceFifo::new(&context, 4);
            fake.forget_failures();
            let Err(error) = made else { break };
            assert_eq!(error.id(), "gpu.driver", "{function} {nth}");
            assert_eq!(fake.live(), before, "{function} {nth}");
            failed += 1;
        }
    }
    assert_eq!(failed, 7);
}

/// A device that does not answer when the proxy stops: an error of the health, and the stop ends.
#[test]
fn a_head_that_cannot_be_read() {
    let (fake, context) = start();
    let (fifo, log) = (DeviceFifo::new(&context, 4).unwrap(), Log::default());
    let proxy = proxy(&fifo, &log);
    proxy.start().unwrap();
    fake.fail("cuMemcpyAsync", 1, 719);
    assert_eq!(proxy.stop(soon()).unwrap().rejected, 0);
    let error = proxy.waiter().health.check().unwrap_err();
    assert_eq!(error.id(), "gpu.driver");
    assert!(error.to_string().contains("cuMemcpyAsync"), "{error}");
    let _: Context = context;
}
