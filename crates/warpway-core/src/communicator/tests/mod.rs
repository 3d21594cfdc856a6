//! Ranks as threads over the control plane in memory.
#![cfg(not(loom))]

mod exchange;
mod gpu;
mod mesh;
mod publish;
mod split;

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::*;
use crate::deadline::Deadline;
use crate::memory::{Access, RegisteredMemory};
use crate::testing::{LocalEngine, LocalJob, allocate};
use crate::transport::Transport;

/// Long enough for any loaded machine; only failing tests take it.
fn patience() -> Deadline {
    Deadline::after(Duration::from_secs(10))
}

fn briefly() -> Deadline {
    Deadline::after(Duration::from_millis(50))
}

fn communicator(job: &LocalJob, rank: u32) -> Communicator {
    let engine = Arc::new(LocalEngine::new(Transport::SharedMemory));
    Communicator::new(job.parts(rank, vec![engine])).unwrap()
}

/// Runs `body` on every rank and gives what they return, by rank.
fn on_ranks<T: Send>(job: &LocalJob, body: impl Fn(Communicator) -> T + Sync) -> Vec<T> {
    let communicators: Vec<_> = (0..job.n_ranks()).map(|rank| communicator(job, rank)).collect();
    each(communicators, body)
}

fn each<T: Send>(communicators: Vec<Communicator>, body: impl Fn(Communicator) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let body = &body;
        let ranks: Vec<_> = communicators.into_iter().map(|comm| scope.spawn(move || body(comm))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// A registered memory of `size` bytes.
fn memory(comm: &Communicator, size: u64) -> RegisteredMemory {
    let region = allocate(size).unwrap();
    comm.register_memory(region, Transport::SharedMemory.into(), Access::ALL).unwrap()
}

fn write(memory: &RegisteredMemory, offset: u64, bytes: &[u8]) {
    let to = memory.pointer("test", offset, bytes.len() as u64).unwrap();
    // SAFETY: the range has just been checked; nobody else writes it at this moment of the test.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
}

fn read(memory: &RegisteredMemory, offset: u64, size: u64) -> Vec<u8> {
    let from = memory.pointer("test", offset, size).unwrap();
    let mut bytes = vec![0; size as usize];
    // SAFETY: as in `write`.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), bytes.as_mut_ptr(), bytes.len()) };
    bytes
}

/// Waits until `condition` holds.
fn eventually(what: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(10), "{what} has not happened");
        std::thread::sleep(Duration::from_millis(2));
    }
}
