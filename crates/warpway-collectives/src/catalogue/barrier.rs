//! Barriers: no data, only signals. n ranks.
//!
//! | algorithm | hops | signals of a rank | when |
//! |---|---|---|---|
//! | `signals` | 1 | n - 1 | few ranks |
//! | `dissemination` | ceil(log2 n) | ceil(log2 n) | many ranks |

use warpway_plan::{BuildError, CollectiveShape, DataSync, Plan, RankBuffers};

use crate::algorithm::{Algorithm, Traits};
use crate::catalogue::draft::{Draft, SPEAKER};
use crate::catalogue::fits;
use crate::task::{Function, Task};

const TRAITS: Traits = Traits { packets: false, zero_copy: false, hierarchical: false };

pub(super) const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "signals",
        function: Function::Barrier,
        summary: "every rank signals all others",
        traits: TRAITS,
        fits: fits::always,
        build: signals,
    },
    Algorithm {
        name: "dissemination",
        function: Function::Barrier,
        summary: "in round k every rank signals the one 2^k behind it",
        traits: TRAITS,
        fits: fits::always,
        build: dissemination,
    },
];

fn shape(task: &Task) -> CollectiveShape {
    CollectiveShape::custom(vec![RankBuffers { input: 0, output: 0 }; task.world.n_ranks() as usize])
}

fn signals(task: &Task) -> Result<Plan, BuildError> {
    let mut d = Draft::new(task, "barrier_signals", shape(task))?;
    for me in 0..d.n() {
        let peers = d.peers(me);
        for peer in &peers {
            let channel = d.link(me, *peer)?;
            d.p.signal(channel, SPEAKER, DataSync::None)?;
        }
        for peer in &peers {
            let channel = d.link(me, *peer)?;
            d.p.wait(channel, SPEAKER, DataSync::None)?;
        }
    }
    d.finish()
}

/// Hensgen, Finkel, Manber: after round k a rank knows of 2^(k+1) ranks that they have come.
fn dissemination(task: &Task) -> Result<Plan, BuildError> {
    let mut d = Draft::new(task, "barrier_dissemination", shape(task))?;
    let n = d.n();
    for me in 0..n {
        let mut step = 1;
        while step < n {
            let (to, from) = (d.link(me, (me + step) % n)?, d.link(me, (me + n - step) % n)?);
            d.p.signal(to, SPEAKER, DataSync::Before)?;
            d.p.wait(from, SPEAKER, DataSync::After)?;
            step *= 2;
        }
    }
    d.finish()
}
