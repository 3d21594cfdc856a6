//! Records of a `Endpoint`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warpway_core::endpoint::Endpoint;
use warpway_core::wire::Kind;

fuzz_target!(|records: &[u8]| warpway_fuzz::check::<Endpoint>(Kind::Endpoint, records));
