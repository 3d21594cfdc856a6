//! The guard: a process that ends the job if the launcher is killed.
//!
//! The launcher holds the other end of the guard's standard input and writes the process groups to it. If the
//! input ends before the word `done`, the launcher is gone, and the guard kills what is left. (A parent death
//! signal would reach the ranks only, not what they started.) The guard's own environment is empty, so
//! that it is never taken for a part of a job, also not of one that the launcher itself runs in.

use std::{
    io::{self, BufRead as _, Write as _},
    os::unix::process::CommandExt as _,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use clap::Args;
use rustix::process::{Pid, Signal};

use super::leftovers::Family;

/// Name of the hidden subcommand.
pub(crate) const COMMAND: &str = "launch-guard";

const DONE: &str = "done";

/// The guard's command line.
#[derive(Args)]
pub(crate) struct GuardArguments {
    job_id: String,
}

/// The launcher's side.
pub(super) struct Guard {
    job_id: String,
    child: Child,
}

impl Guard {
    pub(super) fn start(job_id: &str) -> io::Result<Self> {
        // The link, not what it points to: the file may have been replaced since.
        let child = Command::new("/proc/self/exe")
            .args([COMMAND, job_id])
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Away from signals that a terminal sends to the launcher's group.
            .process_group(0)
            .spawn()?;
        Ok(Self { job_id: job_id.to_owned(), child })
    }

    /// A process group to look after.
    pub(super) fn add_group(&mut self, group: Pid) -> io::Result<()> {
        match &mut self.child.stdin {
            Some(stdin) => writeln!(stdin, "{}", group.as_raw_nonzero()),
            None => Ok(()),
        }
    }

    /// Starts another guard if this one has ended; whether it had.
    pub(super) fn replace_if_ended(&mut self, groups: &[Pid]) -> io::Result<bool> {
        if self.child.try_wait()?.is_none() {
            return Ok(false);
        }
        *self = Self::start(&self.job_id)?;
        for group in groups {
            self.add_group(*group)?;
        }
        Ok(true)
    }

    /// The job is over: lets the guard go.
    pub(super) fn finish(mut self) {
        if let Some(mut stdin) = self.child.stdin.take() {
            // If it has ended, there is nobody to tell.
            let _ = writeln!(stdin, "{DONE}");
        }
        let _ = self.child.wait();
    }
}

/// The guard's side; its exit code.
pub(crate) fn run(arguments: &GuardArguments) -> anyhow::Result<u8> {
    let mut family = Family::new(&arguments.job_id);
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        if line == DONE {
            return Ok(0);
        }
        if let Some(group) = line.parse().ok().and_then(Pid::from_raw) {
            family.add_group(group);
        }
    }
    let give_up_at = Instant::now() + Duration::from_secs(10);
    family.signal_groups(Signal::KILL);
    while Instant::now() < give_up_at {
        let members = family.members();
        if members.is_empty() {
            break;
        }
        family.signal_members(&members, Signal::KILL);
        thread::sleep(Duration::from_millis(2));
    }
    Ok(0)
}
