//! FIFO, proxy service and port channels over a connection whose completions the test controls.

mod channel;
mod fake;
mod fifo;
mod proxy;
mod service;
mod stop;
