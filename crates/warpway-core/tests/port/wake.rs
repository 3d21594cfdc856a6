//! What wakes a service that sleeps. Its naps are longer than the patience of these tests, so that only a wake-up
//! ends them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use warpway_core::ErrorCode;
use warpway_core::channel::BasePortChannelHandle;
use warpway_core::proxy::{Flow, Handler, Progress, Proxy, ProxyConfig, ProxyService, ProxyServiceConfig};
use warpway_core::wait::WaitPolicy;

use crate::fake::{Link, PATIENCE, PEER, SIGNAL, eventually, waiter};

const ASLEEP: WaitPolicy = WaitPolicy { spins: 0, yields: 0, slice: Duration::from_secs(3600) };

fn sleepy_service(link: &Link) -> (ProxyService, BasePortChannelHandle) {
    let mut config = ProxyServiceConfig::new(link.waiter.clone());
    config.proxy.idle = ASLEEP;
    let service = ProxyService::new(config).unwrap();
    service.start_proxy().unwrap();
    let semaphore = service.add_semaphore(&link.semaphore).unwrap();
    let channel = service.base_port_channel(semaphore).unwrap().with_timeout(PATIENCE.into());
    (service, channel.device_handle())
}

#[test]
fn a_completion_wakes_the_service_for_a_flush() {
    let link = Link::telling(&waiter(0), 1 << 20);
    let (service, channel) = sleepy_service(&link);
    channel.signal().unwrap();
    channel.signal().unwrap();
    std::thread::scope(|scope| {
        let flush = scope.spawn(|| channel.flush().unwrap());
        eventually("the flush is taken up", || service.fifo().unwrap().tail() == 3);
        for incomplete in [0, 1] {
            link.wire.release(incomplete);
            std::thread::sleep(Duration::from_millis(20));
            assert!(!flush.is_finished());
        }
        link.wire.release(2);
        assert_eq!(flush.join().unwrap(), 2);
    });
}

#[test]
fn a_completion_wakes_the_service_for_what_is_parked() {
    let link = Link::telling(&waiter(0), 2);
    let (_service, channel) = sleepy_service(&link);
    for _ in 0..17 {
        channel.signal().unwrap();
    }
    for complete in 0..=15 {
        eventually("room for one more", || link.wire.posted() == complete + 2);
        link.wire.release(complete + 1);
    }
    link.wire.release(17);
    channel.flush().unwrap();
    assert_eq!(link.wire.ops(), vec![SIGNAL; 17]);
}

/// Completions race with the service's falling asleep; a wake-up that got lost would last for an hour.
#[test]
fn no_wake_up_is_lost() {
    let link = Link::telling(&waiter(0), 3);
    let (_service, channel) = sleepy_service(&link);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut seen = 0;
            while !done.load(Ordering::SeqCst) {
                let posted = link.wire.posted();
                if posted != seen {
                    link.wire.release(posted);
                    seen = posted;
                }
                std::hint::spin_loop();
            }
        });
        // So that the other thread ends also where an assertion here fails.
        let _end = OnDrop(|| done.store(true, Ordering::SeqCst));
        for round in 0..3_000u64 {
            for _ in 0..round % 7 {
                channel.signal().unwrap();
            }
            channel.flush().unwrap();
        }
    });
    assert_eq!(link.wire.posted(), (0..3_000).map(|round| round % 7).sum::<u64>());
}

#[test]
fn a_failure_wakes_the_service_and_its_waiters() {
    let link = Link::telling(&waiter(0), 1 << 20);
    let (service, channel) = sleepy_service(&link);
    channel.signal().unwrap();
    std::thread::scope(|scope| {
        let flush = scope.spawn(|| channel.flush().unwrap_err());
        eventually("the flush is taken up", || service.fifo().unwrap().tail() == 2);
        std::thread::sleep(Duration::from_millis(20));
        link.wire.break_down();
        let error = flush.join().unwrap();
        assert_eq!(
            (error.id(), error.code(), error.peer()),
            ("conn.broken", ErrorCode::RemoteError, Some(PEER))
        );
    });
}

/// A connection that tells nobody is asked now and then.
#[test]
fn a_silent_connection_is_asked() {
    let link = Link::gated(&waiter(0), 1 << 20);
    let (service, channel) = sleepy_service(&link);
    channel.signal().unwrap();
    std::thread::scope(|scope| {
        let flush = scope.spawn(|| channel.flush().unwrap());
        eventually("the flush is taken up", || service.fifo().unwrap().tail() == 2);
        link.wire.release_all();
        flush.join().unwrap();
    });
}

/// A handler of one's own that is told by the bell.
#[test]
fn the_bell_makes_the_handler_go_on() {
    struct Awaiting(Arc<AtomicBool>, Arc<AtomicBool>);
    impl Handler for Awaiting {
        fn handle(&mut self, _: u64, _: warpway_core::fifo::Trigger) -> warpway_core::Result<Flow> {
            Ok(Flow::Continue)
        }
        fn progress(&mut self) -> warpway_core::Result<Progress> {
            self.1.fetch_or(self.0.load(Ordering::SeqCst), Ordering::SeqCst);
            Ok(Progress::Notified)
        }
    }
    let (happened, seen) = (Arc::default(), Arc::default());
    let handler = Awaiting(Arc::clone(&happened), Arc::clone(&seen));
    let config = ProxyConfig { idle: ASLEEP, ..ProxyConfig::new(waiter(0)) };
    let proxy = Proxy::new(handler, config).unwrap();
    proxy.start().unwrap();
    std::thread::sleep(Duration::from_millis(20));
    happened.store(true, Ordering::SeqCst);
    proxy.bell().ring();
    eventually("the handler is asked", || seen.load(Ordering::SeqCst));
    assert!(!proxy.fifo().unwrap().poll(0));
}

struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
