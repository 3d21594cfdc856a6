//! Writing words in stream order.

use warpway_core::Result;

use crate::context::Entered;
use crate::memory::PinnedMemory;
use crate::stream::Stream;

/// How a connection writes words: signals of host and proxy, and its own progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WordForm {
    /// By the stream itself, where driver and device can; else by copies.
    #[default]
    Stream,
    /// By copies of 8 bytes.
    Copy,
}

/// Values under way are kept in pinned memory where they are copied.
pub(super) struct WordWriter {
    /// A ring of values; `None` where the stream writes by itself.
    values: Option<PinnedMemory>,
    slots: u64,
}

impl WordWriter {
    /// For at most `in_flight` words that have not arrived.
    pub(super) fn new(stream: &Stream, form: WordForm, in_flight: u64) -> Result<Self> {
        let context = stream.context();
        let slots = in_flight.max(1);
        let values = match form {
            WordForm::Stream if context.writes_words() => None,
            _ => Some(PinnedMemory::allocate(context, 8 * slots)?),
        };
        Ok(Self { values, slots })
    }

    /// Writes `value` to `address` after everything that the stream has been given; `number` counts words, and that of
    /// one that has not arrived comes again at the earliest `in_flight` words later.
    ///
    /// # Safety
    /// As [`write_word`](crate::memory::write_word); the stream is one of the context entered.
    pub(super) unsafe fn write(
        &self,
        (entered, stream): (&Entered<'_>, &Stream),
        number: u64,
        address: u64,
        value: u64,
    ) -> Result<()> {
        let Some(values) = &self.values else {
            // SAFETY: the caller answers for the word.
            return unsafe { entered.write_word(stream, address, value) };
        };
        let offset = number % self.slots * 8;
        // SAFETY: inside the ring, aligned; the copy that read the slot before is done, says the caller's count.
        unsafe { values.host().add(offset as usize).cast::<u64>().write_volatile(value) };
        // SAFETY: the caller answers for the word; the ring lives as long as the connection, which waits for its stream.
        Ok(unsafe { entered.copy(stream, address, values.address() + offset, 8) }?)
    }
}
