//! Records of a `SemaphoreRecord`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warpway_core::wire::{Kind, SemaphoreRecord};

fuzz_target!(|records: &[u8]| warpway_fuzz::check::<SemaphoreRecord>(Kind::Semaphore, records));
