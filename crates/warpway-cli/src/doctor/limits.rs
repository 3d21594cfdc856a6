//! Limits of this process, which ranks inherit.

use std::fs;

use rustix::process::{Resource, getrlimit};

use super::{
    processors::cgroup_folders,
    report::{Area, Report, Status, bytes},
};

pub(super) fn check(report: &mut Report) {
    let mut area = report.area("limits");
    let descriptors = getrlimit(Resource::Nofile);
    let soft = descriptors.current;
    area.add(
        "open descriptors",
        match soft {
            Some(count) if count < 64 => Status::Fail,
            Some(count) if count < 1024 => Status::Warn,
            _ => Status::Ok,
        },
        format!("{} (at most {})", count(soft), count(descriptors.maximum)),
        "links and shared buffers need descriptors: ulimit -n 4096",
    );
    let locked = getrlimit(Resource::Memlock).current;
    area.ok("locked memory", format!("{} (only RDMA and pinned buffers need more)", size(locked)));
    check_unlimited(
        &mut area,
        "file size",
        Resource::Fsize,
        "it also limits shared memory: ulimit -f unlimited",
    );
    check_unlimited(
        &mut area,
        "address space",
        Resource::As,
        "mappings of peers' memory count: ulimit -v unlimited",
    );
    check_tasks(&mut area);
}

fn check_unlimited(area: &mut Area<'_>, name: &str, resource: Resource, hint: &str) {
    let limit = getrlimit(resource).current;
    area.add(name, Status::warn_if(limit.is_some()), size(limit), hint);
}

/// Threads and processes: the limit of the cgroup is the one that containers meet.
fn check_tasks(area: &mut Area<'_>) {
    const FEW: u64 = 256;
    let left = cgroup_folders()
        .into_iter()
        .filter_map(|folder| {
            let read = |name| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
            Some(read("pids.max")?.saturating_sub(read("pids.current").unwrap_or(0)))
        })
        .min();
    let user = getrlimit(Resource::Nproc).current;
    match left {
        None => area.add(
            "processes",
            Status::warn_if(user.is_some_and(|limit| limit < FEW)),
            format!("{} for this user", count(user)),
            "thread blocks are threads: ulimit -u 4096",
        ),
        Some(left) => area.add(
            "processes",
            Status::warn_if(left < FEW),
            format!("{left} more in this cgroup"),
            "thread blocks are threads: raise the container's pids limit",
        ),
    }
}

fn count(limit: Option<u64>) -> String {
    limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string())
}

fn size(limit: Option<u64>) -> String {
    limit.map_or_else(|| "unlimited".to_owned(), bytes)
}
