//! All-gathers. B: bytes of one rank's input, n ranks.
//!
//! | algorithm | hops | a rank reads | a rank writes | when |
//! |---|---|---|---|---|
//! | `packets` | 1 | 2n x B | 2n x B, packets twice that | small |
//! | `eager` | 1 | 2n x B | 2n x B | small, where packets are too many lines |
//! | `push` | 1 | n x B | n x B | large; any world |
//! | `pull` | 1 | n x B | n x B | large, one host, where reading is faster than writing |
//! | `ring` | n - 1 | n x B | n x B | large, where links are slow; any world |

use warpway_plan::{BuildError, CollectiveShape, Plan};

use crate::algorithm::{Algorithm, Traits};
use crate::catalogue::draft::{Draft, Parcel};
use crate::catalogue::fits;
use crate::catalogue::slots::Slots;
use crate::task::{Function, Task};

pub(super) const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "packets",
        function: Function::AllGather,
        summary: "every rank sends its input to all as packets",
        traits: Traits { packets: true, zero_copy: false, hierarchical: false },
        fits: fits::one_host,
        build: packets,
    },
    Algorithm {
        name: "push",
        function: Function::AllGather,
        summary: "every rank stores its input into all outputs",
        traits: Traits { packets: false, zero_copy: true, hierarchical: false },
        fits: fits::always,
        build: |task| push(task, "all_gather_push", CollectiveShape::all_gather(task.world.n_ranks(), 1)),
    },
    Algorithm {
        name: "pull",
        function: Function::AllGather,
        summary: "every rank reads all inputs",
        traits: Traits { packets: false, zero_copy: true, hierarchical: false },
        fits: fits::one_host,
        build: pull,
    },
    Algorithm {
        name: "ring",
        function: Function::AllGather,
        summary: "inputs travel around a ring",
        traits: Traits { packets: false, zero_copy: true, hierarchical: false },
        fits: fits::always,
        build: ring,
    },
    Algorithm {
        name: "eager",
        function: Function::AllGather,
        summary: "every rank puts its input into scratch of all without asking, and takes what it gets from there",
        traits: Traits { packets: false, zero_copy: false, hierarchical: false },
        fits: fits::one_host,
        build: eager,
    },
    Algorithm {
        name: "push",
        function: Function::AllGatherV,
        summary: "every rank stores its input into all outputs, each as long as its count",
        traits: Traits { packets: false, zero_copy: true, hierarchical: false },
        fits: fits::always,
        build: |task| push(task, "all_gather_v_push", CollectiveShape::all_gather_v(task.world.n_ranks(), 1)),
    },
];

fn packets(task: &Task) -> Result<Plan, BuildError> {
    let shape = CollectiveShape::all_gather(task.world.n_ranks(), 1);
    let mut d = Draft::packets(task, "all_gather_packets", shape)?;
    let slots = Slots::new(&mut d, 1)?;
    for me in 0..d.n() {
        let (mine, output) = (d.p.input(me)?.whole(), d.p.output(me)?);
        let place = |rank: u32| output.chunk(u64::from(rank)..u64::from(rank) + 1);
        for peer in d.peers(me) {
            d.send_packets(me, slots.at(peer, me)?, mine)?;
        }
        d.copy_own(place(me)?, mine)?;
        for peer in d.peers(me) {
            d.p.unpack_packets(place(peer)?, slots.at(me, peer)?, d.crew.blocks())?;
        }
    }
    d.finish()
}

/// A slot is written again two launches later, when its reader is known to have gone on, because it has sent something in
/// the launch between.
fn eager(task: &Task) -> Result<Plan, BuildError> {
    let shape = CollectiveShape::all_gather(task.world.n_ranks(), 1);
    let mut d = Draft::alternating(task, "all_gather_eager", shape)?;
    let slots = Slots::new(&mut d, 1)?;
    for me in 0..d.n() {
        let (mine, output, peers) = (d.p.input(me)?.whole(), d.p.output(me)?, d.peers(me));
        let place = |rank: u32| output.chunk(u64::from(rank)..u64::from(rank) + 1);
        let parcel = |peer: &u32| Ok(Parcel { to: slots.at(*peer, me)?, from: mine });
        let parcels = peers.iter().map(parcel).collect::<Result<Vec<_>, BuildError>>()?;
        d.deliver(me, &parcels)?;
        d.copy_own(place(me)?, mine)?;
        d.expect(me, &peers)?;
        for peer in &peers {
            d.p.copy(place(*peer)?, slots.at(me, *peer)?, d.crew.blocks())?;
        }
    }
    d.finish()
}

fn push(task: &Task, name: &str, shape: CollectiveShape) -> Result<Plan, BuildError> {
    let mut d = Draft::new(task, name, shape)?;
    for me in 0..d.n() {
        let (mine, peers, place) = (d.p.input(me)?.whole(), d.peers(me), u64::from(me));
        d.open(me, &peers)?;
        let mut parcels = Vec::with_capacity(peers.len());
        for peer in &peers {
            parcels.push(Parcel { to: d.p.output(*peer)?.chunk(place..=place)?, from: mine });
        }
        d.send_far(me, &parcels)?;
        d.copy_own(d.p.output(me)?.chunk(place..=place)?, mine)?;
        d.put_near(me, &parcels)?;
        d.tell(me, &peers)?;
        d.expect_last(me, &peers)?;
        d.settle(me, &peers)?;
    }
    d.finish()
}

fn pull(task: &Task) -> Result<Plan, BuildError> {
    let shape = CollectiveShape::all_gather(task.world.n_ranks(), 1);
    let mut d = Draft::new(task, "all_gather_pull", shape)?;
    for me in 0..d.n() {
        let (output, peers) = (d.p.output(me)?, d.peers(me));
        let place = |rank: u32| output.chunk(u64::from(rank)..u64::from(rank) + 1);
        d.greet(me, &peers)?;
        d.copy_own(place(me)?, d.p.input(me)?.whole())?;
        d.hear(me, &peers)?;
        for (peer, channel) in peers.iter().zip(d.near(me, &peers)?) {
            d.p.get(channel, place(*peer)?, d.p.input(*peer)?.whole(), d.crew.blocks())?;
        }
        d.tell(me, &peers)?;
        d.expect_last(me, &peers)?;
    }
    d.finish()
}

fn ring(task: &Task) -> Result<Plan, BuildError> {
    let n = task.world.n_ranks();
    let mut d = Draft::new(task, "all_gather_ring", CollectiveShape::all_gather(n, 1))?;
    for me in 0..n {
        let (input, output) = (d.p.input(me)?.whole(), d.p.output(me)?);
        let (right, left) = ((me + 1) % n, (me + n - 1) % n);
        let place = |rank: u32| u64::from(rank)..u64::from(rank) + 1;
        if n > 1 {
            d.greet(me, &[left])?;
            d.hear(me, &[right])?;
        }
        d.copy_own(output.chunk(place(me))?, input)?;
        for step in 0..n - 1 {
            let of = (me + n - step) % n;
            let from = if step == 0 { input } else { output.chunk(place(of))? };
            d.deliver(me, &[Parcel { to: d.p.output(right)?.chunk(place(of))?, from }])?;
            d.expect(me, &[left])?;
        }
        if n > 1 {
            d.settle(me, &[right])?;
        }
    }
    d.finish()
}
