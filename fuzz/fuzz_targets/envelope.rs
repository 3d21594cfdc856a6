//! Whole envelopes, header and checksum included.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warpway_core::wire::AnyHandle;

fuzz_target!(|bytes: &[u8]| {
    // Refused or understood; nothing else can be said of arbitrary bytes.
    let _ = AnyHandle::decode(bytes);
});
