//! One request and its form in a FIFO slot.

use std::fmt;
use std::ops::BitOr;

use super::{MemoryId, SemaphoreId};
use crate::proxy::ProxyError;

/// What a request asks for: a set of parts, carried out in the order in which they are listed here.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TriggerKind(u8);

impl TriggerKind {
    /// Copy bytes.
    pub const DATA: Self = Self(1);
    /// Raise the peer's semaphore.
    pub const FLAG: Self = Self(2);
    /// Tell when everything pushed before on the connection is complete.
    pub const SYNC: Self = Self(4);
    /// Add to a 64-bit word of the peer.
    pub const ATOMIC_ADD: Self = Self(8);

    const KNOWN: u64 = 15;

    /// From the number in a FIFO element.
    ///
    /// # Errors
    /// `fifo.kind` for no part at all and for unknown bits.
    pub const fn from_bits(bits: u64) -> Result<Self, ProxyError> {
        if bits == 0 || bits & !Self::KNOWN != 0 {
            return Err(ProxyError::Kind { kind: bits });
        }
        Ok(Self(bits as u8))
    }

    /// The number in a FIFO element.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// True if every part of `other` is asked for.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The parts that are not in `other`; may be none.
    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl BitOr for TriggerKind {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Debug for TriggerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (Self::DATA, "Data"),
            (Self::FLAG, "Flag"),
            (Self::SYNC, "Sync"),
            (Self::ATOMIC_ADD, "AtomicAdd"),
        ];
        f.debug_set().entries(names.iter().filter(|(k, _)| self.contains(*k)).map(|(_, name)| name)).finish()
    }
}

/// One request of a port channel. Fields that the kind does not use are ignored, but carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trigger {
    /// What to do.
    pub kind: TriggerKind,
    /// Names the connection, and the token that a flag raises.
    pub semaphore: SemaphoreId,
    /// Where data or an addition goes.
    pub destination: MemoryId,
    /// Where data comes from.
    pub source: MemoryId,
    /// First byte at the destination.
    pub destination_offset: u64,
    /// First byte at the source.
    pub source_offset: u64,
    /// Bytes to copy.
    pub size: u64,
    /// What to add.
    pub value: i64,
}

/// A request as it lies in a slot, without commit bits: four words of two halves. See the module's page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EncodedTrigger(pub [[u64; 2]; 4]);

/// The commit bit of a word's second half.
pub(super) const COMMIT: u64 = 1 << 63;

impl Trigger {
    /// A request of `kind` on the connection of `semaphore`, other fields zero.
    pub fn new(kind: TriggerKind, semaphore: SemaphoreId) -> Self {
        Self {
            kind,
            semaphore,
            destination: MemoryId::default(),
            source: MemoryId::default(),
            destination_offset: 0,
            source_offset: 0,
            size: 0,
            value: 0,
        }
    }

    /// The form in a slot.
    ///
    /// # Errors
    /// `fifo.range` if a range to copy ends beyond 2^64 and `fifo.kind` for a kind that no request has.
    /// Every other value has its full width in the slot.
    pub fn encode(&self) -> Result<EncodedTrigger, ProxyError> {
        let kind = TriggerKind::from_bits(u64::from(self.kind.0))?;
        if kind.contains(TriggerKind::DATA) {
            for (field, offset) in [
                ("destination_offset + size", self.destination_offset),
                ("source_offset + size", self.source_offset),
            ] {
                if offset.checked_add(self.size).is_none() {
                    return Err(ProxyError::Range { field, value: offset });
                }
            }
        }
        Ok(EncodedTrigger([
            [self.destination_offset, u64::from(kind.0) | u64::from(self.semaphore.bits()) << 8],
            [self.source_offset, u64::from(self.destination.bits())],
            [self.size, u64::from(self.source.bits())],
            [self.value.cast_unsigned(), 0],
        ]))
    }
}

impl EncodedTrigger {
    /// The request.
    ///
    /// # Errors
    /// `fifo.kind` for a kind that no producer writes, `fifo.range` for a bit that must be zero.
    pub fn decode(&self) -> Result<Trigger, ProxyError> {
        let [[destination_offset, word0], [source_offset, word1], [size, word2], [value, word3]] = self.0;
        let reserved = [
            ("bits above the semaphore id", word0 >> 40),
            ("bits above the destination id", word1 >> 32),
            ("bits above the source id", word2 >> 32),
            ("second half of the last word", word3),
        ];
        if let Some((field, value)) = reserved.into_iter().find(|(_, bits)| *bits != 0) {
            return Err(ProxyError::Range { field, value });
        }
        Ok(Trigger {
            kind: TriggerKind::from_bits(word0 & 0xff)?,
            semaphore: SemaphoreId::from_bits((word0 >> 8) as u32),
            destination: MemoryId::from_bits(word1 as u32),
            source: MemoryId::from_bits(word2 as u32),
            destination_offset,
            source_offset,
            size,
            value: value.cast_signed(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn triggers() -> impl Strategy<Value = Trigger> {
        let ids = (any::<u32>(), any::<u32>(), any::<u32>());
        (1u8..16, ids, any::<(u64, u64, u64, i64)>()).prop_map(|(kind, ids, numbers)| Trigger {
            kind: TriggerKind(kind),
            semaphore: SemaphoreId::from_bits(ids.0),
            destination: MemoryId::from_bits(ids.1),
            source: MemoryId::from_bits(ids.2),
            destination_offset: numbers.0,
            source_offset: numbers.1,
            size: numbers.2,
            value: numbers.3,
        })
    }

    proptest! {
        /// N28: what goes in comes out, or is refused; nothing is masked.
        #[test]
        fn n28_encoding_is_exact_or_refused(trigger in triggers()) {
            let data = trigger.kind.contains(TriggerKind::DATA);
            let wraps = |offset: u64| u128::from(offset) + u128::from(trigger.size) > u128::from(u64::MAX);
            match trigger.encode() {
                Ok(encoded) => {
                    prop_assert!(!data || !wraps(trigger.destination_offset) && !wraps(trigger.source_offset));
                    prop_assert!(encoded.0.iter().all(|word| word[1] & COMMIT == 0));
                    prop_assert_eq!(encoded.decode().unwrap(), trigger);
                }
                Err(error) => {
                    prop_assert_eq!(error.id(), "fifo.range");
                    prop_assert!(data && (wraps(trigger.destination_offset) || wraps(trigger.source_offset)));
                }
            }
        }

        /// Each number of a valid element has one meaning: decoding and encoding again gives the same bits.
        #[test]
        fn decoding_refuses_what_no_producer_writes(words in any::<[[u64; 2]; 4]>(), spare in any::<bool>()) {
            let mut words = words;
            if spare {
                for (word, bits) in words.iter_mut().zip([40, 32, 32, 0]) {
                    word[1] &= (1u64 << bits) - 1;
                }
            }
            let kind = words[0][1] & 0xff;
            let clean = words[0][1] >> 40 == 0
                && words[1][1] >> 32 == 0
                && words[2][1] >> 32 == 0
                && words[3][1] == 0;
            match EncodedTrigger(words).decode() {
                Ok(trigger) => {
                    prop_assert!(clean && (1..16).contains(&kind));
                    if let Ok(again) = trigger.encode() {
                        prop_assert_eq!(again, EncodedTrigger(words));
                    }
                }
                Err(error) if !clean => prop_assert_eq!(error.id(), "fifo.range"),
                Err(error) => {
                    prop_assert!(kind == 0 || kind >= 16);
                    prop_assert_eq!(error.id(), "fifo.kind");
                }
            }
        }
    }

    #[test]
    fn the_layout_is_the_documented_one() {
        let trigger = Trigger {
            kind: TriggerKind::DATA | TriggerKind::SYNC,
            semaphore: SemaphoreId::from_bits(0x8765_4321),
            destination: MemoryId::from_bits(0xfedc_ba98),
            source: MemoryId::from_bits(0x0123_4567),
            destination_offset: 0x1111_2222_3333_4444,
            source_offset: 0x5555_6666_7777_8888,
            size: 0x0999_aaaa_bbbb_cccc,
            value: -2,
        };
        assert_eq!(
            trigger.encode().unwrap().0,
            [
                [0x1111_2222_3333_4444, 0x87_6543_2105],
                [0x5555_6666_7777_8888, 0xfedc_ba98],
                [0x0999_aaaa_bbbb_cccc, 0x0123_4567],
                [0xffff_ffff_ffff_fffe, 0],
            ]
        );
    }
}
