//! The receiving side of one message: a state machine that never waits.
//!
//! ```text
//! new ─ a message in a descriptor ──────────────────────────→ done
//!  ├── a first chunk → further chunks ──────────────────────→ done
//!  └── an offer ─┬─ pieces, copied by both ranks ───────────→ done      (same host)
//!                ├─ where to put it → it has been put ──────→ done      (another host, registered memory)
//!                └─ through the ring: as above                          (another host, other memory)
//! ```

use std::sync::atomic::Ordering;

use warpway_core::communicator::{Communicator, Publication};
use warpway_core::memory::{Access, RegisteredMemory};
use warpway_core::point_to_point::PointToPointError;
use warpway_core::wire::SlotId;
use warpway_core::{Error, Result};

use super::descriptor::{Head, Kind, Words, inline, offered};
use super::layout::{ANSWER, CLAIMED, FINISHED, INLINE_BYTES, PUSHED, PUT, REFUSED, piece_bytes};
use super::link::Link;
use super::message::{Checked, describe};
use super::pair::Pair;
use super::pieces::copy_piece;
use super::{Step, Way, import};

/// From this size on both ranks copy, if the memory here is registered.
const SHARED_FROM: u64 = 256 << 10;

/// See the module's page.
#[derive(Debug, Default)]
pub(super) enum Receiving {
    #[default]
    New,
    /// So many bytes have come through the ring.
    Streaming(u64),
    Pulling(Pulling),
    /// The peer puts offer `number`.
    Awaiting {
        number: u64,
        _publication: Publication,
    },
    Done,
}

#[derive(Debug)]
pub(super) struct Pulling {
    number: u64,
    slot: SlotId,
    offset: u64,
    source: Option<RegisteredMemory>,
    /// Pieces copied here.
    copied: u64,
    /// The sender copies pieces, too, while it is there.
    publication: Option<Publication>,
    /// All pieces are claimed.
    exhausted: bool,
}

impl Receiving {
    /// Does what can be done now.
    ///
    /// # Errors
    /// `p2p.mismatch`; those of the communicator and the connection.
    #[inline]
    pub(super) fn step(
        &mut self,
        message: &Checked<'_>,
        pair: &mut Pair,
        comm: &Communicator,
    ) -> Result<Step> {
        match self {
            Self::New => match pair.peek() {
                None => {
                    if message.bytes > INLINE_BYTES {
                        pair.await_payload(message.bytes);
                    }
                    Ok(Step::Idle)
                }
                Some(words) => self.begin(message, pair, comm, &words),
            },
            Self::Streaming(_) => self.stream(message, pair),
            Self::Pulling(_) => self.pull(message, pair, comm),
            Self::Awaiting { number, .. } => {
                // Acquire: the bytes are there; pairs with the store of the thread that receives.
                if pair.here.word(PUT).load(Ordering::Acquire) < *number {
                    return Ok(Step::Idle);
                }
                self.end()
            }
            Self::Done => Ok(Step::Done),
        }
    }

    /// Bytes that have come.
    pub(super) fn progress(&self, message: &Checked<'_>) -> u64 {
        match self {
            Self::New | Self::Awaiting { .. } => 0,
            Self::Streaming(got) => *got,
            Self::Pulling(pulling) => pulling.copied.saturating_mul(piece_bytes(message.bytes)),
            Self::Done => message.bytes,
        }
    }

    fn end(&mut self) -> Result<Step> {
        *self = Self::Done;
        Ok(Step::Done)
    }

    /// The first descriptor of the message has come.
    #[inline]
    fn begin(
        &mut self,
        message: &Checked<'_>,
        pair: &mut Pair,
        comm: &Communicator,
        words: &Words,
    ) -> Result<Step> {
        let head = Head::from_words(words).filter(|head| head.kind != Kind::More).ok_or(UNKNOWN)?;
        if (head.bytes, head.element) != (message.bytes, message.element) {
            return Err(refuse(message, pair, comm.rank(), &head)?.into());
        }
        pair.received += 1;
        match head.kind {
            Kind::Offer => self.accept(message, pair, comm, words),
            _ if head.bytes <= INLINE_BYTES => {
                let data = inline(words);
                // SAFETY: `bytes` bytes are writable at the message's first one, and nobody else refers to them.
                unsafe {
                    message.first.as_ptr().copy_from_nonoverlapping(data.as_ptr(), head.bytes as usize);
                }
                pair.take(0)?;
                self.end()
            }
            _ => self.chunk(message, pair, 0, head.bytes.min(pair.here.layout.chunk)),
        }
    }

    fn stream(&mut self, message: &Checked<'_>, pair: &mut Pair) -> Result<Step> {
        let (Self::Streaming(got), Some(words)) = (&*self, pair.peek()) else { return Ok(Step::Idle) };
        let head = Head::from_words(&words).filter(|head| head.kind == Kind::More).ok_or(UNKNOWN)?;
        let got = *got;
        if head.bytes == 0 || head.bytes > (message.bytes - got).min(pair.here.layout.chunk) {
            return Err(UNKNOWN);
        }
        self.chunk(message, pair, got, head.bytes)
    }

    /// Takes `bytes` bytes out of the ring.
    fn chunk(&mut self, message: &Checked<'_>, pair: &mut Pair, got: u64, bytes: u64) -> Result<Step> {
        // SAFETY: `got + bytes` is at most what is writable at the message's first byte; users' memory is no mailbox.
        unsafe { pair.drain(message.first.add(got as usize), bytes) };
        pair.take(bytes)?;
        if got + bytes == message.bytes {
            return self.end();
        }
        *self = Self::Streaming(got + bytes);
        Ok(Step::Moved)
    }

    /// Says how an offer is to come.
    fn accept(
        &mut self,
        message: &Checked<'_>,
        pair: &mut Pair,
        comm: &Communicator,
        words: &Words,
    ) -> Result<Step> {
        let number = pair.next_taken();
        pair.take(0)?;
        let far = pair.is_far();
        // Where the peer may write.
        let wanted = far || message.bytes >= SHARED_FROM;
        let open = message.registered.filter(|(memory, _)| wanted && pair.may(memory, Access::WRITE));
        let publication = match open {
            Some((memory, _)) => Some(pair.published.publish(comm, memory, &[pair.peer])?),
            None => None,
        };
        let place =
            publication.as_ref().zip(open).map(|(publication, (_, offset))| (publication.slot(), offset));
        match place {
            Some((SlotId { slot, generation }, offset)) => {
                pair.link.tell(ANSWER, &[number, Way::Put as u64, slot, generation, offset])?;
            }
            None if far => pair.link.tell(ANSWER, &[number, Way::Ring as u64, 0, 0, 0])?,
            None => {}
        }
        *self = match (far, publication) {
            (true, Some(_publication)) => Self::Awaiting { number, _publication },
            (true, None) => Self::Streaming(0),
            (false, publication) => {
                let (slot, offset) = offered(words);
                Self::Pulling(Pulling {
                    number,
                    slot,
                    offset,
                    source: None,
                    copied: 0,
                    publication,
                    exhausted: false,
                })
            }
        };
        Ok(Step::Moved)
    }

    /// One piece.
    fn pull(&mut self, message: &Checked<'_>, pair: &mut Pair, comm: &Communicator) -> Result<Step> {
        let Self::Pulling(pulling) = self else { return Ok(Step::Idle) };
        let bytes = message.bytes;
        if pulling.source.is_none() {
            let Some(source) = import(comm, pair, pulling.slot)? else { return Ok(Step::Idle) };
            source.require_access("recv", Access::READ)?;
            pulling.source = Some(source);
        }
        let (Some(source), Link::Near(near)) = (&pulling.source, &pair.link) else { return Ok(Step::Idle) };
        let from = source.pointer("recv", pulling.offset, bytes)?;
        let size = piece_bytes(bytes);
        let pieces = bytes.div_ceil(size);
        if pulling.publication.is_none() {
            // Nobody else copies.
            copy_piece(message.first, from, bytes, size, pulling.copied, pair.peer)?;
            pulling.copied += 1;
        } else {
            let piece = match pulling.exhausted {
                true => pieces,
                // Relaxed: the counter only divides the pieces.
                false => near.there.word(CLAIMED).fetch_add(1, Ordering::Relaxed),
            };
            if piece < pieces {
                copy_piece(message.first, from, bytes, size, piece, pair.peer)?;
                pulling.copied += 1;
            } else {
                pulling.exhausted = true;
                // Acquire: the bytes that the sender has stored; pairs with its addition.
                let pushed = near.there.word(PUSHED).load(Ordering::Acquire);
                if pulling.copied + pushed < pieces {
                    return Ok(Step::Idle);
                }
                pulling.copied = pieces;
            }
        }
        if pulling.copied < pieces {
            return Ok(Step::Moved);
        }
        let number = pulling.number;
        pair.link.tell(FINISHED, &[number])?;
        self.end()
    }
}

/// What no rank of this version sends.
const UNKNOWN: Error = Error::Internal {
    place: "receive",
    what: "descriptors are as this version writes them, and chunks follow the beginning of their message",
};

/// Tells the sender that its message does not fit.
fn refuse(message: &Checked<'_>, pair: &Pair, rank: u32, head: &Head) -> Result<PointToPointError> {
    let number = pair.received + 1;
    let element = |element: super::ElementType| u64::from(element.bits());
    let words = [number, head.bytes, element(head.element), message.bytes, element(message.element)];
    pair.link.tell(REFUSED, &words)?;
    Ok(PointToPointError::Mismatch {
        rank,
        peer: pair.peer,
        sends: false,
        message: number,
        here: message.text(),
        there: describe(head.bytes, head.element),
    })
}
