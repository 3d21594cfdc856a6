//! Giving operations to the stream of a connection: checked first, then one after the other by whoever has the queue.

use warpway_core::connection::{ConnectionError, Put, Span};
use warpway_core::memory::RegisteredMemory;
use warpway_core::trace::Operation;
use warpway_core::transport::{DeviceKind, Transport};
use warpway_core::{Error, Result};

use super::{AdderKernel, CudaConnection, Kept, Line, Queue};
use crate::context::Entered;

/// A copy whose ranges have been checked, and do not overlap.
pub(super) struct CheckedCopy<'m> {
    to: u64,
    from: u64,
    size: u64,
    destination: &'m RegisteredMemory,
    source: &'m RegisteredMemory,
}

impl<'m> CheckedCopy<'m> {
    /// # Errors
    /// `mem.bounds`; `conn.refused`, which names the peer, for ranges that overlap.
    pub(super) fn new(put: Put<'m>, peer: u32) -> Result<Self> {
        const NAME: &str = "write";
        let Put { destination, source, size } = put;
        let to = destination.memory.address(NAME, destination.offset, size)?;
        let from = source.memory.address(NAME, source.offset, size)?;
        if to < from + size && from < to + size {
            return Err(ConnectionError::Refused {
                peer,
                transport: Transport::CudaIpc,
                operation: Operation::Write,
                why: format!("the {size} bytes at source and destination overlap"),
            }
            .into());
        }
        Ok(Self { to, from, size, destination: destination.memory, source: source.memory })
    }
}

/// A word whose place has been checked.
pub(super) struct CheckedWord<'m> {
    address: u64,
    value: u64,
    memory: &'m RegisteredMemory,
}

impl<'m> CheckedWord<'m> {
    /// # Errors
    /// `mem.bounds`.
    pub(super) fn new(place: Span<'m>, value: u64) -> Result<Self> {
        let Span { memory, offset } = place;
        Ok(Self { address: memory.address("word", offset, 8)?, value, memory })
    }
}

/// Whoever posts: has the queue to itself, with room, and the context entered.
pub(super) struct Turn<'c> {
    pub(super) connection: &'c CudaConnection,
    pub(super) line: &'c Line,
    pub(super) queue: &'c mut Queue,
    pub(super) entered: Entered<'c>,
}

impl Turn<'_> {
    pub(super) fn copy(&mut self, copy: &CheckedCopy<'_>) -> Result<()> {
        let CheckedCopy { to, from, size, .. } = *copy;
        if size > 0 {
            let stream = &self.line.stream;
            // SAFETY: both ranges lie in memories that are kept until the stream has come there, and are disjoint.
            let copied = unsafe {
                if on_gpu(copy.source) {
                    self.entered.copy(stream, to, from, size)
                } else {
                    self.entered.copy_from_pageable(stream, to, from, size)
                }
            };
            copied.map_err(|error| self.broken(Operation::Write, &error.into()))?;
        }
        self.queue.post(Kept::Memories(copy.destination.clone(), Some(copy.source.clone())));
        Ok(())
    }

    pub(super) fn write(&mut self, operation: Operation, word: CheckedWord<'_>) -> Result<()> {
        let number = self.queue.next_word();
        let into = (&self.entered, &self.line.stream);
        // SAFETY: an aligned word of a memory (the core has checked it) that is kept until the stream has come there.
        let written = unsafe { self.line.writer.write(into, number, word.address, word.value) };
        written.map_err(|error| self.broken(operation, &error))?;
        self.queue.post(Kept::Memories(word.memory.clone(), None));
        Ok(())
    }

    pub(super) fn add(&mut self, adder: &AdderKernel, word: &CheckedWord<'_>) -> Result<()> {
        // SAFETY: as in `write`.
        let added = unsafe { adder.add(&self.line.stream, word.address, word.value.cast_signed()) };
        added.map_err(|error| self.broken(Operation::AtomicAdd, &error))?;
        self.queue.post(Kept::Memories(word.memory.clone(), None));
        Ok(())
    }

    fn broken(&mut self, operation: Operation, error: &Error) -> Error {
        self.connection.broken(self.queue, operation, error)
    }
}

fn on_gpu(memory: &RegisteredMemory) -> bool {
    memory.region().is_some_and(|region| region.device().kind == DeviceKind::Gpu)
}
