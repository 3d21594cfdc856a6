//! The bare proxy with handlers of one's own.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use warpway_core::fifo::{SemaphoreId, Trigger, TriggerKind};
use warpway_core::proxy::{Flow, Handler, Progress, Proxy, ProxyConfig};
use warpway_core::{Deadline, ErrorCode, Result};

use crate::fake::{LIMIT, eventually, patience, waiter};

fn trigger(n: u64) -> Trigger {
    Trigger { size: n, ..Trigger::new(TriggerKind::FLAG, SemaphoreId::default()) }
}

type Log = Arc<Mutex<Vec<(u64, u64)>>>;

fn logging(log: &Log) -> impl FnMut(u64, Trigger) -> Result<Flow> + Send + use<> {
    let log = Arc::clone(log);
    move |position, trigger| {
        log.lock().unwrap().push((position, trigger.size));
        Ok(Flow::Continue)
    }
}

fn expected(values: std::ops::Range<u64>) -> Vec<(u64, u64)> {
    values.map(|n| (n, n)).collect()
}

#[test]
fn requests_reach_the_handler_in_order_across_restarts() {
    let log = Log::default();
    let proxy =
        Proxy::new(logging(&log), ProxyConfig { fifo_size: 8, ..ProxyConfig::new(waiter(0)) }).unwrap();
    // Before the start.
    for n in 0..5 {
        proxy.fifo().unwrap().push(&trigger(n), LIMIT).unwrap();
    }
    assert!(!proxy.is_running());
    proxy.start().unwrap();
    for n in 5..1_003 {
        proxy.fifo().unwrap().push(&trigger(n), LIMIT).unwrap();
    }
    assert_eq!(proxy.stop(patience()).unwrap().rejected, 0);
    assert_eq!(*log.lock().unwrap(), expected(0..1_003), "a stop consumes what was pushed");
    assert!(!proxy.is_running());
    assert_eq!(proxy.fifo().unwrap().push(&trigger(0), LIMIT).unwrap_err().id(), "proxy.stopped");
    proxy.start().unwrap();
    let last = proxy.fifo().unwrap().push(&trigger(1_003), LIMIT).unwrap();
    proxy.fifo().unwrap().sync(last, LIMIT).unwrap();
    assert_eq!(*log.lock().unwrap(), expected(0..1_004));
}

/// N32: starting twice does nothing, stopping twice neither.
#[test]
fn n32_start_and_stop_any_number_of_times() {
    let log = Log::default();
    let proxy = Proxy::new(logging(&log), ProxyConfig::new(waiter(0))).unwrap();
    assert_eq!(proxy.stop(patience()).unwrap().rejected, 0);
    for n in 0..5 {
        proxy.start().unwrap();
        proxy.start().unwrap();
        proxy.fifo().unwrap().push(&trigger(n), LIMIT).unwrap();
        proxy.stop(patience()).unwrap();
        proxy.stop(patience()).unwrap();
        assert_eq!(*log.lock().unwrap(), expected(0..n + 1));
    }
}

/// N33: a panic and an error become failures of the health, and the proxy goes on.
#[test]
fn n33_a_panicking_handler_fails_the_health_and_goes_on() {
    let handled = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&handled);
    let waiter = waiter(4);
    let handler = move |_, trigger: Trigger| {
        count.fetch_add(trigger.size, Ordering::SeqCst);
        assert_ne!(trigger.size, 10, "handler met ten");
        Ok(Flow::Continue)
    };
    let proxy = Proxy::new(handler, ProxyConfig::new(waiter.clone())).unwrap();
    proxy.start().unwrap();
    for n in [1, 10, 100] {
        proxy.fifo().unwrap().push(&trigger(n), LIMIT).unwrap();
    }
    eventually("the request after the panic", || handled.load(Ordering::SeqCst) == 111);
    let error = waiter.health.check().unwrap_err();
    assert_eq!((error.code(), error.id()), (ErrorCode::InternalError, "proxy.panicked"));
    assert!(error.to_string().contains("handler met ten"), "{error}");
    assert!(proxy.is_running());
    proxy.stop(patience()).unwrap();
}

#[test]
fn a_handler_may_end_the_proxy() {
    let waiter = waiter(0);
    let handler = |_, trigger: Trigger| Ok(if trigger.size == 2 { Flow::Stop } else { Flow::Continue });
    let proxy = Proxy::new(handler, ProxyConfig::new(waiter.clone())).unwrap();
    for n in 0..5 {
        proxy.fifo().unwrap().push(&trigger(n), LIMIT).unwrap();
    }
    proxy.start().unwrap();
    eventually("the end of the thread", || !proxy.is_running());
    assert_eq!(proxy.fifo().unwrap().push(&trigger(9), LIMIT).unwrap_err().id(), "proxy.stopped");
    assert_eq!(proxy.stop(patience()).unwrap().rejected, 2, "what came after the end is rejected");
    assert!(waiter.health.check().is_ok());
    proxy.start().unwrap();
    assert!(proxy.fifo().unwrap().push(&trigger(0), LIMIT).is_ok());
}

/// A handler with something under way, which never ends by itself.
struct Endless {
    given_up: mpsc::Sender<&'static str>,
}

impl Handler for Endless {
    fn handle(&mut self, _: u64, _: Trigger) -> Result<Flow> {
        Ok(Flow::Continue)
    }
    fn progress(&mut self) -> Result<Progress> {
        Ok(Progress::Waiting)
    }
    fn give_up(&mut self) -> u64 {
        self.given_up.send("given up").unwrap();
        7
    }
}

#[test]
fn a_stop_gives_up_at_its_deadline() {
    let (given_up, events) = mpsc::channel();
    let proxy = Proxy::new(Endless { given_up }, ProxyConfig::new(waiter(0))).unwrap();
    proxy.start().unwrap();
    assert_eq!(proxy.stop(Deadline::after(Duration::from_millis(50))).unwrap().rejected, 7);
    assert_eq!(events.try_recv(), Ok("given up"));
}

/// N31: a thread that cannot be joined owns what it uses and ends by itself.
#[test]
fn n31_a_stuck_handler_is_reported_and_survives_the_proxy() {
    let (release, gate) = mpsc::channel::<()>();
    let ended = Arc::new(AtomicBool::new(false));
    let entered = Arc::new(AtomicBool::new(false));
    struct Flag(Arc<AtomicBool>);
    impl Drop for Flag {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let (flag, inside) = (Flag(Arc::clone(&ended)), Arc::clone(&entered));
    let handler = move |_, _: Trigger| {
        let _keep = &flag;
        inside.store(true, Ordering::SeqCst);
        let _ = gate.recv();
        Ok(Flow::Continue)
    };
    let config = ProxyConfig { drop_timeout: Duration::from_millis(10), ..ProxyConfig::new(waiter(0)) };
    let proxy = Proxy::new(handler, config).unwrap();
    proxy.start().unwrap();
    proxy.fifo().unwrap().push(&trigger(0), LIMIT).unwrap();
    eventually("the handler is inside", || entered.load(Ordering::SeqCst));
    let error = proxy.stop(Deadline::after(Duration::from_millis(10))).unwrap_err();
    assert_eq!((error.code(), error.id()), (ErrorCode::Timeout, "proxy.stuck"));
    drop(proxy);
    assert!(!ended.load(Ordering::SeqCst), "the handler is still in use");
    drop(release);
    eventually("the thread ends and drops the handler", || ended.load(Ordering::SeqCst));
}

#[test]
fn a_handler_cannot_wait_for_itself() {
    type Slot = Arc<Mutex<Option<Arc<dyn Fn() -> &'static str + Send + Sync>>>>;
    let slot = Slot::default();
    let (seen, inside) = (Arc::new(Mutex::new(None)), Arc::clone(&slot));
    let store = Arc::clone(&seen);
    let handler = move |_, _: Trigger| {
        let stop = inside.lock().unwrap().clone().unwrap();
        *store.lock().unwrap() = Some(stop());
        Ok(Flow::Continue)
    };
    let proxy = Arc::new(Proxy::new(handler, ProxyConfig::new(waiter(0))).unwrap());
    let weak = Arc::downgrade(&proxy);
    *slot.lock().unwrap() =
        Some(Arc::new(move || weak.upgrade().unwrap().stop(Deadline::NEVER).unwrap_err().id()));
    proxy.start().unwrap();
    proxy.fifo().unwrap().push(&trigger(0), LIMIT).unwrap();
    eventually("the answer", || seen.lock().unwrap().is_some());
    assert_eq!(*seen.lock().unwrap(), Some("proxy.usage"));
    // The request to stop counts all the same.
    eventually("the end", || !proxy.is_running());
}

#[test]
fn thread_init_runs_first_on_the_thread() {
    let log = Log::default();
    let init = Arc::clone(&log);
    let config = ProxyConfig {
        name: "its-own-name".into(),
        thread_init: Some(Arc::new(move || {
            assert_eq!(std::thread::current().name(), Some("its-own-name"));
            init.lock().unwrap().push((99, 99));
            Ok(())
        })),
        ..ProxyConfig::new(waiter(0))
    };
    let proxy = Proxy::new(logging(&log), config).unwrap();
    proxy.fifo().unwrap().push(&trigger(0), LIMIT).unwrap();
    proxy.start().unwrap();
    proxy.stop(patience()).unwrap();
    assert_eq!(*log.lock().unwrap(), [(99, 99), (0, 0)]);
    assert!(proxy.waiter().health.check().is_ok());
}
