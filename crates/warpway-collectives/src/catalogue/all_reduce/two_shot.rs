//! Large all-reduces of one host: peers read and write the buffers themselves.

use warpway_plan::{BuildError, Chunk, CollectiveShape, Plan};

use crate::algorithm::{Algorithm, Traits};
use crate::catalogue::draft::{Draft, Parcel};
use crate::catalogue::fits;
use crate::task::{Function, Task};

pub(super) const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "two_shot",
        function: Function::AllReduce,
        summary: "rank r reads part r of all inputs, folds it, and stores the result to all",
        traits: TRAITS,
        fits: fits::one_host,
        build: two_shot,
    },
    Algorithm {
        name: "reduce_scatter_all_gather",
        function: Function::AllReduce,
        summary: "rank r reads part r of all inputs and folds it, then all read the results",
        traits: TRAITS,
        fits: fits::one_host,
        build: reduce_scatter_all_gather,
    },
];

const TRAITS: Traits = Traits { packets: false, zero_copy: true, hierarchical: false };

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

/// Everybody only reads from peers. In place a rank overwrites a part of its input when the rank that reads it has done so.
fn reduce_scatter_all_gather(task: &Task) -> Result<Plan, BuildError> {
    let n = task.world.n_ranks();
    let shape = CollectiveShape::all_reduce(n, 1);
    let mut d = Draft::new(task, "all_reduce_reduce_scatter_all_gather", shape)?;
    for me in 0..n {
        let part = |chunk: u32| u64::from(chunk)..u64::from(chunk) + 1;
        let (peers, output) = (d.peers(me), d.p.output(me)?);
        d.open(me, &peers)?;
        let inputs =
            (0..n).map(|rank| d.p.input(rank)?.chunk(part(me))).collect::<Result<Vec<Chunk>, _>>()?;
        d.read_and_fold(me, &inputs, output.chunk(part(me))?)?;
        d.tell(me, &peers)?;
        d.expect(me, &peers)?;
        for (peer, channel) in peers.iter().zip(d.near(me, &peers)?) {
            let theirs = d.p.output(*peer)?.chunk(part(*peer))?;
            d.p.get(channel, output.chunk(part(*peer))?, theirs, d.crew.blocks())?;
        }
        d.tell(me, &peers)?;
        d.expect_last(me, &peers)?;
    }
    d.finish()
}
