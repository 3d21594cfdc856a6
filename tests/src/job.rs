//! A job of `rank` processes, seen from the test that started it.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use warpway::core::trace::FlightDump;

use crate::leftovers::Leftovers;
use crate::report::{Fault, Line, monotonic_ns};

/// After this a rank that has not said what it should has hung: it is killed and the test fails.
pub const HANG: Duration = Duration::from_secs(10);

/// Where the ranks meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meeting {
    /// At an abstract Unix socket, as ranks of one host do.
    Unix,
    /// At a TCP port of the loopback interface.
    Tcp,
}

/// What a job is started with.
#[derive(Debug, Clone)]
pub struct Settings {
    /// World size that the ranks are told.
    pub n_ranks: u32,
    /// How many of them are started: ranks `0..started`.
    pub started: u32,
    /// Where they meet.
    pub meeting: Meeting,
    /// `WARPWAY_BOOTSTRAP_TIMEOUT_S`, `WARPWAY_SETUP_TIMEOUT_S`, `WARPWAY_DEVICE_TIMEOUT_MS`.
    pub timeout: Duration,
    /// Arguments of `rank`.
    pub scenario: Vec<String>,
    /// Variables of single ranks, by rank; they win.
    pub overrides: Vec<(u32, &'static str, String)>,
    /// Until when a rank must have said what it is waited for.
    pub patience: Duration,
}

impl Settings {
    /// `n_ranks` ranks of one host that play `scenario` (words), with time limits of a minute: what ends
    /// sooner was found out.
    pub fn new(n_ranks: u32, scenario: &str) -> Self {
        Self {
            n_ranks,
            started: n_ranks,
            meeting: Meeting::Unix,
            timeout: Duration::from_secs(60),
            scenario: scenario.split_whitespace().map(str::to_owned).collect(),
            overrides: Vec::new(),
            patience: HANG,
        }
    }

    /// The same with ranks on several hosts, as far as they can tell: those of one number share a host.
    pub fn on_hosts(mut self, hosts: &[u32]) -> Self {
        let id = |(rank, host): (u32, &u32)| (rank, "WARPWAY_HOSTID", format!("host {host}"));
        self.overrides.extend((0..).zip(hosts).map(id));
        Self { meeting: Meeting::Tcp, ..self }
    }

    /// The same with the time limits of the product set to 2 s.
    pub fn impatient(self) -> Self {
        Self { timeout: Duration::from_secs(2), ..self }
    }
}

/// See the module's page. Dropping it kills what still runs and removes its folder.
pub struct Job {
    folder: PathBuf,
    ranks: Vec<Rank>,
    lines: Receiver<(u32, Line)>,
    seen: HashMap<u32, Vec<Line>>,
    patience: Duration,
}

struct Rank {
    child: Child,
    status: Option<ExitStatus>,
    reader: Option<std::thread::JoinHandle<()>>,
}

/// How a rank ended.
#[derive(Debug)]
pub struct End {
    /// Its number.
    pub rank: u32,
    /// Its exit status.
    pub status: ExitStatus,
    /// Everything it said.
    pub lines: Vec<Line>,
    /// What it wrote to standard error.
    pub log: String,
}

impl End {
    /// The error it ended with.
    ///
    /// # Panics
    /// If it did not end with an error of its own accord.
    pub fn fault(&self) -> &Fault {
        match self.lines.last() {
            Some(Line::Failed(fault)) if self.status.success() => fault,
            _ => panic!("rank {} has not ended with an error: {self:?}", self.rank),
        }
    }

    /// Checks that it succeeded.
    ///
    /// # Panics
    /// If it did not.
    pub fn succeeded(&self) {
        let done = self.status.success() && self.lines.last() == Some(&Line::Done);
        assert!(done, "rank {} has not succeeded: {self:#?}", self.rank);
    }

    /// The errors it met on its way.
    pub fn met(&self) -> Vec<&Fault> {
        self.lines.iter().filter_map(Line::met).collect()
    }
}

static JOBS: AtomicU32 = AtomicU32::new(0);

impl Job {
    /// Starts the ranks; `program` is the binary `rank`.
    pub fn start(program: &str, settings: &Settings) -> Self {
        let number = JOBS.fetch_add(1, Ordering::Relaxed);
        let name = format!("warpway-tests-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(&name);
        for part in ["tmp", "trace", "log"] {
            std::fs::create_dir_all(folder.join(part)).unwrap();
        }
        let mut token = [0; 16];
        getrandom::fill(&mut token).unwrap();
        let token: String = token.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut common: Vec<(&str, String)> = vec![
            ("WARPWAY_WORLD_SIZE", settings.n_ranks.to_string()),
            ("WARPWAY_JOB_ID", name),
            ("WARPWAY_BOOTSTRAP_TOKEN", token),
            ("WARPWAY_TRACE_DIR", folder.join("trace").display().to_string()),
            ("WARPWAY_BOOTSTRAP_TIMEOUT_S", settings.timeout.as_secs().to_string()),
            ("WARPWAY_SETUP_TIMEOUT_S", settings.timeout.as_secs().to_string()),
            ("WARPWAY_DEVICE_TIMEOUT_MS", settings.timeout.as_millis().to_string()),
            ("TMPDIR", folder.join("tmp").display().to_string()),
            ("XDG_RUNTIME_DIR", folder.join("tmp").display().to_string()),
        ];
        common.push(match settings.meeting {
            Meeting::Unix => ("WARPWAY_LOCAL_WORLD_SIZE", settings.n_ranks.to_string()),
            Meeting::Tcp => ("WARPWAY_COMM_ID", free_address()),
        });
        let (sender, lines) = channel();
        let spawn = |rank: u32| {
            let log = std::fs::File::create(log_file(&folder, rank)).unwrap();
            let mut command = Command::new(program);
            command.args(&settings.scenario).env_clear().envs(common.iter().map(|(k, v)| (k, v)));
            command.env("WARPWAY_RANK", rank.to_string());
            command.env("WARPWAY_LOCAL_RANK", rank.to_string());
            command.env("RUST_BACKTRACE", "1");
            command.envs(settings.overrides.iter().filter(|o| o.0 == rank).map(|(_, k, v)| (k, v)));
            // A group of its own: whoever is left in it after the rank's end was left behind.
            command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
            let mut child = command.spawn().unwrap();
            let output = BufReader::new(child.stdout.take().unwrap());
            let sender = sender.clone();
            let reader = std::thread::spawn(move || {
                for line in output.lines().map_while(Result::ok) {
                    let line = serde_json::from_str(&line).unwrap_or(Line::Mark(line));
                    if sender.send((rank, line)).is_err() {
                        return;
                    }
                }
            });
            Rank { child, status: None, reader: Some(reader) }
        };
        let ranks = (0..settings.started).map(spawn).collect();
        Self { ranks, lines, seen: HashMap::new(), patience: settings.patience, folder }
    }

    /// Waits until each of `ranks` has made the mark.
    ///
    /// # Panics
    /// If one of them ends without it or takes longer than the job's patience.
    pub fn await_mark(&mut self, ranks: impl IntoIterator<Item = u32>, mark: &str) {
        let until = Instant::now() + self.patience;
        for rank in ranks {
            loop {
                let said = self.seen.entry(rank).or_default();
                if said.iter().any(|line| matches!(line, Line::Mark(m) if m == mark)) {
                    break;
                }
                let ended = said.iter().any(|line| matches!(line, Line::Done | Line::Failed(_)));
                if ended || !self.read(until) {
                    panic!("rank {rank} has not come to {mark:?}: {:?}\n{}", self.seen, self.logs());
                }
            }
        }
    }

    /// Process ids by rank.
    pub fn processes(&self) -> Vec<u32> {
        self.ranks.iter().map(|rank| rank.child.id()).collect()
    }

    /// Kills a rank, as the kernel would for want of memory; the time at which it was done.
    pub fn kill(&mut self, rank: u32) -> u64 {
        let at = monotonic_ns();
        self.signal(rank, Signal::KILL);
        at
    }

    /// Sends a signal to a rank that has not been waited for.
    pub fn signal(&self, rank: u32, signal: Signal) {
        kill_process(Pid::from_child(&self.ranks[rank as usize].child), signal).unwrap();
    }

    /// Waits for the ends of all ranks, `killed` ones included; checks that nobody hangs, crashes, or leaves
    /// anything behind.
    ///
    /// # Panics
    /// If somebody does.
    pub fn finish(self, killed: &[u32], leftovers: &Leftovers) -> Vec<End> {
        self.finish_with(killed, leftovers, |_, _| {})
    }

    /// The same; `judge` also sees the dumps of the flight recorders.
    pub fn finish_with(
        mut self,
        killed: &[u32],
        leftovers: &Leftovers,
        judge: impl FnOnce(&[End], &[FlightDump]),
    ) -> Vec<End> {
        self.await_ends(None);
        for rank in &mut self.ranks {
            if let Some(reader) = rank.reader.take() {
                reader.join().unwrap();
            }
        }
        while self.read(Instant::now()) {}
        let mut ends = Vec::new();
        for (number, rank) in (0..).zip(&self.ranks) {
            let (status, log) = (rank.status.unwrap(), self.log(number));
            let lines = self.seen.remove(&number).unwrap_or_default();
            let end = End { rank: number, status, lines, log };
            if killed.contains(&number) {
                continue;
            }
            assert_eq!(end.status.signal(), None, "rank {number} has crashed: {end:#?}");
            ends.push(end);
        }
        leftovers.check(&self.processes(), &self.folder.join("tmp"));
        judge(&ends, &self.dumps());
        ends
    }

    /// The same for a job of which a rank has been stopped: it is killed once all others have ended.
    pub fn finish_stopped(mut self, stopped: u32, leftovers: &Leftovers) -> Vec<End> {
        self.await_ends(Some(stopped));
        self.signal(stopped, Signal::KILL);
        self.finish(&[stopped], leftovers)
    }

    /// Waits until all ranks but one have ended.
    fn await_ends(&mut self, but: Option<u32>) {
        let until = Instant::now() + self.patience;
        loop {
            let mut running = Vec::new();
            for (number, rank) in (0..).zip(&mut self.ranks) {
                if rank.status.is_none() && Some(number) != but {
                    rank.status = rank.child.try_wait().unwrap();
                    running.extend(rank.status.is_none().then_some(number));
                }
            }
            if running.is_empty() {
                return;
            }
            if Instant::now() > until {
                while self.read(Instant::now()) {}
                panic!("ranks {running:?} have hung; what was said: {:?}\n{}", self.seen, self.logs());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The dumps of the flight recorders; each file must be one.
    fn dumps(&self) -> Vec<FlightDump> {
        let files = std::fs::read_dir(self.folder.join("trace")).unwrap();
        let parse = |path: &Path| {
            let document = std::fs::read(path).unwrap();
            FlightDump::parse(&document).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
        };
        files.map(|file| parse(&file.unwrap().path())).collect()
    }

    /// Reads one line; false if none came in time or none can come any more.
    fn read(&mut self, until: Instant) -> bool {
        match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok((rank, line)) => {
                self.seen.entry(rank).or_default().push(line);
                true
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => false,
        }
    }

    fn log(&self, rank: u32) -> String {
        std::fs::read_to_string(log_file(&self.folder, rank)).unwrap_or_default()
    }

    fn logs(&self) -> String {
        (0..self.ranks.len() as u32).map(|rank| format!("-- rank {rank}:\n{}", self.log(rank))).collect()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for rank in &mut self.ranks {
            if rank.status.is_none() {
                let _ = rank.child.kill();
                let _ = rank.child.wait();
            }
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn log_file(folder: &Path, rank: u32) -> PathBuf {
    folder.join("log").join(format!("rank-{rank}"))
}

/// An address that was free a moment ago.
fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// Runs `body` for `0..count`, two at a time: most of the time of a job is waiting.
pub fn in_parallel(count: u32, body: impl Fn(u32) + Sync) {
    let next = AtomicU32::new(0);
    let work = || {
        loop {
            let turn = next.fetch_add(1, Ordering::Relaxed);
            if turn >= count {
                return;
            }
            body(turn);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
}
