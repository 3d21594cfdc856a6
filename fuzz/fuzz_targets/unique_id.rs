//! Unique ids: the checksum is corrected, so that the fields behind it are reached.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warpway_core::bootstrap::UniqueId;

fuzz_target!(|input: &[u8]| {
    let _ = UniqueId::from_bytes(input);

    let mut bytes = [0; UniqueId::BYTES];
    bytes[..4].copy_from_slice(b"WWID");
    bytes[4] = 1;
    let body = &mut bytes[5..UniqueId::BYTES - 4];
    let length = input.len().min(body.len());
    body[..length].copy_from_slice(&input[..length]);
    let checksum = crc32c::crc32c(&bytes[..UniqueId::BYTES - 4]);
    bytes[UniqueId::BYTES - 4..].copy_from_slice(&checksum.to_le_bytes());
    if let Ok(id) = UniqueId::from_bytes(&bytes) {
        assert_eq!(id.to_bytes(), bytes, "exactly what is written is accepted");
    }
});
