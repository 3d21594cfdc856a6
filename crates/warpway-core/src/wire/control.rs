//! Wire form of what communicators tell each other besides handles.

use super::envelope::{Kind, Reader, RecordType, Records, Writer};
use super::handle::{cut, text};
use super::memory::MEMORY_RECORDS;
use super::{Body, WireError};
use crate::memory::MemoryRecord;

const OPERATION: RecordType = RecordType { number: 0x40, name: "operation" };
const EXCHANGE: RecordType = RecordType { number: 0x41, name: "exchange" };
const CALL: RecordType = RecordType { number: 0x42, name: "call" };
const SLOT: RecordType = RecordType { number: 0x43, name: "slot" };
const REFUSAL: RecordType = RecordType { number: 0x44, name: "refusal" };
const TOKEN: RecordType = RecordType { number: 0x45, name: "token number" };

/// Names a published buffer: a slot in its owner's table, and how often the slot had been used before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotId {
    /// Position in the owner's table; small, reused.
    pub slot: u64,
    /// Grows with every reuse of the slot.
    pub generation: u64,
}

/// Content of a control envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ControlMessage {
    /// The sender has dealt with every handle of this tag with a sequence below `below`.
    Matched {
        /// Tag of the exchanges.
        tag: i32,
        /// One past the last of them.
        below: u64,
    },
    /// The handle with this sequence met a call that it does not fit.
    Mismatched {
        /// Tag of the exchange.
        tag: i32,
        /// Its sequence.
        sequence: u64,
        /// The call it met, with its place in the source.
        call: String,
    },
    /// The sender has published a buffer.
    Publish {
        /// Its name.
        slot: SlotId,
        /// How to reach it.
        memory: MemoryRecord,
    },
    /// The sender has imported the receiver's buffer, or could not.
    Acknowledge {
        /// Its name.
        slot: SlotId,
        /// Why not.
        refusal: Option<String>,
    },
    /// The sender wants its buffer back.
    Withdraw {
        /// Its name.
        slot: SlotId,
    },
    /// The sender has given up the receiver's buffer; nobody there uses it any more.
    Released {
        /// Its name.
        slot: SlotId,
    },
    /// The sender will not raise this token of the receiver's pool any more.
    TokenReleased {
        /// Its number.
        token: u64,
    },
}

impl ControlMessage {
    fn number(&self) -> u16 {
        match self {
            Self::Matched { .. } => 1,
            Self::Mismatched { .. } => 2,
            Self::Publish { .. } => 3,
            Self::Acknowledge { .. } => 4,
            Self::Withdraw { .. } => 5,
            Self::Released { .. } => 6,
            Self::TokenReleased { .. } => 7,
        }
    }
}

#[expect(private_interfaces, reason = "sealed")]
impl Body for ControlMessage {
    const KIND: Kind = Kind::Control;
    const RECORDS: &'static [&'static [RecordType]] =
        &[&[OPERATION, EXCHANGE, CALL, SLOT, REFUSAL, TOKEN], MEMORY_RECORDS];

    fn write(&self, writer: &mut Writer) {
        writer.critical(OPERATION, |v| {
            v.u16(self.number());
        });
        let exchange = |writer: &mut Writer, tag: i32, sequence: u64| {
            writer.critical(EXCHANGE, |v| {
                v.i32(tag).u64(sequence);
            });
        };
        if let Some(SlotId { slot, generation }) = self.slot() {
            writer.critical(SLOT, |v| {
                v.u64(slot).u64(generation);
            });
        }
        match self {
            Self::Matched { tag, below } => exchange(writer, *tag, *below),
            Self::Mismatched { tag, sequence, call } => {
                exchange(writer, *tag, *sequence);
                writer.critical(CALL, |v| {
                    v.bytes(cut(call).as_bytes());
                });
            }
            Self::Publish { memory, .. } => memory.write(writer),
            Self::Acknowledge { refusal: Some(why), .. } => writer.critical(REFUSAL, |v| {
                v.bytes(cut(why).as_bytes());
            }),
            Self::Acknowledge { refusal: None, .. } | Self::Withdraw { .. } | Self::Released { .. } => {}
            Self::TokenReleased { token } => writer.critical(TOKEN, |v| {
                v.u64(*token);
            }),
        }
    }

    fn read(records: &Records<'_>) -> Result<Self, WireError> {
        let exchange = || records.required(EXCHANGE, |r| Ok((r.i32()?, r.u64()?)));
        let slot = || records.required(SLOT, |r| Ok(SlotId { slot: r.u64()?, generation: r.u64()? }));
        match records.required(OPERATION, Reader::u16)? {
            1 => exchange().map(|(tag, below)| Self::Matched { tag, below }),
            2 => {
                let (tag, sequence) = exchange()?;
                let call = records.required(CALL, |r| text("call", r.rest()))?;
                Ok(Self::Mismatched { tag, sequence, call })
            }
            3 => Ok(Self::Publish { slot: slot()?, memory: MemoryRecord::read(records)? }),
            4 => {
                let refusal = records.optional(REFUSAL, |r| text("refusal", r.rest()))?;
                Ok(Self::Acknowledge { slot: slot()?, refusal })
            }
            5 => Ok(Self::Withdraw { slot: slot()? }),
            6 => Ok(Self::Released { slot: slot()? }),
            7 => Ok(Self::TokenReleased { token: records.required(TOKEN, Reader::u64)? }),
            other => Err(WireError::Field { field: "operation", value: u64::from(other) }),
        }
    }
}

impl ControlMessage {
    fn slot(&self) -> Option<SlotId> {
        match self {
            Self::Publish { slot, .. }
            | Self::Acknowledge { slot, .. }
            | Self::Withdraw { slot }
            | Self::Released { slot } => Some(*slot),
            _ => None,
        }
    }
}
