//! How one rank writes into the mailbox of the other: by storing, or by messages.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use warpway_core::Result;
use warpway_core::connection::{CompletionListener, Connection, Position};
use warpway_core::memory::{MappedToken, RegisteredMemory};

use super::layout::{ARRIVED, DESCRIPTOR_WORDS, Layout};
use super::mailbox::Mailbox;

/// What a rank sleeps on while its messages wait: every peer that has written something for it rings.
#[derive(Debug)]
pub(super) struct Bell {
    pub(super) memory: RegisteredMemory,
    pub(super) token: MappedToken,
}

impl Bell {
    pub(super) const BYTES: u64 = warpway_core::token::TOKEN_BYTES;

    /// # Errors
    /// If the memory is no token memory.
    pub(super) fn new(memory: RegisteredMemory) -> Result<Self> {
        let token = memory.mapped_token("bell", 0)?;
        Ok(Self { memory, token })
    }
}

/// Exchanges that have come.
impl std::task::Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.token.event().notify();
    }
}

/// Writes that are complete.
impl CompletionListener for Bell {
    fn advanced(&self, _completed: Option<Position>) {
        self.token.event().notify();
    }
}

/// The way to the peer's mailbox.
#[derive(Debug)]
pub(super) enum Link {
    Near(Near),
    Far(Far),
}

/// A mailbox that is mapped here.
#[derive(Debug)]
pub(super) struct Near {
    pub(super) there: Mailbox,
    pub(super) bell: MappedToken,
}

/// A mailbox of another host.
#[derive(Debug)]
pub(super) struct Far {
    pub(super) connection: Connection,
    there: RegisteredMemory,
    bell: RegisteredMemory,
    /// What is written there, at the same offsets. Bytes are not changed before the peer has taken what was sent from them.
    mirror: Mailbox,
    arrived: u64,
}

impl Far {
    pub(super) fn new(
        connection: Connection,
        there: RegisteredMemory,
        bell: RegisteredMemory,
        mirror: Mailbox,
    ) -> Self {
        Self { connection, there, bell, mirror, arrived: 0 }
    }

    fn write(&self, offset: u64, bytes: u64) -> Result<Position> {
        self.connection.write(&self.there, offset, &self.mirror.memory, offset, bytes)
    }

    fn ring(&self) -> Result<()> {
        self.connection.atomic_add(&self.bell, 0, 1).map(drop)
    }
}

impl Link {
    /// Sends a descriptor, and before it `payload` (first byte, size) to `position` of the peer's ring.
    ///
    /// # Safety
    /// The payload must be readable and no part of a mailbox, and the peer must have taken what lay there before.
    #[inline]
    pub(super) unsafe fn post(
        &mut self,
        number: u64,
        descriptor: &[u64; DESCRIPTOR_WORDS],
        position: u64,
        payload: Option<(NonNull<u8>, u64)>,
    ) -> Result<()> {
        let offset = Layout::descriptor(number);
        match self {
            Self::Near(near) => {
                if let Some((first, bytes)) = payload {
                    // SAFETY: the caller's word.
                    unsafe { near.there.fill(position, first, bytes) };
                }
                near.there.set(offset, descriptor);
                near.bell.event().notify();
            }
            Self::Far(far) => {
                if let Some((first, bytes)) = payload {
                    // SAFETY: as above. The peer has taken what was sent from there, so it has left this process.
                    unsafe { far.mirror.fill(position, first, bytes) };
                    let mut done = 0;
                    while done < bytes {
                        let (offset, room) = far.mirror.layout.place(position + done);
                        far.write(offset, room.min(bytes - done))?;
                        done += room.min(bytes - done);
                    }
                }
                far.mirror.set(offset, descriptor);
                far.write(offset, 8 * DESCRIPTOR_WORDS as u64)?;
                // Words are stored after what was written before, at once, unlike the stamp of a descriptor.
                far.connection.update_and_sync(&far.there, ARRIVED, &mut far.arrived, number)?;
                far.ring()?;
            }
        }
        Ok(())
    }

    /// Sets words of the peer's mailbox, the first one last, and rings. The words sent from there before have come.
    pub(super) fn tell(&self, offset: u64, words: &[u64]) -> Result<()> {
        match self {
            Self::Near(near) => {
                near.there.set(offset, words);
                near.bell.event().notify();
            }
            Self::Far(far) => {
                let [first, rest @ ..] = words else { return Ok(()) };
                if !rest.is_empty() {
                    far.mirror.set(offset, words);
                    far.write(offset + 8, 8 * rest.len() as u64)?;
                }
                far.connection.update_and_sync(&far.there, offset, &mut 0, *first)?;
                far.ring()?;
            }
        }
        Ok(())
    }

    /// Number of the last descriptor that has come here, if it is `number` or a later one.
    #[inline]
    pub(super) fn has_come(&self, here: &Mailbox, number: u64) -> bool {
        // Acquire: pairs with the stores in `post`, here or by the thread that receives.
        match self {
            Self::Near(_) => here.word(Layout::descriptor(number)).load(Ordering::Acquire) == number,
            Self::Far(_) => here.word(ARRIVED).load(Ordering::Acquire) >= number,
        }
    }
}
