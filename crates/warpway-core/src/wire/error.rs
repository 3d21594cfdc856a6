//! Why bytes are not a handle.

/// Bytes that are not a valid envelope or record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// Fewer bytes than announced.
    #[error("{what} is truncated: {needed} bytes needed at offset {offset}, {have} there")]
    Truncated {
        /// Part of the form.
        what: &'static str,
        /// Where it begins.
        offset: u64,
        /// Its length.
        needed: u64,
        /// What is left.
        have: u64,
    },
    /// More bytes than announced.
    #[error("{extra} bytes follow the end of the envelope")]
    Trailing {
        /// How many.
        extra: u64,
    },
    /// Not an envelope at all.
    #[error("not a Warpway handle: the first bytes are {found:02x?}, expected \"WPWY\"")]
    Magic {
        /// The first four bytes.
        found: [u8; 4],
    },
    /// A form this version does not know.
    #[error("wire version {major}.{minor} is not supported; this library reads {}.x", supported)]
    Version {
        /// High byte.
        major: u8,
        /// Low byte.
        minor: u8,
        /// What this library reads.
        supported: u8,
    },
    /// Another kind of handle.
    #[error("a handle of kind {found} where {expected} was expected")]
    Kind {
        /// The kind asked for.
        expected: &'static str,
        /// The number found.
        found: u16,
    },
    /// From another job.
    #[error("the handle belongs to another job (its nonce differs)")]
    Nonce,
    /// The checksum does not match.
    #[error("checksum mismatch: computed {computed:08x}, stored {stored:08x}; the handle is damaged")]
    Checksum {
        /// Of the bytes received.
        computed: u32,
        /// In the bytes received.
        stored: u32,
    },
    /// Larger than the limit.
    #[error("{length} bytes exceed the limit of {limit}")]
    TooLong {
        /// Length found.
        length: u64,
        /// Length allowed.
        limit: u64,
    },
    /// A record that must be understood is not known.
    #[error("record type {record} is critical and unknown to this version")]
    UnknownCritical {
        /// Its type.
        record: u16,
    },
    /// A record that must be there is missing, or is there twice.
    #[error("record {record} is {problem}")]
    Record {
        /// Its name.
        record: &'static str,
        /// `missing`, `repeated`, …
        problem: &'static str,
    },
    /// A field holds a value that no writer produces.
    #[error("field {field} has the invalid value {value}")]
    Field {
        /// Its name.
        field: &'static str,
        /// What it holds.
        value: u64,
    },
}

impl WireError {
    /// A stable id.
    pub fn id(&self) -> &'static str {
        match self {
            Self::Truncated { .. } => "wire.truncated",
            Self::Trailing { .. } => "wire.trailing",
            Self::Magic { .. } => "wire.magic",
            Self::Version { .. } => "wire.version",
            Self::Kind { .. } => "wire.kind",
            Self::Nonce => "wire.nonce",
            Self::Checksum { .. } => "wire.checksum",
            Self::TooLong { .. } => "wire.too_long",
            Self::UnknownCritical { .. } => "wire.unknown_critical",
            Self::Record { .. } => "wire.record",
            Self::Field { .. } => "wire.field",
        }
    }
}
