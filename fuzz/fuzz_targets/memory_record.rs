//! Records of a `MemoryRecord`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warpway_core::memory::MemoryRecord;
use warpway_core::wire::Kind;

fuzz_target!(|records: &[u8]| warpway_fuzz::check::<MemoryRecord>(Kind::Memory, records));
