//! What the fuzz targets share: envelopes that are right but for their records, so that the fuzzer need not
//! guess checksums, and the property that every reader has.

use warpway_core::wire::{Body, Handle, JobNonce, Kind};

/// The job of all envelopes here.
pub const NONCE: JobNonce = JobNonce([7; 16]);

/// Records in an envelope whose header and checksum are right.
pub fn envelope(kind: Kind, records: &[u8]) -> Vec<u8> {
    const HEADER_BYTES: usize = 36;
    let mut bytes = Vec::with_capacity(HEADER_BYTES + records.len() + 4);
    bytes.extend(b"WPWY");
    bytes.extend((kind as u16).to_le_bytes());
    bytes.extend([0, 1]);
    bytes.extend(u32::try_from(HEADER_BYTES + records.len() + 4).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend(NONCE.0);
    bytes.extend(0u64.to_le_bytes());
    bytes.extend(records);
    let checksum = crc32c::crc32c(&bytes);
    bytes.extend(checksum.to_le_bytes());
    bytes
}

/// Records from anywhere are refused or understood; what is understood survives being written and read again.
pub fn check<T: Body + PartialEq + std::fmt::Debug>(kind: Kind, records: &[u8]) {
    if let Ok(handle) = Handle::<T>::decode(&envelope(kind, records), NONCE) {
        let again = handle.encode(NONCE).expect("what was read can be written");
        let back = Handle::<T>::decode(&again, NONCE).expect("what was written can be read");
        assert_eq!(handle, back);
    }
}
