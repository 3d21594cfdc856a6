//! Telling a rank of another host about launches: its control memory is not mapped here, so words are stored by the
//! connection that leads there.

use std::sync::{Mutex, OnceLock};

use warpway_core::connection::{Connection, ConnectionError, Span, Store};
use warpway_core::memory::RegisteredMemory;
use warpway_core::{Deadline, Error, Result};

use super::control::CornerOffsets;
use super::executor::lock;
use super::record::Words;
use super::slots::FarSlots;

/// This rank's corner in the control memory of a rank of another host.
#[derive(Debug)]
pub(super) struct FarCorner {
    /// The peer's control memory, once for its counters and once for the words of records.
    tokens: RegisteredMemory,
    words: RegisteredMemory,
    offsets: CornerOffsets,
    slots: Mutex<FarSlots>,
    /// From the first plan on in which the two tell each other anything.
    connection: OnceLock<Connection>,
}

impl FarCorner {
    pub(super) fn new(tokens: &RegisteredMemory, words: &RegisteredMemory, offsets: CornerOffsets) -> Self {
        let (slots, connection) = (Mutex::new(FarSlots::new()), OnceLock::new());
        Self { tokens: tokens.clone(), words: words.clone(), offsets, slots, connection }
    }

    /// The first one stays: a connection keeps the order of what goes by it.
    pub(super) fn connect(&self, connection: &Connection) {
        let _ = self.connection.set(connection.clone());
    }

    /// True if there is a way to tell.
    pub(super) fn is_connected(&self) -> bool {
        self.connection.get().is_some()
    }

    /// Tells of a launch. The peer is woken when the whole record is there.
    pub(super) fn announce(&self, sequence: u64, record: &Words) -> Result<()> {
        let mut slots = lock(&self.slots);
        let words = slots.write(sequence, record).into_iter().map(|(offset, value)| Store {
            destination: Span { memory: &self.words, offset: self.offsets.records + offset },
            value,
        });
        let stores: Vec<Store<'_>> = words.chain([self.counter(self.offsets.started, sequence)]).collect();
        self.store(&stores)
    }

    /// Changes one word of a record.
    pub(super) fn put(&self, sequence: u64, index: usize, word: u64) -> Result<()> {
        let (offset, value) = lock(&self.slots).put(sequence, index, word);
        let destination = Span { memory: &self.words, offset: self.offsets.records + offset };
        self.store(&[Store { destination, value }])
    }

    /// Tells of the end of a launch.
    pub(super) fn announce_end(&self, sequence: u64) -> Result<()> {
        self.store(&[self.counter(self.offsets.ended, sequence)])
    }

    /// Waits until all of that has been read; what fails meanwhile fails elsewhere, too.
    pub(super) fn settle(&self, deadline: Deadline) {
        if let Some(Err(error)) = self.connection.get().map(|connection| connection.flush(deadline)) {
            tracing::debug!(%error, "a rank may not learn what differs");
        }
    }

    fn counter(&self, offset: u64, value: u64) -> Store<'_> {
        Store { destination: Span { memory: &self.tokens, offset }, value }
    }

    fn store(&self, stores: &[Store<'_>]) -> Result<()> {
        let what = "ranks that tell each other of launches are connected";
        let connection =
            self.connection.get().ok_or(Error::Internal { place: "plan control memory", what })?;
        unless_gone(connection.store_all(stores).map(drop))
    }
}

/// What is told to a rank that is done with this executor, or has left: it need not know, and whoever waits for it is told
/// by that wait.
pub(super) fn unless_gone<T: Default>(result: Result<T>) -> Result<T> {
    match result {
        Err(Error::Connection(
            error @ (ConnectionError::Closed { .. } | ConnectionError::Refused { .. }),
        )) => {
            tracing::debug!(%error, "a rank has not been told of a launch");
            Ok(T::default())
        }
        result => result,
    }
}
