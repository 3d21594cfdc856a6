//! Warnings are visible by default, and `WARPWAY_LOG_*` do what the documentation says.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::process::Command;

/// Standard error of a single rank (a tutorial program) whose environment holds a misspelt variable.
fn stderr(variables: &[(&str, &str)]) -> String {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().unwrap().with_file_name("examples").join("processes");
    let output = Command::new(program)
        .env_clear()
        .envs([("WARPWAY_RANK", "0"), ("WARPWAY_WORLD_SIZE", "1"), ("WARPWAY_RNAK", "1")])
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");
    stderr
}

const WARNING: &str = "WARPWAY_RNAK is not a variable of Warpway; did you mean WARPWAY_RANK?";

#[test]
fn n63_warnings_are_shown_by_default() {
    let found = stderr(&[]);
    assert!(found.contains("WARN") && found.contains(WARNING) && found.lines().count() == 1, "{found}");
}

#[test]
fn level_and_subsystem_hide_them() {
    assert_eq!(stderr(&[("WARPWAY_LOG_LEVEL", "ERROR")]), "");
    assert_eq!(stderr(&[("WARPWAY_LOG_SUBSYS", "^ENV")]), "");
    assert!(stderr(&[("WARPWAY_LOG_SUBSYS", "ENV")]).contains(WARNING));
}

#[test]
fn a_file_takes_them() {
    let folder = std::env::temp_dir().join(format!("warpway-logging-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    assert_eq!(stderr(&[("WARPWAY_LOG_FILE", folder.join("%p.log").to_str().unwrap())]), "");
    let files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [file] = &files[..] else { panic!("{files:?}") };
    assert!(file.file_stem().unwrap().to_str().unwrap().parse::<u32>().is_ok(), "{file:?}");
    let found = fs::read_to_string(file).unwrap();
    fs::remove_dir_all(&folder).unwrap();
    assert!(found.contains(WARNING) && found.lines().count() == 1, "{found}");
}
