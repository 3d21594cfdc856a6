//! Connections over shared memory: the calling thread does the work, so everything posted is complete.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use warpway_core::Result;
use warpway_core::connection::{ConnectionError, Position, RawConnection, Span};
use warpway_core::deadline::Deadline;
use warpway_core::memory::Access;
use warpway_core::trace::Operation;
use warpway_core::transport::Transport;

use crate::copy::{copy, overlap};

/// One direction to one peer.
pub(crate) struct SharedConnection {
    peer: u32,
    queue: u64,
    /// Held during an operation, so that those of several threads take effect in the order of positions.
    order: Mutex<()>,
    /// Operations done.
    done: AtomicU64,
}

impl SharedConnection {
    pub(crate) fn new(peer: u32, max_write_queue_size: i32) -> Self {
        // Nothing is ever in flight: without a setting a proxy never needs to drain.
        let queue = u64::try_from(max_write_queue_size).ok().filter(|n| *n > 0).unwrap_or(u64::MAX);
        Self { peer, queue, order: Mutex::new(()), done: AtomicU64::new(0) }
    }

    /// Runs `operation` alone and gives it the next position.
    fn post(&self, operation: impl FnOnce() -> Result<()>) -> Result<Position> {
        let _order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        operation()?;
        // Release: whoever sees the position finds the bytes written; pairs with the load in `posted`.
        Ok(Position(self.done.fetch_add(1, Ordering::Release) + 1))
    }
}

impl RawConnection for SharedConnection {
    fn write(&self, destination: Span<'_>, source: Span<'_>, size: u64) -> Result<Position> {
        let to = destination.memory.pointer("write", destination.offset, size)?;
        let from = source.memory.pointer("write", source.offset, size)?;
        if overlap(to, from, size) {
            return Err(ConnectionError::Refused {
                peer: self.peer,
                transport: Transport::SharedMemory,
                operation: Operation::Write,
                why: format!("the {size} bytes at source and destination overlap"),
            }
            .into());
        }
        self.post(|| {
            // SAFETY: `pointer` has checked both ranges, the memories keep them mapped, and they are
            // disjoint (just checked).
            unsafe { copy(to, from, size) };
            Ok(())
        })
    }

    fn store(&self, destination: Span<'_>, value: u64) -> Result<Position> {
        self.post(|| {
            match word(destination, "update_and_sync")? {
                Word::Token(token) => token.store(value),
                // Release: the writes before it on this connection; pairs with the reader's Acquire.
                Word::Plain(word) => word.store(value, Ordering::Release),
            }
            Ok(())
        })
    }

    fn add(&self, destination: Span<'_>, delta: i64) -> Result<Position> {
        self.post(|| {
            // Two's complement: adding a negative number is a wrapping addition.
            let delta = delta as u64;
            match word(destination, "atomic_add")? {
                Word::Token(token) => token.add(delta),
                // Release as in `store`; the value read is not used.
                Word::Plain(word) => _ = word.fetch_add(delta, Ordering::Release),
            }
            Ok(())
        })
    }

    fn completed(&self) -> Result<Position> {
        Ok(self.posted())
    }

    fn flush(&self, _position: Position, _deadline: Deadline) -> Result<()> {
        Ok(())
    }

    fn posted(&self) -> Position {
        // Pairs with `post`.
        Position(self.done.load(Ordering::Acquire))
    }

    fn max_write_queue_size(&self) -> u64 {
        self.queue
    }
}

/// A word that is updated atomically.
enum Word<'a> {
    /// The counter of a token: whoever raises it wakes the sleepers.
    Token(&'a warpway_core::token::Token),
    /// Any other word.
    Plain(&'a AtomicU64),
}

fn word<'a>(span: Span<'a>, operation: &'static str) -> Result<Word<'a>> {
    if span.memory.access().contains(Access::TOKENS) {
        return Ok(Word::Token(span.memory.token(operation, span.offset)?));
    }
    span.memory.check_word(operation, span.offset)?;
    let pointer = span.memory.pointer(operation, span.offset, 8)?;
    if !(pointer.as_ptr() as u64).is_multiple_of(8) {
        let (offset, alignment) = (span.offset, 8);
        return Err(warpway_core::memory::MemoryError::Misaligned { operation, offset, alignment }.into());
    }
    // SAFETY: in bounds and aligned (checked above), mapped while the memory lives; an atomic may be
    // shared with other processes.
    Ok(Word::Plain(unsafe { AtomicU64::from_ptr(pointer.cast().as_ptr()) }))
}
