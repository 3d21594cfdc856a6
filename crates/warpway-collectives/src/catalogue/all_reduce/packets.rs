//! Small all-reduces of one host: flags travel inside the data.

use warpway_plan::{BuildError, CollectiveShape, Plan};

use crate::algorithm::{Algorithm, Traits};
use crate::catalogue::draft::Draft;
use crate::catalogue::fits;
use crate::catalogue::slots::Slots;
use crate::task::{Function, Task};

const TRAITS: Traits = Traits { packets: true, zero_copy: false, hierarchical: false };

pub(super) const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "one_shot_packets",
        function: Function::AllReduce,
        summary: "every rank sends its whole input to all as packets, and folds what it gets",
        traits: TRAITS,
        fits: fits::one_host,
        build: one_shot,
    },
    Algorithm {
        name: "two_shot_packets",
        function: Function::AllReduce,
        summary: "rank r gets part r of all inputs as packets, folds it, and sends the result to all as packets",
        traits: TRAITS,
        fits: fits::one_host,
        build: two_shot,
    },
];

fn one_shot(task: &Task) -> Result<Plan, BuildError> {
    let n = task.world.n_ranks();
    let mut d = Draft::packets(task, "all_reduce_one_shot_packets", CollectiveShape::all_reduce_of(n, 1))?;
    let slots = Slots::new(&mut d, 1)?;
    for me in 0..n {
        let (mine, result) = (d.p.input(me)?.whole(), d.p.output(me)?.whole());
        for peer in d.peers(me) {
            d.send_packets(me, slots.at(peer, me)?, mine)?;
        }
        d.fold_packets(mine, &slots.others(me)?, result)?;
    }
    d.finish()
}

fn two_shot(task: &Task) -> Result<Plan, BuildError> {
    let n = task.world.n_ranks();
    let mut d = Draft::packets(task, "all_reduce_two_shot_packets", CollectiveShape::all_reduce(n, 1))?;
    let (inputs, results) = (Slots::new(&mut d, 1)?, Slots::new(&mut d, 1)?);
    for me in 0..n {
        let part = |rank: u32| u64::from(rank)..u64::from(rank) + 1;
        let (input, output) = (d.p.input(me)?, d.p.output(me)?);
        for peer in d.peers(me) {
            d.send_packets(me, inputs.at(peer, me)?, input.chunk(part(peer))?)?;
        }
        let sum = output.chunk(part(me))?;
        d.fold_packets(input.chunk(part(me))?, &inputs.others(me)?, sum)?;
        for peer in d.peers(me) {
            d.send_packets(me, results.at(peer, me)?, sum)?;
        }
        for peer in d.peers(me) {
            d.p.unpack_packets(output.chunk(part(peer))?, results.at(me, peer)?, d.crew.blocks())?;
        }
    }
    d.finish()
}
