//! What the catalogue says of an algorithm, and how its plan is built and proven.

use std::fmt;

use warpway_plan::verify::{Options, VerifiedPlan};
use warpway_plan::{BuildError, Plan};

use crate::task::{Function, MOST_BLOCKS, Task};

/// One algorithm for one function.
pub struct Algorithm {
    /// Its name, unique among those of its function.
    pub name: &'static str,
    /// What it computes.
    pub function: Function,
    /// How it goes about it, in one sentence.
    pub summary: &'static str,
    /// What a selector wants to know of it.
    pub traits: Traits,
    /// Why it does not fit a task; `Ok` if it does.
    pub fits: fn(&Task) -> Result<(), &'static str>,
    /// Its plan; called for tasks that fit.
    pub build: fn(&Task) -> Result<Plan, BuildError>,
}

/// What a selector wants to know of an algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traits {
    /// Data travels as packets (flags inside the data): least latency, half the rate.
    pub packets: bool,
    /// Peers read or write the user's buffers themselves, so they have to be registered, or they are staged.
    pub zero_copy: bool,
    /// Made for several hosts.
    pub hierarchical: bool,
}

impl Algorithm {
    /// The plan for a task, proven as a plan of the catalogue: strict, without waivers, equal bits on every rank.
    ///
    /// # Errors
    /// [`Refused`], with the reason.
    pub fn prove(&self, task: &Task) -> Result<VerifiedPlan, Refused> {
        let refused = |why: String| Refused { function: self.function, algorithm: self.name, why };
        if self.function != task.function {
            return Err(refused(format!("the task is {}", task.function)));
        }
        if !(1..=MOST_BLOCKS).contains(&task.n_blocks) || !(1..=MOST_BLOCKS).contains(&task.packet_blocks) {
            let (blocks, packets) = (task.n_blocks, task.packet_blocks);
            let packets = if packets == 1 { String::new() } else { format!(", {packets} for packets") };
            return Err(refused(format!("{blocks} blocks{packets}: a rank has 1 to {MOST_BLOCKS}")));
        }
        (self.fits)(task).map_err(|why| refused(why.into()))?;
        let plan = (self.build)(task).map_err(|error| refused(error.to_string()))?;
        let options = Options { catalogue: true, root: task.root, ..Options::default() };
        VerifiedPlan::new(plan, &options).map_err(|error| refused(error.to_string()))
    }
}

impl fmt::Debug for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.function, self.name)
    }
}

/// There is no plan of this algorithm for a task.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{function} by {algorithm}: {why}")]
pub struct Refused {
    /// What was to be computed.
    pub function: Function,
    /// By which algorithm.
    pub algorithm: &'static str,
    /// The reason.
    pub why: String,
}
