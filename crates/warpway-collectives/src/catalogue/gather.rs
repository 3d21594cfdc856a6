//! Gathers. B: bytes of one rank's input, n ranks.
//!
//! | algorithm | hops | a rank writes | the root reads | when |
//! |---|---|---|---|---|
//! | `packets` | 1 | 2 x B | 2 x (n - 1) x B | small |
//! | `push` | 1 | B | nothing | large; any world |
//!
//! Out of place the root copies its input besides.

use warpway_plan::{BuildError, CollectiveShape, Plan};

use crate::algorithm::{Algorithm, Traits};
use crate::catalogue::draft::{Draft, Parcel};
use crate::catalogue::fits;
use crate::task::{Function, Task};

pub(super) const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "packets",
        function: Function::Gather,
        summary: "every rank sends its input to the root as packets",
        traits: Traits { packets: true, zero_copy: false, hierarchical: false },
        fits: fits::one_host,
        build: packets,
    },
    Algorithm {
        name: "push",
        function: Function::Gather,
        summary: "every rank stores its input into the root's output",
        traits: Traits { packets: false, zero_copy: true, hierarchical: false },
        fits: fits::always,
        build: push,
    },
];

fn shape(task: &Task) -> CollectiveShape {
    CollectiveShape::gather(task.world.n_ranks(), 1).with_root(task.root)
}

/// Greetings as in the reduce by packets.
fn packets(task: &Task) -> Result<Plan, BuildError> {
    let root = task.root;
    let mut d = Draft::packets(task, "gather_packets", shape(task))?;
    let (peers, output) = (d.peers(root), d.p.output(root)?);
    let place = |rank: u32| output.chunk(u64::from(rank)..u64::from(rank) + 1);
    d.greet(root, &peers)?;
    d.copy_own(place(root)?, d.p.input(root)?.whole())?;
    for peer in &peers {
        let slot = d.p.scratch(root, 1)?.whole();
        d.send_packets(*peer, slot, d.p.input(*peer)?.whole())?;
        d.hear_last(*peer, &[root])?;
        d.p.unpack_packets(place(*peer)?, slot, d.crew.blocks())?;
    }
    d.finish()
}

fn push(task: &Task) -> Result<Plan, BuildError> {
    let root = task.root;
    let mut d = Draft::new(task, "gather_push", shape(task))?;
    let (peers, output) = (d.peers(root), d.p.output(root)?);
    let place = |rank: u32| output.chunk(u64::from(rank)..u64::from(rank) + 1);
    d.greet(root, &peers)?;
    d.copy_own(place(root)?, d.p.input(root)?.whole())?;
    for peer in &peers {
        d.hear(*peer, &[root])?;
        d.deliver(*peer, &[Parcel { to: place(*peer)?, from: d.p.input(*peer)?.whole() }])?;
        d.settle(*peer, &[root])?;
    }
    d.expect_last(root, &peers)?;
    d.finish()
}
