//! How long an algorithm takes in worlds that are too large for a plan, step by step for a typical rank.
//!
//! Each function below follows the plan of its algorithm in `catalogue/`; tests hold it against the event simulation of
//! that plan in small worlds.

use warpway_plan::DataType;
use warpway_plan::simulate::{Machine, Recurrence};

use crate::task::Function;

/// Equal hosts of equally many ranks, one block each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cluster {
    /// Hosts.
    pub hosts: u32,
    /// Ranks of each.
    pub ranks_per_host: u32,
}

/// A message: bytes of the larger buffer, and the type of its elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// Bytes.
    pub bytes: u64,
    /// Type.
    pub data_type: DataType,
}

type Estimate = fn(&Machine, Cluster, Message) -> f64;

/// What there is: function, name of the algorithm, whether it is for several hosts.
const ESTIMATES: &[(Function, &str, bool, Estimate)] = &[
    (Function::AllReduce, "two_shot", false, all_reduce_two_shot),
    (Function::AllReduce, "hierarchical", true, all_reduce_hierarchical),
    (Function::AllGather, "push", false, all_gather_push),
];

/// Nanoseconds of one launch; `None` where there is no estimate for the algorithm on as many hosts.
pub fn estimate(
    function: Function,
    algorithm: &str,
    machine: &Machine,
    cluster: Cluster,
    message: Message,
) -> Option<f64> {
    let fits = |several: bool| several == (cluster.hosts > 1) && cluster.ranks_per_host > 0;
    let found = ESTIMATES
        .iter()
        .find(|(of, name, several, _)| (*of, *name) == (function, algorithm) && fits(*several));
    found.map(|(.., estimate)| estimate(machine, cluster, message))
}

/// Algorithms with an estimate, by function and name.
pub fn estimated() -> impl Iterator<Item = (Function, &'static str)> {
    ESTIMATES.iter().map(|(function, name, ..)| (*function, *name))
}

/// Each rank folds its part of all inputs and stores it to all.
fn all_reduce_two_shot(machine: &Machine, cluster: Cluster, message: Message) -> f64 {
    let ranks = u64::from(cluster.ranks_per_host);
    let part = message.bytes / ranks;
    let touched = (2 * message.bytes, message.data_type);
    let mut clock = Recurrence::new(machine, (1, cluster.ranks_per_host), touched, ranks > 1);
    clock.meet(ranks - 1);
    clock.fold(1, part, ranks, ranks);
    clock.meet(ranks - 1);
    clock.now()
}

/// Each rank copies its input to all outputs.
fn all_gather_push(machine: &Machine, cluster: Cluster, message: Message) -> f64 {
    let ranks = u64::from(cluster.ranks_per_host);
    let part = message.bytes / ranks;
    let touched = (part + message.bytes, message.data_type);
    let mut clock = Recurrence::new(machine, (1, cluster.ranks_per_host), touched, ranks > 1);
    clock.meet(ranks - 1);
    clock.copy(ranks, part);
    clock.meet(ranks - 1);
    clock.now()
}

/// A share for each lane (ranks of equal number on their hosts) and host. Every rank folds its lane's shares within the
/// host, sends each to its owner, folds its own share meanwhile, adds what has come, sends the result to its lane, and passes all results on.
fn all_reduce_hierarchical(machine: &Machine, cluster: Cluster, message: Message) -> f64 {
    let (hosts, ranks) = (u64::from(cluster.hosts), u64::from(cluster.ranks_per_host));
    let (others, near) = (hosts - 1, ranks - 1);
    let share = message.bytes / (hosts * ranks);
    // Its lane of every input and output of the host, what it has folded, and what has come.
    let lane = message.bytes / ranks;
    let touched = (2 * ranks * lane + 2 * others * share, message.data_type);
    let mut clock = Recurrence::new(machine, (cluster.hosts, cluster.ranks_per_host), touched, ranks > 1);
    clock.meet(near);
    if ranks > 1 {
        clock.fold(others, share, ranks, 1);
    }
    let arrival = clock.send(others, share);
    if ranks > 1 {
        clock.fold(1, share, ranks, 1);
    }
    clock.receive(others, arrival);
    clock.fold(1, share, hosts, 1);
    let arrival = clock.send(others, share);
    clock.copy(near, share);
    clock.receive(others, arrival);
    clock.copy(others * near, share);
    clock.flush(others, arrival);
    clock.meet(near);
    clock.now()
}
