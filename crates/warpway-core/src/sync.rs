//! One switch between std and loom, so that the model-checked source is the source that ships.

#[cfg(loom)]
pub(crate) use loom::{
    hint::spin_loop,
    sync::Mutex,
    sync::atomic::{AtomicU32, AtomicU64, Ordering, fence},
    thread::yield_now,
};

#[cfg(not(loom))]
pub(crate) use std::{
    hint::spin_loop,
    sync::Mutex,
    sync::atomic::{AtomicU32, AtomicU64, Ordering, fence},
    thread::yield_now,
};
