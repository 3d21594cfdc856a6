//! Reduce-scatters of several hosts: each host folds what its ranks have for a far rank, and sends it once.

use warpway_plan::{Buffer, BuildError, Chunk, CollectiveShape, Plan, Reduction};

use super::lanes::Lanes;
use super::{PIECES, TRAITS};
use crate::algorithm::Algorithm;
use crate::catalogue::draft::{Draft, Parcel};
use crate::catalogue::fits;
use crate::catalogue::fold::own_at;
use crate::task::{Function, Task};

pub(super) const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "hierarchical",
        function: Function::ReduceScatter,
        summary: "every host folds what it has for a far rank and sends it there once",
        traits: TRAITS,
        fits: fits::several_hosts,
        build: |task| build(task, "reduce_scatter_hierarchical", 1),
    },
    Algorithm {
        name: "hierarchical_pipelined",
        function: Function::ReduceScatter,
        summary: "as hierarchical, piece by piece, so that wire and memory work at the same time",
        traits: TRAITS,
        fits: fits::several_hosts,
        build: |task| build(task, "reduce_scatter_hierarchical_pipelined", PIECES),
    },
    // In one piece: counts come at launch, and each must fit the places in scratch that were agreed when the plan was set up.
    Algorithm {
        name: "hierarchical",
        function: Function::ReduceScatterV,
        summary: "every host folds what it has for a far rank, as long as its count, and sends it there once",
        traits: TRAITS,
        fits: fits::several_hosts,
        build: |task| build(task, "reduce_scatter_v_hierarchical", 1),
    },
];

fn build(task: &Task, name: &str, pieces: u32) -> Result<Plan, BuildError> {
    let (n, pieces) = (task.world.n_ranks(), u64::from(pieces));
    let shape = match task.function {
        Function::ReduceScatterV => CollectiveShape::reduce_scatter_v(n, pieces),
        _ => CollectiveShape::reduce_scatter(n, pieces),
    };
    let mut steps = Steps::new(Draft::alternating(task, name, shape)?, Lanes::new(&task.world), pieces)?;
    for me in 0..task.world.n_ranks() {
        let (near, servers, served) = (steps.lanes.near(me), steps.lanes.servers(me), steps.lanes.served(me));
        // A place is written again two launches later. By then its owner has gone on: it has sent something in the launch
        // between, either data or a greeting.
        let only = |these: &[u32], not: &[u32]| -> Vec<u32> {
            these.iter().filter(|rank| !not.contains(rank)).copied().collect()
        };
        steps.d.greet(me, &near)?;
        steps.d.greet(me, &only(&servers, &served))?;
        steps.d.hear(me, &near)?;
        for piece in 0..pieces {
            steps.fold_and_send(me, &served, piece)?;
        }
        steps.fold_own(me)?;
        steps.d.tell(me, &near)?;
        for piece in 0..pieces {
            steps.join(me, &servers, piece)?;
        }
        steps.d.expect_last(me, &near)?;
        steps.d.hear_last(me, &only(&served, &servers))?;
        steps.d.settle(me, &served)?;
    }
    steps.d.finish()
}

struct Steps<'t> {
    d: Draft<'t>,
    lanes: Lanes,
    pieces: u64,
    /// By rank: what its host has folded for the ranks that it serves, where the host has several ranks.
    folded: Vec<Buffer>,
    /// By rank: what the other hosts have folded for it.
    arrived: Vec<Buffer>,
}

impl<'t> Steps<'t> {
    fn new(mut d: Draft<'t>, lanes: Lanes, pieces: u64) -> Result<Self, BuildError> {
        let (mut folded, mut arrived) = (Vec::new(), Vec::new());
        for rank in 0..d.n() {
            let served = if lanes.near(rank).is_empty() { Vec::new() } else { lanes.served(rank) };
            let mine = vec![rank; lanes.servers(rank).len()];
            folded.push(places(&mut d, rank, &served, pieces)?);
            arrived.push(places(&mut d, rank, &mine, pieces)?);
        }
        Ok(Self { d, lanes, pieces, folded, arrived })
    }

    fn fold_and_send(&mut self, me: u32, served: &[u32], piece: u64) -> Result<(), BuildError> {
        let mut parcels = Vec::with_capacity(served.len());
        for (number, far) in (0..).zip(served) {
            let inputs = self.parts(me, *far, piece..piece + 1)?;
            let mut from = inputs[0];
            if inputs.len() > 1 {
                let slot = number * self.pieces + piece;
                from = self.folded[me as usize].chunk(slot..=slot)?;
                self.d.read_and_fold(me, &inputs, from)?;
            }
            let to = self.arrived(*far, me, piece)?;
            parcels.push(Parcel { to, from });
        }
        self.d.send_far(me, &parcels)
    }

    /// What this host has for this rank.
    fn fold_own(&mut self, me: u32) -> Result<(), BuildError> {
        let inputs = self.parts(me, me, 0..self.pieces)?;
        let result = self.d.p.output(me)?.whole();
        if inputs.len() > 1 { self.d.read_and_fold(me, &inputs, result) } else { Ok(()) }
    }

    /// Joins to it what has come.
    fn join(&mut self, me: u32, servers: &[u32], piece: u64) -> Result<(), BuildError> {
        let result = self.d.p.output(me)?.chunk(piece..=piece)?;
        let inputs = self.parts(me, me, piece..piece + 1)?;
        let own = if inputs.len() > 1 { result } else { inputs[0] };
        self.d.expect(me, servers)?;
        let others = servers.iter().map(|server| self.arrived(me, *server, piece));
        let others = others.collect::<Result<Vec<_>, _>>()?;
        let (host, _) = self.lanes.place(me);
        let order = own_at(host as usize, others.len());
        let fold = Reduction::of(own, &others).into(result).ordered(&order).with(self.d.task.reduce_op);
        self.d.p.reduce(fold, self.d.crew.blocks())
    }

    /// Pieces of the part of rank `of` in the inputs of all ranks of the host of `me`.
    fn parts(&self, me: u32, of: u32, pieces: std::ops::Range<u64>) -> Result<Vec<Chunk>, BuildError> {
        let (host, _) = self.lanes.place(me);
        let first = u64::from(of) * self.pieces;
        let part = |rank| self.d.p.input(rank)?.chunk(first + pieces.start..first + pieces.end);
        self.lanes.host(host).into_iter().map(part).collect()
    }

    /// The place at a rank for what a server of it sends.
    fn arrived(&self, at: u32, server: u32, piece: u64) -> Result<Chunk, BuildError> {
        let servers = self.lanes.servers(at);
        let number = servers.iter().position(|rank| *rank == server).unwrap_or(0);
        let slot = number as u64 * self.pieces + piece;
        self.arrived[at as usize].chunk(slot..=slot)
    }
}

/// Scratch at a rank for the parts of others, all pieces of each.
fn places(d: &mut Draft<'_>, rank: u32, parts: &[u32], pieces: u64) -> Result<Buffer, BuildError> {
    if !d.task.function.is_sized() {
        return d.p.scratch(rank, parts.len() as u64 * pieces);
    }
    // Piece p of part r has the size id r * pieces + p.
    let ids = parts.iter().flat_map(|part| (0..pieces).map(move |piece| u64::from(*part) * pieces + piece));
    d.p.sized_scratch(rank, &ids.collect::<Vec<u64>>())
}
