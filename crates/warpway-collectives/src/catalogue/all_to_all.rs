//! All-to-alls. B: bytes that one rank has for another, n ranks.
//!
//! | algorithm | hops | a rank reads | a rank writes | when |
//! |---|---|---|---|---|
//! | `packets` | 1 | 3n x B | 3n x B | small |
//! | `eager` | 1 | 2n x B | 2n x B | small, where packets are too many lines |
//! | `push` | 1 | n x B | n x B | large, out of place; any world |
//! | `exchange` | 2 | 2n x B | 2n x B | large, in place; any world |

use warpway_plan::{BuildError, CollectiveShape, Plan};

use crate::algorithm::{Algorithm, Traits};
use crate::catalogue::draft::{Draft, Parcel};
use crate::catalogue::fits;
use crate::catalogue::slots::Slots;
use crate::task::{Function, Task};

pub(super) const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "packets",
        function: Function::AllToAll,
        summary: "every rank sends to each its part as packets",
        traits: Traits { packets: true, zero_copy: false, hierarchical: false },
        fits: fits::one_host,
        build: packets,
    },
    Algorithm {
        name: "push",
        function: Function::AllToAll,
        summary: "every rank stores to each its part",
        traits: Traits { packets: false, zero_copy: true, hierarchical: false },
        fits: fits::out_of_place,
        build: |task| push(task, "all_to_all_push", CollectiveShape::all_to_all(task.world.n_ranks(), 1)),
    },
    Algorithm {
        name: "exchange",
        function: Function::AllToAll,
        summary: "every rank puts to each its part into scratch, and takes what it has got from there",
        traits: Traits { packets: false, zero_copy: false, hierarchical: false },
        fits: fits::always,
        build: exchange,
    },
    Algorithm {
        name: "eager",
        function: Function::AllToAll,
        summary: "every rank puts to each its part into scratch without asking, and takes what it gets from there",
        traits: Traits { packets: false, zero_copy: false, hierarchical: false },
        fits: fits::one_host,
        build: eager,
    },
    Algorithm {
        name: "push",
        function: Function::AllToAllV,
        summary: "every rank stores to each its part, as long as the count of the pair",
        traits: Traits { packets: false, zero_copy: true, hierarchical: false },
        fits: fits::out_of_place,
        build: |task| push(task, "all_to_all_v_push", CollectiveShape::all_to_all_v(task.world.n_ranks(), 1)),
    },
];

fn packets(task: &Task) -> Result<Plan, BuildError> {
    let shape = CollectiveShape::all_to_all(task.world.n_ranks(), 1);
    let mut d = Draft::packets(task, "all_to_all_packets", shape)?;
    let slots = Slots::new(&mut d, 1)?;
    for me in 0..d.n() {
        let (input, output) = (d.p.input(me)?, d.p.output(me)?);
        let part = |rank: u32| u64::from(rank)..u64::from(rank) + 1;
        for peer in d.peers(me) {
            d.send_packets(me, slots.at(peer, me)?, input.chunk(part(peer))?)?;
        }
        d.copy_own(output.chunk(part(me))?, input.chunk(part(me))?)?;
        for peer in d.peers(me) {
            d.p.unpack_packets(output.chunk(part(peer))?, slots.at(me, peer)?, d.crew.blocks())?;
        }
    }
    d.finish()
}

/// A slot is written again two launches later, when its reader is known to have gone on, because it has sent something in
/// the launch between.
fn eager(task: &Task) -> Result<Plan, BuildError> {
    let shape = CollectiveShape::all_to_all(task.world.n_ranks(), 1);
    let mut d = Draft::alternating(task, "all_to_all_eager", shape)?;
    let slots = Slots::new(&mut d, 1)?;
    for me in 0..d.n() {
        let (input, output, peers) = (d.p.input(me)?, d.p.output(me)?, d.peers(me));
        let part = |rank: u32| u64::from(rank)..u64::from(rank) + 1;
        let parcel = |peer: u32| Ok(Parcel { to: slots.at(peer, me)?, from: input.chunk(part(peer))? });
        let parcels = from_right(me, d.n()).map(parcel).collect::<Result<Vec<_>, BuildError>>()?;
        d.deliver(me, &parcels)?;
        d.copy_own(output.chunk(part(me))?, input.chunk(part(me))?)?;
        d.expect(me, &peers)?;
        for peer in &peers {
            d.p.copy(output.chunk(part(*peer))?, slots.at(me, *peer)?, d.crew.blocks())?;
        }
    }
    d.finish()
}

fn push(task: &Task, name: &str, shape: CollectiveShape) -> Result<Plan, BuildError> {
    let mut d = Draft::new(task, name, shape)?;
    for me in 0..d.n() {
        let (input, output, peers) = (d.p.input(me)?, d.p.output(me)?, d.peers(me));
        let part = |rank: u32| u64::from(rank)..u64::from(rank) + 1;
        d.open(me, &peers)?;
        let mut parcels = Vec::with_capacity(peers.len());
        for peer in from_right(me, d.n()) {
            let to = d.p.output(peer)?.chunk(part(me))?;
            parcels.push(Parcel { to, from: input.chunk(part(peer))? });
        }
        d.send_far(me, &parcels)?;
        d.copy_own(output.chunk(part(me))?, input.chunk(part(me))?)?;
        d.put_near(me, &parcels)?;
        d.tell(me, &peers)?;
        d.expect_last(me, &peers)?;
        d.settle(me, &peers)?;
    }
    d.finish()
}

/// A rank overwrites its input only with what has come, part by part, when it has sent that part.
fn exchange(task: &Task) -> Result<Plan, BuildError> {
    let shape = CollectiveShape::all_to_all(task.world.n_ranks(), 1);
    let mut d = Draft::new(task, "all_to_all_exchange", shape)?;
    let slots = Slots::new(&mut d, 1)?;
    for me in 0..d.n() {
        let (input, output, peers) = (d.p.input(me)?, d.p.output(me)?, d.peers(me));
        let part = |rank: u32| u64::from(rank)..u64::from(rank) + 1;
        d.open_scratch(me, &peers)?;
        let mut parcels = Vec::with_capacity(peers.len());
        for peer in from_right(me, d.n()) {
            parcels.push(Parcel { to: slots.at(peer, me)?, from: input.chunk(part(peer))? });
        }
        d.deliver(me, &parcels)?;
        d.copy_own(output.chunk(part(me))?, input.chunk(part(me))?)?;
        d.settle(me, &peers)?;
        d.expect(me, &peers)?;
        for peer in &peers {
            d.p.copy(output.chunk(part(*peer))?, slots.at(me, *peer)?, d.crew.blocks())?;
        }
    }
    d.finish()
}

/// The other ranks, beginning with the next, so that not all ranks store to the same one at the same time.
fn from_right(me: u32, n: u32) -> impl Iterator<Item = u32> {
    (1..n).map(move |step| (me + step) % n)
}
