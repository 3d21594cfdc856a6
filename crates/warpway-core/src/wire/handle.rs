//! From values to envelopes and back.

use super::envelope::{Envelope, Kind, RecordType, Records, Writer};
use super::{ControlMessage, JobNonce, SemaphoreRecord, WireError};
use crate::endpoint::Endpoint;
use crate::memory::MemoryRecord;

const LABEL: RecordType = RecordType { number: 0x50, name: "exchange label" };

/// The longest text (call site, refusal) that is put into an envelope; longer ones are cut.
const MAX_TEXT_BYTES: usize = 1024;

/// Where a handle belongs when it is sent by an exchange; ends up in errors on the other side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// Tag of the exchange.
    pub tag: i32,
    /// The call and its place in the source (`"connect at src/main.rs:12:9"`).
    pub call: String,
}

/// A value with what its envelope says about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handle<T> {
    /// Position per (sender, receiver, tag), from 0; 0 for handles that the user carries.
    pub sequence: u64,
    /// `None` for handles that the user carries.
    pub label: Option<Label>,
    /// The value.
    pub body: T,
}

impl<T: Body> Handle<T> {
    /// The envelope.
    ///
    /// # Errors
    /// `wire.too_long`.
    pub fn encode(&self, nonce: JobNonce) -> Result<Vec<u8>, WireError> {
        let mut writer = Writer::new(T::KIND, nonce, self.sequence);
        if let Some(Label { tag, call }) = &self.label {
            writer.optional(LABEL, |v| {
                v.i32(*tag).bytes(cut(call).as_bytes());
            });
        }
        self.body.write(&mut writer);
        writer.finish()
    }

    /// Reads an envelope of this kind and of this job.
    ///
    /// # Errors
    /// A [`WireError`] that says what is wrong; bytes from anywhere are safe to pass.
    pub fn decode(bytes: &[u8], nonce: JobNonce) -> Result<Self, WireError> {
        let envelope = Envelope::parse(bytes)?;
        if envelope.nonce != nonce {
            return Err(WireError::Nonce);
        }
        Self::from_envelope(&envelope)
    }

    fn from_envelope(envelope: &Envelope<'_>) -> Result<Self, WireError> {
        if envelope.kind != T::KIND as u16 {
            return Err(WireError::Kind { expected: T::KIND.name(), found: envelope.kind });
        }
        let known: Vec<RecordType> = T::RECORDS.iter().copied().flatten().copied().chain([LABEL]).collect();
        let records = envelope.records(&known)?;
        let label = records
            .optional(LABEL, |r| Ok(Label { tag: r.i32()?, call: text("exchange label", r.rest())? }))?;
        Ok(Self { sequence: envelope.sequence, label, body: T::read(&records)? })
    }
}

/// Any handle, with the nonce of the job it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AnyHandle {
    /// Kind 1.
    Memory(Handle<MemoryRecord>),
    /// Kind 2.
    Endpoint(Handle<Endpoint>),
    /// Kind 3.
    Semaphore(Handle<SemaphoreRecord>),
    /// Kind 5.
    Control(Handle<ControlMessage>),
}

impl AnyHandle {
    /// The envelope; see [`Handle::encode`].
    pub fn encode(&self, nonce: JobNonce) -> Result<Vec<u8>, WireError> {
        match self {
            Self::Memory(handle) => handle.encode(nonce),
            Self::Endpoint(handle) => handle.encode(nonce),
            Self::Semaphore(handle) => handle.encode(nonce),
            Self::Control(handle) => handle.encode(nonce),
        }
    }

    /// Reads an envelope of any kind and any job: for dispatch (compare the nonce), diagnostics, fuzzing.
    ///
    /// # Errors
    /// As [`Handle::decode`]; `wire.kind` for a kind without a reader.
    pub fn decode(bytes: &[u8]) -> Result<(Self, JobNonce), WireError> {
        let envelope = Envelope::parse(bytes)?;
        let handle = match Kind::from_number(envelope.kind) {
            Some(Kind::Memory) => Self::Memory(Handle::from_envelope(&envelope)?),
            Some(Kind::Endpoint) => Self::Endpoint(Handle::from_envelope(&envelope)?),
            Some(Kind::Semaphore) => Self::Semaphore(Handle::from_envelope(&envelope)?),
            Some(Kind::Control) => Self::Control(Handle::from_envelope(&envelope)?),
            Some(Kind::Multicast) | None => {
                return Err(WireError::Kind {
                    expected: "memory, endpoint, semaphore or control",
                    found: envelope.kind,
                });
            }
        };
        Ok((handle, envelope.nonce))
    }
}

/// Something that has an envelope kind of its own.
#[expect(private_interfaces, reason = "sealed: the parameters are this module's")]
pub trait Body: Sized {
    /// The kind.
    const KIND: Kind;
    /// Tables of the record types that its reader knows.
    #[doc(hidden)]
    const RECORDS: &'static [&'static [RecordType]];
    #[doc(hidden)]
    fn write(&self, writer: &mut Writer);
    #[doc(hidden)]
    fn read(records: &Records<'_>) -> Result<Self, WireError>;
}

/// At most [`MAX_TEXT_BYTES`] of a text, cut between characters.
pub(super) fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT_BYTES)]
}

pub(super) fn text(field: &'static str, bytes: &[u8]) -> Result<String, WireError> {
    match str::from_utf8(bytes) {
        Ok(text) => Ok(text.to_owned()),
        Err(error) => Err(WireError::Field { field, value: error.valid_up_to() as u64 }),
    }
}
