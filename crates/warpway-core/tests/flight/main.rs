//! Dumps of the flight recorder: files, signal, status socket, Perfetto form.

// The lint's exception for tests covers only functions marked as tests.
#![allow(clippy::unwrap_used, clippy::panic)]

mod files;
mod perfetto;
mod status;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use warpway_core::Health;
use warpway_core::bootstrap::ScopeId;
use warpway_core::config::DumpSignal;
use warpway_core::trace::{
    DumpConfig, DumpIdentity, DumpService, DumpSource, FlightRecorder, Operation, Request,
};
use warpway_core::wire::JobNonce;

/// A communicator's parts and a service on them.
struct Fixture {
    recorder: Arc<FlightRecorder>,
    health: Arc<Health>,
    directory: PathBuf,
}

impl Fixture {
    /// `name` must be the test's own: it keeps folders and sockets of parallel tests apart.
    fn new(name: &str, capacity: usize) -> Self {
        let directory = std::env::temp_dir().join(format!("warpway-flight-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        Self {
            recorder: Arc::new(FlightRecorder::new(capacity)),
            health: Arc::new(Health::new(3)),
            directory,
        }
    }

    fn source(&self, scope: u64) -> DumpSource {
        let (job, scope) = (JobNonce([0xa5; 16]), ScopeId(scope));
        let identity = DumpIdentity { job, scope, rank: 3, n_ranks: 17, job_rank: 40 };
        DumpSource::new(identity, Arc::clone(&self.recorder), Arc::clone(&self.health))
    }

    fn config(&self) -> DumpConfig {
        DumpConfig { directory: Some(self.directory.clone()), signal: DumpSignal::Off, status_socket: false }
    }

    fn start(&self, scope: u64, config: DumpConfig) -> DumpService {
        DumpService::start(self.source(scope), config).unwrap()
    }

    fn record(&self, count: u64) {
        for key in 0..count {
            let id = self.recorder.start(Request {
                operation: Operation::Put,
                peer: Some(1_000_003),
                object: key,
                bytes: 4095,
                offset: u64::MAX,
            });
            match key % 3 {
                0 => self.recorder.complete(id),
                1 => self.recorder.fail(id, &format!("line \"{key}\"\n\u{7}é")),
                _ => {}
            }
        }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Polls until `found` gives something; fails the test after ten seconds.
fn eventually<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(value) = found() {
            return value;
        }
        assert!(Instant::now() < end, "{what} did not happen within 10 s");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// All names in a folder, hidden ones too.
fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn service_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .filter(|name| name.trim_end() == "warpway-flight")
        .count()
}

/// Runs one ignored test of this binary in a process of its own and returns whether it passed and
/// what it printed.
fn passes_in_child(test: &str, variables: &[(&str, &str)], uid: Option<u32>) -> (bool, String) {
    use std::os::unix::process::CommandExt;
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture"]).envs(variables.iter().copied());
    if let Some(uid) = uid {
        command.uid(uid);
    }
    let output = command.output().unwrap();
    let text =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(text.contains("running 1 test"), "{text}");
    (output.status.success(), text)
}
