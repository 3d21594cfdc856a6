//! Switch channels on multicast groups that the host emulates: the kernels of `device/tests/switch.cu` by threads, their results
//! bit by bit; the group's barrier; what must not compile.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

#[path = "../host_compiler/mod.rs"]
mod host_compiler;
#[path = "../samples/mod.rs"]
mod samples;

mod emulator;
mod folds;
mod oracle;
mod refusals;

use std::process::Command;

/// `device/tests/host/switch_barrier.cpp`, which says itself what is wrong.
fn barrier(options: &[&str]) {
    let options = [&["-O1", "-pthread"], options].concat();
    let Some(program) = host_compiler::compile("switch_barrier", &options) else { return };
    let output = Command::new(&program).output().unwrap();
    std::fs::remove_file(program).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn barriers_meet_fail_and_publish() {
    barrier(&[]);
}

#[test]
fn checked_channels_refuse_what_is_out_of_range() {
    barrier(&["-DWARPWAY_DEVICE_CHECKS"]);
}
