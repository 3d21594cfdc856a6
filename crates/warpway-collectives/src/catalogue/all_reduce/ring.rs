//! A ring: parts travel to the right and are folded on the way, then the results travel on. n - 1 roundings, and little traffic
//! on every link; each part is folded by one chain, so all ranks have the same bits.

use warpway_plan::{BuildError, CollectiveShape, Plan, Reduction};

use crate::algorithm::{Algorithm, Traits};
use crate::catalogue::draft::{Draft, Parcel};
use crate::catalogue::fits;
use crate::task::{Function, Task};

pub(super) const ALGORITHMS: &[Algorithm] = &[Algorithm {
    name: "ring",
    function: Function::AllReduce,
    summary: "parts travel around a ring and are folded on the way, then results travel on",
    traits: Traits { packets: false, zero_copy: true, hierarchical: false },
    fits: fits::always,
    build: ring,
}];

fn ring(task: &Task) -> Result<Plan, BuildError> {
    let n = task.world.n_ranks();
    let mut d = Draft::alternating(task, "all_reduce_ring", CollectiveShape::all_reduce(n, 1))?;
    let hops = n - 1;
    let mut arrived = Vec::new();
    let mut folded = Vec::new();
    for rank in 0..n {
        arrived.push(d.p.scratch(rank, u64::from(hops))?);
        folded.push(d.p.scratch(rank, u64::from(hops.saturating_sub(1)))?);
    }
    for me in 0..n {
        let (input, output) = (d.p.input(me)?, d.p.output(me)?);
        let (right, left) = ((me + 1) % n, (me + n - 1) % n);
        // The part that is `behind` ranks behind this one.
        let part =
            |behind: u32| u64::from((me + n - behind % n) % n)..u64::from((me + n - behind % n) % n) + 1;
        if hops == 0 {
            d.copy_own(output.whole(), input.whole())?;
            continue;
        }
        let mut partial = input.chunk(part(0))?;
        for hop in 0..hops {
            let slot = u64::from(hop)..u64::from(hop) + 1;
            d.deliver(me, &[Parcel { to: arrived[right as usize].chunk(slot.clone())?, from: partial }])?;
            d.expect(me, &[left])?;
            let result = match hop + 1 == hops {
                true => output.chunk(part(hop + 1))?,
                false => folded[me as usize].chunk(slot.clone())?,
            };
            let others = [arrived[me as usize].chunk(slot)?];
            let fold = Reduction::of(input.chunk(part(hop + 1))?, &others).into(result).ordered(&[1, 0]);
            d.p.reduce(fold.with(task.reduce_op), d.crew.blocks())?;
            partial = result;
        }
        // Behind n - 1 ranks is the next one: its part is complete here.
        for hop in 0..hops {
            let index = part(hops + hop);
            let to = d.p.output(right)?.chunk(index.clone())?;
            d.deliver(me, &[Parcel { to, from: output.chunk(index)? }])?;
            d.expect(me, &[left])?;
        }
        d.settle(me, &[right])?;
    }
    d.finish()
}
