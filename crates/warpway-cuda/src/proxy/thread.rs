//! What the proxy's thread is bound to: its device's context, and the cores next to the device.

use std::path::Path;
use std::sync::Arc;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use warpway_core::Result;
use warpway_core::proxy::ThreadInit;

use crate::capture::leave_captures_alone;
use crate::context::Context;
use crate::device::PciAddress;

/// Makes a thread one of `context`'s device.
pub(super) fn binding(context: &Context) -> ThreadInit {
    let context = context.clone();
    Arc::new(move || bind(&context))
}

fn bind(context: &Context) -> Result<()> {
    // Whatever another thread of the process captures, the copies of this one are no part of it and do not spoil it.
    leave_captures_alone(context.driver());
    // Current for as long as the thread lives: its calls need not enter and leave.
    std::mem::forget(context.enter()?);
    let near = cores_near(Path::new("/sys"), &context.info().pci);
    if let Some(cores) = near
        && let Err(error) = stay_on(&cores)
    {
        tracing::debug!(target: "warpway::gpu", %error, "the proxy's thread stays where the system puts it");
    }
    Ok(())
}

/// The cores of the NUMA node that a device hangs on; `None` if the system does not say.
fn cores_near(system: &Path, device: &PciAddress) -> Option<Vec<usize>> {
    let read = |path: &Path| std::fs::read_to_string(system.join(path)).ok();
    let node = read(&Path::new("bus/pci/devices").join(&device.0).join("numa_node"))?;
    // -1: a single node, or unknown.
    let node: u32 = node.trim().parse().ok()?;
    parse_cores(&read(Path::new(&format!("devices/system/node/node{node}/cpulist")))?)
}

/// `0-15,32-47,64`; `None` if it is anything else or nothing.
fn parse_cores(list: &str) -> Option<Vec<usize>> {
    let mut cores = Vec::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last >= CpuSet::MAX_CPU {
            return None;
        }
        cores.extend(first..=last);
    }
    (!cores.is_empty()).then_some(cores)
}

/// Restricts this thread to `cores`, as far as it may use them. If it may use none of them nothing changes.
fn stay_on(cores: &[usize]) -> rustix::io::Result<()> {
    let allowed = sched_getaffinity(None)?;
    let mut near = CpuSet::new();
    for core in cores.iter().filter(|core| allowed.is_set(**core)) {
        near.set(*core);
    }
    if near.count() == 0 || near.count() == allowed.count() {
        return Ok(());
    }
    sched_setaffinity(None, &near)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cores() {
        assert_eq!(parse_cores("0-2,5,7-8\n"), Some(vec![0, 1, 2, 5, 7, 8]));
        assert_eq!(parse_cores("3"), Some(vec![3]));
        for nonsense in ["", "\n", "a", "1-", "-1", "0-99999999999", "1,,2", "0-1000000"] {
            assert_eq!(parse_cores(nonsense), None, "{nonsense:?}");
        }
    }

    #[test]
    fn the_node_of_a_device() {
        let system = std::env::temp_dir().join(format!("warpway-numa-{}", std::process::id()));
        let device = system.join("bus/pci/devices/0000:17:00.0");
        let node = system.join("devices/system/node/node1");
        std::fs::create_dir_all(&device).unwrap();
        std::fs::create_dir_all(&node).unwrap();
        std::fs::write(node.join("cpulist"), "4-5\n").unwrap();
        let find = |number: &str| {
            std::fs::write(device.join("numa_node"), number).unwrap();
            cores_near(&system, &PciAddress("0000:17:00.0".into()))
        };
        assert_eq!(find("1\n"), Some(vec![4, 5]));
        assert_eq!(find("-1\n"), None);
        assert_eq!(find("2\n"), None, "a node that is not there");
        assert_eq!(cores_near(&system, &PciAddress("0000:18:00.0".into())), None);
        std::fs::remove_dir_all(system).unwrap();
    }

    /// On a thread of its own, whose affinity goes with it.
    #[test]
    fn a_thread_stays_within_what_it_may_use() {
        std::thread::spawn(|| {
            let before = sched_getaffinity(None).unwrap();
            let usable: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| before.is_set(*core)).collect();
            let foreign: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| !before.is_set(*core)).collect();
            stay_on(&foreign).unwrap();
            assert_eq!(sched_getaffinity(None).unwrap(), before, "none of them may be used: nothing changes");
            stay_on(&[usable[0], foreign[0]]).unwrap();
            let after = sched_getaffinity(None).unwrap();
            assert_eq!((after.count(), after.is_set(usable[0])), (1, true));
        })
        .join()
        .unwrap();
    }
}
