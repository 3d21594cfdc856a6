//! The functions of the driver.

mod context;
mod control;
mod copy;
mod device;
mod event;
mod graph;
mod host;
mod ipc;
mod mapping;
mod memory;
mod module;
mod pointer;
mod stream;
mod version;
