//! Memory that ranks can have and share.

use std::{fs, io, io::Write as _};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create, statvfs};

use super::{
    processors::cgroup_folders,
    report::{Report, Status, bytes},
};

const COMFORTABLE: u64 = 1 << 30;
const PROBE_BYTES: u64 = 1 << 20;

pub(super) fn check(report: &mut Report) {
    let mut area = report.area("memory");
    let info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    match (meminfo(&info, "MemAvailable"), meminfo(&info, "MemTotal")) {
        (Some(available), Some(total)) => area.add(
            "available",
            Status::warn_if(available < COMFORTABLE),
            format!("{} of {}", bytes(available), bytes(total)),
            "buffers of several ranks may not fit; end other programs",
        ),
        _ => area.add("available", Status::Warn, "unknown: /proc/meminfo cannot be read", ""),
    }
    match cgroup_limit() {
        None => area.ok("cgroup limit", "none"),
        Some((limit, used)) => area.add(
            "cgroup limit",
            Status::warn_if(limit.saturating_sub(used) < COMFORTABLE),
            format!("{} ({} in use)", bytes(limit), bytes(used)),
            "shared memory counts as well; raise the container's memory limit",
        ),
    }
    match write_to_memfd() {
        Ok(()) => area.ok("memfd", "works"),
        Err(error) => area.add(
            "memfd",
            Status::Fail,
            format!("cannot be used: {error}"),
            "shared memory is made of it: allow memfd_create in the sandbox (seccomp), and check limits of memory",
        ),
    }
    match statvfs("/dev/shm") {
        Ok(stat) => area.ok(
            "/dev/shm",
            format!(
                "{} free of {} (not used: Warpway shares memory by descriptor)",
                bytes(stat.f_bavail.saturating_mul(stat.f_frsize)),
                bytes(stat.f_blocks.saturating_mul(stat.f_frsize))
            ),
        ),
        Err(_) => area.ok("/dev/shm", "not mounted (not used: Warpway shares memory by descriptor)"),
    }
    area.ok("huge pages", huge_pages(&info));
}

/// A line of /proc/meminfo, in bytes.
fn meminfo(info: &str, name: &str) -> Option<u64> {
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let mut words = value.split_ascii_whitespace();
    let number: u64 = words.next()?.parse().ok()?;
    match words.next() {
        Some("kB") => number.checked_mul(1024),
        _ => Some(number),
    }
}

/// The tightest limit of this cgroup and those above it, with what is used of it.
fn cgroup_limit() -> Option<(u64, u64)> {
    cgroup_folders()
        .into_iter()
        .filter_map(|folder| {
            let read = |name| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
            Some((read("memory.max")?, read("memory.current").unwrap_or(0)))
        })
        .min_by_key(|(limit, used)| limit.saturating_sub(*used))
}

fn write_to_memfd() -> io::Result<()> {
    let memory = memfd_create("warpway-doctor", MemfdFlags::CLOEXEC)?;
    ftruncate(&memory, PROBE_BYTES)?;
    fs::File::from(memory).write_all(&[1; PROBE_BYTES as usize])
}

fn huge_pages(info: &str) -> String {
    let reserved = match (meminfo(info, "HugePages_Free"), meminfo(info, "Hugepagesize")) {
        (Some(free), Some(size)) if free > 0 => format!("{free} of {} free", bytes(size)),
        _ => "none reserved".to_owned(),
    };
    let chosen = |name: &str| {
        let choices = fs::read_to_string(format!("/sys/kernel/mm/transparent_hugepage/{name}")).ok()?;
        Some(choices.split_once('[')?.1.split_once(']')?.0.to_owned())
    };
    let unknown = || "unknown".to_owned();
    format!(
        "{reserved}; transparent: {}, for shared memory: {}",
        chosen("enabled").unwrap_or_else(unknown),
        chosen("shmem_enabled").unwrap_or_else(unknown)
    )
}

#[cfg(test)]
mod tests {
    use super::meminfo;

    #[test]
    fn lines_of_meminfo_are_found_by_their_whole_name() {
        let info = "MemTotal:       24 kB\nMemAvailable:   3 kB\nHugePages_Free:        7\n";
        assert_eq!(meminfo(info, "MemTotal"), Some(24 * 1024));
        assert_eq!(meminfo(info, "HugePages_Free"), Some(7));
        assert_eq!(meminfo(info, "Mem"), None);
        assert_eq!(meminfo(info, "SwapTotal"), None);
    }
}
