//! Communicators: ranks as threads of one process, and as processes.
//!
//! A test that is called with [`ROLE`] set is a part of itself: the process in which its ranks are threads, or one of the
//! processes that its ranks are. So ranks never share a process with anything else, and the executable is all they need.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use warpway::{Communicator, Config, Context, Result, Timeout};

use super::gpu::under_a_tool;

/// Set in processes that a test has started: `threads`, or a rank's number.
const ROLE: &str = "GPU_TESTS_ROLE";

/// How long the processes of a test may take.
fn patience() -> Duration {
    Duration::from_secs(if under_a_tool() { 200 } else { 80 })
}

/// What a test's ranks are started with.
pub(crate) struct Ranks {
    /// How many.
    pub(crate) count: u32,
    /// Limit of each wait of a kernel.
    pub(crate) device_timeout: Duration,
    /// This many of them end by themselves; the others are killed once [`mark`] has been called by all.
    pub(crate) killed: Option<u32>,
    /// What their processes find in the environment besides.
    pub(crate) variables: Vec<(&'static str, String)>,
}

impl Ranks {
    /// So many, whose kernels wait ten seconds at most, and longer where a tool slows their peers down.
    pub(crate) fn new(count: u32) -> Self {
        let seconds = if under_a_tool() { 60 } else { 10 };
        Self { count, device_timeout: Duration::from_secs(seconds), killed: None, variables: Vec::new() }
    }

    /// The same with another limit.
    pub(crate) fn with_timeout(self, device_timeout: Duration) -> Self {
        Self { device_timeout, ..self }
    }

    /// The same, whose processes find this in their environment.
    pub(crate) fn with_variables(self, variables: &[(&'static str, String)]) -> Self {
        Self { variables: variables.to_vec(), ..self }
    }

    /// Rank `victim` is killed when all have called [`mark`], and its end is no failure of the test.
    pub(crate) fn killing(self, victim: u32) -> Self {
        Self { killed: Some(victim), ..self }
    }

    /// Runs `rank_main` on threads of a process of their own. Kernels that wait for each other run on one device at
    /// once; for that their streams need queues of their own.
    pub(crate) fn threads(&self, rank_main: fn(&Communicator) -> Result<()>) {
        match std::env::var(ROLE) {
            Ok(_) => {
                let mut config = config();
                config.device_timeout = Timeout::after(self.device_timeout);
                let ended = warpway::in_process(self.count, &Context::new(config), rank_main);
                ended.unwrap_or_else(|error| panic!("{error}"));
            }
            Err(_) => {
                await_all(vec![spawn("threads", &[("CUDA_DEVICE_MAX_CONNECTIONS", "32".into())])], None)
            }
        }
    }

    /// Runs `rank_main` in one process per rank.
    pub(crate) fn processes(&self, rank_main: fn(&Communicator) -> Result<()>) {
        if std::env::var(ROLE).is_ok() {
            let ended = Communicator::from_env().and_then(|comm| rank_main(&comm));
            return ended.unwrap_or_else(|error| panic!("{error}"));
        }
        let job = format!("warpway-gpu-tests-{}", std::process::id());
        let start = |rank: u32| {
            let n = self.count.to_string();
            let of_rank = [
                ("WARPWAY_RANK", rank.to_string()),
                ("WARPWAY_LOCAL_RANK", rank.to_string()),
                ("WARPWAY_WORLD_SIZE", n.clone()),
                ("WARPWAY_LOCAL_WORLD_SIZE", n),
                ("WARPWAY_JOB_ID", job.clone()),
                ("WARPWAY_BOOTSTRAP_TOKEN", job.clone()),
                ("WARPWAY_DEVICE_TIMEOUT_MS", self.device_timeout.as_millis().to_string()),
            ];
            spawn(&rank.to_string(), &[&of_rank, &*self.variables].concat())
        };
        await_all((0..self.count).map(start).collect(), self.killed);
    }
}

/// Whether this process is a rank, or that of the ranks, of a test.
pub(crate) fn is_rank() -> bool {
    std::env::var_os(ROLE).is_some()
}

/// The settings of the environment: where driver and compiler are.
fn config() -> Config {
    let environment = warpway::Environment::of_process().unwrap();
    Config::read(&environment).unwrap().config
}

/// The line that tells that a rank waits to see another one die.
const MARK: &str = "warpway-tests: waiting";

/// This rank's part is ready for the death of another one.
pub(crate) fn mark() {
    println!("{MARK}");
}

fn spawn(role: &str, variables: &[(&str, String)]) -> Child {
    // libtest names a test's thread after it.
    let thread = std::thread::current();
    let name = thread.name().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--ignored", "--nocapture", "--test-threads=2"]);
    command.env(ROLE, role).envs(variables.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits for processes, and kills `victim` once all have made their mark.
fn await_all(mut processes: Vec<Child>, victim: Option<u32>) {
    let until = Instant::now() + patience();
    let (sender, marks) = std::sync::mpsc::channel();
    let readers: Vec<_> = processes.iter_mut().map(|process| read(process, sender.clone())).collect();
    drop(sender);
    if let Some(victim) = victim {
        for _ in 0..processes.len() {
            let left = until.saturating_duration_since(Instant::now());
            if marks.recv_timeout(left).is_err() {
                break;
            }
        }
        processes[victim as usize].kill().unwrap();
    }
    let mut failed = Vec::new();
    for (rank, process) in processes.iter_mut().enumerate() {
        let status = loop {
            match process.try_wait().unwrap() {
                Some(status) => break Some(status),
                None if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
                None => break None,
            }
        };
        if status.is_none() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
        if victim != Some(rank as u32) && !status.is_some_and(|status| status.success()) {
            failed.push((rank, status));
        }
    }
    let outputs: Vec<String> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
    for output in &outputs {
        // Figures of the ranks are those of the test.
        output.lines().filter(|line| line.starts_with('{')).for_each(|line| println!("{line}"));
    }
    assert!(
        failed.is_empty(),
        "{failed:?} of {} processes failed:\n{}",
        outputs.len(),
        outputs.join("\n----\n")
    );
}

/// Collects what a process writes, and tells when it makes its mark.
fn read(process: &mut Child, marks: std::sync::mpsc::Sender<()>) -> std::thread::JoinHandle<String> {
    let (mut output, mut errors) = (process.stdout.take().unwrap(), process.stderr.take().unwrap());
    let errors = std::thread::spawn(move || {
        let mut text = String::new();
        errors.read_to_string(&mut text).map(|_| text)
    });
    std::thread::spawn(move || {
        let (mut text, mut part) = (Vec::new(), [0; 4096]);
        let mut marked = false;
        while let Ok(n @ 1..) = output.read(&mut part) {
            text.extend_from_slice(&part[..n]);
            if !marked && text.windows(MARK.len()).any(|at| at == MARK.as_bytes()) {
                marked = true;
                // Nobody listens where nobody is killed.
                let _ = marks.send(());
            }
        }
        format!("{}\n{}", String::from_utf8_lossy(&text), errors.join().unwrap().unwrap_or_default())
    })
}
