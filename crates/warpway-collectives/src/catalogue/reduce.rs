//! Reduces. S: bytes of the message, n ranks.
//!
//! | algorithm | hops | a rank reads | a rank writes | when |
//! |---|---|---|---|---|
//! | `packets` | 1 | S, the root 2n x S | (the root's packets) 2 x S | small |
//! | `read` | 1 | the root n x S | the root S | one host, where other ranks have better to do |
//! | `split` | 1 | S | 2 x S / n | large, one host |

use warpway_plan::{BuildError, Chunk, CollectiveShape, Plan};

use crate::algorithm::{Algorithm, Traits};
use crate::catalogue::draft::{Draft, Parcel};
use crate::catalogue::fits;
use crate::task::{Function, Task};

pub(super) const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "packets",
        function: Function::Reduce,
        summary: "every rank sends its input to the root as packets, which folds what it gets",
        traits: Traits { packets: true, zero_copy: false, hierarchical: false },
        fits: fits::one_host,
        build: packets,
    },
    Algorithm {
        name: "read",
        function: Function::Reduce,
        summary: "the root reads all inputs and folds them",
        traits: Traits { packets: false, zero_copy: true, hierarchical: false },
        fits: fits::one_host,
        build: read,
    },
    Algorithm {
        name: "split",
        function: Function::Reduce,
        summary: "rank r reads part r of all inputs, folds it, and stores the result to the root",
        traits: Traits { packets: false, zero_copy: true, hierarchical: false },
        fits: fits::one_host,
        build: split,
    },
];

fn shape(task: &Task, chunks: u64) -> CollectiveShape {
    CollectiveShape::reduce(task.world.n_ranks(), chunks).with_root(task.root)
}

/// Greetings as in the broadcast by packets, the other way round.
fn packets(task: &Task) -> Result<Plan, BuildError> {
    let (n, root) = (task.world.n_ranks(), task.root);
    let mut d = Draft::packets(task, "reduce_packets", shape(task, 1))?;
    let (peers, slots) = (d.peers(root), d.p.scratch(root, u64::from(n) - 1)?);
    d.greet(root, &peers)?;
    let mut received = Vec::with_capacity(peers.len());
    for (peer, slot) in peers.iter().zip(0..) {
        let slot = slots.chunk(slot..=slot)?;
        d.send_packets(*peer, slot, d.p.input(*peer)?.whole())?;
        d.hear_last(*peer, &[root])?;
        received.push(slot);
    }
    d.fold_packets(d.p.input(root)?.whole(), &received, d.p.output(root)?.whole())?;
    d.finish()
}

fn split(task: &Task) -> Result<Plan, BuildError> {
    let (n, root) = (task.world.n_ranks(), task.root);
    let mut d = Draft::new(task, "reduce_split", shape(task, u64::from(n)))?;
    for me in 0..n {
        let (peers, part) = (d.peers(me), u64::from(me));
        d.open(me, &peers)?;
        let parts =
            (0..n).map(|rank| d.p.input(rank)?.chunk(part..=part)).collect::<Result<Vec<Chunk>, _>>()?;
        let to = d.p.output(root)?.chunk(part..=part)?;
        if me == root {
            d.read_and_fold(me, &parts, to)?;
        } else {
            // A fold leaves its result on its own rank, too.
            let from = d.p.scratch(me, 1)?.whole();
            d.read_and_fold(me, &parts, from)?;
            d.put_near(me, &[Parcel { to, from }])?;
        }
        d.tell(me, &peers)?;
        d.expect_last(me, &peers)?;
    }
    d.finish()
}

fn read(task: &Task) -> Result<Plan, BuildError> {
    let (n, root) = (task.world.n_ranks(), task.root);
    let mut d = Draft::new(task, "reduce_read", shape(task, 1))?;
    let peers = d.peers(root);
    for peer in &peers {
        d.greet(*peer, &[root])?;
        d.expect_last(*peer, &[root])?;
    }
    d.hear(root, &peers)?;
    let inputs =
        (0..n).map(|rank| Ok(d.p.input(rank)?.whole())).collect::<Result<Vec<Chunk>, BuildError>>()?;
    d.read_and_fold(root, &inputs, d.p.output(root)?.whole())?;
    d.tell(root, &peers)?;
    d.finish()
}
