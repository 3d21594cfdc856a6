//! Sending memory of a device: the piece being sent lies in a host buffer, the next one is on its way to another.

use std::ptr::NonNull;

use warpway_core::memory::{MemoryError, StagedReader};
use warpway_core::transport::{Device, Transport};
use warpway_core::{Error, Result};

use crate::outgoing::Write;

/// The longest piece of memory of a device; a reader's buffer may be shorter.
pub(crate) const STAGED_PIECE_BYTES: u64 = 512 << 10;

/// The reader of a link, made when it is first needed.
#[derive(Default)]
pub(crate) struct Staged {
    reader: Option<(Device, Box<dyn StagedReader>)>,
    /// The next byte to be sent.
    at: Option<Bytes>,
}

#[derive(Clone, Copy)]
struct Bytes(NonNull<u8>);

// SAFETY: an address in a buffer of the reader, which goes to other threads together with it.
unsafe impl Send for Bytes {}

impl Staged {
    /// Waits until the first `size` bytes of what is left of `write` are there, and asks for what follows.
    pub(crate) fn fetch(&mut self, write: &Write, size: u64) -> Result<()> {
        if self.at.is_some() {
            return Ok(());
        }
        let region = write.source.region().ok_or(internal("a source has a region"))?;
        let device = region.device();
        let reader = match &mut self.reader {
            Some((known, reader)) if *known == device => reader,
            slot => {
                let staging = region.staging().ok_or_else(|| MemoryError::NoTransport {
                    operation: "write",
                    transport: Transport::Ethernet,
                    available: write.source.transports(),
                    why: "its device offers no way for the host to read it".into(),
                })?;
                &mut slot.insert((device, staging.reader()?)).1
            }
        };
        if reader.requests() == 0 {
            reader.request(region, write.source_offset, size)?;
        }
        if write.left > 0 && reader.requests() == 1 {
            reader.request(region, write.source_offset + size, write.left.min(STAGED_PIECE_BYTES))?;
        }
        self.at = Some(Bytes(reader.wait()?));
        Ok(())
    }

    /// The next byte of the piece, if it is in a buffer.
    pub(crate) fn bytes(&self) -> Option<NonNull<u8>> {
        self.at.map(|Bytes(at)| at)
    }

    /// `sent` bytes of the piece have left, `rest` have not.
    pub(crate) fn advance(&mut self, sent: u64, rest: u64) {
        let Some(Bytes(at)) = &mut self.at else { return };
        if rest > 0 {
            // SAFETY: `sent + rest` bytes of the buffer were left.
            *at = unsafe { at.add(sent as usize) };
            return;
        }
        self.at = None;
        if let Some((_, reader)) = &mut self.reader {
            reader.release();
        }
    }
}

fn internal(what: &'static str) -> Error {
    Error::Internal { place: "tcp send", what }
}
