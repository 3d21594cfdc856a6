//! Reduces of several hosts: from host to host in a chain that ends at the root's, one share per lane. Each host folds what it
//! has with what has come.

use warpway_plan::{Buffer, BuildError, Chunk, CollectiveShape, Plan, Reduction};

use super::lanes::Lanes;
use super::{PIECES, TRAITS};
use crate::algorithm::Algorithm;
use crate::catalogue::draft::{Draft, Parcel};
use crate::catalogue::fits;
use crate::task::{Function, Task};

pub(super) const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "hierarchical",
        function: Function::Reduce,
        summary: "from host to host, each of which folds what it has with what has come",
        traits: TRAITS,
        fits: fits::several_hosts,
        build: |task| build(task, "reduce_hierarchical", 1),
    },
    Algorithm {
        name: "hierarchical_pipelined",
        function: Function::Reduce,
        summary: "as hierarchical, piece by piece, so that all links work at the same time",
        traits: TRAITS,
        fits: fits::several_hosts,
        build: |task| build(task, "reduce_hierarchical_pipelined", PIECES),
    },
];

fn build(task: &Task, name: &str, pieces: u32) -> Result<Plan, BuildError> {
    let lanes = Lanes::from_root(&task.world, task.root);
    let chunks = u64::from(lanes.n_lanes()) * u64::from(pieces);
    let shape = CollectiveShape::reduce(task.world.n_ranks(), chunks).with_root(task.root);
    let mut steps = Steps::new(Draft::alternating(task, name, shape)?, lanes, pieces)?;
    for me in 0..task.world.n_ranks() {
        let near = steps.lanes.near(me);
        let (before, behind) = steps.neighbours(me);
        // Places are written again two launches later: see the reduce-scatter.
        steps.d.greet(me, &near)?;
        steps.d.greet(me, behind.as_slice())?;
        steps.d.hear(me, &near)?;
        let has_lane = steps.lanes.place(me).1 < steps.lanes.n_lanes();
        for piece in (0..pieces).filter(|_| has_lane) {
            steps.fold_and_send(me, piece)?;
        }
        steps.d.tell(me, &near)?;
        steps.d.expect_last(me, &near)?;
        steps.d.hear_last(me, before.as_slice())?;
        steps.d.settle(me, before.as_slice())?;
    }
    steps.d.finish()
}

struct Steps<'t> {
    d: Draft<'t>,
    lanes: Lanes,
    pieces: u32,
    /// By rank: what has been folded.
    folded: Vec<Buffer>,
    /// By rank: what has come from the host behind.
    arrived: Vec<Buffer>,
}

impl<'t> Steps<'t> {
    fn new(d: Draft<'t>, lanes: Lanes, pieces: u32) -> Result<Self, BuildError> {
        let mut steps = Self { d, lanes, pieces, folded: Vec::new(), arrived: Vec::new() };
        for rank in 0..steps.d.n() {
            let (_, behind) = steps.neighbours(rank);
            let slots = |wanted: bool| if wanted { u64::from(pieces) } else { 0 };
            let has_lane = steps.lanes.place(rank).1 < steps.lanes.n_lanes();
            let folded = steps.d.p.scratch(rank, slots(has_lane && rank != steps.d.task.root))?;
            let arrived = steps.d.p.scratch(rank, slots(behind.is_some()))?;
            steps.folded.push(folded);
            steps.arrived.push(arrived);
        }
        Ok(steps)
    }

    /// The ranks of the same lane on the host nearer to the root and on the one farther away.
    fn neighbours(&self, rank: u32) -> (Option<u32>, Option<u32>) {
        let (host, lane) = self.lanes.place(rank);
        let has_lane = lane < self.lanes.n_lanes();
        let before = (has_lane && host > 0).then(|| self.lanes.rank(host - 1, lane));
        let behind = (has_lane && host + 1 < self.lanes.n_hosts()).then(|| self.lanes.rank(host + 1, lane));
        (before, behind)
    }

    fn fold_and_send(&mut self, me: u32, piece: u32) -> Result<(), BuildError> {
        let ((host, lane), root) = (self.lanes.place(me), self.d.task.root);
        let index = u64::from(lane) * u64::from(self.pieces) + u64::from(piece);
        let place = u64::from(piece)..u64::from(piece) + 1;
        let folded = match me == root {
            true => self.d.p.output(me)?.chunk(index..=index)?,
            false => self.folded[me as usize].chunk(place.clone())?,
        };
        let inputs = self.lanes.host(host).into_iter().map(|rank| self.d.p.input(rank)?.chunk(index..=index));
        let inputs = inputs.collect::<Result<Vec<Chunk>, _>>()?;
        let mut partial = inputs[0];
        if inputs.len() > 1 {
            self.d.read_and_fold(me, &inputs, folded)?;
            partial = folded;
        }
        let (before, behind) = self.neighbours(me);
        if behind.is_some() {
            self.d.expect(me, behind.as_slice())?;
            let others = [self.arrived[me as usize].chunk(place.clone())?];
            let fold = Reduction::of(partial, &others).into(folded).with(self.d.task.reduce_op);
            self.d.p.reduce(fold, self.d.crew.blocks())?;
            partial = folded;
        }
        let to = match before {
            Some(before) => self.arrived[before as usize].chunk(place)?,
            None => self.d.p.output(root)?.chunk(index..=index)?,
        };
        if me == root {
            return Ok(());
        }
        let parcels = [Parcel { to, from: partial }];
        self.d.send_far(me, &parcels)?;
        self.d.put_near(me, &parcels)
    }
}
