//! The wire form: a header of 48 bytes, little-endian, followed by the payload of a write.
//!
//! | bytes | field |
//! |---|---|
//! | 0 | kind |
//! | 1 | reason of a refusal, otherwise 0 |
//! | 2..8 | 0 |
//! | 8..16 | position of the operation on its link, from 1 |
//! | 16..24 | memory id in the receiver's table |
//! | 24..32 | offset in that memory |
//! | 32..40 | payload bytes that follow this header (refusal: bytes of the refused write) |
//! | 40..48 | write: bytes of the operation left, this piece included; store, add: the operand; refusal: the kind |
//!
//! A long write travels in pieces so that acknowledgements of the other direction can pass between them.

/// Bytes of a header.
pub(crate) const HEADER_BYTES: usize = 48;

/// The longest payload behind one header.
pub(crate) const PIECE_BYTES: u64 = 1 << 20;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A piece of a write.
    Write = 1,
    /// Sets a word.
    Store = 2,
    /// Adds to a word.
    Add = 3,
    /// Everything up to `position` has been applied.
    Ack = 4,
    /// The operation at `position` was refused; later ones are discarded.
    Refuse = 5,
    /// The sender of this frame will post nothing more.
    Goodbye = 6,
}

/// Why a receiver refuses an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Reason {
    /// No memory has this id (any more).
    Stale = 1,
    /// The range is not inside the memory.
    Bounds = 2,
    /// The owner did not permit it.
    Access = 3,
    /// The word is not aligned, or not the counter of a token.
    Alignment = 4,
    /// The owner withdrew the memory while the bytes were coming in.
    Withdrawn = 5,
}

impl Reason {
    /// For people.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Stale => "it has no memory with this id; the registration may have been dropped",
            Self::Bounds => "the range is outside the memory",
            Self::Access => "the memory was not exported for this kind of access",
            Self::Alignment => "the word is not 8-byte aligned, or not the counter of a token",
            Self::Withdrawn => "the memory was unregistered while bytes were arriving",
        }
    }
}

/// A decoded header; see the module's page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    pub(crate) reason: Option<Reason>,
    pub(crate) position: u64,
    pub(crate) memory: u64,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) operand: u64,
}

impl Header {
    /// A frame that carries a position only.
    pub(crate) fn control(kind: Kind, position: u64) -> Self {
        Self { kind, reason: None, position, memory: 0, offset: 0, length: 0, operand: 0 }
    }

    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = self.kind as u8;
        bytes[1] = self.reason.map_or(0, |r| r as u8);
        let words = [self.position, self.memory, self.offset, self.length, self.operand];
        for (slot, word) in bytes[8..].chunks_exact_mut(8).zip(words) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads a header; the error says what no correct sender writes.
    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, &'static str> {
        let kind = match bytes[0] {
            1 => Kind::Write,
            2 => Kind::Store,
            3 => Kind::Add,
            4 => Kind::Ack,
            5 => Kind::Refuse,
            6 => Kind::Goodbye,
            _ => return Err("a frame of unknown kind"),
        };
        let reason = match bytes[1] {
            0 => None,
            1 => Some(Reason::Stale),
            2 => Some(Reason::Bounds),
            3 => Some(Reason::Access),
            4 => Some(Reason::Alignment),
            5 => Some(Reason::Withdrawn),
            _ => return Err("a refusal of unknown reason"),
        };
        if reason.is_some() != (kind == Kind::Refuse) {
            return Err("a reason without a refusal, or a refusal without one");
        }
        if bytes[2..8] != [0; 6] {
            return Err("reserved bytes that are not zero");
        }
        let mut words = [0u64; 5];
        for (word, slot) in words.iter_mut().zip(bytes[8..].chunks_exact(8)) {
            let mut le = [0; 8];
            le.copy_from_slice(slot);
            *word = u64::from_le_bytes(le);
        }
        let [position, memory, offset, length, operand] = words;
        match kind {
            Kind::Write if length > PIECE_BYTES => return Err("a piece longer than the limit"),
            Kind::Write if length > operand => return Err("a piece longer than what is left"),
            Kind::Write if length == 0 && operand != 0 => return Err("an empty piece"),
            Kind::Store | Kind::Add if length != 0 => return Err("a word with a payload"),
            _ => {}
        }
        Ok(Self { kind, reason, position, memory, offset, length, operand })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_decoded_encodes_to_the_same_bytes(
            kind in 0u8..9, reason in 0u8..7, words in any::<[u64; 5]>(), small in 0u64..4,
        ) {
            let mut bytes = [0; HEADER_BYTES];
            bytes[0] = kind;
            bytes[1] = reason;
            for (i, word) in words.iter().enumerate() {
                bytes[8 + 8 * i..16 + 8 * i].copy_from_slice(&word.to_le_bytes());
            }
            if small != 0 {
                bytes[32..40].copy_from_slice(&(small - 1).to_le_bytes());
            }
            if let Ok(header) = Header::decode(&bytes) {
                prop_assert_eq!(header.encode(), bytes);
                prop_assert!(header.kind != Kind::Write || header.length <= header.operand.min(PIECE_BYTES));
            } else {
                prop_assert!(kind == 0 || kind > 6 || reason > 0 || kind == 5 || words[3] > 0 || words[4] > 0 || small > 1);
            }
        }
    }

    #[test]
    fn a_full_header_survives() {
        let header = Header {
            kind: Kind::Refuse,
            reason: Some(Reason::Bounds),
            position: u64::MAX,
            memory: 1 << 40,
            offset: (1 << 33) + 1,
            length: 7,
            operand: u64::MAX - 1,
        };
        assert_eq!(Header::decode(&header.encode()), Ok(header));
    }
}
