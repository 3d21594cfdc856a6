//! What one descriptor says.

use warpway_core::wire::SlotId;

use super::element::ElementType;
use super::layout::{DESCRIPTOR_WORDS, HEAD_WORDS, INLINE_BYTES};

/// Words as they lie in a mailbox; the first one is the descriptor's number, which is filled in last.
pub(super) type Words = [u64; DESCRIPTOR_WORDS];

/// What follows the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A message, or its first chunk. Up to [`INLINE_BYTES`] in the descriptor itself.
    Data = 1,
    /// The next chunk of a message.
    More = 2,
    /// A message that waits in registered memory of the sender.
    Offer = 3,
}

/// The head, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: Kind,
    pub(super) element: ElementType,
    /// Of the whole message; of a further chunk, of that.
    pub(super) bytes: u64,
}

impl Head {
    #[inline]
    pub(super) fn to_words(self) -> Words {
        [0, self.kind as u64 | u64::from(self.element.bits()) << 32, self.bytes, 0, 0, 0, 0, 0]
    }

    /// `None` for what no rank of this version sends.
    #[inline]
    pub(super) fn from_words(words: &Words) -> Option<Self> {
        let kind = match words[1] as u32 {
            1 => Kind::Data,
            2 => Kind::More,
            3 => Kind::Offer,
            _ => return None,
        };
        Some(Self { kind, element: ElementType::from_bits((words[1] >> 32) as u32), bytes: words[2] })
    }

    /// An offer of registered memory, at `offset` of what the sender has published.
    pub(super) fn offering(self, slot: SlotId, offset: u64) -> Words {
        let mut words = self.to_words();
        words[HEAD_WORDS..HEAD_WORDS + 3].copy_from_slice(&[slot.slot, slot.generation, offset]);
        words
    }
}

/// The slot and the offset of an offer.
pub(super) fn offered(words: &Words) -> (SlotId, u64) {
    (SlotId { slot: words[HEAD_WORDS], generation: words[HEAD_WORDS + 1] }, words[HEAD_WORDS + 2])
}

/// Puts the first `bytes` bytes of a small message behind the head.
#[inline]
pub(super) fn put_inline(words: &mut Words, data: &[u8; INLINE_BYTES as usize], bytes: u64) {
    debug_assert!(bytes <= INLINE_BYTES);
    let (chunks, _) = data.as_chunks::<8>();
    for (word, chunk) in words[HEAD_WORDS..].iter_mut().zip(chunks).take(bytes.div_ceil(8) as usize) {
        *word = u64::from_le_bytes(*chunk);
    }
}

/// The small message behind the head; the rest of the bytes is nothing.
#[inline]
pub(super) fn inline(words: &Words) -> [u8; INLINE_BYTES as usize] {
    let mut bytes = [0; INLINE_BYTES as usize];
    for (chunk, word) in bytes.chunks_exact_mut(8).zip(&words[HEAD_WORDS..]) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_and_small_messages_survive_their_words() {
        let element = ElementType::of::<[u8; 7]>();
        for kind in [Kind::Data, Kind::More, Kind::Offer] {
            let head = Head { kind, element, bytes: u64::MAX - 3 };
            assert_eq!(Head::from_words(&head.to_words()), Some(head));
            let slot = SlotId { slot: 7, generation: 1 << 40 };
            assert_eq!(offered(&head.offering(slot, 99)), (slot, 99));
        }
        assert_eq!(Head::from_words(&[1, 0, 0, 0, 0, 0, 0, 0]), None);
        for length in 0..=INLINE_BYTES as usize {
            let data: Vec<u8> = (0..length).map(|at| (at * 31 + 7) as u8).collect();
            let mut words = Head { kind: Kind::Data, element, bytes: length as u64 }.to_words();
            let mut padded = [0; INLINE_BYTES as usize];
            padded[..length].copy_from_slice(&data);
            put_inline(&mut words, &padded, length as u64);
            assert_eq!(inline(&words)[..length], data[..]);
        }
    }
}
