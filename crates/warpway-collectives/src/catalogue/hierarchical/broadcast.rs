//! Broadcasts of several hosts: from host to host in a chain, beginning at the root's, one share per lane.

use warpway_plan::{BuildError, CollectiveShape, Plan};

use super::lanes::Lanes;
use super::{PIECES, TRAITS};
use crate::algorithm::Algorithm;
use crate::catalogue::draft::{Draft, Parcel};
use crate::catalogue::fits;
use crate::task::{Function, Task};

pub(super) const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "hierarchical",
        function: Function::Broadcast,
        summary: "from host to host, and within each to all",
        traits: TRAITS,
        fits: fits::several_hosts,
        build: |task| build(task, "broadcast_hierarchical", 1),
    },
    Algorithm {
        name: "hierarchical_pipelined",
        function: Function::Broadcast,
        summary: "as hierarchical, piece by piece, so that all links work at the same time",
        traits: TRAITS,
        fits: fits::several_hosts,
        build: |task| build(task, "broadcast_hierarchical_pipelined", PIECES),
    },
];

fn build(task: &Task, name: &str, pieces: u32) -> Result<Plan, BuildError> {
    let lanes = Lanes::from_root(&task.world, task.root);
    let chunks = u64::from(lanes.n_lanes()) * u64::from(pieces);
    let shape = CollectiveShape::broadcast(task.world.n_ranks(), chunks).with_root(task.root);
    let mut d = Draft::new(task, name, shape)?;
    for me in 0..task.world.n_ranks() {
        let (host, lane) = lanes.place(me);
        let near = lanes.near(me);
        let has_lane = lane < lanes.n_lanes();
        let before = (has_lane && host > 0).then(|| lanes.rank(host - 1, lane));
        let behind = (has_lane && host + 1 < lanes.n_hosts()).then(|| lanes.rank(host + 1, lane));
        d.greet(me, &near)?;
        d.greet(me, before.as_slice())?;
        d.hear(me, &near)?;
        d.hear(me, behind.as_slice())?;
        for piece in (0..u64::from(pieces)).filter(|_| has_lane) {
            let index = u64::from(lane) * u64::from(pieces) + piece;
            receive(&mut d, me, before, index)?;
            pass_on(&mut d, me, behind, &near, index)?;
        }
        if me == task.root {
            d.copy_own(d.p.output(me)?.whole(), d.p.input(me)?.whole())?;
        }
        d.tell(me, &near)?;
        d.expect_last(me, &near)?;
        d.settle(me, behind.as_slice())?;
    }
    d.finish()
}

/// From the host before; on the first host from the root.
fn receive(d: &mut Draft<'_>, me: u32, before: Option<u32>, index: u64) -> Result<(), BuildError> {
    let root = d.task.root;
    if before.is_some() {
        return d.expect(me, before.as_slice());
    }
    if me != root {
        for channel in d.near(me, &[root])? {
            let (to, from) = (d.p.output(me)?.chunk(index..=index)?, d.p.input(root)?.chunk(index..=index)?);
            d.p.get(channel, to, from, d.crew.blocks())?;
        }
    }
    Ok(())
}

/// To the next host, and to all of this one.
fn pass_on(
    d: &mut Draft<'_>,
    me: u32,
    behind: Option<u32>,
    near: &[u32],
    index: u64,
) -> Result<(), BuildError> {
    let root = d.task.root;
    let held = if me == root { d.p.input(me)? } else { d.p.output(me)? };
    let from = held.chunk(index..=index)?;
    let mut parcels = Vec::new();
    for peer in behind.iter().chain(near).filter(|peer| **peer != root) {
        parcels.push(Parcel { to: d.p.output(*peer)?.chunk(index..=index)?, from });
    }
    d.send_far(me, &parcels)?;
    d.put_near(me, &parcels)
}
