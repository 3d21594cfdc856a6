//! Sends and receives: no plan, since the data decides the traffic.
//!
//! | file | question it answers |
//! |---|---|
//! | `message.rs`, `element.rs` | what may be sent, and which members of a group get in each other's way |
//! | `engine.rs` | how a call waits, and what its failure says |
//! | `pair.rs` | what two ranks set up when they first talk, and how far their rings are |
//! | `sending.rs`, `receiving.rs`, `pieces.rs` | what the two ends of a message do, step by step |
//! | `layout.rs`, `mailbox.rs`, `descriptor.rs` | where things lie in shared memory |
//! | `link.rs` | how a rank writes into a peer's mailbox, on this host or another |
//!
//! Messages from one rank to another arrive in the order in which they were sent, and meet the receives in theirs. Only
//! the two ranks take part, and two that never talk set up nothing.
//!
//! A small message lies in its descriptor: one cache line crosses. A larger one goes through a ring of payload in
//! chunks, so that both ranks copy at the same time. A large one in registered memory is offered: on one host the receiver
//! reads it where it lies, and the sender stores some of its pieces if the receiver's memory is registered, too;
//! between hosts it is put where the receiver wants it.

mod descriptor;
mod element;
mod engine;
mod layout;
mod link;
mod mailbox;
mod message;
mod pair;
mod pieces;
mod receiving;
mod sending;

use warpway_core::communicator::Communicator;
use warpway_core::memory::RegisteredMemory;
use warpway_core::wait::GaveUp;
use warpway_core::wire::SlotId;
use warpway_core::{Deadline, Error, Result};

pub use element::ElementType;
pub use engine::{PointToPoint, PointToPointConfig};
pub use message::{Direction, Message};

/// Of all exchanges between pairs. Others are free for direct use of the communicator.
const TAG: i32 = 0x7061_6972;

const NO_REGION: Error = Error::Internal { place: "mailbox", what: "an allocation has bytes" };

/// What a state machine could do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Nothing: the peer's turn.
    Idle,
    Moved,
    /// All of it.
    Done,
}

/// How a receiver wants what is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Through the ring.
    Ring = 1,
    /// Stored in memory that it has published.
    Put = 2,
}

/// A buffer that the peer has published, once it is mapped here. Does not wait.
fn import(comm: &Communicator, pair: &mut pair::Pair, slot: SlotId) -> Result<Option<RegisteredMemory>> {
    match pair.imports.find(comm, pair.peer, slot, || Deadline::after(std::time::Duration::ZERO)) {
        Ok(memory) => Ok(Some(memory)),
        Err(Error::Wait(error)) if matches!(error.reason, GaveUp::TimedOut) => Ok(None),
        Err(error) => Err(error),
    }
}
