//! What a job may not leave behind: sockets, files, shared memory, processes.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Mutex;

use rustix::process::{Pid, test_kill_process_group};

/// Names that a job held while it ran. Empty until [`observe`](Self::observe) has looked.
#[derive(Debug, Default)]
pub struct Leftovers {
    names: Mutex<BTreeSet<String>>,
}

impl Leftovers {
    /// Notes the abstract socket names that these processes hold now. At least one: every rank listens.
    ///
    /// # Panics
    /// If they hold none, since nothing could be missed then.
    pub fn observe(&self, processes: &[u32]) {
        let held = abstract_names(processes);
        assert!(!held.is_empty(), "processes {processes:?} hold no abstract sockets");
        self.names.lock().unwrap().extend(held);
    }

    /// Checks that nothing is left of these processes, all of which have been waited for.
    pub(crate) fn check(&self, processes: &[u32], temporary: &Path) {
        let files: Vec<_> = std::fs::read_dir(temporary).unwrap().map(|f| f.unwrap().path()).collect();
        assert!(files.is_empty(), "left in TMPDIR: {files:?}");
        for process in processes {
            let group = Pid::from_raw(*process as i32).unwrap();
            assert!(test_kill_process_group(group).is_err(), "process group {process} still has members");
        }
        let table = std::fs::read_to_string("/proc/net/unix").unwrap();
        let names: BTreeSet<&str> = table.lines().filter_map(|line| line.split_whitespace().nth(7)).collect();
        for name in &*self.names.lock().unwrap() {
            assert!(!names.contains(name.as_str()), "abstract socket {name} is left");
        }
        let shared = std::fs::read_dir("/dev/shm").map(|files| files.map_while(Result::ok).collect());
        let shared: Vec<_> = shared.unwrap_or_default();
        let ours = |name: &str| processes.iter().any(|process| name.contains(&process.to_string()));
        for file in shared {
            let name = file.file_name().to_string_lossy().into_owned();
            assert!(!(name.contains("warpway") && ours(&name)), "/dev/shm/{name} is left");
        }
    }
}

/// Names of abstract sockets that these processes hold.
pub fn abstract_names(processes: &[u32]) -> BTreeSet<String> {
    unix_sockets(processes).into_iter().map(|(name, _)| name).collect()
}

/// Name, and whether it listens.
fn unix_sockets(processes: &[u32]) -> Vec<(String, bool)> {
    let inodes = socket_inodes(processes);
    let table = std::fs::read_to_string("/proc/net/unix").unwrap();
    let socket = |line: &str| {
        // Num RefCount Protocol Flags Type St Inode Path; flag 0x10000 says that it listens.
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (inode, name) = (fields.get(6)?.parse().ok()?, *fields.get(7)?);
        let own = inodes.contains(&inode) && name.starts_with('@');
        own.then(|| (name.to_owned(), fields[3] == "00010000"))
    };
    table.lines().filter_map(socket).collect()
}

/// Where these processes listen: abstract names without the leading byte, and TCP addresses.
pub fn listeners(processes: &[u32]) -> (Vec<String>, Vec<SocketAddr>) {
    let unix = unix_sockets(processes).into_iter().filter(|(_, listens)| *listens);
    let inodes = socket_inodes(processes);
    let mut tcp = Vec::new();
    for file in ["/proc/net/tcp", "/proc/net/tcp6"] {
        for line in std::fs::read_to_string(file).unwrap_or_default().lines().skip(1) {
            // sl local_address rem_address st … uid timeout inode; state 0A is LISTEN.
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (Some(local), Some(&"0A"), Some(Ok(inode))) =
                (fields.get(1), fields.get(3), fields.get(9).map(|i| i.parse::<u64>()))
            else {
                continue;
            };
            let port = local.rsplit(':').next().and_then(|port| u16::from_str_radix(port, 16).ok());
            if let (true, Some(port)) = (inodes.contains(&inode), port) {
                let ip = if local.len() > 13 { "::1" } else { "127.0.0.1" };
                tcp.push(SocketAddr::new(ip.parse().unwrap(), port));
            }
        }
    }
    tcp.sort();
    tcp.dedup();
    (unix.map(|(name, _)| name[1..].to_owned()).collect(), tcp)
}

fn socket_inodes(processes: &[u32]) -> BTreeSet<u64> {
    let of_process = |process: &u32| {
        let files = std::fs::read_dir(format!("/proc/{process}/fd"));
        let inode = |path: std::path::PathBuf| {
            let target = std::fs::read_link(path).ok()?;
            target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
        };
        files
            .into_iter()
            .flatten()
            .map_while(Result::ok)
            .filter_map(|f| inode(f.path()))
            .collect::<Vec<u64>>()
    };
    processes.iter().flat_map(of_process).collect()
}
