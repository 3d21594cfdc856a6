//! All-reduces of messages for which packets are too many lines, and a round trip beforehand takes too long.

use warpway_plan::{BuildError, CollectiveShape, Plan};

use crate::algorithm::{Algorithm, Traits};
use crate::catalogue::draft::{Draft, Parcel};
use crate::catalogue::fits;
use crate::catalogue::slots::Slots;
use crate::task::{Function, Task};

pub(super) const ALGORITHMS: &[Algorithm] = &[Algorithm {
    name: "eager",
    function: Function::AllReduce,
    summary: "every rank puts its whole input into scratch of all without asking, and folds what it gets",
    traits: Traits { packets: false, zero_copy: false, hierarchical: false },
    fits: fits::one_host,
    build: eager,
}];

/// A slot is written again two launches later, when its reader is known to have gone on, because it has sent something in
/// the launch between.
fn eager(task: &Task) -> Result<Plan, BuildError> {
    let shape = CollectiveShape::all_reduce_of(task.world.n_ranks(), 1);
    let mut d = Draft::alternating(task, "all_reduce_eager", shape)?;
    let slots = Slots::new(&mut d, 1)?;
    for me in 0..d.n() {
        let (mine, result, peers) = (d.p.input(me)?.whole(), d.p.output(me)?.whole(), d.peers(me));
        let parcel = |peer: &u32| Ok(Parcel { to: slots.at(*peer, me)?, from: mine });
        let parcels = peers.iter().map(parcel).collect::<Result<Vec<_>, BuildError>>()?;
        d.deliver(me, &parcels)?;
        d.expect(me, &peers)?;
        d.fold_slots(mine, &slots.others(me)?, result)?;
    }
    d.finish()
}
