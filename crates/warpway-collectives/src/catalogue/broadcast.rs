//! Broadcasts. S: bytes of the message, n ranks.
//!
//! | algorithm | hops | the root reads | a rank writes | when |
//! |---|---|---|---|---|
//! | `packets` | 1 | (n - 1) x S | S, packets of the root twice (n - 1) x S | small |
//! | `eager` | 1 | (n - 1) x S | S, the root (n - 1) x S | small, where packets are too many lines |
//! | `push` | 1 | (n - 1) x S | the root (n - 1) x S | any world |
//! | `pull` | 1 | nothing | S | one host |
//! | `chain` | n - 1 | S | S | large, where links are slow; any world |
//! | `split` | 1 | S | S x (n - 1) / n | large, one host |
//!
//! Out of place the root copies its input to its output besides.

use warpway_plan::{BuildError, CollectiveShape, DataSync, Plan};

use crate::algorithm::{Algorithm, Traits};
use crate::catalogue::draft::{Draft, Parcel, SPEAKER};
use crate::catalogue::fits;
use crate::task::{Function, Task};

/// Pieces that travel along the chain.
const PIECES: u64 = 16;

pub(super) const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "packets",
        function: Function::Broadcast,
        summary: "the root sends its input to all as packets",
        traits: Traits { packets: true, zero_copy: false, hierarchical: false },
        fits: fits::one_host,
        build: packets,
    },
    Algorithm {
        name: "push",
        function: Function::Broadcast,
        summary: "the root stores its input into all outputs",
        traits: Traits { packets: false, zero_copy: true, hierarchical: false },
        fits: fits::always,
        build: push,
    },
    Algorithm {
        name: "pull",
        function: Function::Broadcast,
        summary: "every rank reads the root's input",
        traits: Traits { packets: false, zero_copy: true, hierarchical: false },
        fits: fits::one_host,
        build: pull,
    },
    Algorithm {
        name: "chain",
        function: Function::Broadcast,
        summary: "from rank to rank, piece by piece, so that all links work at the same time",
        traits: Traits { packets: false, zero_copy: true, hierarchical: false },
        fits: fits::always,
        build: chain,
    },
    Algorithm {
        name: "split",
        function: Function::Broadcast,
        summary: "rank r brings part r of the root's input into all outputs",
        traits: Traits { packets: false, zero_copy: true, hierarchical: false },
        fits: fits::one_host,
        build: split,
    },
    Algorithm {
        name: "eager",
        function: Function::Broadcast,
        summary: "the root puts its input into scratch of all without asking",
        traits: Traits { packets: false, zero_copy: false, hierarchical: false },
        fits: fits::one_host,
        build: eager,
    },
];

fn shape(task: &Task, chunks: u64) -> CollectiveShape {
    CollectiveShape::broadcast(task.world.n_ranks(), chunks).with_root(task.root)
}

/// Nobody answers: when the root may write a slot again is the executor's care, so that it runs ahead of its receivers.
fn packets(task: &Task) -> Result<Plan, BuildError> {
    let root = task.root;
    let mut d = Draft::credited_packets(task, "broadcast_packets", shape(task, 1))?;
    let (source, peers) = (d.p.input(root)?.whole(), d.peers(root));
    for peer in &peers {
        let slot = d.p.scratch(*peer, 1)?.whole();
        d.send_packets(root, slot, source)?;
        d.p.unpack_packets(d.p.output(*peer)?.whole(), slot, d.crew.blocks())?;
    }
    d.copy_own(d.p.output(root)?.whole(), source)?;
    d.finish()
}

/// A signal behind the data instead of flags inside. The root writes a slot again two launches later. By then it must know
/// that the owner has gone on: it has waited for the greeting of the launch in between.
fn eager(task: &Task) -> Result<Plan, BuildError> {
    let root = task.root;
    let mut d = Draft::alternating(task, "broadcast_eager", shape(task, 1))?;
    let (source, peers) = (d.p.input(root)?.whole(), d.peers(root));
    let mut parcels = Vec::with_capacity(peers.len());
    for peer in &peers {
        // In order: what the launch before left there has been read.
        let channel = d.link(*peer, root)?;
        d.p.signal(channel, SPEAKER, DataSync::None)?;
        parcels.push(Parcel { to: d.p.scratch(*peer, 1)?.whole(), from: source });
    }
    d.deliver(root, &parcels)?;
    for Parcel { to: slot, .. } in &parcels {
        let peer = slot.rank();
        d.expect(peer, &[root])?;
        d.p.copy(d.p.output(peer)?.whole(), *slot, d.crew.blocks())?;
    }
    d.copy_own(d.p.output(root)?.whole(), source)?;
    d.expect_last(root, &peers)?;
    d.finish()
}

fn push(task: &Task) -> Result<Plan, BuildError> {
    let root = task.root;
    let mut d = Draft::new(task, "broadcast_push", shape(task, 1))?;
    let (source, peers) = (d.p.input(root)?.whole(), d.peers(root));
    for peer in &peers {
        d.greet(*peer, &[root])?;
        d.expect_last(*peer, &[root])?;
    }
    d.hear(root, &peers)?;
    let mut parcels = Vec::with_capacity(peers.len());
    for peer in &peers {
        parcels.push(Parcel { to: d.p.output(*peer)?.whole(), from: source });
    }
    d.deliver(root, &parcels)?;
    d.copy_own(d.p.output(root)?.whole(), source)?;
    d.settle(root, &peers)?;
    d.finish()
}

/// All ranks copy at the same time, each its part to everybody.
fn split(task: &Task) -> Result<Plan, BuildError> {
    let (n, root) = (task.world.n_ranks(), task.root);
    let mut d = Draft::new(task, "broadcast_split", shape(task, u64::from(n)))?;
    for me in 0..n {
        let (peers, part) = (d.peers(me), u64::from(me));
        let source = d.p.input(root)?.chunk(part..=part)?;
        let mine = d.p.output(me)?.chunk(part..=part)?;
        d.open(me, &peers)?;
        let mut from = source;
        if me == root {
            d.copy_own(mine, source)?;
        } else {
            let channel = d.near(me, &[root])?;
            for channel in channel {
                d.p.get(channel, mine, source, d.crew.blocks())?;
            }
            from = mine;
        }
        let mut parcels = Vec::new();
        for peer in peers.iter().filter(|peer| **peer != root || (!task.in_place && me != root)) {
            parcels.push(Parcel { to: d.p.output(*peer)?.chunk(part..=part)?, from });
        }
        d.put_near(me, &parcels)?;
        d.tell(me, &peers)?;
        d.expect_last(me, &peers)?;
    }
    d.finish()
}

fn pull(task: &Task) -> Result<Plan, BuildError> {
    let root = task.root;
    let mut d = Draft::new(task, "broadcast_pull", shape(task, 1))?;
    let (source, peers) = (d.p.input(root)?.whole(), d.peers(root));
    d.greet(root, &peers)?;
    d.copy_own(d.p.output(root)?.whole(), source)?;
    for peer in &peers {
        d.hear(*peer, &[root])?;
        for channel in d.near(*peer, &[root])? {
            d.p.get(channel, d.p.output(*peer)?.whole(), source, d.crew.blocks())?;
        }
        d.tell(*peer, &[root])?;
    }
    d.expect_last(root, &peers)?;
    d.finish()
}

fn chain(task: &Task) -> Result<Plan, BuildError> {
    let (n, root) = (task.world.n_ranks(), task.root);
    let mut d = Draft::new(task, "broadcast_chain", shape(task, PIECES))?;
    for me in 0..n {
        let before = (me != root).then_some((me + n - 1) % n);
        let behind = ((me + 1) % n != root).then_some((me + 1) % n);
        d.greet(me, before.as_slice())?;
        d.hear(me, behind.as_slice())?;
        let held = if me == root { d.p.input(me)? } else { d.p.output(me)? };
        for piece in 0..PIECES {
            d.expect(me, before.as_slice())?;
            if let Some(behind) = behind {
                let to = d.p.output(behind)?.chunk(piece..=piece)?;
                d.deliver(me, &[Parcel { to, from: held.chunk(piece..=piece)? }])?;
            }
        }
        if me == root {
            d.copy_own(d.p.output(me)?.whole(), d.p.input(me)?.whole())?;
        }
        d.settle(me, behind.as_slice())?;
    }
    d.finish()
}
