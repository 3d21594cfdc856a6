//! Joins the job's state machine with processes, pipes, signals and the clock.

use std::{
    io::{self, IsTerminal as _},
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{FileType, fstat},
    io::Errno,
    process::{Resource, Signal, getpid, getrlimit, kill_process, setrlimit},
};

use super::{
    Arguments,
    cores::Cores,
    guard::Guard,
    job::{Action, Job, Limits},
    leftovers::Family,
    output::{Output, Stream, Style},
    ranks::{Program, Rank},
    report::{Event, signal_exit_code},
    signals::Signals,
    terminal::TerminalInput,
};

/// How often the system is searched for what ranks left behind, once they have ended.
const SEARCH_INTERVAL: Duration = Duration::from_millis(20);
/// Written at once to what is not a plain file: as much as a pipe that polls writable takes without blocking.
const PIPE_CHUNK: usize = 4096;
const FILE_CHUNK: usize = 1 << 20;

/// Runs a job; the launcher's exit code. If this fails, the guard ends what was started.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let signals = Signals::watch().context("cannot watch for signals")?;
    let program = Program {
        command: arguments.command.clone(),
        n_ranks: arguments.n_ranks,
        job_id: random_hex(8)?,
        token: random_hex(16)?,
        host_memory: arguments.host_memory,
        cores: if arguments.no_bind { None } else { Cores::divided(arguments.n_ranks) },
        pipe_input: io::stdin().is_terminal(),
    };
    allow_descriptors(arguments.n_ranks);
    let guard = Guard::start(&program.job_id).context("cannot start the guard process")?;
    let mut event_loop = EventLoop::start(&program, arguments, signals, guard)?;
    event_loop.run()?;
    let interrupted = event_loop.flush()?;
    let exit_code = event_loop.finish();
    Ok(interrupted.map_or(exit_code, |signal| signal_exit_code(signal.as_raw())))
}

struct EventLoop {
    job: Job,
    ranks: Vec<Rank>,
    family: Family,
    guard: Guard,
    signals: Signals,
    terminal: Option<TerminalInput>,
    output: Output,
    stdout: io::Stdout,
    stderr: io::Stderr,
    buffer: Vec<u8>,
    grace: Duration,
}

/// What a polled descriptor is for.
#[derive(Clone, Copy)]
enum Source {
    Signals,
    Pipe(usize, Stream),
    Sink(Stream),
    TerminalInput,
    RankInput,
}

impl EventLoop {
    fn start(
        program: &Program,
        arguments: &Arguments,
        signals: Signals,
        mut guard: Guard,
    ) -> anyhow::Result<Self> {
        let mut family = Family::new(&program.job_id);
        let mut ranks = Vec::new();
        let mut failure = None;
        for number in 0..arguments.n_ranks {
            match program.start(number) {
                Ok(rank) => {
                    family.add_group(rank.group());
                    guard.add_group(rank.group()).context("cannot reach the guard process")?;
                    ranks.push(rank);
                }
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        let now = Instant::now();
        let pids = ranks.iter().map(|rank| rank.group().as_raw_nonzero().get()).collect();
        let limits = Limits { timeout: arguments.timeout, wait: arguments.wait, grace: arguments.grace };
        let mut job = Job::new(pids, now, limits);
        if let Some(error) = failure {
            job.on_start_failure(now, error.exit_code, error.reason);
        }
        let terminal = match ranks.first_mut() {
            Some(rank) if program.pipe_input => Some(TerminalInput::new(rank.take_stdin())?),
            _ => None,
        };
        let (stdout, stderr) = (io::stdout(), io::stderr());
        let output = Output::new(style(arguments), is_one_file(&stdout, &stderr));
        Ok(Self {
            job,
            ranks,
            family,
            guard,
            signals,
            terminal,
            output,
            stdout,
            stderr,
            buffer: vec![0; 1 << 16],
            grace: arguments.grace,
        })
    }

    /// Until nothing of the job runs any more.
    fn run(&mut self) -> anyhow::Result<()> {
        // A rank may have ended before anybody watched.
        self.collect_endings()?;
        loop {
            self.act()?;
            if self.job.all_ended() && !self.job.is_over() {
                self.search_leftovers();
                self.act()?;
            }
            if self.job.is_over() {
                return Ok(());
            }
            let mut wake_at = self.job.deadline();
            if self.job.all_ended() {
                let search_at = Instant::now() + SEARCH_INTERVAL;
                wake_at = Some(wake_at.map_or(search_at, |at| at.min(search_at)));
            }
            for source in self.wait(wake_at, true)? {
                self.on_ready(source)?;
            }
            self.job.on_time(Instant::now());
        }
    }

    /// Reads what ended ranks left in their pipes and writes everything out. A reader that does not read is not
    /// awaited for ever after a disturbed job, nor once a signal says so, which is returned.
    fn flush(&mut self) -> anyhow::Result<Option<Signal>> {
        let patience = self.grace.max(Duration::from_secs(1));
        let give_up_at = self.job.is_disturbed().then(|| Instant::now() + patience);
        let mut finished = false;
        loop {
            for index in 0..self.ranks.len() {
                for stream in Stream::ALL {
                    self.drain_pipe(index, stream)?;
                }
            }
            let is_drained = |rank: &Rank| Stream::ALL.iter().all(|stream| rank.pipe(*stream).is_none());
            if self.ranks.iter().all(is_drained) && !finished {
                finished = true;
                self.output.event(&self.job.finished(Instant::now()));
            }
            if finished && self.output.is_empty() || give_up_at.is_some_and(|at| Instant::now() >= at) {
                return Ok(None);
            }
            for source in self.wait(give_up_at, false)? {
                match source {
                    Source::Sink(stream) => self.write(stream)?,
                    Source::Signals => {
                        let ends = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];
                        let signals = self.signals.take()?;
                        if let Some(signal) = signals.into_iter().find(|signal| ends.contains(signal)) {
                            return Ok(Some(signal));
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    fn finish(mut self) -> u8 {
        // The guard first: while ranks are not reaped, the numbers that it knows are theirs.
        self.guard.finish();
        for rank in &mut self.ranks {
            rank.reap();
        }
        self.job.exit_code()
    }

    fn act(&mut self) -> anyhow::Result<()> {
        for action in self.job.take_actions() {
            match action {
                Action::Report(event) => self.output.event(&event),
                Action::Signal(signal) => {
                    self.family.signal_groups(signal);
                    // What left its group gets only what ends the job: the rest may not be meant for it.
                    if ![Signal::USR1, Signal::USR2, Signal::TSTP, Signal::CONT].contains(&signal) {
                        let members = self.family.members();
                        self.family.signal_members(members.iter().filter(|member| member.is_stray), signal);
                    }
                }
                Action::Pause => kill_process(getpid(), Signal::STOP).context("cannot stop")?,
            }
        }
        Ok(())
    }

    fn search_leftovers(&mut self) {
        let members = self.family.members();
        let pids: Vec<i32> = members.iter().map(|member| member.pid.as_raw_nonzero().get()).collect();
        self.job.on_leftovers(Instant::now(), &pids);
    }

    /// Waits for something to do, until `wake_at` at the latest.
    fn wait(&self, wake_at: Option<Instant>, read_ranks: bool) -> anyhow::Result<Vec<Source>> {
        let mut sources = vec![Source::Signals];
        let mut descriptors = vec![PollFd::new(&self.signals, PollFlags::IN)];
        let mut add = |source, descriptor, flags| {
            sources.push(source);
            descriptors.push(PollFd::from_borrowed_fd(descriptor, flags));
        };
        for (index, rank) in self.ranks.iter().enumerate().filter(|_| read_ranks) {
            for stream in Stream::ALL {
                if let Some(pipe) = rank.pipe(stream)
                    && !self.output.destination(stream).is_congested()
                {
                    add(Source::Pipe(index, stream), pipe, PollFlags::IN);
                }
            }
        }
        for stream in Stream::ALL {
            if !self.output.pending(stream).is_empty() {
                add(Source::Sink(stream), self.sink(stream), PollFlags::OUT);
            }
        }
        if let Some(terminal) = &self.terminal {
            if let Some(source) = terminal.source() {
                add(Source::TerminalInput, source, PollFlags::IN);
            }
            if let Some(sink) = terminal.sink() {
                add(Source::RankInput, sink, PollFlags::OUT);
            }
        }
        let timeout = wake_at.map(|at| {
            let left = at.saturating_duration_since(Instant::now());
            Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            }
        });
        match poll(&mut descriptors, timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(vec![Source::Signals]),
            Err(error) => return Err(error).context("cannot wait for the ranks"),
        }
        let ready = sources.iter().zip(&descriptors).filter(|(_, polled)| !polled.revents().is_empty());
        Ok(ready.map(|(source, _)| *source).collect())
    }

    fn on_ready(&mut self, source: Source) -> anyhow::Result<()> {
        match source {
            Source::Signals => {
                for signal in self.signals.take()? {
                    if signal == Signal::CHILD {
                        self.collect_endings()?;
                        if self.guard.replace_if_ended(self.family.groups())? {
                            self.output.event(&Event::GuardReplaced);
                        }
                    } else {
                        self.job.on_signal(Instant::now(), signal);
                        // Stopping and continuing must keep their order.
                        self.act()?;
                    }
                }
            }
            Source::Pipe(index, stream) => {
                if let Some(rank) = self.ranks.get_mut(index) {
                    rank.read(stream, &mut self.buffer, &mut self.output)?;
                }
            }
            Source::Sink(stream) => self.write(stream)?,
            Source::TerminalInput => self.terminal.iter_mut().for_each(TerminalInput::on_readable),
            Source::RankInput => self.terminal.iter_mut().for_each(TerminalInput::on_writable),
        }
        Ok(())
    }

    fn collect_endings(&mut self) -> anyhow::Result<()> {
        let mut ended = Vec::new();
        for rank in &mut self.ranks {
            if let Some(ending) = rank.poll_ended().context("cannot learn how a rank ended")? {
                ended.push((rank.number(), ending));
            }
        }
        self.job.on_ended(Instant::now(), &ended);
        Ok(())
    }

    /// Reads a pipe that nobody writes to any more, as far as the output has room; closes it when it is empty.
    fn drain_pipe(&mut self, index: usize, stream: Stream) -> anyhow::Result<()> {
        let Some(rank) = self.ranks.get_mut(index) else { return Ok(()) };
        while !self.output.destination(stream).is_congested() {
            if !rank.read(stream, &mut self.buffer, &mut self.output)? {
                rank.close(stream, &mut self.output);
                break;
            }
        }
        Ok(())
    }

    /// Writes as much as the reader takes without making us wait.
    fn write(&mut self, stream: Stream) -> anyhow::Result<()> {
        let chunk = if is_plain_file(self.sink(stream)) { FILE_CHUNK } else { PIPE_CHUNK };
        for _ in 0..64 {
            let pending = self.output.pending(stream);
            let chunk = pending.get(..pending.len().min(chunk)).unwrap_or_default();
            if chunk.is_empty() || !is_writable(self.sink(stream)) {
                break;
            }
            match rustix::io::write(self.sink(stream), chunk) {
                Ok(length) => self.output.queue(stream).consume(length),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                // The reader has gone (or the disk is full): so do the ranks' own streams, and it is theirs to
                // care.
                Err(_) => self.on_reader_gone(stream),
            }
        }
        Ok(())
    }

    fn on_reader_gone(&mut self, stream: Stream) {
        self.output.queue(stream).close();
        for rank in &mut self.ranks {
            for stream in Stream::ALL {
                if self.output.destination(stream).is_closed() {
                    rank.close(stream, &mut self.output);
                }
            }
        }
    }

    fn sink(&self, stream: Stream) -> BorrowedFd<'_> {
        match stream {
            Stream::Stdout => self.stdout.as_fd(),
            Stream::Stderr => self.stderr.as_fd(),
        }
    }
}

fn style(arguments: &Arguments) -> Style {
    let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_some_and(|terminal| terminal != "dumb");
    match arguments {
        Arguments { json: true, .. } => Style::Json,
        Arguments { no_prefix: true, .. } => Style::Plain,
        _ => Style::Tagged {
            colour: [colours && io::stdout().is_terminal(), colours && io::stderr().is_terminal()],
        },
    }
}

fn is_one_file(a: impl AsFd, b: impl AsFd) -> bool {
    matches!((fstat(a), fstat(b)), (Ok(a), Ok(b)) if (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino))
}

fn is_plain_file(descriptor: impl AsFd) -> bool {
    fstat(descriptor).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
}

fn is_writable(descriptor: BorrowedFd<'_>) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut polled = [PollFd::from_borrowed_fd(descriptor, PollFlags::OUT)];
    poll(&mut polled, Some(&now)).is_ok_and(|ready| ready > 0)
}

fn random_hex(bytes: usize) -> anyhow::Result<String> {
    let mut random = vec![0; bytes];
    getrandom::fill(&mut random).context("no random numbers for the job's secret")?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Two pipes a rank. The limit is raised only if it would not do, since ranks inherit it.
fn allow_descriptors(n_ranks: u32) {
    let needed = u64::from(n_ranks) * 2 + 64;
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < needed) {
        limit.current = Some(limit.maximum.map_or(needed, |maximum| maximum.min(needed)));
        // If it may not be raised, starting a rank says so.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}
