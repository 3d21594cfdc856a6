//! Who a process is and on which host it runs, so that ranks know what they may share.
//!
//! "Same host" is not "same address": two containers can have equal addresses, one machine many.

use std::fs;
use std::os::unix::fs::MetadataExt;

use super::join::digest;
use crate::error::{Result, SystemError};

/// A host as ranks see it: processes with equal hashes share memory and abstract Unix sockets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostIdentity {
    /// Hash of boot id, host name, network namespace and `WARPWAY_HOSTID`.
    pub hash: u64,
    /// Name, for messages.
    pub name: String,
}

/// A process of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessIdentity {
    /// Hash of host, process id, start time and process-id namespace; differs after a process id is reused
    /// and between containers with equal process ids.
    pub hash: u64,
    /// Its host.
    pub host: HostIdentity,
    /// Process id, as the process itself sees it.
    pub process_id: u32,
    /// Effective user id, which is what peer credentials show.
    pub user_id: u32,
}

impl ProcessIdentity {
    /// Of the calling process. `host_id` is `WARPWAY_HOSTID`, empty if not set.
    ///
    /// # Errors
    /// `system` if `/proc` cannot be read.
    pub fn read(host_id: &str) -> Result<Self> {
        let host = HostFacts {
            boot_id: read_proc("/proc/sys/kernel/random/boot_id")?.trim(),
            name: &rustix::system::uname().nodename().to_string_lossy(),
            network_namespace: namespace("/proc/self/ns/net")?,
            host_id,
        }
        .identity();
        let stat = read_proc("/proc/self/stat")?;
        let Some(start_time) = Stat::parse(&stat).map(|stat| stat.start_time) else {
            return Err(SystemError::new(
                "reading the start time in /proc/self/stat",
                rustix::io::Errno::INVAL,
            )
            .into());
        };
        let process_id = std::process::id();
        let hash = process_hash(host.hash, process_id, start_time, namespace("/proc/self/ns/pid")?);
        Ok(Self { hash, host, process_id, user_id: rustix::process::geteuid().as_raw() })
    }
}

/// The nearest ancestor of this process whose command name begins with `name`, as (process id, start time).
/// Processes of one host and process-id namespace agree on it.
pub(super) fn ancestor(name: &str) -> Option<(u32, u64)> {
    let mut process_id = rustix::process::getppid()?.as_raw_nonzero().get() as u32;
    // Bounded: parents may change while we look.
    for _ in 0..64 {
        let text = fs::read_to_string(format!("/proc/{process_id}/stat")).ok()?;
        let stat = Stat::parse(&text)?;
        if stat.command.starts_with(name) {
            return Some((process_id, stat.start_time));
        }
        if stat.parent == 0 {
            return None;
        }
        process_id = stat.parent;
    }
    None
}

struct HostFacts<'a> {
    boot_id: &'a str,
    name: &'a str,
    network_namespace: u64,
    host_id: &'a str,
}

impl HostFacts<'_> {
    fn identity(&self) -> HostIdentity {
        let parts: [&[u8]; 4] = [
            self.boot_id.as_bytes(),
            self.name.as_bytes(),
            &self.network_namespace.to_le_bytes(),
            self.host_id.as_bytes(),
        ];
        HostIdentity { hash: short(digest("warpway host v1", &parts)), name: self.name.to_owned() }
    }
}

fn process_hash(host: u64, process_id: u32, start_time: u64, namespace: u64) -> u64 {
    let parts: [&[u8]; 4] =
        [&host.to_le_bytes(), &process_id.to_le_bytes(), &start_time.to_le_bytes(), &namespace.to_le_bytes()];
    short(digest("warpway process v1", &parts))
}

fn short(digest: [u8; 32]) -> u64 {
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    u64::from_le_bytes(first)
}

/// The fields of `/proc/<pid>/stat` that matter here.
struct Stat<'a> {
    command: &'a str,
    parent: u32,
    /// Clock ticks since boot.
    start_time: u64,
}

impl<'a> Stat<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        // The command stands in parentheses and may itself hold parentheses and spaces.
        let (head, rest) = text.rsplit_once(')')?;
        let command = head.split_once('(')?.1;
        let mut fields = rest.split_ascii_whitespace();
        // Fields 4 and 22 of proc(5); `rest` begins with field 3.
        let parent = fields.nth(1)?.parse().ok()?;
        let start_time = fields.nth(17)?.parse().ok()?;
        Some(Self { command, parent, start_time })
    }
}

const PROC_HINT: &str = "Warpway needs /proc to tell hosts and processes apart; mount it";

fn read_proc(path: &'static str) -> Result<String> {
    fs::read_to_string(path)
        .map_err(|e| SystemError::from_io(format!("reading {path}"), &e).with_hint(PROC_HINT).into())
}

/// Inode of a namespace.
fn namespace(path: &'static str) -> Result<u64> {
    fs::metadata(path)
        .map(|m| m.ino())
        .map_err(|e| SystemError::from_io(format!("stat of {path}"), &e).with_hint(PROC_HINT).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fact_matters() {
        let facts = || HostFacts { boot_id: "b", name: "n", network_namespace: 1, host_id: "" };
        let base = facts().identity();
        assert_eq!(base, facts().identity());
        for other in [
            HostFacts { boot_id: "c", ..facts() },
            HostFacts { name: "m", ..facts() },
            HostFacts { network_namespace: 2, ..facts() },
            HostFacts { host_id: "x", ..facts() },
            HostFacts { boot_id: "bn", name: "", ..facts() },
        ] {
            assert_ne!(other.identity().hash, base.hash);
        }
        let process = process_hash(1, 2, 3, 4);
        for other in [(9, 2, 3, 4), (1, 9, 3, 4), (1, 2, 9, 4), (1, 2, 3, 9)] {
            assert_ne!(process_hash(other.0, other.1, other.2, other.3), process);
        }
    }

    #[test]
    fn commands_with_parentheses_do_not_shift_the_fields() {
        let line = "4242 (a) R 1 (b) S 17 4242 4242 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2 3";
        let stat = Stat::parse(line).unwrap();
        assert_eq!((stat.command, stat.parent, stat.start_time), ("a) R 1 (b", 17, 987654));
        for cut in 0..line.len() {
            // Cut inside the number, the rest is a shorter number; before it, nothing.
            let parsed = Stat::parse(&line[..cut]).map(|s| s.start_time.to_string());
            assert!(parsed.is_none_or(|s| "987654".starts_with(&s)), "cut at {cut}");
        }
    }

    #[test]
    fn a_process_is_itself_and_not_its_child() {
        let me = ProcessIdentity::read("").unwrap();
        assert_eq!(me, ProcessIdentity::read("").unwrap());
        assert_eq!(me.process_id, std::process::id());
        assert_ne!(me.hash, me.host.hash);
        let other = ProcessIdentity::read("rack 2").unwrap();
        assert_ne!(me.host.hash, other.host.hash);
        assert_eq!(me.host.name, other.host.name);
    }

    #[test]
    fn ancestors_are_found_by_name() {
        let parent = rustix::process::getppid().unwrap().as_raw_nonzero().get() as u32;
        let stat = fs::read_to_string(format!("/proc/{parent}/stat")).unwrap();
        let stat = Stat::parse(&stat).unwrap();
        assert_eq!(ancestor(stat.command), Some((parent, stat.start_time)));
        assert_eq!(ancestor("no such command"), None);
    }
}
