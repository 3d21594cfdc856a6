//! The caller's side of a link.

use std::any::Any;
use std::sync::{Arc, Weak};

use warpway_core::connection::{CompletionListener, Position, RawConnection, Span};
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
    fn word(
        &self,
        operation: Operation,
        kind: Kind,
        destination: Span<'_>,
        operand: u64,
    ) -> Result<Position> {
        let memory = self.memory_id(&destination)?;
        let offset = destination.offset;
        self.link.post(operation, |position| Posted::Word { kind, position, memory, offset, operand })
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
        let memory = self.memory_id(&destination)?;
        let staged = source.memory.region().is_some_and(|region| region.staging().is_some());
        if !staged {
            source.memory.pointer("write", source.offset, size)?;
        }
        self.link.post(Operation::Write, |position| {
            Posted::Write(Write {
                position,
                memory,
                offset: destination.offset,
                source: source.memory.clone(),
                source_offset: source.offset,
                left: size,
                staged,
            })
        })
    }

    fn store(&self, destination: Span<'_>, value: u64) -> Result<Position> {
        self.word(Operation::UpdateAndSync, Kind::Store, destination, value)
    }

    fn add(&self, destination: Span<'_>, delta: i64) -> Result<Position> {
        self.word(Operation::AtomicAdd, Kind::Add, destination, delta.cast_unsigned())
    }

    fn raise(&self, destination: Span<'_>, value: u64) -> Result<Position> {
        // A word of a GPU is written in the order of its copies; adding would have to read it first.
        match destination.memory.device().kind {
            DeviceKind::Gpu => self.word(Operation::AtomicAdd, Kind::Store, destination, value),
            _ => self.add(destination, 1),
        }
    }

    fn keep(&self, position: Position, what: &Arc<dyn Any + Send + Sync>) {
        self.link.keep(position, what);
    }

    fn completed(&self) -> Result<Position> {
        self.link.check()?;
        Ok(self.link.completed())
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
