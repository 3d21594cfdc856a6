//! Sends, receives and collectives that belong together.

use warpway_core::Result;
use warpway_host::{Direction, Message};

use super::arguments::{Incoming, Outgoing};
use crate::collective::Call;
use crate::communicator::Communicator;

/// A call that comes after the messages.
pub(super) type Then<'g> = Box<dyn FnOnce(&Communicator) -> Result<()> + 'g>;

/// What a [group](Communicator::group) consists of. Adding a member begins nothing.
pub struct Group<'g> {
    pub(super) messages: Vec<Message<'g>>,
    pub(super) then: Vec<Then<'g>>,
}

impl<'g> Group<'g> {
    pub(super) fn new() -> Self {
        Self { messages: Vec::new(), then: Vec::new() }
    }

    /// Adds a send.
    ///
    /// # Errors
    /// None yet: what is wrong with a member shows when the group runs, before anything has begun.
    pub fn send(&mut self, data: impl Into<Outgoing<'g>>, peer: u32) -> Result<()> {
        let Outgoing { view: data, element } = data.into();
        self.messages.push(Message { direction: Direction::Send, peer, data, element });
        Ok(())
    }

    /// Adds a receive.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn recv(&mut self, data: impl Into<Incoming<'g>>, peer: u32) -> Result<()> {
        let Incoming { view: data, element } = data.into();
        self.messages.push(Message { direction: Direction::Receive, peer, data, element });
        Ok(())
    }

    /// Adds a collective. It begins when all messages of the group are complete and the collectives that were added before
    /// have ended.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn collective(&mut self, call: Call<'g>) -> Result<()> {
        self.then(move |comm| comm.collective(&call))
    }

    /// Adds anything else that all ranks do: the launch of a plan, a barrier. As [`collective`](Self::collective).
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn then(&mut self, call: impl FnOnce(&Communicator) -> Result<()> + 'g) -> Result<()> {
        self.then.push(Box::new(call));
        Ok(())
    }
}

impl std::fmt::Debug for Group<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let collectives = self.then.len();
        f.debug_struct("Group").field("messages", &self.messages).field("collectives", &collectives).finish()
    }
}
