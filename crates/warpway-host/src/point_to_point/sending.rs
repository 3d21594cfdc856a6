//! The sending side of one message: a state machine that never waits.
//!
//! ```text
//! new ─ up to INLINE_BYTES ──────────────────────────────→ done
//!  ├── through the ring, chunk by chunk ─────────────────→ done
//!  └── offered ─┬─ the peer has copied it ───────────────→ done      (same host; both may copy pieces)
//!               ├─ the peer wants it through the ring → as above     (another host)
//!               └─ the peer says where → put → all has left ─→ done
//! ```

use std::sync::atomic::Ordering;

use warpway_core::Result;
use warpway_core::communicator::{Communicator, Publication};
use warpway_core::connection::Position;
use warpway_core::memory::{Access, RegisteredMemory};
use warpway_core::point_to_point::PointToPointError;
use warpway_core::wire::SlotId;

use super::descriptor::{Head, Kind, put_inline};
use super::element::ElementType;
use super::layout::{ANSWER, CLAIMED, FINISHED, INLINE_BYTES, PUSHED, PUT, REFUSED, piece_bytes};
use super::link::Link;
use super::message::{Checked, describe};
use super::pair::Pair;
use super::pieces::copy_piece;
use super::{Step, Way, import};

/// Of a put by messages, what is posted at once, and how many such may be under way.
const PUT_BYTES: u64 = 1 << 20;
const PUTS: u64 = 8;

/// See the module's page.
#[derive(Debug, Default)]
pub(super) enum Sending {
    #[default]
    New,
    /// So many bytes are in the ring.
    Streaming(u64),
    Offered(Offered),
    Putting(Putting),
    /// Bytes are still leaving this process.
    Leaving(Position),
    Done,
}

#[derive(Debug)]
pub(super) struct Offered {
    number: u64,
    /// The memory of the peer that the pieces go to, once it has said so.
    target: Option<(RegisteredMemory, u64)>,
    /// All pieces are claimed.
    exhausted: bool,
    /// The peer may read it until this is dropped.
    _publication: Option<Publication>,
}

#[derive(Debug)]
pub(super) struct Putting {
    number: u64,
    target: RegisteredMemory,
    offset: u64,
    put: u64,
}

impl Sending {
    /// Does what can be done now.
    ///
    /// # Errors
    /// Those of the communicator and the connection.
    #[inline]
    pub(super) fn step(
        &mut self,
        message: &Checked<'_>,
        pair: &mut Pair,
        comm: &Communicator,
    ) -> Result<Step> {
        match self {
            Self::New => self.begin(message, pair, comm),
            Self::Streaming(sent) => {
                let sent = *sent;
                self.stream(message, pair, Kind::More, sent)
            }
            Self::Offered(_) => self.offered(message, pair, comm),
            Self::Putting(_) => self.put(message, pair),
            Self::Leaving(position) => {
                let Link::Far(far) = &pair.link else { return Ok(Step::Done) };
                if far.connection.completed()? < *position {
                    return Ok(Step::Idle);
                }
                self.end()
            }
            Self::Done => Ok(Step::Done),
        }
    }

    /// Bytes that are known to be on their way.
    pub(super) fn progress(&self, message: &Checked<'_>) -> u64 {
        match self {
            Self::New | Self::Offered(_) => 0,
            Self::Streaming(sent) => *sent,
            Self::Putting(putting) => putting.put,
            Self::Leaving(_) | Self::Done => message.bytes,
        }
    }

    fn end(&mut self) -> Result<Step> {
        *self = Self::Done;
        Ok(Step::Done)
    }

    #[inline]
    fn begin(&mut self, message: &Checked<'_>, pair: &mut Pair, comm: &Communicator) -> Result<Step> {
        let &Checked { bytes, element, first, .. } = message;
        if bytes > INLINE_BYTES {
            return self.begin_large(message, pair, comm);
        }
        if !pair.has_room(0) {
            return Ok(Step::Idle);
        }
        let mut words = Head { kind: Kind::Data, element, bytes }.to_words();
        let mut data = [0; INLINE_BYTES as usize];
        // SAFETY: the message's bytes live as long as the call; a fresh array is no part of them, and large enough.
        unsafe { first.as_ptr().copy_to_nonoverlapping(data.as_mut_ptr(), bytes as usize) };
        put_inline(&mut words, &data, bytes);
        pair.sent += 1;
        // SAFETY: there is no payload.
        unsafe { pair.post(words, None) }?;
        self.end()
    }

    fn begin_large(&mut self, message: &Checked<'_>, pair: &mut Pair, comm: &Communicator) -> Result<Step> {
        let &Checked { bytes, element, registered, .. } = message;
        let far = pair.is_far();
        let offered = registered.filter(|(memory, _)| {
            bytes >= pair.here.layout.offer_from
                && memory.is_local()
                && (far || pair.may(memory, Access::READ))
        });
        let Some((memory, offset)) = offered else {
            return self.stream(message, pair, Kind::Data, 0);
        };
        if !pair.has_room(0) {
            return Ok(Step::Idle);
        }
        let number = pair.next_number();
        // A peer of another host reads nothing here.
        let publication = match far {
            true => None,
            false => Some(pair.published.publish(comm, memory, &[pair.peer])?),
        };
        let nowhere = SlotId { slot: u64::MAX, generation: 0 };
        let slot = publication.as_ref().map_or(nowhere, Publication::slot);
        for word in [CLAIMED, PUSHED] {
            // Relaxed: the peer sees it with the offer, and has finished with the last one.
            pair.here.word(word).store(0, Ordering::Relaxed);
        }
        let words = Head { kind: Kind::Offer, element, bytes }.offering(slot, offset);
        pair.sent += 1;
        // SAFETY: there is no payload.
        unsafe { pair.post(words, None) }?;
        *self = Self::Offered(Offered { number, target: None, exhausted: false, _publication: publication });
        Ok(Step::Moved)
    }

    /// One chunk through the ring.
    fn stream(&mut self, message: &Checked<'_>, pair: &mut Pair, kind: Kind, sent: u64) -> Result<Step> {
        let left = message.bytes - sent;
        let chunk = left.min(pair.here.layout.chunk);
        if !pair.has_room(chunk) {
            return Ok(Step::Idle);
        }
        let bytes = if kind == Kind::Data { message.bytes } else { chunk };
        let head = Head { kind, element: message.element, bytes };
        if kind == Kind::Data {
            pair.sent += 1;
        }
        // SAFETY: the part lies inside the message, whose bytes live as long as the call; mailboxes are nobody else's.
        unsafe { pair.post(head.to_words(), Some((message.first.add(sent as usize), chunk))) }?;
        if chunk == left {
            return self.end();
        }
        *self = Self::Streaming(sent + chunk);
        Ok(Step::Moved)
    }

    fn offered(&mut self, message: &Checked<'_>, pair: &mut Pair, comm: &Communicator) -> Result<Step> {
        let Self::Offered(offered) = self else { return Ok(Step::Idle) };
        let (number, bytes) = (offered.number, message.bytes);
        // Acquire: the peer has read the bytes; pairs with its `tell`.
        if pair.here.word(FINISHED).load(Ordering::Acquire) >= number {
            return self.end();
        }
        if offered.exhausted {
            return Ok(Step::Idle);
        }
        if offered.target.is_none() {
            // Acquire: as above.
            if pair.here.word(ANSWER).load(Ordering::Acquire) != number {
                return Ok(Step::Idle);
            }
            let [_, way, slot, generation, offset] = pair.here.get(ANSWER);
            if way == Way::Ring as u64 {
                *self = Self::Streaming(0);
                return Ok(Step::Moved);
            }
            let slot = SlotId { slot, generation };
            let Some(target) = import(comm, pair, slot)? else { return Ok(Step::Idle) };
            if pair.is_far() {
                *self = Self::Putting(Putting { number, target, offset, put: 0 });
                return Ok(Step::Moved);
            }
            offered.target = Some((target, offset));
        }
        let (Some((target, offset)), Link::Near(near)) = (&offered.target, &pair.link) else {
            return Ok(Step::Idle);
        };
        // Relaxed: the counter only divides the pieces.
        let piece = pair.here.word(CLAIMED).fetch_add(1, Ordering::Relaxed);
        let size = piece_bytes(bytes);
        if piece >= bytes.div_ceil(size) {
            offered.exhausted = true;
            return Ok(Step::Idle);
        }
        let to = target.pointer("send", *offset, bytes)?;
        copy_piece(to, message.first, bytes, size, piece, pair.peer)?;
        // Release: the peer finds the bytes of this piece; pairs with its Acquire load.
        pair.here.word(PUSHED).fetch_add(1, Ordering::Release);
        near.bell.event().notify();
        Ok(Step::Moved)
    }

    fn put(&mut self, message: &Checked<'_>, pair: &mut Pair) -> Result<Step> {
        let (Self::Putting(putting), Link::Far(far)) = (&mut *self, &pair.link) else {
            return Ok(Step::Idle);
        };
        let Some((source, source_offset)) = message.registered else { return Ok(Step::Idle) };
        if far.connection.in_flight()? >= PUTS {
            return Ok(Step::Idle);
        }
        let Putting { number, target, offset, put, .. } = putting;
        let size = (message.bytes - *put).min(PUT_BYTES);
        far.connection.write(target, *offset + *put, source, source_offset + *put, size)?;
        *put += size;
        if *put < message.bytes {
            return Ok(Step::Moved);
        }
        let number = *number;
        pair.link.tell(PUT, &[number])?;
        *self = Self::Leaving(far.connection.try_flush());
        Ok(Step::Moved)
    }
}

/// What the peer has refused, if it has refused something of this rank.
pub(super) fn refusal(rank: u32, pair: &Pair) -> Option<PointToPointError> {
    // Acquire: pairs with the peer's `tell`.
    if pair.here.word(REFUSED).load(Ordering::Acquire) == 0 {
        return None;
    }
    let [message, sent, sent_element, wanted, wanted_element] = pair.here.get(REFUSED);
    let element = |bits: u64| ElementType::from_bits(bits as u32);
    Some(PointToPointError::Mismatch {
        rank,
        peer: pair.peer,
        sends: true,
        message,
        here: describe(sent, element(sent_element)),
        there: describe(wanted, element(wanted_element)),
    })
}
