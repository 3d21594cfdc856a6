//! FIFO, proxy service and port channels over a connection whose completions the test controls.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, reason = "a test fails where it panics")]

mod channel;
mod device;
mod fake;
mod fifo;
mod proxy;
mod ring;
mod service;
mod stop;
mod wake;
