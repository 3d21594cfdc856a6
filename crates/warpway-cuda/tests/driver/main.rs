//! Owned values over the driver's calls, on a driver in host memory.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test")]

mod failures;
mod memory;
mod staging;
mod work;

use std::time::Duration;

use fake_cuda::Fake;
use warpway_core::Deadline;
use warpway_cuda::{Context, Driver};

/// A driver with these settings, and the first device's context.
fn start(settings: &str) -> (Fake, Driver, Context) {
    let fake = Fake::open();
    fake.set(settings);
    let driver = Driver::open(fake.path()).unwrap();
    let context = Context::primary(&driver, 0).unwrap();
    (fake, driver, context)
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(30))
}

/// An image with the fake's kernels.
const IMAGE: &[u8] = b"fake module
function fill_u32 parameters=8,4,8 registers=24 threads=1024 shared=0
function wait_u64 parameters=8,8,8 registers=16 threads=1024 shared=0
function add_u64 parameters=8,8 registers=16 threads=1024 shared=0
global counter 8
\0";
