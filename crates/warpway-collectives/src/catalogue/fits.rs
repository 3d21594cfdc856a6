//! Why an algorithm does not fit a task.

use crate::task::Task;

/// Any task.
pub(super) fn always(_: &Task) -> Result<(), &'static str> {
    Ok(())
}

/// Algorithms on memory channels alone.
pub(super) fn one_host(task: &Task) -> Result<(), &'static str> {
    match task.world.n_hosts() {
        0 | 1 => Ok(()),
        _ => Err("its ranks read and write each other's memory, which works on one host only"),
    }
}

/// Algorithms that store to peers what these still have to send from the same place.
pub(super) fn out_of_place(task: &Task) -> Result<(), &'static str> {
    if task.in_place {
        Err("in place, a rank would overwrite what its peers have not sent yet")
    } else {
        Ok(())
    }
}

/// Algorithms with a level of hosts above that of ranks.
pub(super) fn several_hosts(task: &Task) -> Result<(), &'static str> {
    if task.world.n_hosts() > 1 { Ok(()) } else { Err("all ranks are on one host") }
}
