//! All-reduces.

use warpway_plan::{BuildError, CollectiveShape, DataSync, Plan, Program, ProgramOptions, Reduction};

use crate::algorithm::{Algorithm, Traits};
use crate::task::{Function, Task};

pub(super) const ALGORITHMS: &[Algorithm] = &[Algorithm {
    name: "two_shot",
    function: Function::AllReduce,
    summary: "rank r reads part r of all inputs, folds it, and stores the result to all",
    traits: Traits { packets: false, zero_copy: true, hierarchical: false },
    fits: |_| Ok(()),
    build: two_shot,
}];

fn two_shot(task: &Task) -> Result<Plan, BuildError> {
    let n = task.world.n_ranks();
    let shape = CollectiveShape::all_reduce(n, 1);
    let shape = if task.in_place { shape.in_place() } else { shape };
    let mut p = Program::new(ProgramOptions::new("all_reduce_two_shot", shape))?;
    for me in 0..n {
        let part = u64::from(me)..=u64::from(me);
        let mine = p.input(me)?.chunk(part.clone())?;
        let result = p.output(me)?.chunk(part.clone())?;
        let peers: Vec<u32> = (0..n).filter(|peer| *peer != me).collect();
        let channels = peers.iter().map(|peer| p.memory_channel(me, *peer)).collect::<Result<Vec<_>, _>>()?;
        for channel in &channels {
            p.signal_relaxed(*channel, 0, DataSync::None)?;
        }
        for channel in &channels {
            p.wait_relaxed(*channel, 0, DataSync::After)?;
        }
        if channels.is_empty() && !task.in_place {
            p.copy(result, mine, 0)?;
        }
        let mut sum = mine;
        for (peer, channel) in peers.iter().zip(&channels) {
            let theirs = [p.input(*peer)?.chunk(part.clone())?];
            let fold = Reduction::of(sum, &theirs).into(result).with(task.reduce_op);
            p.read_reduce(*channel, fold, 0)?;
            sum = result;
        }
        for (peer, channel) in peers.iter().zip(&channels) {
            p.put(*channel, p.output(*peer)?.chunk(part.clone())?, result, 0)?;
        }
        for channel in &channels {
            p.signal(*channel, 0, DataSync::Before)?;
        }
        for channel in &channels {
            p.wait(*channel, 0, DataSync::After)?;
        }
    }
    p.finish()
}
