//! Large all-reduces of one host: peers read and write the buffers themselves.

use warpway_plan::{BuildError, Chunk, CollectiveShape, Plan};

use crate::algorithm::{Algorithm, Traits};
use crate::catalogue::draft::{Draft, Parcel};
use crate::catalogue::fits;
use crate::task::{Function, Task};

pub(super) const ALGORITHMS: &[Algorithm] = &[Algorithm {
    name: "two_shot",
    function: Function::AllReduce,
    summary: "rank r reads part r of all inputs, folds it, and stores the result to all",
    traits: Traits { packets: false, zero_copy: true, hierarchical: false },
    fits: fits::one_host,
    build: two_shot,
}];

/// One pass over memory: fold and stores are one operation, the sum stays in registers.
fn two_shot(task: &Task) -> Result<Plan, BuildError> {
    let n = task.world.n_ranks();
    let mut d = Draft::new(task, "all_reduce_two_shot", CollectiveShape::all_reduce(n, 1))?;
    for me in 0..n {
        let part = |chunk: u32| u64::from(chunk)..u64::from(chunk) + 1;
        let peers = d.peers(me);
        d.open(me, &peers)?;
        let inputs =
            (0..n).map(|rank| d.p.input(rank)?.chunk(part(me))).collect::<Result<Vec<Chunk>, _>>()?;
        let result = d.p.output(me)?.chunk(part(me))?;
        d.read_and_fold(me, &inputs, result)?;
        let mut parcels = Vec::with_capacity(peers.len());
        for peer in &peers {
            parcels.push(Parcel { to: d.p.output(*peer)?.chunk(part(me))?, from: result });
        }
        d.deliver(me, &parcels)?;
        d.expect_last(me, &peers)?;
    }
    d.finish()
}
