//! Reduce-scatters. B: bytes of one rank's output, n ranks.
//!
//! | algorithm | hops | a rank reads | a rank writes | when |
//! |---|---|---|---|---|
//! | `packets` | 1 | 2n x B | n x B, packets twice that | small |
//! | `eager` | 1 | 2n x B | n x B | small, where packets are too many lines |
//! | `read` | 1 | n x B | B | large, one host |

use warpway_plan::{BuildError, Chunk, CollectiveShape, Plan};

use crate::algorithm::{Algorithm, Traits};
use crate::catalogue::draft::{Draft, Parcel};
use crate::catalogue::fits;
use crate::catalogue::slots::Slots;
use crate::task::{Function, Task};

pub(super) const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "packets",
        function: Function::ReduceScatter,
        summary: "every rank sends part r of its input to rank r as packets, which folds what it gets",
        traits: Traits { packets: true, zero_copy: false, hierarchical: false },
        fits: fits::one_host,
        build: packets,
    },
    Algorithm {
        name: "read",
        function: Function::ReduceScatter,
        summary: "rank r reads part r of all inputs and folds it",
        traits: Traits { packets: false, zero_copy: true, hierarchical: false },
        fits: fits::one_host,
        build: |task| {
            read(task, "reduce_scatter_read", CollectiveShape::reduce_scatter(task.world.n_ranks(), 1))
        },
    },
    Algorithm {
        name: "eager",
        function: Function::ReduceScatter,
        summary: "every rank puts part r of its input into scratch of rank r without asking, which folds what it gets",
        traits: Traits { packets: false, zero_copy: false, hierarchical: false },
        fits: fits::one_host,
        build: eager,
    },
    Algorithm {
        name: "read",
        function: Function::ReduceScatterV,
        summary: "rank r reads part r of all inputs, as long as its count, and folds it",
        traits: Traits { packets: false, zero_copy: true, hierarchical: false },
        fits: fits::one_host,
        build: |task| {
            read(task, "reduce_scatter_v_read", CollectiveShape::reduce_scatter_v(task.world.n_ranks(), 1))
        },
    },
];

fn packets(task: &Task) -> Result<Plan, BuildError> {
    let shape = CollectiveShape::reduce_scatter(task.world.n_ranks(), 1);
    let mut d = Draft::packets(task, "reduce_scatter_packets", shape)?;
    let slots = Slots::new(&mut d, 1)?;
    for me in 0..d.n() {
        let (input, result) = (d.p.input(me)?, d.p.output(me)?.whole());
        let part = |rank: u32| input.chunk(u64::from(rank)..u64::from(rank) + 1);
        for peer in d.peers(me) {
            d.send_packets(me, slots.at(peer, me)?, part(peer)?)?;
        }
        d.fold_packets(part(me)?, &slots.others(me)?, result)?;
    }
    d.finish()
}

/// A slot is written again two launches later, when its reader is known to have gone on, because it has sent something in
/// the launch between.
fn eager(task: &Task) -> Result<Plan, BuildError> {
    let shape = CollectiveShape::reduce_scatter(task.world.n_ranks(), 1);
    let mut d = Draft::alternating(task, "reduce_scatter_eager", shape)?;
    let slots = Slots::new(&mut d, 1)?;
    for me in 0..d.n() {
        let (input, result, peers) = (d.p.input(me)?, d.p.output(me)?.whole(), d.peers(me));
        let part = |rank: u32| input.chunk(u64::from(rank)..u64::from(rank) + 1);
        let parcel = |peer: &u32| Ok(Parcel { to: slots.at(*peer, me)?, from: part(*peer)? });
        let parcels = peers.iter().map(parcel).collect::<Result<Vec<_>, BuildError>>()?;
        d.deliver(me, &parcels)?;
        d.expect(me, &peers)?;
        d.fold_slots(part(me)?, &slots.others(me)?, result)?;
    }
    d.finish()
}

fn read(task: &Task, name: &str, shape: CollectiveShape) -> Result<Plan, BuildError> {
    let mut d = Draft::new(task, name, shape)?;
    for me in 0..d.n() {
        let (peers, place) = (d.peers(me), u64::from(me));
        d.open(me, &peers)?;
        let part = |rank| d.p.input(rank)?.chunk(place..=place);
        let parts = (0..d.n()).map(part).collect::<Result<Vec<Chunk>, _>>()?;
        let result = d.p.output(me)?.whole();
        d.read_and_fold(me, &parts, result)?;
        d.tell(me, &peers)?;
        d.expect_last(me, &peers)?;
    }
    d.finish()
}
