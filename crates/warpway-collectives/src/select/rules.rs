//! What is taken without measurements.

use crate::algorithm::Algorithm;
use crate::task::{Function, Task};

/// Algorithms for messages up to a size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rule {
    when: When,
    /// Largest message, in bytes of the larger buffer.
    pub(super) max_bytes: u64,
    pick: Pick,
    /// What it says, for people.
    pub(super) text: &'static str,
}

/// Of which tasks a rule speaks.
#[derive(Debug, Clone, Copy)]
enum When {
    OneHost(Function),
    /// Any function.
    AnyOnOneHost,
    SeveralHosts,
    BarrierOfFew,
    Barrier,
}

#[derive(Debug, Clone, Copy)]
enum Pick {
    Named(&'static str),
    Packets,
    Raw,
    Hierarchical,
}

use Pick::{Hierarchical, Named, Packets, Raw};
use When::{AnyOnOneHost, Barrier, BarrierOfFew, OneHost, SeveralHosts};

/// From this size on the blocks share the work; below, waking them takes longer than they save.
pub(super) const SHARED_FROM: u64 = 1 << 20;
/// Messages whose packets are fewer lines than a signal is worth.
const TINY: u64 = 2 << 10;
/// Messages that are copied twice in less time than a round trip takes.
const SMALL: u64 = 16 << 10;
/// Ranks that signal each other all at once.
const FEW: u32 = 8;

/// The first that covers the size and fits is taken.
const RULES: &[Rule] = &[
    Rule::new(
        OneHost(Function::AllReduce),
        TINY / 2,
        Named("one_shot_packets"),
        "tiny messages in one step, with flags inside the data",
    ),
    Rule::new(
        OneHost(Function::AllReduce),
        SMALL / 4,
        Named("eager"),
        "small messages in one step, without asking the receivers",
    ),
    Rule::new(
        OneHost(Function::AllReduce),
        u64::MAX,
        Named("two_shot"),
        "large messages in two steps, without flags inside the data",
    ),
    Rule::new(AnyOnOneHost, TINY, Packets, "tiny messages with flags inside the data"),
    Rule::new(AnyOnOneHost, SMALL, Named("eager"), "small messages without asking the receivers"),
    Rule::new(
        OneHost(Function::Broadcast),
        u64::MAX,
        Named("split"),
        "large messages: all ranks share the work of the root",
    ),
    Rule::new(
        OneHost(Function::Scatter),
        u64::MAX,
        Named("pull"),
        "large messages: all ranks share the work of the root",
    ),
    Rule::new(AnyOnOneHost, u64::MAX, Raw, "large messages without flags inside the data"),
    Rule::new(BarrierOfFew, u64::MAX, Named("signals"), "few ranks signal each other at once"),
    Rule::new(Barrier, u64::MAX, Named("dissemination"), "many ranks signal in rounds"),
    Rule::new(
        SeveralHosts,
        64 << 10,
        Named("hierarchical"),
        "between hosts each byte crosses the wire as seldom as can be",
    ),
    Rule::new(
        SeveralHosts,
        16 << 20,
        Named("hierarchical_pipelined"),
        "between hosts each byte crosses the wire as seldom as can be, while memory works, too",
    ),
    Rule::new(
        SeveralHosts,
        u64::MAX,
        Named("hierarchical_fine"),
        "large messages between hosts in pieces that stay in the caches",
    ),
    Rule::new(
        SeveralHosts,
        u64::MAX,
        Named("hierarchical_pipelined"),
        "between hosts each byte crosses the wire as seldom as can be, while memory works, too",
    ),
    Rule::new(
        SeveralHosts,
        u64::MAX,
        Hierarchical,
        "between hosts each byte crosses the wire as seldom as can be",
    ),
];

impl Rule {
    const fn new(when: When, max_bytes: u64, pick: Pick, text: &'static str) -> Self {
        Self { when, max_bytes, pick, text }
    }

    /// Those that speak of a task, the strongest first.
    pub(super) fn of(task: &Task) -> impl Iterator<Item = &'static Self> {
        let one_host = task.world.n_hosts() <= 1;
        let (function, few) = (task.function, task.world.n_ranks() <= FEW);
        let is_barrier = function == Function::Barrier;
        RULES.iter().filter(move |rule| match rule.when {
            OneHost(of) => one_host && of == function,
            AnyOnOneHost => one_host && !is_barrier,
            SeveralHosts => !one_host && !is_barrier,
            BarrierOfFew => is_barrier && few,
            Barrier => is_barrier,
        })
    }

    /// True if it means this algorithm of the task's function.
    pub(super) fn picks(&self, algorithm: &Algorithm) -> bool {
        match self.pick {
            Named(name) => algorithm.name == name,
            Packets => algorithm.traits.packets,
            Raw => !algorithm.traits.packets && !algorithm.traits.hierarchical,
            Hierarchical => algorithm.traits.hierarchical,
        }
    }
}
