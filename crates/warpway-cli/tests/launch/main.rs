//! `warpway launch` as a user meets it: the built binary, real processes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod lifetime;
mod output;
mod start;

use std::{
    io::Read as _,
    path::Path,
    process::{Child, Command, ExitStatus, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

/// How long a test waits for what must happen; the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(10);

/// `warpway launch` with these arguments.
fn launch(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpway"));
    command.arg("launch").args(arguments).stdin(Stdio::null());
    command
}

/// `warpway launch … -- sh -c script`, to its end.
fn run_script(options: &[&str], script: &str) -> Output {
    launch(&[options, &["--", "sh", "-c", script]].concat()).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Sends a signal to one process.
fn kill(pid: u32, signal: &str) {
    assert!(Command::new("kill").args([&format!("-{signal}"), &pid.to_string()]).status().unwrap().success());
}

/// Waits until `condition` holds.
fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A launcher in the background, its output piped.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Self {
        Self(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        eventually("the launcher ends", || {
            status = self.0.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    fn stderr(&mut self) -> String {
        let mut all = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut all).unwrap();
        all
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Living processes whose environment holds this variable.
fn processes_with(variable: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in Path::new("/proc").read_dir().unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes()) {
            found.push(pid);
        }
    }
    found
}

/// A mark of this test in the environment of all that it starts: (name, value, "name=value").
fn mark(test: &str) -> (&'static str, String, String) {
    let value = format!("{test}-{}", std::process::id());
    let entry = format!("WARPWAY_TEST_MARK={value}");
    ("WARPWAY_TEST_MARK", value, entry)
}
