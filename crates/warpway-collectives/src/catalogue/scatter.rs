//! Scatters. B: bytes of one rank's output, n ranks.
//!
//! | algorithm | hops | the root writes | a rank reads | when |
//! |---|---|---|---|---|
//! | `packets` | 1 | 2 x (n - 1) x B | 2 x B | small |
//! | `push` | 1 | (n - 1) x B | nothing | any world |
//! | `pull` | 1 | nothing | B | large, one host |
//!
//! Out of place the root copies its own part besides.

use warpway_plan::{BuildError, CollectiveShape, Plan};

use crate::algorithm::{Algorithm, Traits};
use crate::catalogue::draft::{Draft, Parcel};
use crate::catalogue::fits;
use crate::task::{Function, Task};

pub(super) const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "packets",
        function: Function::Scatter,
        summary: "the root sends part r of its input to rank r as packets",
        traits: Traits { packets: true, zero_copy: false, hierarchical: false },
        fits: fits::one_host,
        build: packets,
    },
    Algorithm {
        name: "push",
        function: Function::Scatter,
        summary: "the root stores part r of its input into the output of rank r",
        traits: Traits { packets: false, zero_copy: true, hierarchical: false },
        fits: fits::always,
        build: push,
    },
    Algorithm {
        name: "pull",
        function: Function::Scatter,
        summary: "rank r reads part r of the root's input",
        traits: Traits { packets: false, zero_copy: true, hierarchical: false },
        fits: fits::one_host,
        build: pull,
    },
];

fn shape(task: &Task) -> CollectiveShape {
    CollectiveShape::scatter(task.world.n_ranks(), 1).with_root(task.root)
}

/// Greetings as in the broadcast by packets.
fn packets(task: &Task) -> Result<Plan, BuildError> {
    let root = task.root;
    let mut d = Draft::packets(task, "scatter_packets", shape(task))?;
    let (peers, input) = (d.peers(root), d.p.input(root)?);
    let part = |rank: u32| input.chunk(u64::from(rank)..u64::from(rank) + 1);
    for peer in &peers {
        let slot = d.p.scratch(*peer, 1)?.whole();
        d.greet(*peer, &[root])?;
        d.send_packets(root, slot, part(*peer)?)?;
        d.p.unpack_packets(d.p.output(*peer)?.whole(), slot, d.crew.blocks())?;
    }
    d.copy_own(d.p.output(root)?.whole(), part(root)?)?;
    d.hear_last(root, &peers)?;
    d.finish()
}

fn push(task: &Task) -> Result<Plan, BuildError> {
    let root = task.root;
    let mut d = Draft::new(task, "scatter_push", shape(task))?;
    let (peers, input) = (d.peers(root), d.p.input(root)?);
    let part = |rank: u32| input.chunk(u64::from(rank)..u64::from(rank) + 1);
    for peer in &peers {
        d.greet(*peer, &[root])?;
        d.expect_last(*peer, &[root])?;
    }
    d.hear(root, &peers)?;
    let mut parcels = Vec::with_capacity(peers.len());
    for peer in &peers {
        parcels.push(Parcel { to: d.p.output(*peer)?.whole(), from: part(*peer)? });
    }
    d.deliver(root, &parcels)?;
    d.copy_own(d.p.output(root)?.whole(), part(root)?)?;
    d.settle(root, &peers)?;
    d.finish()
}

/// All ranks copy at the same time.
fn pull(task: &Task) -> Result<Plan, BuildError> {
    let root = task.root;
    let mut d = Draft::new(task, "scatter_pull", shape(task))?;
    let (peers, input) = (d.peers(root), d.p.input(root)?);
    let part = |rank: u32| input.chunk(u64::from(rank)..u64::from(rank) + 1);
    d.greet(root, &peers)?;
    d.copy_own(d.p.output(root)?.whole(), part(root)?)?;
    for peer in &peers {
        d.hear(*peer, &[root])?;
        for channel in d.near(*peer, &[root])? {
            d.p.get(channel, d.p.output(*peer)?.whole(), part(*peer)?, d.crew.blocks())?;
        }
        d.tell(*peer, &[root])?;
    }
    d.expect_last(root, &peers)?;
    d.finish()
}
