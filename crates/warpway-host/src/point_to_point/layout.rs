//! Where things lie in a mailbox, and how much goes into one.
//!
//! Each rank of a pair has a mailbox in its own memory. The words of the first lines are about offers and credits; a ring
//! of descriptors and a ring of payload take what the peer sends. What different ranks write lies on different lines.

/// Bytes of a cache line.
pub(super) const LINE: u64 = 64;

/// Descriptors that the peer has taken of those that this rank has sent.
pub(super) const TAKEN: u64 = 0;
/// How the peer wants the bytes of an offer: number of the offer, way, slot, generation, offset.
pub(super) const ANSWER: u64 = LINE;
/// Number of the last offer of which the peer has all bytes.
pub(super) const FINISHED: u64 = 2 * LINE;
/// What the peer would not receive: number of the message, bytes and element sent, bytes and element to be received.
pub(super) const REFUSED: u64 = 3 * LINE;
/// Pieces of this rank's offer that one of the two ranks has begun to copy.
pub(super) const CLAIMED: u64 = 4 * LINE;
/// Pieces of it that this rank has stored.
pub(super) const PUSHED: u64 = 5 * LINE;
/// Descriptors that the peer has sent; where it cannot store them itself, so that they have no stamp.
pub(super) const ARRIVED: u64 = 6 * LINE;
/// Number of the peer's last offer of which it has put all bytes.
pub(super) const PUT: u64 = 7 * LINE;
/// The ring of descriptors.
const DESCRIPTORS: u64 = 8 * LINE;
/// How many it holds.
pub(super) const N_DESCRIPTORS: u64 = 64;
/// The ring of payload, on pages of its own.
const PAYLOAD: u64 = 2 * 4096;

const _: () = assert!(DESCRIPTORS + N_DESCRIPTORS * LINE <= PAYLOAD);

/// Words of a descriptor: number, kind and element, bytes, and what follows.
pub(super) const DESCRIPTOR_WORDS: usize = 8;
/// Words of a descriptor before its data.
pub(super) const HEAD_WORDS: usize = 3;
/// Messages up to this size lie in their descriptor: one cache line crosses.
pub(super) const INLINE_BYTES: u64 = 8 * (DESCRIPTOR_WORDS - HEAD_WORDS) as u64;

/// Sizes that both ranks of a pair derive from the way between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    /// Bytes of the ring of payload, a power of two.
    pub(super) payload: u64,
    /// The most payload of one descriptor; an eighth of the ring at most, so that credits may come in quarters.
    pub(super) chunk: u64,
    /// From this size on, registered memory is offered instead of copied through the ring.
    pub(super) offer_from: u64,
}

impl Layout {
    /// Between ranks that share memory: the ring stays in the cache of the second level.
    pub(super) const NEAR: Self = Self { payload: 256 << 10, chunk: 16 << 10, offer_from: 32 << 10 };
    /// Otherwise: what is under way on a fast network with a long round trip.
    pub(super) const FAR: Self = Self { payload: 4 << 20, chunk: 256 << 10, offer_from: 256 << 10 };

    /// Size of a mailbox.
    pub(super) const fn bytes(self) -> u64 {
        PAYLOAD + self.payload
    }

    /// First byte of the descriptor with this number, from 1.
    #[inline]
    pub(super) const fn descriptor(number: u64) -> u64 {
        DESCRIPTORS + (number - 1) % N_DESCRIPTORS * LINE
    }

    /// First byte of the payload at a position, and how many bytes follow it before the ring begins again.
    #[inline]
    pub(super) const fn place(self, position: u64) -> (u64, u64) {
        let within = position & (self.payload - 1);
        (PAYLOAD + within, self.payload - within)
    }
}

/// Bytes of payload as they are laid out: whole lines.
#[inline]
pub(super) const fn padded(bytes: u64) -> u64 {
    bytes.next_multiple_of(LINE)
}

/// Bytes of the pieces in which two ranks of one host share the copy of an offer: enough pieces for both to end at about
/// the same time, and large ones for copies that do not stay in a cache.
pub(super) fn piece_bytes(bytes: u64) -> u64 {
    (bytes / 16).next_power_of_two().clamp(64 << 10, 1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_leave_room_for_late_credits_and_everything_has_a_place() {
        for layout in [Layout::NEAR, Layout::FAR] {
            assert!(8 * layout.chunk <= layout.payload && layout.payload.is_power_of_two());
            assert!(layout.chunk > INLINE_BYTES && layout.chunk.is_multiple_of(LINE));
            assert_eq!(Layout::descriptor(1), DESCRIPTORS);
            assert_eq!(Layout::descriptor(N_DESCRIPTORS + 1), DESCRIPTORS);
            assert_eq!(layout.place(layout.payload - 64), (layout.bytes() - 64, 64));
            assert_eq!(layout.place(3 * layout.payload), (PAYLOAD, layout.payload));
        }
        assert_eq!([0, 1, 64, 65].map(padded), [0, 64, 64, 128]);
    }
}
