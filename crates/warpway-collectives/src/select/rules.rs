//! What is taken without measurements.

use crate::algorithm::Algorithm;
use crate::task::{Function, Task};

/// Algorithms for messages up to a size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rule {
    /// `None`: for each.
    function: Option<Function>,
    several_hosts: bool,
    /// Largest message, in bytes of the larger buffer.
    pub(super) max_bytes: u64,
    pick: Pick,
    /// What it says, for people.
    pub(super) text: &'static str,
}

#[derive(Debug, Clone, Copy)]
enum Pick {
    Named(&'static str),
    Packets,
    Raw,
    Hierarchical,
}

/// From this size on the blocks share the work; below, waking them takes longer than they save.
pub(super) const SHARED_FROM: u64 = 1 << 20;

/// The first that covers the size and fits is taken.
const RULES: &[Rule] = &[
    Rule {
        function: Some(Function::AllReduce),
        several_hosts: false,
        max_bytes: 8 << 10,
        pick: Pick::Named("one_shot_packets"),
        text: "up to 8 KiB in one step, with flags inside the data",
    },
    Rule {
        function: Some(Function::AllReduce),
        several_hosts: false,
        max_bytes: 256 << 10,
        pick: Pick::Named("two_shot_packets"),
        text: "up to 256 KiB in two steps, with flags inside the data",
    },
    Rule {
        function: Some(Function::AllReduce),
        several_hosts: false,
        max_bytes: u64::MAX,
        pick: Pick::Named("two_shot"),
        text: "large messages in two steps, without a copy",
    },
    Rule {
        function: None,
        several_hosts: true,
        max_bytes: u64::MAX,
        pick: Pick::Hierarchical,
        text: "between hosts, each byte crosses the wire as seldom as can be",
    },
    Rule {
        function: None,
        several_hosts: false,
        max_bytes: 8 << 10,
        pick: Pick::Packets,
        text: "up to 8 KiB with flags inside the data",
    },
    Rule {
        function: None,
        several_hosts: false,
        max_bytes: u64::MAX,
        pick: Pick::Raw,
        text: "large messages without flags inside the data",
    },
];

impl Rule {
    /// Those that speak of a task, the strongest first.
    pub(super) fn of(task: &Task) -> impl Iterator<Item = &'static Self> {
        let (function, several) = (task.function, task.world.n_hosts() > 1);
        RULES.iter().filter(move |rule| {
            rule.several_hosts == several && rule.function.is_none_or(|of| of == function)
        })
    }

    /// True if it means this algorithm of the task's function.
    pub(super) fn picks(&self, algorithm: &Algorithm) -> bool {
        match self.pick {
            Pick::Named(name) => algorithm.name == name,
            Pick::Packets => algorithm.traits.packets,
            Pick::Raw => !algorithm.traits.packets && !algorithm.traits.hierarchical,
            Pick::Hierarchical => algorithm.traits.hierarchical,
        }
    }
}
