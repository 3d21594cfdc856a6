//! Starting ranks, reading what they print, and learning how they ended.

use std::{
    ffi::OsString,
    io::{self, ErrorKind},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::process::CommandExt as _,
    },
    process::{Child, ChildStdin, Command, Stdio},
};

use rustix::{
    io::ioctl_fionbio,
    process::{Pid, WaitId, WaitIdOptions, waitid},
};

use super::{
    cores::Cores,
    leftovers::JOB_ID,
    lines::Lines,
    output::{Output, Stream},
    report::Ending,
};

/// What to start, and what each rank is told.
pub(super) struct Program {
    pub(super) command: Vec<OsString>,
    pub(super) n_ranks: u32,
    pub(super) job_id: String,
    /// The job's secret; whoever has it can join.
    pub(super) token: String,
    pub(super) host_memory: bool,
    /// Where each rank has its own.
    pub(super) cores: Option<Cores>,
    /// Rank 0 reads from a pipe that the launcher fills, rather than from the launcher's own input.
    pub(super) pipe_input: bool,
}

/// Why a rank does not run.
pub(super) struct StartError {
    pub(super) exit_code: u8,
    pub(super) reason: String,
}

/// A rank that was started. It is reaped when the job is over, not before: until then its number is taken.
pub(super) struct Rank {
    number: u32,
    child: Child,
    group: Pid,
    ended: bool,
    pipes: [Option<Pipe>; 2],
}

struct Pipe {
    descriptor: OwnedFd,
    lines: Lines,
}

impl Program {
    /// Starts one rank, as the leader of a process group of its own.
    pub(super) fn start(&self, rank: u32) -> Result<Rank, StartError> {
        let Some((name, arguments)) = self.command.split_first() else {
            return Err(StartError { exit_code: 127, reason: "no command given".into() });
        };
        let mut command = Command::new(name);
        command
            .args(arguments)
            .process_group(0)
            .env("WARPWAY_RANK", rank.to_string())
            .env("WARPWAY_WORLD_SIZE", self.n_ranks.to_string())
            .env("WARPWAY_LOCAL_RANK", rank.to_string())
            .env("WARPWAY_LOCAL_WORLD_SIZE", self.n_ranks.to_string())
            .env(JOB_ID, &self.job_id)
            .env("WARPWAY_BOOTSTRAP_TOKEN", &self.token)
            // It would send the ranks to another job's root.
            .env_remove("WARPWAY_COMM_ID")
            .stdin(match (rank, self.pipe_input) {
                (0, true) => Stdio::piped(),
                (0, false) => Stdio::inherit(),
                _ => Stdio::null(),
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if self.host_memory {
            command.env("WARPWAY_ENGINE", "host");
        }
        let spawned = match &self.cores {
            Some(cores) => cores.with(rank, || command.spawn()),
            None => command.spawn(),
        };
        let mut child = spawned.map_err(|error| self.start_error(&error))?;
        let pipes = [
            child.stdout.take().map(|pipe| Pipe::new(pipe.into())),
            child.stderr.take().map(|pipe| Pipe::new(pipe.into())),
        ];
        Ok(Rank { number: rank, group: Pid::from_child(&child), child, ended: false, pipes })
    }

    fn start_error(&self, error: &io::Error) -> StartError {
        let name = self.command.first().map(|name| name.to_string_lossy()).unwrap_or_default();
        let (exit_code, why) = match error.kind() {
            ErrorKind::NotFound if name.contains('/') => {
                (127, "no such file (or its interpreter is missing)".to_owned())
            }
            ErrorKind::NotFound => (127, "not found in PATH".to_owned()),
            ErrorKind::PermissionDenied => (126, "not executable (permission denied)".to_owned()),
            _ => (126, error.to_string()),
        };
        StartError { exit_code, reason: format!("`{name}`: {why}") }
    }
}

impl Rank {
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// The process, and the group that it leads.
    pub(super) fn group(&self) -> Pid {
        self.group
    }

    pub(super) fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// How the rank ended, told once.
    pub(super) fn poll_ended(&mut self) -> io::Result<Option<Ending>> {
        if self.ended {
            return Ok(None);
        }
        // NOWAIT: it stays a zombie, so that its process group's number cannot be another's.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(self.group), options)?;
        self.ended = status.is_some();
        Ok(status.as_ref().map(Ending::from_status))
    }

    /// The pipe to poll for a stream, while it is open.
    pub(super) fn pipe(&self, stream: Stream) -> Option<BorrowedFd<'_>> {
        self.pipes[stream.index()].as_ref().map(|pipe| pipe.descriptor.as_fd())
    }

    /// Reads once; closes the stream at its end. Whether it is to be read again.
    pub(super) fn read(
        &mut self,
        stream: Stream,
        buffer: &mut [u8],
        output: &mut Output,
    ) -> io::Result<bool> {
        let Some(pipe) = &mut self.pipes[stream.index()] else { return Ok(false) };
        match rustix::io::read(&pipe.descriptor, &mut *buffer) {
            Ok(0) => {
                self.close(stream, output);
                Ok(false)
            }
            Ok(length) => {
                let bytes = buffer.get(..length).unwrap_or_default();
                pipe.lines.push(bytes, |line| output.line(self.number, stream, line));
                Ok(true)
            }
            Err(rustix::io::Errno::AGAIN) => Ok(false),
            Err(rustix::io::Errno::INTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads no more from a stream. A rank that still writes to it gets SIGPIPE.
    pub(super) fn close(&mut self, stream: Stream, output: &mut Output) {
        if let Some(mut pipe) = self.pipes[stream.index()].take() {
            pipe.lines.finish(|line| output.line(self.number, stream, line));
        }
    }

    /// Forgets the process. One that cannot be killed is left to init.
    pub(super) fn reap(&mut self) {
        let _ = self.child.try_wait();
    }
}

impl Pipe {
    fn new(descriptor: OwnedFd) -> Self {
        // Should it fail, reads still come only after poll and do not block for long.
        let _ = ioctl_fionbio(&descriptor, true);
        Self { descriptor, lines: Lines::default() }
    }
}
