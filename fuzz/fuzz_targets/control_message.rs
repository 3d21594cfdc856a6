//! Records of a `ControlMessage`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warpway_core::wire::{ControlMessage, Kind};

fuzz_target!(|records: &[u8]| warpway_fuzz::check::<ControlMessage>(Kind::Control, records));
