//! Collectives that fold.

use warpway_plan::{Action, Collective, DataKind, Plan, ReduceOp};

use super::{I, MEMORY, O, S, SWITCH, Shape, of_others};
use crate::random::Random;
use crate::sketch::{Sketch, everywhere, here, there};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Everybody folds everything from the inputs of all.
    Direct,
    /// An owner folds each chunk and stores it everywhere.
    Owner,
    /// Inputs go to everybody's scratch first.
    Gathered,
    /// The same with packets.
    Packets,
    /// Packets to an owner, which packs the result to all.
    OwnerPackets,
    /// The owner also packs it locally; another block sends that on.
    OwnerForward,
    /// Inputs go to the owner's scratch, which folds them and stores the result everywhere.
    OwnerGathered,
    /// The multicast hardware folds.
    Switch,
}

const WAYS: [Way; 8] = [
    Way::Direct,
    Way::Owner,
    Way::Gathered,
    Way::Packets,
    Way::OwnerPackets,
    Way::OwnerForward,
    Way::OwnerGathered,
    Way::Switch,
];

pub(super) fn folds(random: &mut Random) -> Plan {
    let collective = *random.pick(&[Collective::AllReduce, Collective::Reduce, Collective::ReduceScatter]);
    let n = 2 + random.below(3) as u32;
    let each = 1 + random.below(2) as u64;
    let wide = if collective == Collective::ReduceScatter { each * u64::from(n) } else { each };
    let way = *random.pick(&WAYS);
    let all = collective == Collective::AllReduce;
    let owner_only = matches!(way, Way::Owner | Way::OwnerPackets | Way::OwnerForward | Way::OwnerGathered);
    let way = if owner_only && !all { Way::Direct } else { way };
    let scratch = wide * u64::from(n) + wide;
    let mut sketch = Sketch::new("folds", collective, n, (wide, each, scratch));
    sketch.plan.double_scratch = random.chance(1, 2);
    // In place an owner may overwrite inputs that nobody else reads.
    let own = match collective {
        Collective::AllReduce => owner_only || way == Way::Switch,
        Collective::ReduceScatter => true,
        _ => false,
    };
    sketch.plan.in_place = own && random.chance(1, 2);
    let blocks = 1 + random.below(3) as u32;
    let gathered = matches!(way, Way::Gathered | Way::OwnerGathered);
    let relaxed = random.chance(1, 2) && !gathered;
    let shape = Shape { n, blocks, relaxed };
    for rank in 0..n {
        for block in 0..blocks {
            shape.open(&mut sketch.at(rank, block), rank, block);
        }
    }
    let plan = Work { n, blocks, way, each, wide, collective, in_place: sketch.plan.in_place };
    // Packets arrive before anything is folded: pack first in all blocks.
    for rank in 0..n {
        plan.send(&mut sketch, rank);
    }
    if gathered {
        for rank in 0..n {
            for block in 0..blocks {
                shape.close(&mut sketch.at(rank, block), rank, block);
            }
            // All arrivals are known to all blocks.
            for block in 0..blocks {
                sketch.at(rank, block).barrier(2, blocks);
            }
        }
    }
    for rank in 0..n {
        plan.fold(&mut sketch, rank);
    }
    for rank in 0..n {
        for block in 0..blocks {
            shape.close(&mut sketch.at(rank, block), rank, block);
        }
    }
    let op = *random.pick(&[ReduceOp::Sum, ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min]);
    for block in sketch.plan.ranks.iter_mut().flat_map(|rank| &mut rank.blocks) {
        for operation in &mut block.operations {
            if let Action::Data(data) = &mut operation.action {
                data.fold.iter_mut().for_each(|fold| fold.op = op);
            }
        }
    }
    sketch.finish()
}

struct Work {
    n: u32,
    blocks: u32,
    way: Way,
    each: u64,
    wide: u64,
    collective: Collective,
    in_place: bool,
}

impl Work {
    /// Input chunk and output chunk of each result of a rank.
    fn results(&self, rank: u32) -> Vec<(u64, u64)> {
        match self.collective {
            Collective::Reduce if rank != 0 => Vec::new(),
            Collective::ReduceScatter => {
                (0..self.each).map(|c| (u64::from(rank) * self.each + c, c)).collect()
            }
            _ => (0..self.each).map(|c| (c, c)).collect(),
        }
    }

    fn block(&self, chunk: u64) -> u32 {
        (chunk % u64::from(self.blocks)) as u32
    }

    fn owner(&self, chunk: u64) -> u32 {
        (chunk % u64::from(self.n)) as u32
    }

    /// Where the chunk of a sender arrives.
    fn slot(&self, sender: u32, chunk: u64) -> u64 {
        u64::from(sender) * self.wide + chunk
    }

    /// What goes out before anything is folded.
    fn send(&self, sketch: &mut Sketch, rank: u32) {
        let peers: Vec<u32> = (0..self.n).filter(|p| *p != rank).collect();
        for peer in peers {
            for (i, _) in self.results(peer) {
                let to = there(peer, S, self.slot(rank, i));
                match self.way {
                    Way::Gathered => {
                        sketch.at(rank, self.block(i)).data(DataKind::Put, MEMORY, &[here(I, i)], &[to]);
                    }
                    Way::OwnerGathered if self.owner(i) == peer => {
                        sketch.at(rank, self.block(i)).data(DataKind::Put, MEMORY, &[here(I, i)], &[to]);
                    }
                    Way::Packets => self.pack(sketch, rank, i, to),
                    Way::OwnerPackets | Way::OwnerForward if self.owner(i) == peer => {
                        self.pack(sketch, rank, i, to)
                    }
                    _ => {}
                }
            }
        }
    }

    /// Packs a chunk to a peer, by one block or by all of them.
    fn pack(&self, sketch: &mut Sketch, rank: u32, chunk: u64, to: crate::sketch::At) {
        let members = if self.wide == 1 { self.blocks } else { 1 };
        for member in 0..members {
            let block = if members == 1 { self.block(chunk) } else { member };
            let mut spot = sketch.at(rank, block).member(member, members);
            spot.data(DataKind::PutPackets, MEMORY, &[here(I, chunk)], &[to]);
        }
    }

    fn fold(&self, sketch: &mut Sketch, rank: u32) {
        for (i, o) in self.results(rank) {
            let mut spot = sketch.at(rank, self.block(i));
            let mut sources = vec![here(I, i)];
            let slots = || of_others(self.n, rank, |q| here(S, self.slot(q, i)));
            let inputs = || of_others(self.n, rank, |q| there(q, I, i));
            let results = || of_others(self.n, rank, |q| there(q, O, o));
            // The owner's result comes back in the last chunks of the scratch.
            let back = u64::from(self.n) * self.wide + i;
            match self.way {
                Way::Direct => {
                    sources.extend(inputs());
                    spot.data(DataKind::ReadReduce, MEMORY, &sources, &[here(O, o)]);
                }
                Way::Gathered => {
                    sources.extend(slots());
                    spot.data(DataKind::Reduce, None, &sources, &[here(O, o)]);
                }
                Way::Packets => {
                    sources.extend(slots());
                    spot.data(DataKind::ReducePackets, None, &sources, &[here(O, o)]);
                }
                Way::Owner if self.owner(i) == rank => {
                    sources.extend(inputs());
                    let mut all = vec![here(O, o)];
                    all.extend(results());
                    spot.data(DataKind::ReadReduceSend, MEMORY, &sources, &all);
                }
                Way::OwnerGathered if self.owner(i) == rank => {
                    sources.extend(slots());
                    let mut all = vec![here(O, o)];
                    all.extend(results());
                    spot.data(DataKind::ReduceSend, MEMORY, &sources, &all);
                }
                Way::OwnerForward if self.owner(i) == rank => {
                    sources.extend(slots());
                    let results = [here(O, o), here(S, back)];
                    spot.data(DataKind::ReduceCopyPackets, None, &sources, &results);
                    let mut spot = sketch.at(rank, self.block(i + 1));
                    let others = of_others(self.n, rank, |q| there(q, S, back));
                    spot.data(DataKind::ReadPutPackets, MEMORY, &[here(S, back)], &others);
                }
                Way::OwnerPackets if self.owner(i) == rank => {
                    sources.extend(slots());
                    let mut all = vec![here(O, o)];
                    all.extend(of_others(self.n, rank, |q| there(q, S, back)));
                    spot.data(DataKind::ReduceSendPackets, MEMORY, &sources, &all);
                }
                Way::OwnerPackets | Way::OwnerForward => {
                    spot.data(DataKind::UnpackPackets, None, &[here(S, back)], &[here(O, o)]);
                }
                Way::Owner | Way::OwnerGathered => {}
                Way::Switch if self.collective == Collective::AllReduce && self.in_place => {
                    if self.owner(i) == rank {
                        let mut spot = sketch.at(rank, self.block(i));
                        let all = everywhere(I, i);
                        spot.data(DataKind::GroupLoadReduceStore, SWITCH, &[all], &[all]);
                    }
                }
                Way::Switch => {
                    spot.data(DataKind::GroupLoadReduce, SWITCH, &[everywhere(I, i)], &[here(O, o)]);
                }
            }
        }
    }
}
