//! `warpway doctor` under conditions that it must notice.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod gpu;

use std::process::{Command, Output};

use serde_json::Value;

/// For other tests; the library does not know it, so the doctor would warn of it.
const FOREIGN: &str = "WARPWAY_PLANS";

/// Runs the doctor in a shell that has first done `preparation`.
fn doctor(preparation: &str) -> Output {
    let script = format!("{preparation}\nexec {} doctor --json", env!("CARGO_BIN_EXE_warpway"));
    Command::new("sh").env_remove(FOREIGN).args(["-c", &script]).output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The finding of this name.
fn finding<'a>(report: &'a Value, name: &str) -> &'a Value {
    let mut findings = report["findings"].as_array().unwrap().iter();
    findings.find(|finding| finding["name"] == name).expect("a finding of this name")
}

#[test]
fn what_is_needed_works_here() {
    let output = doctor("");
    let report = json(&output);
    assert_eq!(output.status.code(), Some(0), "{report:#}");
    assert_eq!((&report["ok"], &report["failures"]), (&true.into(), &0.into()));
    for name in ["memfd", "futex", "memfd seals", "passing descriptors", "abstract sockets", "SharedMemory"] {
        assert_eq!(finding(&report, name)["status"], "ok");
    }
    let loopback = finding(&report, "lo")["value"].as_str().unwrap();
    assert!(loopback.contains("127.0.0.1/8"), "{loopback}");
}

#[test]
fn text_and_json_agree() {
    let report = json(&doctor(""));
    let output = Command::new(env!("CARGO_BIN_EXE_warpway")).arg("doctor").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for finding in report["findings"].as_array().unwrap() {
        assert!(text.contains(finding["name"].as_str().unwrap()), "{finding} is not in:\n{text}");
    }
    assert!(!text.contains('\x1b'), "colours are for terminals");
}

#[test]
fn too_few_descriptors_fail_with_a_hint() {
    let output = doctor("ulimit -n 40");
    assert_eq!(output.status.code(), Some(1));
    let report = json(&output);
    let found = finding(&report, "open descriptors");
    assert_eq!((&found["status"], &found["value"]), (&"fail".into(), &"40 (at most 40)".into()));
    assert!(found["hint"].as_str().unwrap().contains("ulimit -n"));
    assert_eq!(report["ok"], false);
}

#[test]
fn limits_and_affinity_that_slow_a_job_down_are_warnings() {
    let output = doctor(
        "ulimit -f 100000; core=$(taskset -pc $$ | sed 's/.*: //; s/[-,].*//'); taskset -pc $core $$ >&2",
    );
    let report = json(&output);
    assert_eq!(output.status.code(), Some(0), "{report:#}");
    assert_eq!(finding(&report, "file size")["status"], "warn");
    assert_eq!(finding(&report, "cores")["status"], "warn");
    assert!(report["warnings"].as_u64().unwrap() >= 2);
}

#[test]
fn variables_are_checked() {
    let output = doctor("export WARPWAY_WORLD_SIZES=3");
    let report = json(&output);
    assert_eq!(output.status.code(), Some(0));
    let found = finding(&report, "variables");
    assert_eq!(found["status"], "warn");
    assert!(found["value"].as_str().unwrap().contains("did you mean WARPWAY_WORLD_SIZE?"), "{found}");

    let output = doctor("export WARPWAY_BOOTSTRAP_TIMEOUT_S=soon");
    assert_eq!(output.status.code(), Some(1));
    let report = json(&output);
    assert!(finding(&report, "variables")["value"].as_str().unwrap().contains("WARPWAY_BOOTSTRAP_TIMEOUT_S"));
}

/// What a rank of `warpway launch` sees.
#[test]
fn the_launcher_is_recognised() {
    let doctor = env!("CARGO_BIN_EXE_warpway");
    let output = Command::new(doctor)
        .env_remove(FOREIGN)
        .args(["launch", "-n", "3", "--", "sh", "-c"])
        .arg(format!("[ $WARPWAY_RANK != 1 ] || {doctor} doctor"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find(|line| line.contains("launcher")).unwrap();
    assert!(line.contains("warpway launch") && line.contains("rank 1 of 3, 1 of 3 on this host"), "{line}");
    assert!(!text.contains("warn  variables"), "the launcher sets only what the library knows:\n{text}");
}

#[test]
fn half_a_launcher_fails() {
    let output = doctor("export WARPWAY_RANK=1; unset WARPWAY_WORLD_SIZE WORLD_SIZE");
    assert_eq!(output.status.code(), Some(1));
    let report = json(&output);
    let found = finding(&report, "launcher");
    assert_eq!(found["status"], "fail");
    assert!(found["value"].as_str().unwrap().contains("WARPWAY_WORLD_SIZE"), "{found}");
}
