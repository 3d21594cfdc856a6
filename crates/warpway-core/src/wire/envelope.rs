//! The envelope around every serialised handle, written and read with every length checked.
//!
//! | field | size | rule |
//! |---|---|---|
//! | magic | 4 | `WPWY` |
//! | kind | u16 | see [`Kind`] |
//! | version | u16 | major in the high byte; another major is refused |
//! | total length | u32 | equals the length of the buffer |
//! | job nonce | 16 | equals the bootstrap's |
//! | sequence | u64 | per (sender, receiver, tag), from 0 |
//! | records | … | type u16, length u32, value; unknown ones are skipped unless bit 15 marks them critical |
//! | checksum | u32 | CRC-32C of all before |

use std::collections::BTreeMap;

use super::{JobNonce, WireError};

/// The longest envelope.
pub const MAX_ENVELOPE_BYTES: usize = 64 * 1024;

const MAGIC: [u8; 4] = *b"WPWY";
const MAJOR: u8 = 1;
const MINOR: u8 = 0;
const HEADER_BYTES: usize = 36;
const CHECKSUM_BYTES: usize = 4;
const RECORD_HEADER_BYTES: usize = 6;
const CRITICAL: u16 = 1 << 15;

/// What an envelope holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Kind {
    /// A memory record.
    Memory = 1,
    /// An endpoint.
    Endpoint = 2,
    /// A semaphore's token.
    Semaphore = 3,
    /// A multicast handle; reserved.
    Multicast = 4,
    /// A message between communicators.
    Control = 5,
}

impl Kind {
    /// From the wire form.
    pub fn from_number(number: u16) -> Option<Self> {
        [Self::Memory, Self::Endpoint, Self::Semaphore, Self::Multicast, Self::Control]
            .into_iter()
            .find(|kind| *kind as u16 == number)
    }

    /// The name in errors.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Endpoint => "endpoint",
            Self::Semaphore => "semaphore",
            Self::Multicast => "multicast",
            Self::Control => "control",
        }
    }
}

/// Number and name of a record type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecordType {
    pub(super) number: u16,
    pub(super) name: &'static str,
}

/// Writes one envelope.
pub(super) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub(super) fn new(kind: Kind, nonce: JobNonce, sequence: u64) -> Self {
        let mut bytes = Vec::with_capacity(256);
        bytes.extend(MAGIC);
        bytes.extend((kind as u16).to_le_bytes());
        bytes.extend([MINOR, MAJOR]);
        bytes.extend([0; 4]);
        bytes.extend(nonce.0);
        bytes.extend(sequence.to_le_bytes());
        debug_assert_eq!(bytes.len(), HEADER_BYTES);
        Self { bytes }
    }

    /// A record that an older reader may skip.
    pub(super) fn optional(&mut self, record: RecordType, value: impl FnOnce(&mut Value<'_>)) {
        self.record(record.number, value);
    }

    /// A record without which the handle makes no sense.
    pub(super) fn critical(&mut self, record: RecordType, value: impl FnOnce(&mut Value<'_>)) {
        self.record(record.number | CRITICAL, value);
    }

    fn record(&mut self, number: u16, value: impl FnOnce(&mut Value<'_>)) {
        self.bytes.extend(number.to_le_bytes());
        let length_at = self.bytes.len();
        self.bytes.extend([0; 4]);
        value(&mut Value(&mut self.bytes));
        // Truncation cannot go unnoticed: `finish` refuses anything longer than the envelope's limit.
        let length = (self.bytes.len() - length_at - 4) as u32;
        self.bytes[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
    }

    pub(super) fn finish(mut self) -> Result<Vec<u8>, WireError> {
        let length = self.bytes.len() + CHECKSUM_BYTES;
        if length > MAX_ENVELOPE_BYTES {
            return Err(WireError::TooLong { length: length as u64, limit: MAX_ENVELOPE_BYTES as u64 });
        }
        self.bytes[8..12].copy_from_slice(&(length as u32).to_le_bytes());
        let checksum = crc32c::crc32c(&self.bytes);
        self.bytes.extend(checksum.to_le_bytes());
        Ok(self.bytes)
    }
}

/// Writes the value of one record, little-endian.
pub(super) struct Value<'a>(&'a mut Vec<u8>);

impl Value<'_> {
    pub(super) fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes(&[value])
    }

    pub(super) fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(super) fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(super) fn i32(&mut self, value: i32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(super) fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(super) fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.0.extend(value);
        self
    }
}

/// A checked envelope: magic, version, length and checksum fit, and the records tile it exactly.
#[derive(Debug, Clone)]
pub(super) struct Envelope<'a> {
    pub(super) kind: u16,
    pub(super) nonce: JobNonce,
    pub(super) sequence: u64,
    records: &'a [u8],
}

impl<'a> Envelope<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let have = bytes.len() as u64;
        let mut header = Reader { what: "envelope header", bytes, at: 0 };
        let magic = header.array::<4>()?;
        if magic != MAGIC {
            return Err(WireError::Magic { found: magic });
        }
        let kind = header.u16()?;
        let [minor, major] = header.array::<2>()?;
        if major != MAJOR {
            return Err(WireError::Version { major, minor, supported: MAJOR });
        }
        let length = u64::from(header.u32()?);
        if length > MAX_ENVELOPE_BYTES as u64 {
            return Err(WireError::TooLong { length, limit: MAX_ENVELOPE_BYTES as u64 });
        }
        if length < (HEADER_BYTES + CHECKSUM_BYTES) as u64 {
            return Err(WireError::Field { field: "total length", value: length });
        }
        if have < length {
            return Err(WireError::Truncated { what: "envelope", offset: 0, needed: length, have });
        }
        if have > length {
            return Err(WireError::Trailing { extra: have - length });
        }
        let nonce = JobNonce(header.array()?);
        let sequence = header.u64()?;
        let (body, stored) = bytes.split_at(bytes.len() - CHECKSUM_BYTES);
        let stored = Reader { what: "checksum", bytes: stored, at: 0 }.u32()?;
        let computed = crc32c::crc32c(body);
        if computed != stored {
            return Err(WireError::Checksum { computed, stored });
        }
        Ok(Self { kind, nonce, sequence, records: &body[HEADER_BYTES..] })
    }

    /// Sorts the records by type. Unknown ones are skipped, critical unknown ones and repetitions refused.
    pub(super) fn records(&self, known: &[RecordType]) -> Result<Records<'a>, WireError> {
        let mut found = BTreeMap::new();
        let mut reader = Reader { what: "record", bytes: self.records, at: 0 };
        while reader.left() > 0 {
            reader.need(RECORD_HEADER_BYTES)?;
            let number = reader.u16()?;
            let length = reader.u32()?;
            let value = reader.take(length as usize)?;
            let Some(record) = known.iter().find(|record| record.number == number & !CRITICAL) else {
                if number & CRITICAL != 0 {
                    return Err(WireError::UnknownCritical { record: number & !CRITICAL });
                }
                continue;
            };
            if found.insert(record.number, value).is_some() {
                return Err(WireError::Record { record: record.name, problem: "repeated" });
            }
        }
        Ok(Records(found))
    }
}

/// The records of one envelope.
#[derive(Debug)]
pub(super) struct Records<'a>(BTreeMap<u16, &'a [u8]>);

impl<'a> Records<'a> {
    /// Reads a record that may be absent; `read` must consume all of it.
    pub(super) fn optional<T>(
        &self,
        record: RecordType,
        read: impl FnOnce(&mut Reader<'a>) -> Result<T, WireError>,
    ) -> Result<Option<T>, WireError> {
        let Some(bytes) = self.0.get(&record.number) else { return Ok(None) };
        let mut reader = Reader { what: record.name, bytes, at: 0 };
        let value = read(&mut reader)?;
        if reader.left() > 0 {
            return Err(WireError::Record { record: record.name, problem: "longer than its content" });
        }
        Ok(Some(value))
    }

    /// Reads a record that must be there.
    pub(super) fn required<T>(
        &self,
        record: RecordType,
        read: impl FnOnce(&mut Reader<'a>) -> Result<T, WireError>,
    ) -> Result<T, WireError> {
        self.optional(record, read)?.ok_or(WireError::Record { record: record.name, problem: "missing" })
    }
}

/// Reads little-endian values; every length is checked against what is left.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    what: &'static str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn need(&self, needed: usize) -> Result<(), WireError> {
        if needed <= self.left() {
            return Ok(());
        }
        Err(WireError::Truncated {
            what: self.what,
            offset: self.at as u64,
            needed: needed as u64,
            have: self.left() as u64,
        })
    }

    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        self.need(length)?;
        let value = &self.bytes[self.at..self.at + length];
        self.at += length;
        Ok(value)
    }

    /// Everything up to the end of the record.
    pub(super) fn rest(&mut self) -> &'a [u8] {
        let value = &self.bytes[self.at..];
        self.at = self.bytes.len();
        value
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let mut value = [0; N];
        value.copy_from_slice(self.take(N)?);
        Ok(value)
    }

    pub(super) fn u8(&mut self) -> Result<u8, WireError> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(super) fn u16(&mut self) -> Result<u16, WireError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, WireError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn i32(&mut self) -> Result<i32, WireError> {
        Ok(i32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, WireError> {
        Ok(u64::from_le_bytes(self.array()?))
    }
}
