//! Finding and signalling what belongs to a job without being one of its ranks.
//!
//! A process belongs to the job if it is in a rank's process group or has the job's identity in its
//! environment; the latter also finds what has left its group (`setsid`, daemons). Reading /proc is the only
//! way that needs neither cgroups nor privileges.

use std::{fs, path::Path};

use rustix::process::{Pid, PidfdFlags, Signal, getpid, kill_process_group, pidfd_open, pidfd_send_signal};

/// Environment variable that marks a job's processes.
pub(super) const JOB_ID: &str = "WARPWAY_JOB_ID";

/// What a job's processes have in common.
pub(super) struct Family {
    /// `WARPWAY_JOB_ID=…`, as it stands in an environment block.
    mark: Vec<u8>,
    groups: Vec<Pid>,
}

impl Family {
    pub(super) fn new(job_id: &str) -> Self {
        Self { mark: format!("{JOB_ID}={job_id}").into_bytes(), groups: Vec::new() }
    }

    /// A rank's process group.
    pub(super) fn add_group(&mut self, group: Pid) {
        self.groups.push(group);
    }

    /// The ranks' process groups.
    pub(super) fn groups(&self) -> &[Pid] {
        &self.groups
    }

    /// Living processes of the job, in no order. Those that have ended but are not reaped do not count.
    pub(super) fn members(&self) -> Vec<Member> {
        let own = getpid();
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        entries
            .flatten()
            .filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
            .filter(|pid| *pid != own)
            .filter_map(|pid| self.member(pid))
            .collect()
    }

    /// Sends to the process groups. Their numbers must be held by unreaped leaders, or by members.
    pub(super) fn signal_groups(&self, signal: Signal) {
        for group in &self.groups {
            // Whoever has ended needs no signal.
            let _ = kill_process_group(*group, signal);
        }
    }

    /// Sends to processes found by [`members`](Self::members).
    pub(super) fn signal_members<'a>(&self, members: impl IntoIterator<Item = &'a Member>, signal: Signal) {
        for member in members {
            // The descriptor pins the process, so that a number that was reused meanwhile is seen by the
            // second look and not hit.
            if let Ok(pinned) = pidfd_open(member.pid, PidfdFlags::empty())
                && self.member(member.pid).is_some()
            {
                let _ = pidfd_send_signal(pinned, signal);
            }
        }
    }

    fn member(&self, pid: Pid) -> Option<Member> {
        let folder = Path::new("/proc").join(pid.as_raw_nonzero().to_string());
        let (state, group) = parse_stat(&fs::read(folder.join("stat")).ok()?)?;
        // Zombies and the dead.
        if matches!(state, b'Z' | b'X' | b'x') {
            return None;
        }
        if self.groups.iter().any(|own| own.as_raw_nonzero().get() == group) {
            return Some(Member { pid, is_stray: false });
        }
        // Unreadable: another user's, or gone.
        let environment = fs::read(folder.join("environ")).ok()?;
        let is_stray = environment.split(|byte| *byte == 0).any(|variable| variable == self.mark);
        is_stray.then_some(Member { pid, is_stray })
    }
}

/// A process of the job.
pub(super) struct Member {
    pub(super) pid: Pid,
    /// It is in none of the ranks' process groups.
    pub(super) is_stray: bool,
}

/// State and process group from /proc/PID/stat: "pid (name) state ppid pgrp …", where the name may contain
/// anything, parentheses too.
fn parse_stat(stat: &[u8]) -> Option<(u8, i32)> {
    let end_of_name = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(end_of_name + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let group = fields.nth(1)?.parse().ok()?;
    Some((state, group))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_stat_may_contain_anything() {
        assert_eq!(parse_stat(b"12 (sh) S 1 77 12 0"), Some((b'S', 77)));
        assert_eq!(parse_stat(b"12 (a) R 9 (b) Z 1 78 12"), Some((b'Z', 78)));
        assert_eq!(parse_stat(b"12 (sh) S"), None);
        assert_eq!(parse_stat(b""), None);
    }
}
