//! How many processors a job may really use.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rustix::thread::sched_getaffinity;

use super::report::{Report, Status};

pub(super) fn check(report: &mut Report) {
    let mut area = report.area("processors");
    let online =
        fs::read_to_string("/sys/devices/system/cpu/online").ok().and_then(|list| count_in_list(&list));
    let usable = sched_getaffinity(None).ok().map(|set| u64::from(set.count()));
    let Some(usable) = usable else {
        area.add("cores", Status::Warn, "unknown: the affinity cannot be read", "");
        return;
    };
    let of = online.map_or_else(String::new, |online| format!(" of {online} online"));
    area.add(
        "cores",
        Status::warn_if(usable < 2),
        format!("{usable} usable{of}"),
        "ranks take turns: every wait costs a switch; allow more with taskset or the container's cpuset",
    );
    match cgroup_quota() {
        None => area.ok("cgroup quota", "none"),
        Some(quota) => area.add(
            "cgroup quota",
            Status::warn_if(quota < usable as f64),
            format!("{quota:.2} cores"),
            "less than the cores that are visible: ranks that spin use it up and are then stopped for a while; \
             start no more ranks than that, or raise the container's limit",
        ),
    }
}

/// Entries of a list such as "0-3,8,10-11".
fn count_in_list(list: &str) -> Option<u64> {
    list.trim()
        .split(',')
        .map(|part| match part.split_once('-') {
            Some((first, last)) => {
                let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
                last.checked_sub(first)?.checked_add(1)
            }
            None => part.parse::<u64>().ok().map(|_| 1),
        })
        .sum()
}

/// The tightest limit of this cgroup and those above it, in cores.
fn cgroup_quota() -> Option<f64> {
    let v2 = cgroup_folders()
        .into_iter()
        .filter_map(|folder| parse_cpu_max(&fs::read_to_string(folder.join("cpu.max")).ok()?));
    let v1 = || {
        let read = |name: &str| -> Option<f64> {
            fs::read_to_string(Path::new("/sys/fs/cgroup/cpu").join(name)).ok()?.trim().parse().ok()
        };
        let (quota, period) = (read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?);
        (quota > 0.0 && period > 0.0).then(|| quota / period)
    };
    v2.min_by(f64::total_cmp).or_else(v1)
}

/// The folders of this process's cgroup (version 2) and of those above it.
pub(super) fn cgroup_folders() -> Vec<PathBuf> {
    let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let path = membership.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
    let root = Path::new("/sys/fs/cgroup");
    let own = root.join(path.trim_start_matches('/'));
    own.ancestors().take_while(|folder| folder.starts_with(root)).map(Path::to_path_buf).collect()
}

/// "150000 100000" → 1.5; "max 100000" → none.
fn parse_cpu_max(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
    (period > 0.0).then(|| quota / period)
}

#[cfg(test)]
mod tests {
    use super::{count_in_list, parse_cpu_max};

    #[test]
    fn kernel_lists_are_counted() {
        assert_eq!(count_in_list("0-3,8,10-11\n"), Some(7));
        assert_eq!(count_in_list("0\n"), Some(1));
        assert_eq!(count_in_list("3-1"), None);
        assert_eq!(count_in_list("x"), None);
    }

    #[test]
    fn quotas_are_in_cores() {
        assert_eq!(parse_cpu_max("150000 100000\n"), Some(1.5));
        assert_eq!(parse_cpu_max("max 100000\n"), None);
        assert_eq!(parse_cpu_max(""), None);
    }
}
