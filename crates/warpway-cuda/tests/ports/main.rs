//! Port channels of kernels on a driver in host memory. The kernels' part is the real headers, compiled for the host.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test")]

mod channel;
mod fifo;
#[path = "../host_compiler/mod.rs"]
mod host_compiler;
mod producer;

use std::sync::Arc;
use std::time::{Duration, Instant};

use fake_cuda::Fake;
use warpway_core::trace::FlightRecorder;
use warpway_core::wait::{WaitPolicy, Waiter};
use warpway_core::{Deadline, Health};
use warpway_cuda::{Context, Driver};

fn start() -> (Fake, Context) {
    let fake = Fake::open();
    let driver = Driver::open(fake.path()).unwrap();
    let context = Context::primary(&driver, 0).unwrap();
    (fake, context)
}

fn waiter(rank: u32) -> Waiter {
    let policy = WaitPolicy { spins: 0, yields: 20, slice: Duration::from_millis(10) };
    Waiter::new(Arc::new(Health::new(rank)), Arc::new(FlightRecorder::new(64)), policy)
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(10))
}

#[track_caller]
fn eventually(what: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(10), "{what}: did not happen");
        std::thread::sleep(Duration::from_micros(200));
    }
}
