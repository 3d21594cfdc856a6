//! The trigger FIFO: a ring through which kernels (or host threads) hand requests to a proxy.
//!
//! It is a bounded queue with any number of producers and one consumer whose slots are also its flags:
//! there is no lock, and no clearing between laps. It is not a general channel: elements are 64 bytes
//! of plain numbers, because device code writes them.
//!
//! # Element
//! One slot is 64 bytes, 64-byte aligned, four 16-byte words of two little-endian 64-bit halves:
//!
//! | word | first half (offset 0) | second half (offset 8): bit 63 is the commit bit, bits 62..0 hold |
//! |---|---|---|
//! | 0 | destination offset | kind (bits 7..0), semaphore id (bits 39..8) |
//! | 1 | source offset | destination memory id (bits 31..0) |
//! | 2 | size in bytes | source memory id (bits 31..0) |
//! | 3 | value (two's complement) | 0 |
//!
//! Bits not named are zero; a consumer refuses an element where they are not. Every field has the width
//! of its host type, so nothing is ever masked.
//!
//! # Protocol
//! A producer takes position `p` by raising the head, waits while `p >= size + tail`, and writes slot
//! `p mod size`. The commit bit of lap `p / size` is 1 on even laps and 0 on odd ones, so a zeroed ring
//! reads as empty. The second half of each word is stored last, with release. The consumer takes the
//! element once all four words show the bit of its lap, and then raises the tail with release.
//!
//! Bit 63 of the head is set while the FIFO is closed: a producer that sees it has pushed nothing.
//!
//! Host producers take a position with a compare-and-swap instead of an unconditional add, so that a push
//! that gives up has taken no position and leaves no hole that the consumer would wait for.

mod host;
mod id;
mod ring;
mod slot;
mod trigger;

pub use host::{Fifo, FifoHandle};
pub use id::{MemoryId, SemaphoreId};
pub use slot::Slot;
pub use trigger::{EncodedTrigger, Trigger, TriggerKind};

/// Elements of a FIFO at most: 64 MiB. Taken when it is made, so a mistyped size must not be tried.
pub const MAX_FIFO_SIZE: u64 = 1 << 20;

/// Elements of a FIFO where nothing else is asked for.
pub const DEFAULT_FIFO_SIZE: u64 = 512;
