//! What ranks and root say to each other while they join, and frames of their links.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| warpway_core::bootstrap::fuzz_messages(bytes));
