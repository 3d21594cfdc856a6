//! The caller's side of a link.

use std::any::Any;
use std::sync::{Arc, Weak};

use warpway_core::connection::{
    CompletionListener, ConnectionError, Position, Put, RawConnection, Span, Store,
};
use warpway_core::memory::MemoryError;
use warpway_core::trace::Operation;
use warpway_core::transport::{DeviceKind, Transport};
use warpway_core::{Deadline, Error, Result};

use crate::frame::Kind;
use crate::link::Link;
use crate::outgoing::{Posted, Write};
use crate::service::Service;

/// One side of a connection; closes it in good order when dropped.
pub(crate) struct TcpConnection {
    pub(crate) link: Arc<Link>,
    /// After `link`: the threads must still run when it closes.
    pub(crate) _service: Arc<Service>,
}

impl TcpConnection {
    fn word(&self, kind: Kind, destination: Span<'_>, operand: u64) -> Result<Posted> {
        let (memory, offset) = (self.memory_id(&destination)?, destination.offset);
        Ok(Posted::Word { kind, position: 0, memory, offset, operand })
    }

    fn put(&self, put: Put<'_>) -> Result<Posted> {
        let Put { destination, source, size } = put;
        let memory = self.memory_id(&destination)?;
        let staged = source.memory.region().is_some_and(|region| region.staging().is_some());
        if !staged {
            source.memory.pointer("write", source.offset, size)?;
        }
        Ok(Posted::Write(Write {
            position: 0,
            memory,
            offset: destination.offset,
            source: source.memory.clone(),
            source_offset: source.offset,
            left: size,
            staged,
        }))
    }

    /// Raises the counter of a token to `value`.
    fn raising(&self, token: Span<'_>, value: u64) -> Result<Posted> {
        // A word of a GPU is written in the order of its copies; adding would have to read it first.
        match token.memory.device().kind {
            DeviceKind::Gpu => self.word(Kind::Store, token, value),
            _ => self.word(Kind::Add, token, 1),
        }
    }

    /// The number of the destination in its owner's table.
    fn memory_id(&self, destination: &Span<'_>) -> Result<u64> {
        const OPERATION: &str = "tcp";
        let memory = destination.memory;
        if memory.owner() != self.link.parts.owner {
            // The number may mean something else in the table of the rank at the other end.
            let what = "the destination must be a memory of the rank that the connection leads to";
            return Err(MemoryError::WrongSide { operation: OPERATION, what }.into());
        }
        let exported = memory.record().ethernet.as_ref().ok_or_else(|| MemoryError::NoTransport {
            operation: OPERATION,
            transport: Transport::Ethernet,
            available: memory.transports(),
            why: "its owner did not export it by TCP".into(),
        })?;
        Ok(exported.memory_id)
    }
}

impl RawConnection for TcpConnection {
    fn write(&self, destination: Span<'_>, source: Span<'_>, size: u64) -> Result<Position> {
        self.link.post(Operation::Write, [self.put(Put { destination, source, size })?])
    }

    fn store(&self, destination: Span<'_>, value: u64) -> Result<Position> {
        self.link.post(Operation::UpdateAndSync, [self.word(Kind::Store, destination, value)?])
    }

    fn store_all(&self, stores: &[Store<'_>]) -> Result<Position> {
        let words = stores.iter().map(|store| self.word(Kind::Store, store.destination, store.value));
        self.link.post(Operation::UpdateAndSync, words.collect::<Result<Vec<_>>>()?)
    }

    fn add(&self, destination: Span<'_>, delta: i64) -> Result<Position> {
        self.link.post(Operation::AtomicAdd, [self.word(Kind::Add, destination, delta.cast_unsigned())?])
    }

    fn raise(&self, destination: Span<'_>, value: u64) -> Result<Position> {
        self.link.post(Operation::AtomicAdd, [self.raising(destination, value)?])
    }

    fn write_and_raise(&self, put: Put<'_>, token: Span<'_>, value: u64) -> Result<Position> {
        self.link.post(Operation::Write, [self.put(put)?, self.raising(token, value)?])
    }

    fn keep(&self, position: Position, what: &Arc<dyn Any + Send + Sync>) {
        self.link.keep(position, what);
    }

    fn completed(&self) -> Result<Position> {
        // A peer that has what it waits for may have closed the connection: what it has acknowledged is complete.
        match self.link.check() {
            Ok(()) | Err(Error::Connection(ConnectionError::Closed { .. })) => Ok(self.link.completed()),
            Err(error) => Err(error),
        }
    }

    fn flush(&self, position: Position, deadline: Deadline) -> Result<()> {
        if position > self.link.posted() {
            return Err(Error::Internal {
                place: "TcpConnection::flush",
                what: "a position that has been posted",
            });
        }
        self.link.flush(position, deadline)
    }

    fn posted(&self) -> Position {
        self.link.posted()
    }

    fn max_write_queue_size(&self) -> u64 {
        self.link.parts.queue_limit
    }

    fn watch(&self, listener: Weak<dyn CompletionListener>) -> bool {
        self.link.watch(listener);
        true
    }
}

impl Drop for TcpConnection {
    fn drop(&mut self) {
        self.link.close();
    }
}
